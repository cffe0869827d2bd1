package backup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// fullEnv names the directory where the child of TestAFullDisk mounts a small disk.
const fullEnv = "OMBUD_BACKUP_TEST_SMALL_DISK"

const noMount = "NO MOUNT"

// TestAFullDisk backs up and restores on a disk of 160 MiB that somebody fills
// meanwhile. It is mounted by a child in a mount namespace of its own.
func TestAFullDisk(t *testing.T) {
	if dir := os.Getenv(fullEnv); dir != "" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatalf("%s: make mounts private: %v", noMount, err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
			t.Fatalf("%s: %v", noMount, err)
		}
		fullDisk(t, dir)
		fmt.Println("the whole of it passed")
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAFullDisk$", "-test.v", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran || strings.Contains(string(out), noMount) {
		t.Skipf("this machine lets us mount no small disk: %v %s", err, out)
	}
	if err != nil || !strings.Contains(string(out), "the whole of it passed") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// hog takes the room of a disk but some.
func hog(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "hog")
	f, err := os.Create(path)
	if err == nil {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-leave)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func fullDisk(t *testing.T, dir string) {
	in := homed(t, filepath.Join(dir, "home"))
	if err := in.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), db.Options{DSN: "sqlite:" + in.StateDB(), LockFile: in.LockFile(), ReserveFile: in.ReserveFile()})
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, 0, 5000, strings.Repeat("v", 4000))
	path := filepath.Join(dir, "b")

	// No room from the beginning.
	hogged := hog(t, dir, 40<<20)
	if _, err := Create(t.Context(), source(t, d, in), Options{Path: path}); !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
		t.Errorf("without room: %v", err)
	}
	if err := os.Remove(hogged); err != nil {
		t.Fatal(err)
	}
	// Somebody takes it while it is written: it is given up before the store is hit.
	src := source(t, d, in)
	for _, leave := range []int64{20 << 20, 64 << 10} {
		_, err = Create(t.Context(), src, Options{Path: path, Progress: func(p Progress) {
			if _, err := os.Stat(hogged); err != nil && p.Phase == "writing" && p.Done > 0 {
				hog(t, dir, leave)
			}
		}})
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("filled meanwhile: %v", err)
		}
		if err := os.Remove(hogged); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); got != "home" {
			t.Errorf("left on the disk: %s", got)
		}
		put(t, d, 0, 1, "the store goes on")
	}
	if _, err := Create(t.Context(), src, Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	// A restore for which there is no room, and one that is hit by a full disk.
	m, err := Verify(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	hog(t, dir, 70<<20)
	if err := Room(in.StateDir, m); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a restore without room: %v", err)
	}
	if err := os.Remove(hogged); err != nil {
		t.Fatal(err)
	}
	hog(t, dir, 8<<20)
	if err := Extract(t.Context(), path, m, in.Staged(), true, nil); !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
		t.Errorf("a restore on a full disk: %v", err)
	}
	if err := os.Remove(hogged); err != nil {
		t.Fatal(err)
	}
	if settled, err := Settle(in); settled || err != nil {
		t.Errorf("%v, %v", settled, err)
	}
	if n := count(t, "sqlite:"+in.StateDB()); n != 5000 {
		t.Errorf("the store that was there has %d rows", n)
	}
}
