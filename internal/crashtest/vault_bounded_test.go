//go:build !failpoint

package crashtest

// In the normal suite one place of so many is tried.
const vaultStride, firstStride = 11, 7
