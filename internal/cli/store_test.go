package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
)

func TestAnAddressWithAPasswordIsNotTakenFromTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"postgres://u:secret@h/d", "postgres://u@h/d?password=secret", "postgres://u@h/d?sslpassword=x"} {
		if _, err := (migrateFlags{to: to}).address(nil); !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %v", to, err)
		}
		if shown, has := withoutPassword(to); !has || shown != "postgres://u@h/d" {
			t.Errorf("%s is shown as %s", to, shown)
		}
	}
	file := filepath.Join(t.TempDir(), "to")
	if err := os.WriteFile(file, []byte("postgres://u:secret@h/d\n# note\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"STORE": "postgres://u:secret@h/d"}[name] }
	for _, f := range []migrateFlags{{file: file}, {env: "STORE"}} {
		if got, err := f.address(env); err != nil || got != "postgres://u:secret@h/d" {
			t.Errorf("%+v: %q, %v", f, got, err)
		}
	}
	for _, f := range []migrateFlags{{}, {to: "a", env: "b"}} {
		if _, err := f.address(env); !fault.Is(err, fault.Usage) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, f := range []migrateFlags{{file: file + "x"}, {env: "OTHER"}} {
		if _, err := f.address(env); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestTheConfigurationNamesTheNewStore(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		"": "store: postgres://u@h/d\n",
		"# mine\nstore: sqlite # here\nlog:\n  level: debug\n": "# mine\nstore: postgres://u@h/d\nlog:\n  level: debug\n",
		"log:\n  level: debug\n":                               "store: postgres://u@h/d\nlog:\n  level: debug\n",
	} {
		in, err := instance.New("", func(key string) string { return map[string]string{"OMBUD_HOME": t.TempDir()}[key] }, t.TempDir())
		if err == nil {
			err = in.MakeDirs()
		}
		if err != nil {
			t.Fatal(err)
		}
		if before != "" {
			if err := os.WriteFile(in.ConfigFile(), []byte(before), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		a := &app{where: in, getenv: func(string) string { return "" }}
		if err := a.setStore("store: postgres://u@h/d"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(in.ConfigFile()); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", before, got, err)
		}
		if err := a.setStore("store: nonsense"); err == nil {
			t.Error("a configuration that cannot be read was put in place")
		}
		if got, _ := os.ReadFile(in.ConfigFile()); string(got) != want {
			t.Errorf("after an error: %q", got)
		}
	}
}
