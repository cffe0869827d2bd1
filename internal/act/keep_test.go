package act

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// diary is a keeper that notes what it is told, in order.
type diary struct {
	mu    sync.Mutex
	notes []string
	again bool
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, s)
}

func (d *diary) Before(_ context.Context, t tool.Touch) tool.Kept {
	d.note("before " + t.Paths[0])
	d.again = t.Again
	return page{d}
}

type page struct{ d *diary }

func (p page) OpenTx(context.Context, *db.Tx) error  { p.d.note("open"); return nil }
func (p page) Time() time.Duration                   { return time.Second }
func (p page) After(context.Context)                 { p.d.note("after") }
func (p page) CloseTx(context.Context, *db.Tx) error { p.d.note("close"); return nil }
func (p page) Done()                                 { p.d.note("done") }

func touching(name string) tool.Definition {
	def := define(name)
	def.Touches = func(json.RawMessage) []string { return []string{"/file"} }
	return def
}

func TestWhatACallMayChangeIsKeptBeforeItsIntent(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	d := &diary{}
	b.act.Keeper = d
	b.add(touching("t.touch"), func(context.Context, tool.Invocation) (tool.Output, error) {
		d.note("effect")
		return tool.Output{}, fault.New(fault.Unavailable, "half done")
	})
	b.add(define("t.other"), text("ok"))
	reads := touching("t.reads")
	reads.ReadOnly = true
	b.add(reads, text("ok"))
	b.do(to("1", "t.touch", `{"as":"free"}`), to("2", "t.other", `{"as":"free"}`), to("3", "t.reads", `{"as":"free"}`), to("4", "t.touch", `{"as":"nobody"}`))
	want := []string{"before /file", "open", "effect", "after", "close", "done"}
	if len(d.notes) != len(want) {
		t.Fatalf("the keeper was told %q, want %q", d.notes, want)
	}
	for i := range want {
		if d.notes[i] != want[i] {
			t.Errorf("the keeper was told %q, want %q", d.notes, want)
		}
	}
	if d.again {
		t.Error("a call that was never begun is begun again")
	}
}

func TestAToolForOneSubjectIsRefusedToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	def := define("t.only")
	def.Only = "operator"
	b.add(def, text("ok"))
	got := b.do(to("1", "t.only", `{"as":"free"}`))
	expect(t, got[0], Refused, "operator only")
	if got[0].Class != fault.Denied || b.called("t.only") != 0 {
		t.Errorf("%s, called %d times", got[0].Class, b.called("t.only"))
	}
}

func TestPartsOfAResultAreReadInItsConversation(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(define("t.picture"), func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{Text: "a picture, kept as blob_1", Kept: []string{"blob_1", "blob_2"}}, nil
	})
	got := b.do(to("1", "t.picture", `{"as":"free"}`))
	expect(t, got[0], OK, "blob_1")
	for _, handle := range []string{"blob_1", "blob_2"} {
		if l, err := b.act.Kept(t.Context(), "conv_1", handle); err != nil || len(l.Sources) != 1 {
			t.Errorf("%s: %v, %v", handle, l, err)
		}
	}
	if _, err := b.act.Kept(t.Context(), "conv_2", "blob_1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("in another conversation: %v", err)
	}
}
