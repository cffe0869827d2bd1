//go:build !unix

package guard

// syncDir does nothing: these systems do not sync directories.
func (r *Root) syncDir(string) error { return nil }
