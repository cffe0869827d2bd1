//go:build !failpoint

// Package failpoint marks the instants at which the crash campaign kills the
// process. What we ship has none: without the build tag, Hit is empty and is
// inlined away. See failpoint_on.go for the other half.
package failpoint

// Hit does nothing.
func Hit(string) {}
