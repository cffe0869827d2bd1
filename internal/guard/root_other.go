//go:build !unix

package guard

import "io/fs"

// syncDir does nothing: these systems do not sync directories.
func (r *Root) syncDir(string) error { return nil }

// names is not known here.
func names(fs.FileInfo) uint64 { return 1 }
