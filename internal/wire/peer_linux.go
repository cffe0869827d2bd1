package wire

import (
	"errors"

	"golang.org/x/sys/unix"
)

func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}

// soPeerPIDFD asks for a descriptor of the very process that connected (Linux 6.5).
const soPeerPIDFD = 77

// peerGone says why the process that connected is not there any more. A kernel
// without SO_PEERPIDFD cannot tell, which is no reason.
func peerGone(fd int) error {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPIDFD)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return nil
	case err != nil:
		return err // it is reaped: ESRCH, or EINVAL on some kernels
	}
	defer func() { _ = unix.Close(pidfd) }() // it was only looked at
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	if err == nil && ready > 0 {
		return unix.ESRCH
	}
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
