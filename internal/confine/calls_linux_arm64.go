package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0 // none
)

// special are the calls that only this architecture has.
var special []call
