package ipc

import (
	"net"

	"github.com/ombud-run/ombud/internal/fault"
)

// listen is not there on Windows yet: it takes a named pipe with an owner-only
// DACL, and a socket anybody could open is no stand-in for it.
func listen(string, bool) (net.Listener, error) {
	return nil, fault.New(fault.Unavailable, "the daemon's local connection is not supported on Windows yet").
		WithHint("use ombud under WSL")
}
