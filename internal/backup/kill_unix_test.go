//go:build unix

package backup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/instance"
)

// killEnv makes TestAKillLeavesNoHalfFile the child that is killed.
const killEnv = "OMBUD_BACKUP_TEST_HOME"

// TestAKillLeavesNoHalfFile kills a process that writes backups over each other while
// it appends, at any moment: under the name there is a whole backup or none.
func TestAKillLeavesNoHalfFile(t *testing.T) {
	if dir := os.Getenv(killEnv); dir != "" {
		backUpForEver(t, homed(t, dir))
		return
	}
	t.Parallel()
	dir := t.TempDir()
	in := homed(t, dir)
	if err := in.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "b")
	kills := 12
	if testing.Short() {
		kills = 4
	}
	whole := 0
	for n := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAKillLeavesNoHalfFile$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, 1)
		if _, err := out.Read(ready); err != nil {
			_ = cmd.Process.Kill()
			t.Fatal("the child does not begin: ", err)
		}
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		_, err = Verify(t.Context(), path, nil)
		switch _, stat := os.Lstat(path); {
		case os.IsNotExist(stat):
		case err != nil:
			t.Fatalf("kill %d: %v", n, err)
		default:
			whole++
		}
	}
	if whole == 0 {
		t.Log("no kill found a backup that was done")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".b.*"+partial)); err != nil || len(left) > kills {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func backUpForEver(t *testing.T, in instance.Instance) {
	d, err := db.Open(t.Context(), db.Options{DSN: "sqlite:" + in.StateDB(), LockFile: in.LockFile()})
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, 0, 500, strings.Repeat("v", 2000))
	fmt.Print("r")
	go func() {
		for i := 0; ; i++ {
			put(t, d, i%500, i%500+1, strings.Repeat("w", 2000))
		}
	}()
	for {
		if _, err := Create(context.Background(), source(t, d, in), Options{Path: filepath.Join(filepath.Dir(in.StateDir), "b"), Force: true}); err != nil {
			t.Fatal(err)
		}
	}
}
