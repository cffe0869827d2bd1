package signed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// deed is what a victim does, and where it dies.
type deed struct {
	DSN   string
	Do    string // "install", "remove", "revoke"
	Data  []byte `json:"-"` // of what is installed
	File  string // where that is
	Piece int    // the commit of this piece, from 0; −1: the one that makes the change
	After bool   // right after the commit, else right before it
}

// victim does one deed and kills itself at a commit of it.
func victim(spec string) int {
	var d deed
	err := json.Unmarshal([]byte(spec), &d)
	if err == nil && d.File != "" {
		d.Data, err = os.ReadFile(d.File)
	}
	if err == nil {
		err = d.live(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 4
}

func (v deed) live(ctx context.Context) error {
	d, err := db.Open(ctx, db.Options{DSN: v.DSN})
	if err != nil {
		return err
	}
	s, err := assemble(d, func(deps *Deps) {
		deps.Tell = func(_ context.Context, tx *db.Tx, _, _ string) error { // what every change does last
			v.die(tx)
			return nil
		}
	})
	if err != nil {
		return err
	}
	if err := s.book.Start(ctx); err != nil {
		return err
	}
	switch v.Do {
	case "remove":
		_, err = s.Remove(ctx, "hello", "operator")
		return err
	case "revoke":
		_, _, err := s.Change(ctx, Trusting{Add: []TrustRow{{Kind: Revoked, Key: signedtest.Public("maker")}}, By: "operator"})
		return err
	}
	sha := Sum(v.Data)
	if v.Piece >= 0 {
		for n, piece := range slices.Collect(slices.Chunk(v.Data, pieceSize)) {
			sealed := s.d.Vault.Seal(vault.SignedPiece, pieceRow(sha, n), piece)
			err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				if err := keepTx(ctx, tx, "hello", sha, len(v.Data), n, sealed); err != nil {
					return err
				}
				if n == v.Piece {
					v.die(tx)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := s.Upload(sha, len(v.Data), 0, v.Data); err != nil {
		return err
	}
	_, err = s.Install(ctx, Order{SHA256: sha, By: "operator", Name: "hello"})
	return err
}

func (v deed) die(tx *db.Tx) {
	kill := func() {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // it comes at once
	}
	if v.After {
		tx.AfterCommit(kill)
		return
	}
	kill()
}

// TestAKillAtAnyCommitLeavesTheOldLoopOrTheNewOne kills a process right before and right
// after each commit of an install, an upgrade, a removal and a revocation, and looks at what
// the next life finds: the old or the new, whole, with all that belongs to it; and the same
// deed can be done again.
func TestAKillAtAnyCommitLeavesTheOldLoopOrTheNewOne(t *testing.T) {
	t.Parallel()
	long := func(m *wasmloop.Manifest) { m.Events = []string{"comms.message"} }
	fresh := signedtest.V2(t, wasmloop.Manifest{Version: "1.0.0"}, signedtest.Module(strings.Repeat("a", pieceSize+10)), "maker", "")
	m := wasmloop.Manifest{Version: "2.0.0"}
	long(&m)
	next := signedtest.V2(t, m, signedtest.Module(strings.Repeat("b", pieceSize+10)), "maker", "")
	for _, kind := range dbtest.Kinds() {
		for _, c := range []struct {
			name        string
			had         []byte
			do          deed
			before, now string // of each, what a look finds
		}{
			{"install", nil, deed{Do: "install", Data: fresh}, "", "1.0.0 loop:hello"},
			{"upgrade", fresh, deed{Do: "install", Data: next}, "1.0.0 loop:hello", "2.0.0 loop:hello on comms.message"},
			{"remove", fresh, deed{Do: "remove"}, "1.0.0 loop:hello", ""},
			{"revoke", fresh, deed{Do: "revoke"}, "1.0.0 loop:hello", "1.0.0 loop:hello paused"},
		} {
			pieces := []int{-1}
			if c.do.Data != nil {
				pieces = []int{0, 1, -1}
			}
			for _, piece := range pieces {
				for _, after := range []bool{false, true} {
					v := c.do
					v.Piece, v.After = piece, after
					want := c.before
					if piece < 0 && after {
						want = c.now
					}
					t.Run(fmt.Sprintf("%s/%s/piece=%d/after=%v", kind, c.name, piece, after), func(t *testing.T) {
						t.Parallel()
						killed(t, kind, c.had, v, want, c.now)
					})
				}
			}
		}
	}
}

func killed(t *testing.T, kind dbtest.Kind, had []byte, v deed, want, done string) {
	v.DSN = dbtest.DSN(t, kind)
	if had != nil {
		d, err := db.Open(t.Context(), db.Options{DSN: v.DSN})
		if err != nil {
			t.Fatal(err)
		}
		s := newShelf(t, d, nil)
		s.install(had)
		if err := s.book.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if v.Data != nil {
		v.File = filepath.Join(t.TempDir(), "hello.oloop")
		if err := os.WriteFile(v.File, v.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("it was to be killed: %v", err)
	}
	s := newShelf(t, dbtest.Open(t, db.Options{DSN: v.DSN}), nil)
	if got := s.look(); got != want {
		t.Fatalf("it left %q, not %q", got, want)
	}
	again := func() error {
		switch v.Do {
		case "remove":
			_, err := s.Remove(t.Context(), "hello", "operator")
			return err
		case "revoke":
			_, _, err := s.Change(t.Context(), Trusting{Add: []TrustRow{{Kind: Revoked, Key: signedtest.Public("maker")}}, By: "operator"})
			return err
		}
		_, err := s.try(v.Data, nil)
		return err
	}
	if err := again(); err != nil && want != done {
		t.Fatal(err)
	}
	if got := s.look(); got != done {
		t.Errorf("done again it is %q, not %q", got, done)
	}
}

// look is what is installed, with what starts it; every part of it has to be whole.
func (s *shelf) look() string {
	s.t.Helper()
	list, err := s.Verify(s.t.Context(), "")
	if err != nil {
		s.t.Fatal(err)
	}
	text := ""
	for _, x := range list {
		if x.Problem != nil && x.Revoked == "" {
			s.t.Errorf("%s: %v", x.Name, x.Problem)
		}
		text += x.Manifest.Version + " "
	}
	installs := len(slices.DeleteFunc(s.events(), func(k string) bool { return k == "loop.removed" }))
	removals := len(s.events()) - installs
	if len(list) > 0 && installs == 0 || len(list) == 0 && removals != min(installs, 1) {
		s.t.Errorf("%d loops and the events %v", len(list), s.events())
	}
	return text + strings.Join(s.targets(), " ")
}
