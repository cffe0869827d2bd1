package audit

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// boot is one life of a node: its anchors and its chain are opened, entries are
// written, and both are closed.
func boot(t *testing.T, d *db.DB, v *vault.Vault, path string, entries int) {
	t.Helper()
	a := New(d, v, "node-1", nil)
	a.every = 5
	f := a.Anchor(path)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range entries {
		add(t, d, a, Entry{Kind: "call", Actor: "agent:a", Subject: "operator", Outcome: "ok"})
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func anchorFile(t *testing.T) string { return filepath.Join(t.TempDir(), "anchors") }

func verifyWith(t *testing.T, d *db.DB, v *vault.Vault, path string) (int64, error) {
	t.Helper()
	if _, err := Verify(t.Context(), d, v.Keys()); err != nil {
		t.Fatalf("the record does not even hold by itself: %v", err)
	}
	a, err := ReadAnchorFile(path, v.Keys())
	if err != nil {
		return 0, err
	}
	rep, err := VerifyAnchors(t.Context(), d, a)
	return rep.Found, err
}

func TestEveryOpeningAndCheckpointIsAnchored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v, path := newVault(t, 1), anchorFile(t)
		boot(t, d, v, path, 12) // opening, 5, 10, 12
		boot(t, d, v, path, 0)  // opening
		boot(t, d, v, path, 5)  // opening, 5
		if n, err := verifyWith(t, d, v, path); n != 7 || err != nil {
			t.Errorf("%d anchors hold, %v; want 7", n, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can read the file: %v", info.Mode())
		}
		text := readFile(t, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		boot(t, d, v, path, 0) // makes the file anew, with all that is known
		if again := readFile(t, path); !strings.HasPrefix(again, text) {
			t.Errorf("made anew it is\n%s, which does not begin with\n%s", again, text)
		}
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAStorePutBackAsAWholeIsFoundByItsAnchors puts the store's file back to a
// copy. Nothing in it can tell; the file of anchors does, also after the store has
// grown beyond what it had been, and the next start is refused before it adds to it.
func TestAStorePutBackAsAWholeIsFoundByItsAnchors(t *testing.T) {
	t.Parallel()
	v, path := newVault(t, 1), anchorFile(t)
	o := dbtest.Options(t, dbtest.KindSQLite)
	file := strings.TrimPrefix(o.DSN, "sqlite:")
	session := func(do func(*db.DB)) {
		d, err := db.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}()
		do(d)
	}
	session(func(d *db.DB) { boot(t, d, v, path, 7) })
	old := readFile(t, file)
	session(func(d *db.DB) { boot(t, d, v, path, 12) })
	for _, left := range []string{"-wal", "-shm"} {
		if err := os.Remove(file + left); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	session(func(d *db.DB) {
		_, err := verifyWith(t, d, v, path)
		wantBad(t, "put back", err, "missing")
		a := New(d, v, "node-1", nil)
		if err := a.Anchor(path).Start(t.Context()); !fault.Is(err, fault.Verification) || fault.HintOf(err) == "" {
			t.Errorf("the start on an older store: %v", err)
		}
		var b bytes.Buffer
		if err := a.Export(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		anchors, err := ReadAnchorFile(path, v.Keys())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyFile(bytes.NewReader(b.Bytes()), v.Keys()); err != nil {
			t.Errorf("the export by itself: %v", err)
		}
		_, err = VerifyFileWith(bytes.NewReader(b.Bytes()), v.Keys(), anchors)
		wantBad(t, "its export", err, "missing")
		boot(t, d, v, anchorFile(t), 40) // somebody goes on without the file
		_, err = verifyWith(t, d, v, path)
		wantBad(t, "grown since", err, "missing")
	})
}

func wantBad(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: %v, want a verification failure with %q", what, err, reason)
	}
}

// TestAnEndCutWithItsCheckpointsIsFoundByItsAnchors: the tail goes with everything
// in the store that speaks of it.
func TestAnEndCutWithItsCheckpointsIsFoundByItsAnchors(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v, path := newVault(t, 1), anchorFile(t)
		boot(t, d, v, path, 12)
		change(t, d, `DELETE FROM audit WHERE seq > 6`)
		change(t, d, `DELETE FROM audit_checkpoints WHERE seq > 6`)
		_, err := verifyWith(t, d, v, path)
		wantBad(t, "cut", err, "entry 10: it is missing")
	})
}

// TestARecordRewrittenWithTheKeyIsFoundByItsAnchors: who has the key can make
// another record that holds. It is not the one that was anchored.
func TestARecordRewrittenWithTheKeyIsFoundByItsAnchors(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v, path := newVault(t, 1), anchorFile(t)
		boot(t, d, v, path, 12)
		var first anchorLine
		if err := strict(strings.SplitN(readFile(t, path), "\n", 2)[0], &first); err != nil {
			t.Fatal(err)
		}
		forge(t, d, v, first.Chain, 3)
		_, err := verifyWith(t, d, v, path)
		wantBad(t, "rewritten", err, "entry 5: it has another hash")
	})
}

// forge changes an entry of a chain and makes all that follows fit, checkpoints too.
func forge(t *testing.T, d *db.DB, v *vault.Vault, chain string, seq int64) {
	t.Helper()
	change(t, d, `UPDATE audit SET entry = replace(entry, '"outcome":"ok"', '"outcome":"denied"') WHERE seq = $1`, seq)
	a := &Audit{key: v.AuditKey(), sign: v.SigningKey()}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		var l link
		if err := tx.QueryRow(ctx, `SELECT hash, mac FROM audit_chains WHERE chain = $1`, chain).Scan(&l.hash, &l.mac); err != nil {
			return err
		}
		for n := int64(1); ; n++ {
			var text string
			if err := tx.QueryRow(ctx, `SELECT COALESCE(max(entry), '') FROM audit WHERE chain = $1 AND seq = $2`, chain, n).Scan(&text); err != nil || text == "" {
				return err
			}
			l = l.next(text, a.key)
			if _, err := tx.Exec(ctx, `UPDATE audit SET hash = $3, mac = $4 WHERE chain = $1 AND seq = $2`, chain, n, l.hash, l.mac); err != nil {
				return err
			}
			gone, err := tx.Exec(ctx, `DELETE FROM audit_checkpoints WHERE chain = $1 AND seq = $2`, chain, n)
			if err != nil {
				return err
			}
			if gone > 0 {
				if err := a.checkpoint(ctx, tx, chain, l); err != nil {
					return err
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestASpoiledAnchorFileProvesNothing(t *testing.T) {
	t.Parallel()
	d, v, path := dbtest.SQLite(t), newVault(t, 1), anchorFile(t)
	boot(t, d, v, path, 12)
	whole := readFile(t, path)
	lines := strings.SplitAfter(whole, "\n")
	other := newVault(t, 2)
	otherPath := anchorFile(t)
	boot(t, dbtest.SQLite(t), other, otherPath, 5)
	for what, text := range map[string]string{
		"a hash changed":           strings.Replace(whole, `"hash":"`, `"hash":"00`, 1),
		"a sequence number":        strings.Replace(whole, `"seq":5`, `"seq":4`, 1),
		"another chain's name":     strings.Replace(lines[1], `"chain":"aud_`, `"chain":"aud_0`, 1),
		"an unsigned line":         `{"anchor":"ombud.audit.anchor.v1","node":"node-1","epoch":1,"chain":"x","seq":1,"hash":"","signature":""}` + "\n",
		"another key's lines":      readFile(t, otherPath),
		"an empty line":            "\n" + whole,
		"something else":           "hello\n",
		"another format":           strings.Replace(whole, "anchor.v1", "anchor.v9", 1),
		"a broken line in between": lines[0] + lines[1][:20] + "\n" + lines[2],
		"a key of its own":         strings.Replace(whole, `{"anchor"`, `{"extra":1,"anchor"`, 1),
		"a checkpoint as opening":  strings.Replace(lines[1], `"seq":5`, `"seq":0`, 1),
	} {
		if text == whole {
			t.Fatalf("%s: the test changes nothing", what)
		}
		if _, err := ReadAnchors(strings.NewReader(text), v.Keys()); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", what, err)
		}
		spoiled := anchorFile(t)
		if err := os.WriteFile(spoiled, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := New(d, v, "node-1", nil).Anchor(spoiled).Start(t.Context()); !fault.Is(err, fault.Verification) {
			t.Errorf("%s: the start: %v", what, err)
		}
		if now := readFile(t, spoiled); now != text {
			t.Errorf("%s: the evidence was changed", what)
		}
	}
	if _, err := ReadAnchorFile(filepath.Join(t.TempDir(), "none"), v.Keys()); !fault.Is(err, fault.Verification) {
		t.Errorf("a file that is gone: %v", err)
	}
	if _, err := ReadAnchors(failing{}, v.Keys()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestALineTornByAPowerCutIsWrittenAgain: what is not whole says nothing, and the
// store still has it.
func TestALineTornByAPowerCutIsWrittenAgain(t *testing.T) {
	t.Parallel()
	d, v, path := dbtest.SQLite(t), newVault(t, 1), anchorFile(t)
	boot(t, d, v, path, 12)
	whole := readFile(t, path)
	for cut := 1; cut < 60; cut += 7 {
		if err := os.WriteFile(path, []byte(whole[:len(whole)-cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := verifyWith(t, d, v, path); n != 3 || err != nil {
			t.Errorf("%d bytes short: %d anchors, %v; want 3", cut, n, err)
		}
		f := New(d, v, "node-1", nil).Anchor(path)
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := readFile(t, path); now != whole {
			t.Errorf("%d bytes short, written again it is\n%s", cut, now)
		}
	}
}

func TestAnAnchorMadeByHandHolds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v := newVault(t, 1)
		a := started(t, d, v)
		for want := range int64(4) { // the first is the chain's opening
			ref, text, err := a.Sign(t.Context())
			if err != nil || ref.Seq != want {
				t.Fatalf("%+v, %v; want entry %d", ref, err, want)
			}
			if again, _, err := a.Sign(t.Context()); err != nil || again.Seq != want {
				t.Fatalf("a second time: %+v, %v", again, err)
			}
			anchors, err := ReadAnchors(strings.NewReader(text+"\n"), v.Keys())
			if err != nil {
				t.Fatal(err)
			}
			if rep, err := VerifyAnchors(t.Context(), d, anchors); rep.Found != 1 || err != nil {
				t.Errorf("%+v, %v", rep, err)
			}
			add(t, d, a, Entry{Kind: "call", Outcome: "ok"})
		}
		if _, err := Verify(t.Context(), d, v.Keys()); err != nil {
			t.Errorf("the record with its additional checkpoints: %v", err)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Sign(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("after the stop: %v", err)
		}
	})
}

func TestTailAndShow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if head, err := Head(t.Context(), d); head.Seq != 0 || err != nil {
			t.Errorf("the head of nothing: %+v, %v", head, err)
		}
		w := write(t, d)
		tail, err := Tail(t.Context(), d, 5)
		if err != nil || len(tail) != 5 {
			t.Fatalf("%d entries, %v", len(tail), err)
		}
		for i, e := range tail {
			want := w.refs[len(w.refs)-5+i]
			if e.Chain != want.Chain || e.Seq != want.Seq || !bytes.Equal(e.Hash, want.Hash) || e.Tool != "fs.read" || e.Scopes[0] != "fs.read:…" {
				t.Errorf("entry %d of the tail is %+v, want %s %d", i, e, want.Chain, want.Seq)
			}
		}
		if all, err := Tail(t.Context(), d, 1000); len(all) != 22 || err != nil {
			t.Errorf("%d entries in all, %v", len(all), err)
		}
		first := w.refs[0]
		if e, err := Show(t.Context(), d, first.Chain, 6); err != nil || e.Chain != first.Chain || e.Seq != 6 || e.Signed != 7 || e.Outcome != "5" {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err := Show(t.Context(), d, "", 3); err != nil || e.Chain != w.refs[len(w.refs)-1].Chain {
			t.Errorf("of the newest chain: %+v, %v", e, err)
		}
		if e, err := Show(t.Context(), d, "", 12); err != nil || e.Signed != 0 {
			t.Errorf("one no signature covers: %+v, %v", e, err)
		}
		for _, c := range []struct {
			chain string
			seq   int64
		}{{"", 99}, {"aud_x", 1}, {first.Chain, 8}} {
			if _, err := Show(t.Context(), d, c.chain, c.seq); !fault.Is(err, fault.NotFound) {
				t.Errorf("%v: %v", c, err)
			}
		}
		last := w.refs[len(w.refs)-1]
		if head, err := Head(t.Context(), d); err != nil || head.Chain != last.Chain || head.Seq != last.Seq {
			t.Errorf("head %+v, %v", head, err)
		}
	})
}
