//go:build unix

package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestDirsOpenToOthersAreRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir    func(Instance) string
		mode   os.FileMode
		refuse bool
	}{
		"state readable by the group": {func(in Instance) string { return in.StateDir }, 0o750, true},
		"sockets open to others":      {func(in Instance) string { return in.RuntimeDir }, 0o711, true},
		"config readable by others":   {func(in Instance) string { return in.ConfigDir }, 0o755, false},
		"config writable by others":   {func(in Instance) string { return in.ConfigDir }, 0o777, true},
		"workspace writable by group": {Instance.Workspace, 0o770, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := setup(t)
			if err := in.MakeDirs(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(c.dir(in), c.mode); err != nil {
				t.Fatal(err)
			}
			err := in.MakeDirs()
			if !c.refuse {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !fault.Is(err, fault.Permission) || !strings.Contains(fault.HintOf(err), "chmod 07") {
				t.Errorf("%v, hint %q", err, fault.HintOf(err))
			}
		})
	}
}

func TestSocketDirOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	plant := map[string]func(dir string) error{
		"a link": func(dir string) error {
			target := dir + "-target"
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return os.Symlink(target, dir)
		},
		"a file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	}
	if os.Geteuid() == 0 {
		plant["another owner"] = func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chown(dir, 65534, 65534)
		}
	}
	for name, put := range plant {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := setup(t)
			if err := os.MkdirAll(filepath.Dir(in.RuntimeDir), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := put(in.RuntimeDir); err != nil {
				t.Fatal(err)
			}
			if err := in.CheckRuntime(); !fault.Is(err, fault.Permission) {
				t.Errorf("a client accepts it: %v", err)
			}
			if err := in.MakeDirs(); !fault.Is(err, fault.Permission) {
				t.Errorf("the daemon accepts it: %v", err)
			}
		})
	}
}

func TestConfigMayBeALink(t *testing.T) {
	t.Parallel()
	in := setup(t)
	if err := os.MkdirAll(filepath.Dir(in.ConfigDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), in.ConfigDir); err != nil {
		t.Fatal(err)
	}
	if err := in.MakeDirs(); err != nil {
		t.Error(err)
	}
}
