// Package real drives the real programs of coding agents through the adapters that
// ombud has for them, against an API that is ours. Its tests need the programs, in the
// pinned versions: make test-harness installs and runs them. They are built under the
// tag harness alone, so nothing else pays for them.
package real
