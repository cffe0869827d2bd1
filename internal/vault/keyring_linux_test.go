package vault

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"github.com/ombud-run/ombud/internal/fault"
)

// bus is a session bus of the test's own. It is not the one of whoever runs it.
func bus(t *testing.T) (address string) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("dbus-daemon is missing: scripts/setup-tests.sh installs it")
		}
		t.Skip("dbus-daemon is missing: scripts/setup-tests.sh installs it")
	}
	dir, err := os.MkdirTemp("", "ombud-bus-") // short, as a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := filepath.Join(dir, "conf")
	text := `<busconfig><type>session</type><listen>unix:path=` + filepath.Join(dir, "bus") + `</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config-file="+conf, "--nofork", "--nopidfile", "--print-address")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n') // it is listening when it tells where
	if err != nil {
		t.Fatalf("dbus-daemon: %v", err)
	}
	return strings.TrimSpace(line)
}

// secretServiceFake is a small Secret Service: one collection, plain sessions. Its
// state says how it behaves.
type secretServiceFake struct {
	conn *dbus.Conn

	mu      sync.Mutex
	items   map[dbus.ObjectPath]fakeItem
	locked  bool          // and only a person can unlock it
	asks    bool          // asks before it keeps or removes a key
	silent  chan struct{} // never answers while it is open
	prompts int           // questions somebody asked it to show
}

type fakeItem struct {
	attributes map[string]string
	value      string
}

const fakePrompt = dbus.ObjectPath("/org/freedesktop/secrets/prompt/1")

func serveSecrets(t *testing.T, address string) *secretServiceFake {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &secretServiceFake{conn: conn, items: map[dbus.ObjectPath]fakeItem{}}
	err = errors.Join(
		conn.Export(fakeService{f}, ssPath, ssService),
		conn.Export(fakeCollection{f}, ssDefault, ssCollection),
		conn.Export(promptFake{f}, fakePrompt, "org.freedesktop.Secret.Prompt"),
	)
	if err == nil {
		_, err = prop.Export(conn, ssDefault, prop.Map{ssCollection: {"Locked": {Value: true}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := conn.RequestName(ssName, dbus.NameFlagDoNotQueue); err != nil || got != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v %v", got, err)
	}
	return f
}

func (f *secretServiceFake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *secretServiceFake) seen() (keys, prompts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.items), f.prompts
}

type fakeService struct{ f *secretServiceFake }

func (s fakeService) OpenSession(kind string, _ dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	s.f.mu.Lock()
	silent := s.f.silent
	s.f.mu.Unlock()
	if silent != nil {
		<-silent
	}
	if kind != "plain" {
		return dbus.MakeVariant(""), "/", dbus.NewError("org.freedesktop.DBus.Error.NotSupported", nil)
	}
	return dbus.MakeVariant(""), "/org/freedesktop/secrets/session/1", nil
}

func (s fakeService) Unlock(objects []dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.locked {
		return []dbus.ObjectPath{}, fakePrompt, nil
	}
	return objects, noObject, nil
}

func (s fakeService) SearchItems(attributes map[string]string) (open, locked []dbus.ObjectPath, _ *dbus.Error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	open, locked = []dbus.ObjectPath{}, []dbus.ObjectPath{}
	for path, item := range s.f.items {
		match := true
		for k, v := range attributes {
			match = match && item.attributes[k] == v
		}
		switch {
		case match && s.f.locked:
			locked = append(locked, path)
		case match:
			open = append(open, path)
		}
	}
	return open, locked, nil
}

type fakeCollection struct{ f *secretServiceFake }

func (c fakeCollection) CreateItem(properties map[string]dbus.Variant, secret ssSecret, replace bool) (dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.locked {
		return "/", "/", dbus.NewError("org.freedesktop.Secret.Error.IsLocked", nil)
	}
	if c.f.asks {
		return "/", fakePrompt, nil
	}
	attributes, ok := properties[ssItem+".Attributes"].Value().(map[string]string)
	if !ok || !replace {
		return "/", "/", dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", nil)
	}
	path := dbus.ObjectPath("/org/freedesktop/secrets/collection/login/i" + strings.NewReplacer("/", "_", "-", "_").Replace(attributes["username"]))
	c.f.items[path] = fakeItem{attributes, string(secret.Value)}
	if err := c.f.conn.Export(fakeItemObject{c.f, path}, path, ssItem); err != nil {
		return "/", "/", dbus.MakeFailedError(err)
	}
	return path, noObject, nil
}

type fakeItemObject struct {
	f    *secretServiceFake
	path dbus.ObjectPath
}

func (i fakeItemObject) GetSecret(session dbus.ObjectPath) (ssSecret, *dbus.Error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	if i.f.locked {
		return ssSecret{}, dbus.NewError("org.freedesktop.Secret.Error.IsLocked", nil)
	}
	return ssSecret{Session: session, Parameters: []byte{}, Value: []byte(i.f.items[i.path].value), ContentType: "text/plain"}, nil
}

func (i fakeItemObject) Delete() (dbus.ObjectPath, *dbus.Error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	if i.f.asks {
		return fakePrompt, nil
	}
	delete(i.f.items, i.path)
	return noObject, nil
}

type promptFake struct{ f *secretServiceFake }

func (p promptFake) Prompt(string) *dbus.Error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.prompts++
	return nil
}

func TestTheKeyringKeepsAKey(t *testing.T) {
	t.Parallel()
	address := bus(t)
	f := serveSecrets(t, address)
	ring := SystemRing(address)
	if _, err := ring.Get(t.Context(), "default/1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an empty one: %v", err)
	}
	for _, account := range []string{"default/1", "work/2"} {
		if err := ring.Set(t.Context(), account, "value of "+account); err != nil {
			t.Fatal(err)
		}
	}
	if err := ring.Set(t.Context(), "default/1", "another"); err != nil {
		t.Fatal(err)
	}
	if got, err := ring.Get(t.Context(), "default/1"); err != nil || got != "another" {
		t.Errorf("%q %v", got, err)
	}
	if err := ring.Delete(t.Context(), "default/1"); err != nil {
		t.Error(err)
	}
	if _, err := ring.Get(t.Context(), "default/1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a removed one: %v", err)
	}
	if got, err := ring.Get(t.Context(), "work/2"); err != nil || got != "value of work/2" {
		t.Errorf("%q %v", got, err)
	}
	if _, prompts := f.seen(); prompts != 0 {
		t.Error("it asked a person")
	}
}

func TestAVaultInAKeyring(t *testing.T) {
	t.Parallel()
	address := bus(t)
	f := serveSecrets(t, address)
	h := newHouse(t)
	sources := func(use Source, variable string) Sources {
		s := h.sources(use, variable)
		s.Ring = SystemRing(address)
		return s
	}
	k := h.open(sources(FromKeyring, ""))
	for range 2 {
		if got := h.open(sources(FromAuto, "")); got.Public() != k.Public() || got.State().OpenedBy != ByKeyring {
			t.Errorf("%+v", got.State())
		}
		if err := k.Rotate(t.Context(), "", nil); err != nil {
			t.Fatal(err)
		}
		h.remember(k)
	}
	if keys, _ := f.seen(); keys != 1 {
		t.Errorf("%d keys in the keyring", keys)
	}

	// Locked: a passphrase beside it opens, and what was the matter is said; without
	// one it is what keeps the vault closed.
	f.set(func() { f.locked = true })
	_, err := h.try(sources(FromAuto, ""))
	if !fault.Is(err, fault.Permission) || !strings.Contains(err.Error(), "locked and would ask") {
		t.Errorf("locked, nothing else: %s %v", fault.ClassOf(err), err)
	}
	if _, err = h.try(sources(FromKeyring, "")); !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "unlock") {
		t.Errorf("locked, by name: %s %v", fault.ClassOf(err), err)
	}
	f.set(func() { f.locked = false })
	k = h.open(sources(FromAuto, ""))
	if err := k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false); err != nil {
		t.Fatal(err)
	}
	h.remember(k)
	f.set(func() { f.locked = true })
	got := h.open(sources(FromAuto, "correct horse"))
	if got.State().OpenedBy != ByPassphrase || !strings.Contains(strings.Join(got.State().Notes, "\n"), "locked") {
		t.Errorf("%+v", got.State())
	}
	if _, prompts := f.seen(); prompts != 0 {
		t.Error("a start asked a person")
	}
}

func TestAKeyringThatAsksAPersonKeepsNothing(t *testing.T) {
	t.Parallel()
	address := bus(t)
	f := serveSecrets(t, address)
	f.set(func() { f.asks = true })
	h := newHouse(t)
	k := h.open(h.sources(FromAuto, ""))
	k.sources.Ring = SystemRing(address)
	before := k.Copy()
	err := k.Rotate(t.Context(), ByKeyring, nil)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "would ask") {
		t.Errorf("%v", err)
	}
	if string(before) != string(k.Copy()) || !h.exists(h.files.Key) {
		t.Error("the vault was changed")
	}
}

func TestASessionWithoutAKeyring(t *testing.T) {
	t.Parallel()
	address := bus(t)
	for name, ring := range map[string]Ring{
		"no service": SystemRing(address),
		"no bus":     SystemRing("unix:path=" + filepath.Join(t.TempDir(), "none")),
		"no address": SystemRing(""),
	} {
		h := newHouse(t)
		k := h.open(h.sources(FromKeyring, ""))
		k.sources.Use = FromAuto
		if err := k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false); err != nil {
			t.Fatal(err)
		}
		h.remember(k)
		s := h.sources(FromAuto, "correct horse")
		s.Ring = ring
		got := h.open(s)
		if got.State().OpenedBy != ByPassphrase || !strings.Contains(strings.Join(got.State().Notes, "\n"), "keyring") && !strings.Contains(strings.Join(got.State().Notes, "\n"), "bus") {
			t.Errorf("%s: %+v", name, got.State())
		}
		s.Use = FromKeyring
		if _, err := h.try(s); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s, by name: %v", name, err)
		}
	}
}

func TestAKeyringThatIsSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	address := bus(t)
	f := serveSecrets(t, address)
	silent := make(chan struct{})
	f.set(func() { f.silent = silent })
	defer close(silent)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := SystemRing(address).Get(ctx, "default/1"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}
