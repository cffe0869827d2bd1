//go:build unix

package faults

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// TestFault11: the socket and the configuration could be opened by others for the
// moment between their creation and the chmod. With a mask that takes nothing away,
// somebody looks all the time while an instance is made: whatever is there is the
// owner's alone, or in a directory that is.
func TestFault11NothingIsOpenForAMoment(t *testing.T) {
	h := build(t, "", `calls: [{tool: memory.remember, input: {text: x}}]`)                     // not parallel: the mask is the process's
	for _, dir := range []string{h.in.StateDir, h.in.CacheDir, h.in.RuntimeDir, h.in.DataDir} { // for the daemon to make
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	seen := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				seen += look(t, h.in.StateDir) + look(t, h.in.RuntimeDir)
			}
		}
	})
	end := h.live()
	h.answer(h.send("go").RunID)
	info, err := os.Stat(h.in.Socket())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if info, err = os.Stat(h.in.KeyFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info, err)
	}
	end()
	close(stop)
	wg.Wait()
	if seen == 0 {
		t.Error("nobody saw anything")
	}
}

// look complains about what is below dir and can be reached by others, and counts
// what it saw.
func look(t *testing.T, dir string) (n int) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	if info.Mode().Perm()&0o077 == 0 {
		return 1 // nobody else comes in
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went while we looked
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 && info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s can be reached by others: %v", path, info.Mode())
		}
		n++
		return nil
	})
	return n
}
