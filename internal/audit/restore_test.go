package audit

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// lives is a store in a file that is opened, closed and put back.
type lives struct {
	t    *testing.T
	o    db.Options
	file string
	v    *vault.Vault
	path string // of the anchors
}

func newLives(t *testing.T) *lives {
	o := dbtest.Options(t, dbtest.KindSQLite)
	return &lives{t: t, o: o, file: strings.TrimPrefix(o.DSN, "sqlite:"), v: newVault(t, 1), path: anchorFile(t)}
}

func (l *lives) session(do func(*db.DB)) {
	l.t.Helper()
	d, err := db.Open(l.t.Context(), l.o)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			l.t.Error(err)
		}
	}()
	do(d)
}

// backup is the store and what it says of its record.
func (l *lives) backup() (content string, m Marks) {
	l.t.Helper()
	l.session(func(d *db.DB) {
		err := d.Read(l.t.Context(), func(ctx context.Context, q db.Q) (err error) {
			m, err = MarksIn(ctx, q)
			return err
		})
		if err != nil {
			l.t.Fatal(err)
		}
	})
	return readFile(l.t, l.file), m
}

func (l *lives) putBack(content string) {
	l.t.Helper()
	for _, left := range []string{"-wal", "-shm"} {
		if err := os.Remove(l.file + left); err != nil && !os.IsNotExist(err) {
			l.t.Fatal(err)
		}
	}
	if err := os.WriteFile(l.file, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// restore puts the store back the way ombud restore does.
func (l *lives) restore(content string, m Marks) {
	l.t.Helper()
	l.putBack(content)
	l.session(func(d *db.DB) {
		a := New(d, l.v, "restore-1", nil)
		if err := a.StartRestored(l.t.Context(), Restored{Restore: "res_1", Backup: "bak_1", Made: 5, Marks: m}); err != nil {
			l.t.Fatal(err)
		}
		add(l.t, d, a, Entry{Kind: "restore", Actor: "operator", Outcome: "ok"})
		if err := a.Stop(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	})
}

func (l *lives) anchors() *Anchors {
	l.t.Helper()
	a, err := ReadAnchorFile(l.path, l.v.Keys())
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// TestARestoreIsToldFromAStorePutBack goes through the life of an anchored store that
// is restored, and then put back by hand to every state it ever had.
func TestARestoreIsToldFromAStorePutBack(t *testing.T) {
	t.Parallel()
	l := newLives(t)
	l.session(func(d *db.DB) { boot(t, d, l.v, l.path, 7) })
	first, marks := l.backup()
	l.session(func(d *db.DB) { boot(t, d, l.v, l.path, 12) })
	later, _ := l.backup()
	lost := l.anchors().Len()

	l.restore(first, marks)
	restored, _ := l.backup()
	l.session(func(d *db.DB) {
		if rep, err := Verify(t.Context(), d, l.v.Keys()); err != nil || rep.Restores != 1 {
			t.Fatalf("the restored record: %+v, %v", rep, err)
		}
		rep, err := VerifyAnchors(t.Context(), d, l.anchors())
		if err != nil || rep.GivenUp != 4 || rep.Found != int64(lost)-4 {
			t.Errorf("before its first start: %+v, %v", rep, err)
		}
		boot(t, d, l.v, l.path, 9)
		rep, err = VerifyAnchors(t.Context(), d, l.anchors())
		if err != nil || rep.GivenUp != 4 || rep.Found != int64(l.anchors().Len())-4 {
			t.Errorf("after it: %+v, %v", rep, err)
		}
		var b bytes.Buffer
		if err := New(d, l.v, "x", nil).Export(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyFileWith(&b, l.v.Keys(), l.anchors()); err != nil {
			t.Errorf("its export: %v", err)
		}
	})
	for name, content := range map[string]string{"the backup by hand": first, "what it was before": later, "what was restored": restored} {
		l.putBack(content)
		l.session(func(d *db.DB) {
			_, err := verifyWith(t, d, l.v, l.path)
			wantBad(t, name, err, "missing")
			a := New(d, l.v, "node-1", nil)
			if err := a.Anchor(l.path).Start(t.Context()); !fault.Is(err, fault.Verification) {
				t.Errorf("%s: the start: %v", name, err)
			}
			var b bytes.Buffer
			if err := a.Export(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			_, err = VerifyFileWith(&b, l.v.Keys(), l.anchors())
			wantBad(t, name+", its export", err, "missing")
		})
	}
}

// An end cut off before the backup is not what a restore gives up.
func TestARestoreExcusesNothingFromBeforeItsBackup(t *testing.T) {
	t.Parallel()
	l := newLives(t)
	l.session(func(d *db.DB) { boot(t, d, l.v, l.path, 7) })
	l.session(func(d *db.DB) {
		// The last two entries go, with the checkpoint over them.
		change(t, d, "DELETE FROM audit WHERE seq > 5")
		change(t, d, "DELETE FROM audit_checkpoints WHERE seq > 5")
	})
	for range markedChains + 1 { // the cut chain is none of the newest any more
		l.session(func(d *db.DB) { boot(t, d, l.v, anchorFile(t), 1) })
	}
	content, marks := l.backup()
	l.restore(content, marks)
	l.session(func(d *db.DB) {
		_, err := verifyWith(t, d, l.v, l.path)
		wantBad(t, "cut", err, "missing")
	})
}

func TestARestoreOfAnotherRecordIsRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v := newVault(t, 1)
		add(t, d, started(t, d, v), Entry{Kind: "call", Outcome: "ok"})
		var m Marks
		err := d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
			m, err = MarksIn(ctx, q)
			return err
		})
		if err != nil || m.Chains != 1 || len(m.Heads) != 1 || m.Heads[0].Seq != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		other := m
		other.Heads = []Mark{{m.Heads[0].Chain, 2, m.Heads[0].Hash}}
		a := New(d, v, "restore-1", nil)
		if err := a.StartRestored(t.Context(), Restored{Restore: "res_1", Backup: "bak_1", Marks: other}); !fault.Is(err, fault.Verification) {
			t.Errorf("marks of another record: %v", err)
		}
		if err := a.StartRestored(t.Context(), Restored{Restore: "res_1", Backup: "bak_1", Marks: m}); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(t.Context(), d, v.Keys()); err != nil || rep.Restores != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		change(t, d, `UPDATE audit_chains SET opening = replace(opening, 'bak_1', 'bak_2')`)
		if _, err := Verify(t.Context(), d, v.Keys()); !fault.Is(err, fault.Verification) {
			t.Errorf("another backup named: %v", err)
		}
	})
}
