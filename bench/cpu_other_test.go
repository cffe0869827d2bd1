//go:build !unix

package bench

import "time"

// cpuTime is not known here; the column stays empty.
func cpuTime() time.Duration { return 0 }
