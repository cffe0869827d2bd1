package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// smallDiskEnv names the directory where the child of TestFullDisk mounts a disk.
const smallDiskEnv = "OMBUD_DB_TEST_SMALL_DISK"

// TestFullDisk runs its rounds on a disk of 64 MiB. It is mounted by a child in a
// mount namespace of its own, so that it is gone with the child, whatever happens;
// who is not root gets a user namespace as well, where the machine allows it.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(smallDiskEnv); dir != "" {
		mountSmallDisk(t, dir)
		t.Run("while running", func(t *testing.T) { fullWhileRunning(t, filepath.Join(dir, "a")) })
		t.Run("at the start", func(t *testing.T) { fullAtStart(t, filepath.Join(dir, "b")) })
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), smallDiskEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran || strings.Contains(string(out), noMount) {
		missing(t, fmt.Sprintf("this machine lets us mount no small disk: %v %s", err, out))
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk/at_the_start") {
		t.Fatalf("%v\n%s", err, out)
	}
}

const noMount = "NO MOUNT"

func mountSmallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatalf("%s: make mounts private: %v", noMount, err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("%s: %v", noMount, err)
	}
	for _, sub := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func smallDisk(t *testing.T, dir string) (*db.DB, error) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DSN: "sqlite:" + filepath.Join(dir, "ombud.db"),
		LockFile: filepath.Join(dir, "lock"), ReserveFile: filepath.Join(dir, "reserve")})
	if err == nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	return d, err
}

// fill takes the room that is left but some, and returns the file that holds it.
func fill(t *testing.T, dir string, leave int64) string {
	t.Helper()
	path := filepath.Join(dir, "others")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for block := make([]byte, size); ; {
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(info.Size() - leave)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func putLarge(ctx context.Context, d *db.DB, key string) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", key, strings.Repeat("v", 64<<10))
		return err
	})
}

// fullWhileRunning fills the disk under a store that writes, and gives room again.
func fullWhileRunning(t *testing.T, dir string) {
	d, err := smallDisk(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // all connections of readers are open
		_ = keys(t, d)
	}
	others := fill(t, dir, 512<<10)
	stored := writeUntilRefused(t, d)
	if !d.Full() || !d.Stats().Full {
		t.Fatal("the store does not know that its disk is full")
	}
	begin := time.Now()
	if err := put(t.Context(), d, "refused"); !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" || time.Since(begin) > time.Second {
		t.Errorf("a write was told %v after %s", err, time.Since(begin))
	}
	compare(t, d, stored)
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	awaitRoom(t, d)
	if err := put(t.Context(), d, "after"); err != nil {
		t.Errorf("after there is room again: %v", err)
	}
	stored["after"] = true
	compare(t, d, stored)
	if info, err := os.Stat(filepath.Join(dir, "reserve")); err != nil || info.Size() != 16<<20 {
		t.Errorf("the reserve was not taken back: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if d, err = smallDisk(t, dir); err != nil {
		t.Fatal(err)
	}
	compare(t, d, stored)
	_ = d.Close()
	_ = os.RemoveAll(dir)
}

// fullAtStart starts a store on a disk that was full before.
func fullAtStart(t *testing.T, dir string) {
	d, err := smallDisk(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), d, "before"); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	others := fill(t, dir, 0)
	if d, err = smallDisk(t, dir); err != nil {
		t.Fatalf("start on a full disk: %s: %v", fault.ClassOf(err), err)
	}
	compare(t, d, map[string]bool{"before": true})
	if err := put(t.Context(), d, "refused"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a write was told %v", err)
	}
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	awaitRoom(t, d)
	if err := put(t.Context(), d, "after"); err != nil {
		t.Error(err)
	}
	compare(t, d, map[string]bool{"before": true, "after": true})
}

// writeUntilRefused returns the keys that were acknowledged.
func writeUntilRefused(t *testing.T, d *db.DB) map[string]bool {
	t.Helper()
	stored := map[string]bool{}
	for i := range 2000 {
		key := fmt.Sprint(i)
		err := putLarge(t.Context(), d, key)
		if err == nil {
			stored[key] = true
			continue
		}
		if !fault.Is(err, fault.Unavailable) {
			t.Fatalf("a write on the full disk was told %s: %v", fault.ClassOf(err), err)
		}
		t.Logf("refused after %d writes: %v", i, err)
		return stored
	}
	t.Fatal("never refused")
	return nil
}

// awaitRoom waits until the store takes writes again by itself.
func awaitRoom(t *testing.T, d *db.DB) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for again := time.NewTicker(10 * time.Millisecond); d.Full(); {
		select {
		case <-again.C:
		case <-limit:
			t.Fatal("the store stays read-only although there is room")
		}
	}
}

func compare(t *testing.T, d *db.DB, stored map[string]bool) {
	t.Helper()
	there := keys(t, d)
	for k := range stored {
		if !there[k] {
			t.Errorf("%s was acknowledged and is lost", k)
		}
	}
	if len(there) != len(stored) {
		t.Errorf("%d rows, %d acknowledged", len(there), len(stored))
	}
	var verdict string
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT integrity_check FROM pragma_integrity_check").Scan(&verdict)
	})
	if err != nil || verdict != "ok" {
		t.Errorf("integrity: %q, %v", verdict, err)
	}
}
