package wire

import (
	"net"
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// Peer is the process at the other end of a local connection, as the kernel
// knows it: at the moment it connected, not as it claims to be.
type Peer struct {
	UID int
	PID int // 0 where the system does not tell
}

// PeerOf asks the kernel who is at the other end of a unix socket.
func PeerOf(conn net.Conn) (Peer, error) {
	sc, ok := conn.(syscall.Conn)
	if _, unix := conn.(*net.UnixConn); !ok || !unix {
		return Peer{}, fault.New(fault.Internal, "peer of a %T is not known to the kernel", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}, fault.New(fault.Unavailable, "ask for peer: %w", err)
	}
	var peer Peer
	var askErr error
	if err := raw.Control(func(fd uintptr) { peer, askErr = peerOf(int(fd)) }); err != nil {
		return Peer{}, fault.New(fault.Unavailable, "ask for peer: %w", err)
	}
	if askErr != nil {
		return Peer{}, fault.New(fault.Unavailable, "ask for peer: %w", askErr)
	}
	return peer, nil
}
