package memory

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// evaluation is testdata/recall.txt.
type evaluation struct {
	facts map[string]string // number → text
	order []string
	asks  [][2]string // number of the fact, question
}

func readEvaluation(t testing.TB) evaluation {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "recall.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := evaluation{facts: map[string]string{}}
	for s := bufio.NewScanner(f); s.Scan(); {
		kind, rest, _ := strings.Cut(s.Text(), " ")
		number, text, _ := strings.Cut(rest, " ")
		switch kind {
		case "fact":
			e.facts[number] = text
			e.order = append(e.order, text)
		case "ask":
			e.asks = append(e.asks, [2]string{number, text})
		}
	}
	if len(e.facts) < 40 || len(e.asks) < 40 {
		t.Fatalf("the evaluation has %d facts and %d questions", len(e.facts), len(e.asks))
	}
	return e
}

// share is how many of the questions find their fact among the first three.
func (e evaluation) share(find func(question string) []string) (share float64, missed []string) {
	for _, a := range e.asks {
		found := find(a[1])
		if !slices.Contains(found[:min(3, len(found))], e.facts[a[0]]) {
			missed = append(missed, a[1])
		}
	}
	return 1 - float64(len(missed))/float64(len(e.asks)), missed
}

func TestQuestionsFindTheirFacts(t *testing.T) {
	t.Parallel()
	e := readEvaluation(t)
	b := setup(t, dbtest.SQLite(t), Options{})
	for _, text := range e.order {
		if r := b.said("r", text); r.Action != Remembered {
			t.Errorf("%q was %s, over %+v", text, r.Action, r.Before)
		}
	}
	got, missed := e.share(b.texts)
	t.Logf("recall@3 = %.3f of %d questions; missed %q", got, len(e.asks), missed)
	if got < 0.9 {
		t.Errorf("recall@3 = %.3f, want at least 0.9", got)
	}
	// The set is worth something only if plain word matching does much worse.
	plain, _ := e.share(func(q string) []string {
		words := strings.Fields(q)
		out := slices.Clone(e.order)
		slices.SortStableFunc(out, func(a, b string) int { return shared(strings.Fields(b), words) - shared(strings.Fields(a), words) })
		return out
	})
	if t.Logf("shared words alone: %.3f", plain); plain > got-0.15 {
		t.Errorf("counting shared words finds %.3f: the questions are too easy", plain)
	}
}

func shared(a, b []string) (n int) {
	for _, w := range a {
		if slices.Contains(b, w) {
			n++
		}
	}
	return n
}

func TestWeightDecidesBetweenEquals(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	o := dbtest.Options(t, dbtest.KindSQLite)
	o.Now = func() time.Time { return at }
	b := setup(t, dbtest.Open(t, o), Options{})
	b.remember(New{Agent: "main", Text: "tea is in the box", Label: mine, Pin: new(true)})
	b.remember(New{Agent: "main", Text: "tea is in the jar", Label: mine, Importance: new(0)})
	b.remember(New{Agent: "main", Text: "tea is in the tin", Label: mine})
	at = at.AddDate(1, 0, 0)
	b.remember(New{Agent: "main", Text: "tea is in the bag", Label: mine})
	b.remember(New{Agent: "main", Text: "tea tea tea", Label: mine, Importance: new(2)})
	b.finds("tea", "tea tea tea", "tea is in the box", "tea is in the bag", "tea is in the tin", "tea is in the jar")
}

func TestTheIndexFollowsAnotherProcess(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	here, there := setup(t, d, Options{}), setup(t, d, Options{})
	here.said("r1", "the boiler code is 4711")
	there.finds("boiler", "the boiler code is 4711")
	here.finds("boiler", "the boiler code is 4711")
	there.said("r2", "the boiler code is 4712")
	here.finds("boiler", "the boiler code is 4712")
	here.mustForget(Which{Last: "c1"})
	there.finds("boiler", "the boiler code is 4711")
}

func TestALargeIndexWarmsNewestFirst(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	b := setup(t, d, Options{})
	const n = 3*page + 10
	err := b.tx(func(ctx context.Context, tx *db.Tx) error {
		for i := range n {
			if _, err := b.RememberTx(ctx, tx, New{Agent: "main", Text: fmt.Sprintf("note %d about w%d", i, i), Label: mine}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := setup(t, d, Options{Pages: 1})
	for call := 1; ; call++ {
		got, err := slow.Recall(t.Context(), "main", "w0 w767 w777", 5)
		if err != nil {
			t.Fatal(err)
		}
		if want := min(call, 3); call < 4 && (!got.Warming || len(got.Hits) == 0 || got.Hits[0].Text[:8] != "note 777") || call == 4 && got.Warming {
			t.Fatalf("after %d pages: %+v", want, got)
		}
		if call == 4 {
			if len(got.Hits) != 3 || got.Full {
				t.Errorf("complete: %+v", got)
			}
			break
		}
	}
	capped := setup(t, d, Options{MaxFacts: 100})
	got, err := capped.Recall(t.Context(), "main", "w0 w677 w678 w777", 5)
	if err != nil || !got.Full || got.Warming || len(got.Hits) != 2 {
		t.Errorf("capped at 100: %+v, %v", got, err)
	}
	for i := range 20 { // grows over the cap and starts anew
		capped.said("r", fmt.Sprintf("later %d", i))
	}
	if got, err = capped.Recall(t.Context(), "main", "later 19 w698 w696", 5); err != nil || !got.Full || got.Hits[0].Text != "later 19" {
		t.Errorf("grown over the cap: %+v, %v", got, err)
	}
	if live := len(capped.index("main").rows); live != 100 {
		t.Errorf("the index holds %d facts, want 100", live)
	}
}

// TestTheIndexIsTheRows does random things through two processes and holds what
// both find against the rows.
func TestTheIndexIsTheRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			agent := fmt.Sprintf("agent%d", round)
			nodes := []*bench{setup(t, d, Options{Pages: 1}), setup(t, d, Options{})}
			model := map[string]bool{}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				b := rapid.SampledFrom(nodes).Draw(rt, "node")
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0, 1:
					thing, value := rapid.IntRange(0, 3).Draw(rt, "thing"), rapid.IntRange(0, 2).Draw(rt, "value")
					text := fmt.Sprintf("thing%d code is %d", thing, value)
					r := b.remember(New{Agent: agent, Text: text, Label: mine, Origin: Origin{Conversation: agent}})
					if r.Before != nil {
						delete(model, r.Before.Text)
					}
					model[text] = true
				case 2:
					var f Forgetting
					_ = b.tx(func(ctx context.Context, tx *db.Tx) (err error) { // NotFound when there is nothing
						f, err = b.ForgetTx(ctx, tx, agent, Which{Last: agent})
						return err
					})
					for _, x := range f.Facts {
						delete(model, x.Text)
					}
					for _, x := range f.Restored {
						model[x.Text] = true
					}
				}
				b = rapid.SampledFrom(nodes).Draw(rt, "reader")
				got, err := b.Recall(t.Context(), agent, "code", 50)
				if err != nil || got.Warming {
					rt.Fatalf("%+v, %v", got, err)
				}
				list, err := b.List(t.Context(), agent, 50)
				if err != nil || len(list) != len(model) || len(got.Hits) != len(model) {
					rt.Fatalf("recall %d, list %d, want %d, %v", len(got.Hits), len(list), len(model), err)
				}
				for _, h := range got.Hits {
					if !model[h.Text] {
						rt.Fatalf("recalls %q", h.Text)
					}
				}
			}
		})
	})
}

func TestRecallWhileOthersRememberAndForget(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Options{})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 25 {
				f := b.said("", fmt.Sprintf("worker%d note %d", w, i)).Fact
				if got := b.texts(fmt.Sprintf("worker%d", w)); len(got) == 0 {
					t.Errorf("worker %d does not find what it said", w)
				}
				if i%2 == 0 {
					b.mustForget(Which{ID: f.ID})
				}
			}
		})
	}
	all.Wait()
	if got := b.texts("note"); len(got) != 10 {
		t.Errorf("%d notes of 10", len(got))
	}
	x := b.index("main")
	if len(x.rows) != 4*12 || len(x.docs)-len(x.free) != 4*12 {
		t.Errorf("the index holds %d rows, %d places, %d free", len(x.rows), len(x.docs), len(x.free))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Recall(ctx, "main", "note", 3); err == nil {
		t.Error("recalled for a caller that has left")
	}
}

func TestAnEmptiedIndexHoldsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex()
		n := rapid.IntRange(1, 30).Draw(t, "n")
		for i := range n {
			x.put(entry{row: rowID{fmt.Sprint(i % 7), 1}}, rapid.StringMatching(`([a-d]{1,3} ){0,5}`).Draw(t, "text"))
		}
		for i := range 7 {
			x.remove(rowID{fmt.Sprint(i), 1})
		}
		if len(x.rows) != 0 || len(x.terms) != 0 || x.length != 0 || x.postings != 0 || len(x.free) != len(x.docs) {
			t.Fatalf("left over: %d rows, %d terms, length %d, %d postings", len(x.rows), len(x.terms), x.length, x.postings)
		}
	})
}

func BenchmarkRecall(b *testing.B) {
	m := setup(b, dbtest.SQLite(b), Options{})
	for start := 0; start < 20_000; start += 500 {
		err := m.tx(func(ctx context.Context, tx *db.Tx) error {
			for i := start; i < start+500; i++ {
				text := fmt.Sprintf("note %d about the thing%d in room%d with colour%d", i, i%977, i%61, i%13)
				if _, err := m.RememberTx(ctx, tx, New{Agent: "main", Text: text, Label: mine}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	begun := time.Now()
	for warming := true; warming; {
		got, err := m.Recall(b.Context(), "main", "thing5", 3)
		if err != nil {
			b.Fatal(err)
		}
		warming = got.Warming
	}
	built := time.Since(begun)
	for b.Loop() {
		if _, err := m.Recall(b.Context(), "main", "what colour is thing7 in room9", 5); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(built.Milliseconds()), "ms/build20k")
}
