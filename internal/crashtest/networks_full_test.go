//go:build failpoint

package crashtest

// `make campaign` lets it die right after each send.
const chatSends = 1
