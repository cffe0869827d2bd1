package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedOrCreatedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	is := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("beside it: %v %v", left, err)
		}
	}
	if err := Create(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	is("first")
	if err := Create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created over it: %v", err)
	}
	is("first")
	if err := Replace(path, []byte("third")); err != nil {
		t.Fatal(err)
	}
	is("third")
	if err := Replace(filepath.Join(dir, "no", "f"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}
