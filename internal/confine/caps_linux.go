package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// secure keeps uid 0 from getting capabilities for being uid 0: SECBIT_NOROOT,
// SECBIT_NO_SETUID_FIXUP and SECBIT_NO_CAP_AMBIENT_RAISE, each with its lock.
const secure = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<6 | 1<<7

// dropCapabilities takes every capability from this thread and what it forks, and
// the way to get one back.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return err
	}
	if have[unix.CAP_SETPCAP>>5].Effective&(1<<(unix.CAP_SETPCAP&31)) != 0 {
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, secure, 0, 0, 0); err != nil {
			return fmt.Errorf("secure bits: %w", err)
		}
		for c := uintptr(0); ; c++ {
			err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			if errors.Is(err, unix.EINVAL) {
				break // past the last one
			}
			if err != nil {
				return fmt.Errorf("drop capability %d: %w", c, err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}
