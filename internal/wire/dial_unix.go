//go:build unix

package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// dialSocket connects to the daemon and makes sure that it runs as this user:
// what follows is not for anybody else's ears.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, dialFault(ctx, path, err)
	}
	peer, err := PeerOf(conn)
	if err != nil {
		conn.Close()
		return nil, fault.New(fault.Unavailable, "connect to %s: %w", path, err)
	}
	if own := os.Getuid(); peer.UID != own {
		conn.Close()
		return nil, fault.New(fault.Permission, "socket %s belongs to uid %d, not to you (uid %d)", path, peer.UID, own).
			WithHint("run the command as the user whose daemon it is")
	}
	return conn, nil
}

func dialFault(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		cause := context.Cause(ctx)
		return fault.New(fault.ClassOf(cause), "connect to %s: %w", path, cause)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fault.New(fault.Unavailable, "%w at %s", ErrNoDaemon, path).WithHint("start one: ombud up")
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.Permission, "connect to %s: %w", path, err).
			WithHint("run the command as the user whose daemon it is")
	}
	return fault.New(fault.Unavailable, "connect to %s: %w", path, err)
}
