//go:build linux && !race

package client

const reconnects = 200
