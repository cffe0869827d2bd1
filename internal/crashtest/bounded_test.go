//go:build !failpoint

package crashtest

import "time"

// In the normal suite one pass of so many is tried, and one with a second death.
const stride, twiceStride = 7, 21

// Daemons killed in the middle of a call, and how long what they had may live then. A
// busy machine gets its time.
const (
	heldKills  = 3
	heldWithin = time.Minute
)
