//go:build unix

package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a bus that is there is one: to ask a library for it may start another.
func TestASessionBusIsOneThatIsThere(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "bus") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "bus"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ address, runtime, want string }{
		{"", "", ""},
		{"unix:path=/x,guid=1", "", "unix:path=/x,guid=1"},
		{"unix:abstract=/tmp/x", dir, "unix:abstract=/tmp/x"},
		{"autolaunch:", "", ""},
		{"autolaunch:", dir, "unix:path=" + socket},
		{"tcp:host=example.com,port=1", "", ""},
		{"", empty, ""},
		{"", "relative", ""},
	} {
		env := map[string]string{"DBUS_SESSION_BUS_ADDRESS": c.address, "XDG_RUNTIME_DIR": c.runtime}
		if got := ReadEnvironment(func(name string) string { return env[name] }).SessionBus; got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestThePassphraseIsReadAndNotShown(t *testing.T) {
	t.Parallel()
	e := ReadEnvironment(func(name string) string {
		return map[string]string{"OMBUD_PASSPHRASE": "correct horse", "CREDENTIALS_DIRECTORY": "/run/credentials/ombud"}[name]
	})
	if e.Passphrase.Reveal() != "correct horse" || e.Credentials != "/run/credentials/ombud" {
		t.Errorf("%v", e)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, e); strings.Contains(text, "correct") {
			t.Errorf("%s: %s", verb, text)
		}
	}
	if _, err := Load(Input{EnvNames: []string{"OMBUD_PASSPHRASE"}}); err != nil {
		t.Errorf("it is taken for a key: %v", err)
	}
}
