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

// StillPeer fails if the process that connected has ended, where the kernel can
// tell: then its number may belong to somebody else. Ask it after judging a Peer by
// its PID.
func StillPeer(conn net.Conn) error {
	var gone error
	err := control(conn, func(fd int) { gone = peerGone(fd) })
	if err == nil && gone != nil {
		err = fault.New(fault.Permission, "the process that connected is gone: %w", gone)
	}
	return err
}

// PeerOf asks the kernel who is at the other end of a unix socket.
func PeerOf(conn net.Conn) (Peer, error) {
	var peer Peer
	var askErr error
	if err := control(conn, func(fd int) { peer, askErr = peerOf(fd) }); err != nil {
		return Peer{}, err
	}
	if askErr != nil {
		return Peer{}, fault.New(fault.Unavailable, "ask for peer: %w", askErr)
	}
	return peer, nil
}

// control hands the descriptor of a unix socket to fn.
func control(conn net.Conn, fn func(fd int)) error {
	sc, ok := conn.(syscall.Conn)
	if _, unix := conn.(*net.UnixConn); !ok || !unix {
		return fault.New(fault.Internal, "peer of a %T is not known to the kernel", conn)
	}
	raw, err := sc.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { fn(int(fd)) })
	}
	if err != nil {
		return fault.New(fault.Unavailable, "ask for peer: %w", err)
	}
	return nil
}
