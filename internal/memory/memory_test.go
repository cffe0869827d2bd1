package memory

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*Memory
	t   testing.TB
	log *eventlog.Log
}

var (
	mine     = label.Of(label.Operator, label.OperatorOnly)
	stranger = label.Of(label.Untrusted("eve"), label.Conversation("c9"))
)

func setup(t testing.TB, d *db.DB, o Options) *bench {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	l := eventlog.NewLog(d, v, nil, eventlog.Options{})
	return &bench{NewMemory(d, v, l, o), t, l}
}

func (b *bench) tx(fn func(ctx context.Context, tx *db.Tx) error) error {
	return b.db.InTx(b.t.Context(), fn)
}

// said remembers a sentence of the operator in conversation c1.
func (b *bench) said(run, text string) Remembering {
	b.t.Helper()
	return b.remember(New{Agent: "main", Text: text, Label: mine, Origin: Origin{Run: run, Conversation: "c1"}})
}

func (b *bench) remember(n New) (out Remembering) {
	b.t.Helper()
	err := b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = b.RememberTx(ctx, tx, n)
		return err
	})
	if err != nil {
		b.t.Fatalf("remember %q: %v", n.Text, err)
	}
	return out
}

func (b *bench) forgetting(w Which) (out Forgetting, err error) {
	err = b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = b.ForgetTx(ctx, tx, "main", w)
		return err
	})
	return out, err
}

func (b *bench) mustForget(w Which) Forgetting {
	b.t.Helper()
	out, err := b.forgetting(w)
	if err != nil {
		b.t.Fatalf("forget %+v: %v", w, err)
	}
	return out
}

// texts is what a query finds, best first.
func (b *bench) texts(query string) []string {
	b.t.Helper()
	found, err := b.Recall(b.t.Context(), "main", query, 10)
	if err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, h := range found.Hits {
		out = append(out, h.Text)
	}
	return out
}

func (b *bench) finds(query string, want ...string) {
	b.t.Helper()
	if got := b.texts(query); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%q finds %q, want %q", query, got, want)
	}
}

func (b *bench) actions(factID string) []Action {
	b.t.Helper()
	events, err := b.log.Stream(b.t.Context(), "memory:"+factID, 0, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []Action
	for _, e := range events {
		u, err := Updated.Decode(e)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, u.Action)
	}
	return out
}

func TestAFactIsRememberedRefreshedAndReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d, Options{})
		first := b.said("r1", "The boiler code is 4711")
		if first.Action != Remembered || first.Fact.Version != 1 || first.Fact.Importance != 5 {
			t.Fatalf("first: %+v", first)
		}
		again := b.said("r2", " the  boiler code is 4711. ")
		if again.Action != Refreshed || again.Fact.ID != first.Fact.ID || again.Fact.Text != "The boiler code is 4711" || again.Fact.Origin.Run != "r2" {
			t.Errorf("again: %+v", again)
		}
		b.finds("boiler code?", "The boiler code is 4711")

		next := b.remember(New{Agent: "main", Text: "our boiler code is now 4712", Label: mine, Importance: new(9), Pin: new(true)})
		if next.Action != Replaced || next.Fact.ID != first.Fact.ID || next.Fact.Version != 2 || next.Before.Text != "The boiler code is 4711" {
			t.Errorf("next: %+v", next)
		}
		b.finds("boiler code?", "our boiler code is now 4712")
		third := b.said("r3", "the boiler code is 4713")
		if third.Fact.Importance != 9 || !third.Fact.Pinned {
			t.Errorf("a new version lost its weight: %+v", third.Fact)
		}
		versions, err := b.Versions(t.Context(), "main", first.Fact.ID)
		if err != nil || len(versions) != 3 || versions[2].Text != "The boiler code is 4711" {
			t.Errorf("versions %+v, %v", versions, err)
		}
		if got := fmt.Sprint(b.actions(first.Fact.ID)); got != "[remembered refreshed replaced replaced]" {
			t.Errorf("events %s", got)
		}
		if other := b.remember(New{Agent: "other", Text: "the boiler code is 1", Label: mine}); other.Action != Remembered {
			t.Errorf("another agent's fact: %+v", other)
		}
		b.finds("boiler code?", "the boiler code is 4713")
		if _, err := b.Versions(t.Context(), "other", first.Fact.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another agent sees it: %v", err)
		}
	})
}

func TestWhatCannotBeRememberedIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Options{})
	for _, n := range []New{
		{Agent: "main", Text: " \n\t"}, {Agent: "main", Text: "?!…"}, {Agent: "main", Text: strings.Repeat("a", MaxText+1)},
		{Agent: "main", Text: "x", Importance: new(11)}, {Agent: "main", Text: "x", Importance: new(-1)},
	} {
		err := b.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := b.RememberTx(ctx, tx, n)
			return err
		})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%.20q: %v, want invalid", n.Text, err)
		}
	}
	odd := b.said("r", "the pin\x00 is \xff 12\u202e34")
	if strings.ContainsAny(odd.Fact.Text, "\x00\u202e") {
		t.Errorf("kept as %q", odd.Fact.Text)
	}
}

func TestAStrangersWordDoesNotReplaceTheOperators(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d, Options{})
		b.said("r1", "the account number is 111")
		eve := b.remember(New{Agent: "main", Text: "the account number is 666", Label: stranger})
		if eve.Action != Remembered || eve.Before != nil {
			t.Errorf("a stranger's fact: %+v", eve)
		}
		if got := b.texts("account number"); len(got) != 2 {
			t.Errorf("found %q, want both", got)
		}
		same := b.remember(New{Agent: "main", Text: "the account number is 111", Label: stranger})
		if same.Action != Refreshed || same.Fact.Label.Tainted() {
			t.Errorf("repeated by a stranger: %+v", same)
		}
		// The operator says it himself: it is his, and his old one is replaced.
		his := b.said("r2", "the account number is 666")
		if his.Action != Replaced || his.Fact.Label.Tainted() || his.Before.Text != "the account number is 111" {
			t.Errorf("said by the operator: %+v", his)
		}
		b.finds("account number", "the account number is 666")
		if got := b.actions(eve.Fact.ID); fmt.Sprint(got) != "[remembered forgotten]" {
			t.Errorf("the stranger's fact: %v", got)
		}
		one := b.remember(New{Agent: "main", Text: "they sell tea", Label: stranger})
		other := b.remember(New{Agent: "main", Text: "they sell tea", Label: label.Of(label.Untrusted("bob"), label.Anyone)})
		if want := label.Join(stranger, label.Of(label.Untrusted("bob"), label.Anyone)); other.Fact.ID != one.Fact.ID ||
			other.Fact.Label.String() != want.String() {
			t.Errorf("said by two strangers: %+v", other)
		}
	})
}

func TestForgettingErasesTextAndKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d, Options{})
		f := b.said("r1", "the boiler code is 4711").Fact
		b.said("r1", "the boiler code is 4712")
		b.said("r1", "the car is red")
		if got := b.mustForget(Which{ID: f.ID}); len(got.Facts) != 1 || got.Facts[0].Text != "the boiler code is 4712" {
			t.Errorf("forgot %+v", got)
		}
		b.finds("boiler code")
		b.finds("car", "the car is red")
		var left int64
		err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, `SELECT count(*) FROM memories WHERE id = $1
				AND (text IS NOT NULL OR label IS NOT NULL OR key IS NOT NULL OR slot IS NOT NULL OR state <> 'forgotten')`, f.ID).Scan(&left)
		})
		if err != nil || left != 0 {
			t.Errorf("%d versions still hold something, %v", left, err)
		}
		if _, err := b.forgetting(Which{ID: f.ID}); !fault.Is(err, fault.NotFound) {
			t.Errorf("forgetting it again: %v", err)
		}
		if got := b.said("r2", "the boiler code is 4711"); got.Action != Remembered || got.Fact.ID == f.ID {
			t.Errorf("remembered anew: %+v", got)
		}
	})
}

func TestForgettingByWordsNeedsOneFact(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Options{})
	b.said("r1", "the code of the boiler is 4711")
	b.said("r1", "the code of the bicycle lock is 0824")
	b.said("r1", "Anna likes tea")
	b.said("r1", "Anna likes tea with milk")

	if got := b.mustForget(Which{Query: "the codes"}); len(got.Facts) != 0 || len(got.Candidates) != 2 {
		t.Errorf("two fit: %+v", got)
	}
	if got := b.mustForget(Which{Query: "boiler's code"}); len(got.Facts) != 1 || !strings.Contains(got.Facts[0].Text, "4711") {
		t.Errorf("one fits: %+v", got)
	}
	if got := b.mustForget(Which{Query: "anna likes tea."}); len(got.Facts) != 1 || got.Facts[0].Text != "Anna likes tea" {
		t.Errorf("one is the query: %+v", got)
	}
	for query, class := range map[string]fault.Class{"boiler code": fault.NotFound, "what is the": fault.Invalid, "": fault.Invalid} {
		if _, err := b.forgetting(Which{Query: query}); !fault.Is(err, class) {
			t.Errorf("%q: %v, want %s", query, err, class)
		}
	}
	if _, err := b.forgetting(Which{Query: "anna", ID: "mem_1"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("two ways at once: %v", err)
	}
	err := b.tx(func(ctx context.Context, tx *db.Tx) error {
		for i := range maxScan {
			if _, err := b.RememberTx(ctx, tx, New{Agent: "main", Text: fmt.Sprintf("filler %d", i), Label: mine}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.forgetting(Which{Query: "bicycle"}); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "by its id") {
		t.Errorf("too many facts: %v", err)
	}
	if got := b.mustForget(Which{Query: "Filler 7"}); len(got.Facts) != 1 {
		t.Errorf("its very text: %+v", got)
	}
	b.finds("anna code lock", "the code of the bicycle lock is 0824", "Anna likes tea with milk")
}

func TestWhatWasJustSaidCanBeTakenBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d, Options{})
		b.said("r1", "the boiler code is 4711")
		b.said("r2", "the boiler code is 4712")
		b.said("r2", "the sauna is broken")
		b.remember(New{Agent: "main", Text: "in another room", Label: mine, Origin: Origin{Run: "r3", Conversation: "c2"}})
		got := b.mustForget(Which{Last: "c1"})
		if len(got.Facts) != 2 || len(got.Restored) != 1 || got.Restored[0].Text != "the boiler code is 4711" {
			t.Errorf("took back %+v", got)
		}
		b.finds("boiler code", "the boiler code is 4711")
		b.finds("sauna")
		if got := b.mustForget(Which{Last: "c1"}); len(got.Facts) != 1 || len(got.Restored) != 0 {
			t.Errorf("took back %+v", got)
		}
		if _, err := b.forgetting(Which{Last: "c1"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("nothing is left: %v", err)
		}
		b.finds("room", "in another room")
	})
}

func TestOnlyWhatIsRecentWasJustSaid(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	o := dbtest.Options(t, dbtest.KindSQLite)
	o.Now = func() time.Time { return at }
	b := setup(t, dbtest.Open(t, o), Options{})
	b.said("", "the boiler code is 4711")
	b.remember(New{Agent: "main", Text: "the parking ticket is in the drawer", Label: mine, Expires: at.Add(2 * time.Hour).UnixMicro()})
	at = at.Add(time.Hour)
	if _, err := b.forgetting(Which{Last: "c1"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an hour later: %v", err)
	}
	b.finds("parking", "the parking ticket is in the drawer")
	at = at.Add(time.Hour)
	b.finds("parking") // its time is over, before anything has swept
	if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if n, err := b.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("swept %d again, %v", n, err)
	}
}

func TestARefreshNeverShortensAFact(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Options{})
	far, near := time.Now().Add(2*time.Hour).UnixMicro(), time.Now().Add(time.Hour).UnixMicro()
	until := func(at int64) int64 {
		return b.remember(New{Agent: "main", Text: "the shop is open", Label: mine, Expires: at}).Fact.Expires
	}
	if got := []int64{until(near), until(far), until(near), until(0), until(near)}; fmt.Sprint(got) != fmt.Sprint([]int64{near, far, far, 0, 0}) {
		t.Errorf("expires %v", got)
	}
}

func TestAnExpiredFactGivesWay(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	o := dbtest.Options(t, dbtest.KindSQLite)
	o.Now = func() time.Time { return at }
	b := setup(t, dbtest.Open(t, o), Options{})
	soon := at.Add(time.Minute).UnixMicro()
	first := b.remember(New{Agent: "main", Text: "the door code is 1", Label: mine, Expires: soon}).Fact
	at = at.Add(time.Hour)
	for _, text := range []string{"the door code is 1", "the door code is 2"} {
		got := b.said("r", text)
		if got.Fact.ID == first.ID {
			t.Errorf("%q goes on with a fact whose time was over: %+v", text, got)
		}
	}
	if got := fmt.Sprint(b.actions(first.ID)); got != "[remembered expired]" {
		t.Errorf("events %s", got)
	}
}

// BenchmarkForgetByWords has to stay well below the 50 ms a transaction may take.
func BenchmarkForgetByWords(b *testing.B) {
	m := setup(b, dbtest.SQLite(b), Options{})
	err := m.tx(func(ctx context.Context, tx *db.Tx) error {
		for i := range maxScan {
			if _, err := m.RememberTx(ctx, tx, New{Agent: "main", Text: fmt.Sprintf("note %d about the thing%d in room%d", i, i%977, i%61), Label: mine}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if got := m.mustForget(Which{Query: "note about the thing5"}); len(got.Candidates) != 2 {
			b.Fatalf("%+v", got)
		}
	}
}
