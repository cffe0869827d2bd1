//go:build !failpoint

package crashtest

// In the normal suite the daemon dies, beside the passes of the stride, right after one send of
// so many.
const chatSends = 3
