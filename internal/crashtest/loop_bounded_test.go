//go:build !failpoint

package crashtest

// In the normal suite one pass of a loop of so many is tried.
const loopFirst, loopStride = 3, 17
