//go:build !failpoint

package crashtest

// stride is how many passes there are to one that is tried in the normal suite.
const stride = 7
