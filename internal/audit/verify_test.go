package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// written is a record of three starts on one node and one on another, with all
// the references that steps would hold.
type written struct {
	d    *db.DB
	v    *vault.Vault
	last *Audit
	refs []Ref
}

func write(t testing.TB, d *db.DB) written {
	t.Helper()
	w := written{d: d, v: newVault(t, 1)}
	for start, entries := range []int{7, 0, 12, 3} {
		a := startedOn(t, d, w.v, []string{"node-1", "node-1", "node-1", "node-2"}[start])
		for i := range entries {
			e := Entry{Kind: "call", Actor: "agent:a", Subject: "operator", Tool: "fs.read", Scopes: []string{"fs.read:/x"}, Outcome: fmt.Sprint(i), DurationUS: 5}
			w.refs = append(w.refs, add(t, d, a, e))
		}
		if start != 2 { // the third is killed
			if err := a.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.last = a
	}
	return w
}

func all(refs []Ref) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, r := range refs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (w written) verify(t testing.TB) (Report, error) {
	t.Helper()
	rep, err := Verify(t.Context(), w.d, w.v.Keys())
	if err == nil {
		_, err = VerifyRefs(t.Context(), w.d, all(w.refs))
	}
	return rep, err
}

func change(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, query, args...)
		if err == nil && n == 0 {
			err = errors.New("nothing was changed by " + query)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantReport is what write leaves: a checkpoint each at 5 and 7, at 5 and 10 of
// the killed one, and at 3.
var wantReport = Report{Chains: 4, Entries: 22, Checkpoints: 5}

func TestUntouchedRecordHolds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if rep, err := Verify(t.Context(), d, newVault(t, 1).Keys()); rep != (Report{}) || err != nil {
			t.Errorf("empty: %+v, %v", rep, err)
		}
		w := write(t, d)
		if rep, err := w.verify(t); rep != wantReport || err != nil {
			t.Errorf("%+v, %v", rep, err)
		}
		auditor, err := vault.ParsePublicKey(w.v.Keys().PublicString())
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(t.Context(), d, auditor); rep != wantReport || err != nil {
			t.Errorf("without secrets: %+v, %v", rep, err)
		}
		if _, err := Verify(t.Context(), d, newVault(t, 2).Keys()); !fault.Is(err, fault.Verification) {
			t.Errorf("with another key: %v", err)
		}
		boom := errors.New("boom")
		n, err := VerifyRefs(t.Context(), d, func(yield func(Ref, error) bool) { _ = yield(w.refs[0], nil) && yield(Ref{}, boom) })
		if n != 0 || !errors.Is(err, boom) {
			t.Errorf("refs that cannot be read: %d, %v", n, err)
		}
	})
}

func TestFirstBadPlaceIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		chain     int // of the refs: index of one in the chain that is bad
		seq       int64
		reason    string
		mac       bool // only the holder of the key can see it
	}{
		{"edited", `UPDATE audit SET entry = replace(entry, '"outcome":"3"', '"outcome":"4"') WHERE seq = 4`, 0, 4, "hash does not follow", false},
		{"white space", `UPDATE audit SET entry = entry || ' ' WHERE seq = 4`, 0, 4, "canonical", false},
		{"not JSON", `UPDATE audit SET entry = 'x' WHERE seq = 4`, 0, 4, "cannot be read", false},
		{"time column", `UPDATE audit SET at = at + 1 WHERE seq = 6`, 0, 6, "it says", false},
		{"removed", `DELETE FROM audit WHERE seq = 3`, 0, 3, "missing", false},
		{"reordered", `UPDATE audit SET seq = CASE seq WHEN 2 THEN 1002 ELSE 2 END WHERE seq = 2`, 0, 2, "missing", false},
		{"two exchanged", `UPDATE audit SET entry = (SELECT a.entry FROM audit a WHERE a.chain = audit.chain AND a.seq = 5 - audit.seq) WHERE seq IN (2, 3)`, 0, 2, "hash does not follow", false},
		{"inserted", `INSERT INTO audit (chain, seq, at, entry, hash, mac) SELECT chain, 8, at, entry, hash, mac FROM audit
			WHERE seq = 7 AND chain = (SELECT chain FROM audit_chains WHERE number = 1)`, 0, 8, "hash does not follow", false},
		{"clock", `UPDATE audit SET at = at - 3600000000, entry = replace(entry, '"at":' || at, '"at":' || (at - 3600000000)) WHERE seq = 6`, 0, 6, "hash does not follow", false},
		{"end of a closed chain cut", `DELETE FROM audit WHERE seq = 7`, 0, 7, "missing", false},
		{"end after the last checkpoint cut", `DELETE FROM audit WHERE seq = 12`, 7, 12, "missing", false},
		{"MAC", `UPDATE audit SET mac = hash WHERE seq = 2`, 0, 2, "MAC", true},
		{"MAC of an opening", `UPDATE audit_chains SET mac = hash WHERE number = 1`, 0, 0, "MAC", true},
		{"checkpoint gone", `DELETE FROM audit_checkpoints WHERE seq = 10`, 7, 10, "checkpoint is missing", false},
		{"checkpoint of another hash", `UPDATE audit_checkpoints SET hash = signature WHERE seq = 10`, 7, 10, "another hash", false},
		{"checkpoint signature", `UPDATE audit_checkpoints SET signature = hash WHERE seq = 10`, 7, 10, "signature", false},
		{"opening signature", `UPDATE audit_chains SET signature = hash WHERE number = 3`, 7, 0, "signature", false},
		{"opening", `UPDATE audit_chains SET opening = replace(opening, '"checkpoint_every":5', '"checkpoint_every":6') WHERE number = 3`, 7, 0, "hash of its opening", false},
		{"node column", `UPDATE audit_chains SET node = 'x' WHERE number = 3`, 7, 0, "columns", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				w := write(t, d)
				change(t, d, c.sql)
				_, err := w.verify(t)
				b, ok := errors.AsType[*Bad](err)
				if !fault.Is(err, fault.Verification) || !ok || b.Chain != w.refs[c.chain].Chain || b.Seq != c.seq || !strings.Contains(b.Reason, c.reason) {
					t.Errorf("%v", err)
				}
				_, err = Verify(t.Context(), d, vault.Keys{Public: w.v.PublicKey()})
				if found := err != nil; found == c.mac && c.name != "end after the last checkpoint cut" {
					t.Errorf("without secrets: %v", err)
				}
			})
		})
	}
}

func TestMissingChainIsFound(t *testing.T) {
	t.Parallel()
	for number := range 4 {
		d := dbtest.SQLite(t)
		w := write(t, d)
		change(t, d, `DELETE FROM audit_chains WHERE number = $1`, int64(number+1))
		if _, err := w.verify(t); !fault.Is(err, fault.Verification) {
			t.Errorf("chain %d gone: %v", number+1, err)
		}
	}
}

// A forger who has the store but no key rebuilds a chain from an entry on.
func TestRebuiltChainIsFound(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	w := write(t, d)
	chain := w.refs[7].Chain // 12 entries, signed at 5 and 10
	forge := func(from int64) {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			at := link{seq: from - 1}
			if err := tx.QueryRow(ctx, `SELECT hash FROM audit WHERE chain = $1 AND seq = $2`, chain, at.seq).Scan(&at.hash); err != nil {
				return err
			}
			texts, err := db.All(ctx, tx, db.Column[string], `SELECT entry FROM audit WHERE chain = $1 AND seq >= $2 ORDER BY seq`, chain, from)
			if err != nil {
				return err
			}
			for _, text := range texts {
				text = strings.Replace(text, `"actor":"agent:a"`, `"actor":"agent:b"`, 1)
				at = at.next(text, nil)
				if _, err := tx.Exec(ctx, `UPDATE audit SET entry = $3, hash = $4 WHERE chain = $1 AND seq = $2`, chain, at.seq, text, at.hash); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	forge(11)
	if _, err := Verify(t.Context(), d, w.v.Keys()); !fault.Is(err, fault.Verification) {
		t.Errorf("after the last checkpoint, with the key: %v", err)
	}
	forge(9)
	if _, err := Verify(t.Context(), d, vault.Keys{Public: w.v.PublicKey()}); !fault.Is(err, fault.Verification) {
		t.Errorf("before a checkpoint, without the key: %v", err)
	}
}

// TestAnyMutationIsFound changes one stored value, or a row, at random.
func TestAnyMutationIsFound(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	w := write(t, d)
	if _, err := w.verify(t); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		ref := rapid.SampledFrom(w.refs).Draw(rt, "entry")
		undo := mutate(t, rt, d, ref, w.refs)
		if undo == nil {
			rt.Skip("nothing changed")
		}
		_, err := w.verify(t)
		undo()
		if !fault.Is(err, fault.Verification) {
			rt.Fatalf("not found: %v", err)
		}
	})
	if _, err := w.verify(t); err != nil {
		t.Errorf("after undoing: %v", err)
	}
}

type stored struct {
	at        int64
	entry     string
	hash, mac []byte
}

func (s stored) same(o stored) bool {
	return s.at == o.at && s.entry == o.entry && bytes.Equal(s.hash, o.hash) && bytes.Equal(s.mac, o.mac)
}

func load(t testing.TB, d *db.DB, ref Ref) (s stored) {
	t.Helper()
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, `SELECT at, entry, hash, mac FROM audit WHERE chain = $1 AND seq = $2`, ref.Chain, ref.Seq).
			Scan(&s.at, &s.entry, &s.hash, &s.mac)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t testing.TB, d *db.DB, ref Ref, s stored) {
	t.Helper()
	change(t, d, `INSERT INTO audit (chain, seq, at, entry, hash, mac) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (chain, seq) DO UPDATE SET at = excluded.at, entry = excluded.entry, hash = excluded.hash, mac = excluded.mac`,
		ref.Chain, ref.Seq, s.at, s.entry, s.hash, s.mac)
}

func mutate(t testing.TB, rt *rapid.T, d *db.DB, ref Ref, refs []Ref) (undo func()) {
	t.Helper()
	was := load(t, d, ref)
	flip := func(b []byte) []byte {
		b = slices.Clone(b)
		b[rapid.IntRange(0, len(b)-1).Draw(rt, "byte")] ^= byte(1 << rapid.IntRange(0, 6).Draw(rt, "bit"))
		return b
	}
	now := was
	undo = func() { save(t, d, ref, was) }
	switch rapid.SampledFrom([]string{"flip entry", "flip hash", "flip mac", "at", "delete", "swap", "insert", "cut"}).Draw(rt, "how") {
	case "flip entry":
		now.entry = strings.ToValidUTF8(string(flip([]byte(was.entry))), "?")
	case "flip hash":
		now.hash = flip(was.hash)
	case "flip mac":
		now.mac = flip(was.mac)
	case "at":
		now.at += rapid.SampledFrom([]int64{-1, 1}).Draw(rt, "by")
	case "delete":
		change(t, d, `DELETE FROM audit WHERE chain = $1 AND seq = $2`, ref.Chain, ref.Seq)
		return undo
	case "swap":
		other := rapid.SampledFrom(refs).Draw(rt, "other")
		if other.Chain == ref.Chain && other.Seq == ref.Seq {
			return nil
		}
		theirs := load(t, d, other)
		save(t, d, ref, theirs)
		save(t, d, other, was)
		return func() { save(t, d, ref, was); save(t, d, other, theirs) }
	case "insert":
		added := Ref{Chain: ref.Chain, Seq: 100 + ref.Seq}
		save(t, d, added, was)
		return func() { change(t, d, `DELETE FROM audit WHERE chain = $1 AND seq = $2`, added.Chain, added.Seq) }
	case "cut":
		var tail []Ref
		var rows []stored
		for _, r := range refs {
			if r.Chain == ref.Chain && r.Seq >= ref.Seq {
				tail, rows = append(tail, r), append(rows, load(t, d, r))
			}
		}
		change(t, d, `DELETE FROM audit WHERE chain = $1 AND seq >= $2`, ref.Chain, ref.Seq)
		return func() {
			for i, r := range tail {
				save(t, d, r, rows[i])
			}
		}
	}
	if now.same(was) {
		return nil
	}
	save(t, d, ref, now)
	return undo
}

func TestVerifyWhileTheChainGrows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v := newVault(t, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 5 {
				a := New(d, v, "node-1", nil)
				a.every = 5
				if err := a.Start(t.Context()); err != nil {
					t.Error(err)
					return
				}
				for range 30 {
					err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
						_, err := a.AppendTx(ctx, tx, Entry{Kind: "call"})
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
				if err := a.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			if rep, err := Verify(t.Context(), d, v.Keys()); err != nil {
				t.Fatalf("%+v, %v", rep, err)
			}
		}
	})
}

func TestLongChainIsVerifiedPageByPage(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	v := newVault(t, 1)
	a := New(d, v, "node-1", nil)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for range 2*page + 1 {
			if _, err := a.AppendTx(ctx, tx, Entry{Kind: "call"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), d, v.Keys()); rep != (Report{Chains: 1, Entries: 2*page + 1, Checkpoints: 3}) || err != nil {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestAnyTextCanBeRecordedAndVerified(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	v := newVault(t, 1)
	a := started(t, d, v)
	rapid.Check(t, func(rt *rapid.T) {
		any := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		add(t, d, a, Entry{Kind: any.Draw(rt, "kind"), Actor: any.Draw(rt, "actor"), Outcome: any.Draw(rt, "outcome"), Scopes: []string{any.Draw(rt, "scope")}})
	})
	if _, err := Verify(t.Context(), d, v.Keys()); err != nil {
		t.Error(err)
	}
}
