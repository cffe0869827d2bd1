//go:build linux && race

package client

// reconnects are fewer where a start of this program takes a second.
const reconnects = 40
