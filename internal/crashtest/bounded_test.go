//go:build !failpoint

package crashtest

// In the normal suite one pass of so many is tried, and one with a second death.
const stride, twiceStride = 7, 21
