//go:build failpoint

package crashtest

// `make campaign` cuts a change of the vault off at every place.
const vaultStride, firstStride = 1, 1
