package run

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestARunOfAnUnknownKindIsKeptBackUntilItIsThere starts a run where its kind is
// known and leaves it to a node where it is not.
func TestARunOfAnUnknownKindIsKeptBackUntilItIsThere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		late := Kind{Name: "la'te", Handle: nothing}
		first := setup(t, d, late)
		id := first.begin(Spec{Kind: "la'te", Key: "x"})
		b := &bench{t: t, db: d, vault: first.vault, log: first.log, kinds: NewKinds()}
		b.Engine = New(d, b.vault, b.log, b.kinds, Options{Poll: 10 * time.Millisecond})
		if err := b.kinds.Add(Kind{Name: "other", Handle: nothing}); err != nil {
			t.Fatal(err)
		}
		b.open()
		b.wait(b.begin(Spec{Kind: "other"}))
		rec, _, err := b.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		text, kept, err := b.WaitsFor(t.Context(), rec)
		n, err2 := b.KeptBack(t.Context())
		if rec.State != Queued || !strings.Contains(text, `kind "la'te"`) || n != 1 || !kept || err != nil || err2 != nil {
			t.Errorf("%s, waits for %q, %d kept back, %v, %v", rec.State, text, n, err, err2)
		}
		if err := b.kinds.Add(late); err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(id); rec.State != Completed {
			t.Errorf("%s", rec.State)
		}
		if n, err := b.KeptBack(t.Context()); n != 0 || err != nil {
			t.Errorf("%d kept back, %v", n, err)
		}
	})
}

// TestARunStaysOnItsDefinition changes a definition while a run of the old one waits,
// then loses the old one: the run is kept back, keeps nobody else, and goes on with
// its own definition when that is there again.
func TestARunStaysOnItsDefinition(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var mu sync.Mutex
		texts := map[string]string{"v1": "one"}
		set := func(hash, text string) {
			mu.Lock()
			defer mu.Unlock()
			if texts[hash] = text; text == "" {
				delete(texts, hash)
			}
		}
		b := setup(t, d, Kind{Name: "recipe",
			Knows: func(_ context.Context, _ db.Q, r Record) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return texts[r.Definition] != "", nil
			},
			Handle: func(ctx context.Context, r *Run) ([]byte, error) {
				if _, err := r.WaitSignal(ctx, "s", "go", 0); err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				return []byte(`"` + texts[r.Record().Definition] + `"`), nil
			}})
		b.open()
		old := b.begin(Spec{Kind: "recipe", Name: "daily", Definition: "v1"})
		b.until(old, Waiting)
		set("v2", "two")
		set("v1", "")
		signal := func(id string) {
			t.Helper()
			if err := b.Signal(t.Context(), id, "go", nil, "operator"); err != nil {
				t.Fatal(err)
			}
		}
		signal(old)
		var lost []string
		for i := range 70 { // more than are claimed at once
			lost = append(lost, b.begin(Spec{Kind: "recipe", Name: fmt.Sprint("lost", i), Definition: "v0"}))
		}
		current := b.begin(Spec{Kind: "recipe", Definition: "v2"})
		signal(current)
		if rec := b.wait(current); string(rec.Result) != `"two"` {
			t.Errorf("%s %s", rec.State, rec.Result)
		}
		rec, _, err := b.Get(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		if text, kept, err := b.WaitsFor(t.Context(), rec); rec.State != Waiting || text != "its definition daily@v1" || !kept || err != nil {
			t.Errorf("%s, waits for %q, %v", rec.State, text, err)
		}
		if n, err := b.KeptBack(t.Context()); n != 71 || err != nil {
			t.Errorf("%d kept back, %v", n, err)
		}
		set("v1", "one")
		if err := b.Cancel(t.Context(), lost[0], "operator", "never mind"); err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(old); string(rec.Result) != `"one"` {
			t.Errorf("%s %s", rec.State, rec.Result)
		}
		b.verify()
	})
}

func TestWhatARunWaitsForIsToldThroughItsChildren(t *testing.T) {
	t.Parallel()
	b := family(t, dbtest.SQLite(t), true, func(ctx context.Context, r *Run) ([]byte, error) {
		_, err := r.Do(ctx, StepSpec{Name: "send", Policy: Policy{Kind: AtMostOnce}}, func(context.Context) Outcome { return unknownOutcome("timed out") })
		return nil, err
	})
	b.open()
	id := b.begin(Spec{Kind: "parent"})
	b.until(id, Waiting)
	b.until("child-of-"+id, Uncertain)
	rec, _, err := b.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	text, kept, err := b.WaitsFor(t.Context(), rec)
	if want := "run child-of-" + id + ", which is uncertain and waits for a decision on a step that may or may not have happened"; text != want || kept || err != nil {
		t.Errorf("waits for %q, %v", text, err)
	}
}
