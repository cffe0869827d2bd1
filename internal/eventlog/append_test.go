package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func newVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := testVault()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// testVault has the same key in every process.
func testVault() (*vault.Vault, error) { return vault.New([]byte(strings.Repeat("k", vault.KeySize))) }

func newLog(t testing.TB, d *db.DB) *Log {
	t.Helper()
	return NewLog(d, newVault(t), nil, Options{})
}

func must(t testing.TB, l *Log, n ...New) []Event {
	t.Helper()
	out, err := l.Append(t.Context(), n...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAppendedEventsAreReadBackInOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLog(t, d)
		want := must(t, l,
			New{Stream: "run:1", Kind: "run.created", Expect: 0, Data: map[string]any{"b": 1, "a": "<ü>"}},
			New{Stream: "run:2", Kind: "run.created", Expect: Any, Actor: "operator", Cause: "c", Trace: "t", Format: 3},
			New{Stream: "run:1", Kind: "run.started", Expect: 1, Data: json.RawMessage(` {"z": 1.50, "y": "\u0041"} `)},
		)
		if s := string(want[0].Data) + string(want[1].Data) + string(want[2].Data); s != `{"a":"<ü>","b":1}{}{"y":"A","z":1.50}` {
			t.Errorf("payloads %s", s)
		}
		got, err := l.Read(t.Context(), 0, 0, Filter{})
		if err != nil || len(got) != 3 {
			t.Fatalf("%v, %v", got, err)
		}
		for i, w := range want {
			g := got[i]
			if g.Position != int64(i+1) || g.ID != w.ID || g.Version != w.Version || string(g.Data) != string(w.Data) || g.Leaf != w.Leaf || g.At != w.At || g.Actor != w.Actor || g.Format != w.Format {
				t.Errorf("event %d: %+v, want %+v", i, g, w)
			}
		}
		if got[2].Version != 2 || got[1].Version != 1 {
			t.Errorf("versions %d, %d", got[2].Version, got[1].Version)
		}
		one, err := l.Stream(t.Context(), "run:1", 1, 0)
		if err != nil || len(one) != 1 || one[0].ID != want[2].ID {
			t.Errorf("stream: %v, %v", one, err)
		}
		some, err := l.Read(t.Context(), 0, 0, Filter{Kinds: []string{"run.created", "x"}, StreamPrefix: "run:2"})
		if err != nil || len(some) != 1 || some[0].ID != want[1].ID {
			t.Errorf("filtered: %v, %v", some, err)
		}
		if _, err := l.ByID(t.Context(), "evt_none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown id: %v", err)
		}
		if h, err := l.Head(t.Context()); h != 3 || err != nil {
			t.Errorf("head %d, %v", h, err)
		}
	})
}

func TestRepeatedIDIsHarmlessAndOtherContentIsAConflict(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLog(t, d)
		n := New{ID: "slack:1", Stream: "s", Kind: "comms.message", Expect: Any, Data: map[string]string{"text": "hi"}}
		both := must(t, l, n, n)
		again := must(t, l, n)[0]
		for _, e := range []Event{both[1], again} {
			if !e.Repeated || e.Position != both[0].Position || e.Leaf != both[0].Leaf {
				t.Errorf("repeat: %+v", e)
			}
		}
		for what, change := range map[string]func(*New){
			"payload": func(n *New) { n.Data = map[string]string{"text": "ho"} },
			"kind":    func(n *New) { n.Kind = "comms.sent" },
			"stream":  func(n *New) { n.Stream = "s2" },
		} {
			other := n
			change(&other)
			if _, err := l.Append(t.Context(), other); !fault.Is(err, fault.Conflict) {
				t.Errorf("other %s: %v", what, err)
			}
		}
		if h, err := l.Head(t.Context()); h != 1 || err != nil {
			t.Errorf("head %d, %v", h, err)
		}
	})
}

func TestExpectedVersionIsHeldAndARefusalLeavesNoGap(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLog(t, d)
		must(t, l, New{Stream: "s", Kind: "a", Expect: 0})
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for _, wrong := range []int64{0, 2} {
				if _, err := l.AppendTx(ctx, tx, New{Stream: "s", Kind: "a", Expect: wrong}); !fault.Is(err, fault.Conflict) {
					t.Errorf("expect %d: %v", wrong, err)
				}
			}
			return nil // a caller that goes on
		})
		if err != nil {
			t.Fatal(err)
		}
		boom := errors.New("boom")
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := l.AppendTx(ctx, tx, New{Stream: "s", Kind: "a", Expect: 1}); err != nil {
				t.Error(err)
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if e := must(t, l, New{Stream: "s", Kind: "a", Expect: 1})[0]; e.Position != 2 || e.Version != 2 {
			t.Errorf("%+v", e)
		}
	})
}

func TestUnstorableEventsAreRefused(t *testing.T) {
	t.Parallel()
	l := newLog(t, dbtest.SQLite(t))
	for what, n := range map[string]New{
		"no stream":     {Kind: "a", Expect: Any},
		"no kind":       {Stream: "s", Expect: Any},
		"NUL":           {Stream: "s\x00", Kind: "a", Expect: Any},
		"not UTF-8":     {Stream: "s", Kind: "a", Actor: "\xff", Expect: Any},
		"long":          {Stream: strings.Repeat("s", maxText+1), Kind: "a", Expect: Any},
		"version":       {Stream: "s", Kind: "a", Expect: -2},
		"not JSON":      {Stream: "s", Kind: "a", Expect: Any, Data: json.RawMessage(`{`)},
		"more than one": {Stream: "s", Kind: "a", Expect: Any, Data: json.RawMessage(`{}{}`)},
		"a channel":     {Stream: "s", Kind: "a", Expect: Any, Data: make(chan int)},
		"too large":     {Stream: "s", Kind: "a", Expect: Any, Data: strings.Repeat("x", MaxData)},
	} {
		if _, err := l.Append(t.Context(), n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, l, New{Stream: "s", Kind: "a", Expect: 0, Data: "NUL \x00, bad \xff, ok"})
}

func TestErasedEventKeepsItsLeafAndPlace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLog(t, d)
		n := New{ID: "x", Stream: "s", Kind: "a", Expect: Any, Data: "secret"}
		e := must(t, l, n)[0]
		for range 2 {
			if err := l.Erase(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := l.ByID(t.Context(), "x")
		if err != nil || !got.Erased || got.Data != nil || got.Leaf != e.Leaf || got.Position != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		if again := must(t, l, n)[0]; !again.Repeated || !again.Erased {
			t.Errorf("a repeat brought it back: %+v", again)
		}
		if err := l.Erase(t.Context(), "y"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown: %v", err)
		}
	})
}

func TestChangedRowsAreNoticed(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		`UPDATE events SET kind = 'b'`, `UPDATE events SET at = at + 1`, `UPDATE events SET actor = 'x'`,
		`UPDATE events SET id = 'x'`, `UPDATE events SET leaf = x'00'`,
		`UPDATE events SET data = (SELECT data FROM events WHERE position = 2) WHERE position = 1`,
	} {
		d := dbtest.SQLite(t)
		l := newLog(t, d)
		must(t, l, New{ID: "p", Stream: "s", Kind: "a", Expect: Any, Data: 1}, New{ID: "q", Stream: "s", Kind: "a", Expect: Any, Data: 1})
		if change == `UPDATE events SET id = 'x'` {
			change += ` WHERE position = 1`
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, change)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(t.Context(), 0, 0, Filter{}); !fault.Is(err, fault.Verification) {
			t.Errorf("%s: %v", change, err)
		}
	}
}
