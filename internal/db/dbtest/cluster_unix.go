//go:build unix

package dbtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// serverUser is who the server runs as: the user of this process, or, since
// PostgreSQL refuses root, an unprivileged one that every system has.
var serverUser = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"nobody", "postgres"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("uid of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("gid of %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("running as root, and neither nobody nor postgres is a user here")
})

// giveToServer makes the server's user the owner of paths.
func giveToServer(paths ...string) error {
	cred, err := serverUser()
	if err != nil || cred == nil {
		return err
	}
	for _, path := range paths {
		if err := os.Chown(path, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// asServer runs cmd as the server's user, in a session of its own.
func asServer(cmd *exec.Cmd) {
	cred, _ := serverUser() // giveToServer has reported the error
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setsid: true}
}

// serverEnv leaves out everything of ours that could steer the server (PGDATA,
// PGPORT, LC_ALL …).
func serverEnv(home string) []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "LC_ALL=C"}
}
