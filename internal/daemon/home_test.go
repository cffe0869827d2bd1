package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/instance"
)

func TestAHomeKeepsItsNameAndACopyHasAnother(t *testing.T) {
	t.Parallel()
	at := func(dir string) instance.Instance {
		in, err := instance.New("", func(key string) string {
			if key == "OMBUD_HOME" {
				return dir
			}
			return ""
		}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.MakeDirs(); err != nil {
			t.Fatal(err)
		}
		return in
	}
	name := func(in instance.Instance) string {
		home, err := homeOf(in)
		if err != nil {
			t.Fatal(err)
		}
		return home
	}
	here, there := at(filepath.Join(t.TempDir(), "a")), at(filepath.Join(t.TempDir(), "b"))
	first := name(here)
	if again := name(here); again != first {
		t.Errorf("named %s, then %s", first, again)
	}
	text, err := os.ReadFile(here.HomeFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there.HomeFile(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if copied := name(there); copied == first {
		t.Error("a copy elsewhere is taken for the same home")
	}
}
