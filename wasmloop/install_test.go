package wasmloop

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// table is a Store that can be cut off after some writes.
type table struct {
	grants []string
	left   int // writes until it dies; negative for never
}

var errDied = errors.New("the machine died")

func (s *table) spend() error {
	if s.left == 0 {
		return errDied
	}
	s.left--
	return nil
}

func (s *table) SaveGrant(g Grant) error {
	if err := s.spend(); err != nil {
		return err
	}
	s.grants = append(s.grants, g.Subject+" "+g.Capability+":"+g.Value)
	return nil
}

func (s *table) RevokeSubject(subject string) (int64, error) {
	if err := s.spend(); err != nil {
		return 0, err
	}
	n := len(s.grants)
	s.grants = slices.DeleteFunc(s.grants, func(g string) bool { return strings.HasPrefix(g, subject+" ") })
	return int64(n - len(s.grants)), nil
}

func TestInstallGrantsWhatWasDeclaredAndRemoveTakesIt(t *testing.T) {
	t.Parallel()
	m, module := sample()
	s := &table{left: -1}
	in := &Installer{Dir: t.TempDir(), Broker: s, Trust: reviewed(), Actor: "operator"}
	p, err := in.Install(packed(t, m, module, "maker", "reviewer"))
	if err != nil || p.Upgrade != "" || p.Verdict.Tier != TierRegistry {
		t.Fatalf("%+v %v", p, err)
	}
	want := []string{
		"loop:sample http:api.example.com", "loop:sample memory:main:write", "loop:sample tool:agent.ask",
		"loop:sample tool:calendar.add", "loop:sample tool:provides:lookup",
	}
	if !slices.Equal(s.grants, want) {
		t.Errorf("granted %q", s.grants)
	}
	if a, err := in.Load("sample"); err != nil || a.Manifest.Version != "1.2.0" {
		t.Fatalf("%+v %v", a, err)
	}

	next := m
	next.Version, next.Capabilities, next.Tools = "1.3.0", []string{"http:*"}, []string{"shell.exec"}
	p, err = in.Install(packed(t, next, module, "maker", "reviewer"))
	if err != nil || p.Upgrade != "1.2.0" || p.Diff.Same {
		t.Fatalf("%+v %v", p, err)
	}
	if !slices.Equal(p.Diff.Added, []string{"http:*", "tool:shell.exec"}) ||
		!slices.Equal(p.Diff.Removed, []string{"http:api.example.com", "memory:main:write", "tool:agent.ask", "tool:calendar.add"}) {
		t.Errorf("%+v", p.Diff)
	}
	if !slices.Equal(s.grants, []string{"loop:sample http:*", "loop:sample tool:provides:lookup", "loop:sample tool:shell.exec"}) {
		t.Errorf("granted %q", s.grants)
	}
	files, err := filepath.Glob(filepath.Join(in.Dir, "*.oloop"))
	if err != nil || len(files) != 1 {
		t.Errorf("%q %v", files, err)
	}
	if err := in.Remove("sample"); err != nil || len(s.grants) != 0 {
		t.Errorf("%v, left %q", err, s.grants)
	}
	if _, err := in.Load("sample"); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
	if err := in.Remove("sample"); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

// Swapped on disk after install: any byte of the file counts, not only the module.
func TestAFileThatIsNotTheOneApprovedIsNotLoaded(t *testing.T) {
	t.Parallel()
	m, module := sample()
	in := &Installer{Dir: t.TempDir(), Trust: reviewed(), ConfirmUnsigned: true}
	first := packedV1(t, m, module, "maker", "reviewer")
	if _, err := in.Install(first); err != nil {
		t.Fatal(err)
	}
	entries, err := in.Installed()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	path := filepath.Join(in.Dir, entries[0].File)
	m.Tools = append(m.Tools, "shell.exec") // its signature still holds
	if err := os.WriteFile(path, packedV1(t, m, module, "maker", "reviewer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Load("sample"); !errors.Is(err, ErrAltered) {
		t.Errorf("a tool was added: %v", err)
	}
	if err := os.WriteFile(path, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Load("sample"); err != nil {
		t.Error(err)
	}
	in.Trust.Revoked = []string{public("maker")}
	if _, err := in.Load("sample"); !errors.Is(err, ErrUntrusted) {
		t.Errorf("its publisher is revoked now: %v", err)
	}
	in.Trust = Trust{}
	if _, err := in.Load("sample"); err == nil {
		t.Error("its registry is no longer trusted, and it loads at the tier it had")
	}
}

// Cut off at each write of grants, the next look finds the whole of it.
func TestAnInstallThatWasCutOffIsFinished(t *testing.T) {
	t.Parallel()
	m, module := sample()
	old := m
	old.Version, old.Capabilities = "1.0.0", []string{"http:*"}
	for left := range 7 {
		s := &table{left: -1}
		in := &Installer{Dir: t.TempDir(), Broker: s, Trust: reviewed()}
		if _, err := in.Install(packed(t, old, module, "maker", "reviewer")); err != nil {
			t.Fatal(err)
		}
		s.left = left
		_, err := in.Install(packed(t, m, module, "maker", "reviewer"))
		if died := left < 6; errors.Is(err, errDied) != died {
			t.Fatalf("after %d writes: %v", left, err)
		}
		s.left = -1
		a, err := in.Load("sample")
		if err != nil || a.Manifest.Version != "1.2.0" || len(s.grants) != 5 || slices.Contains(s.grants, "loop:sample http:*") {
			t.Errorf("after %d writes: %+v %v, grants %q", left, a, err, s.grants)
		}
	}
}

func TestALockfileDoesNotLeadOutOfItsDirectory(t *testing.T) {
	t.Parallel()
	in := &Installer{Dir: t.TempDir(), Trust: reviewed()}
	l := &Lock{}
	for _, file := range []string{"", ".", "..", "../x", "/etc/passwd", "a/b"} {
		l.Put(Entry{Name: "x", File: file, FileSHA256: "y"})
		if err := l.Save(in.Dir); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Load("x"); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", file, err)
		}
	}
}
