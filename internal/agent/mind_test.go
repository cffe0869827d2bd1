package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// claims answers every question with the next of its texts, the last again and again.
func claiming(asks *atomic.Int32, texts ...string) brain {
	return func(context.Context, model.Request, model.Sink) (model.Response, error) {
		n := int(asks.Add(1))
		return said(texts[min(n, len(texts))-1])
	}
}

func TestAClaimNoToolBacksIsRemindedOnceThenNoted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		texts []string
		asks  int32
		noted bool
	}{
		"insists":  {[]string{"I've sent the email.", "I have sent the email."}, 2, true},
		"corrects": {[]string{"Done. I have deleted the file.", "It was not deleted."}, 2, false},
		"honest":   {[]string{"I could not send it."}, 1, false},
		"plans":    {[]string{"I will send it tomorrow. Should I have sent it before?"}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asks atomic.Int32
			b := open(t, dbtest.SQLite(t), setup{main: claiming(&asks, c.texts...)})
			a := b.ask("main", "do it")
			if a.Outcome != Completed || asks.Load() != c.asks || strings.Contains(a.Reply, "Note by ombud") != c.noted {
				t.Errorf("asked %d times: %+v", asks.Load(), a)
			}
			if last := c.texts[len(c.texts)-1]; !strings.HasPrefix(a.Reply, last) {
				t.Errorf("the answer itself is gone: %q", a.Reply)
			}
		})
	}
}

func TestAReplyThatIsDataIsNeverHeldUp(t *testing.T) {
	t.Parallel()
	var asks atomic.Int32
	data := []string{
		"Here is the letter:\n\nDear Anna,\nI have sent the parcel. I deleted nothing.\nYours",
		"```\nI ran 5 km.\n```",
		"> I sent it yesterday.\n\nThat is what he wrote.",
		"“I have sent the letter,” he said.",
		`{"text": "I sent it."}`,
		"The minutes say:\n- I created the list.\n- I removed it.",
		"| who | what |\n|---|---|\n| Bo | I wrote it |",
		"",
		"I think he sent it.",
	}
	b := open(t, dbtest.SQLite(t), setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		asks.Add(1)
		text, _ := asked(req)
		var i int
		_, err := fmt.Sscan(text, &i)
		if err != nil {
			return model.Response{}, err
		}
		return said(data[i])
	}})
	for i, text := range data {
		asks.Store(0)
		a := b.ask("main", fmt.Sprint(i))
		if text == "" {
			text = "The model gave no answer."
		}
		if asks.Load() != 1 || a.Reply != text {
			t.Errorf("%q: asked %d times, replied %q", text, asks.Load(), a.Reply)
		}
	}
}

// A claim the turn's own tool backs is no claim to check.
func TestAClaimAToolBacks(t *testing.T) {
	t.Parallel()
	turn := &turn{}
	for _, c := range claims {
		for _, prefix := range c.tools {
			turn.ran = append(turn.ran, okCall(prefix+"x"))
		}
	}
	for _, text := range []string{"I've sent it.", "Okay, I have remembered that.", "I ran it and I deleted the file.", "I scheduled it."} {
		if again := turn.unbacked(text); again != "" {
			t.Errorf("%q: %s", text, again)
		}
	}
}

func TestBudgetIsAskedBeforeTheModelIs(t *testing.T) {
	t.Parallel()
	var asks atomic.Int32
	price := []model.Override{{Provider: "brain", Model: "brain-1", Price: model.Price{Input: 1, Output: 1}}}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := open(t, d, setup{prices: price, budget: budget.Config{Run: budget.At(1)}, main: func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
			asks.Add(1)
			return echo(ctx, req, sink)
		}})
		got := b.tell("main", "hello")
		a := b.answer(got.Run)
		if a.Outcome != OverBudget || asks.Load() != 0 || !strings.HasPrefix(a.Reply, "I stopped: ") {
			t.Errorf("%+v, asked %d times", a, asks.Load())
		}
		if out := b.out(got.Conversation); len(out) != 1 || out[0] != a.Reply {
			t.Errorf("told %q", out)
		}
		if rec := b.wait(got.Run); rec.State != run.Completed || rec.Cost != 0 {
			t.Errorf("%+v", rec)
		}
		if n := b.count("SELECT coalesce(sum(reserved), 0) FROM budget_totals"); n != 0 {
			t.Errorf("%d stay reserved", n)
		}
	})
}

func TestWhatAModelCostsIsBooked(t *testing.T) {
	t.Parallel()
	price := []model.Override{{Provider: "brain", Model: "brain-1", Price: model.Price{Input: 2, Output: 4}}}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := open(t, d, setup{prices: price, main: told(`t.put {"n":1}`)})
		rec := b.wait(b.tell("main", "hello").Run)
		const two = 2 * (10*2 + 5*4)
		if rec.Cost != two || !rec.CostKnown {
			t.Errorf("the run cost %d, known: %t", rec.Cost, rec.CostKnown)
		}
		for _, node := range []string{"instance", "agent:main"} {
			if n := b.count("SELECT sum(spent) FROM budget_totals WHERE node = $1", node); n != 2*two { // a day and a month
				t.Errorf("%s spent %d", node, n)
			}
		}
		if n := b.count("SELECT sum(reserved) + sum(possible) FROM budget_totals"); n != 0 {
			t.Errorf("%d stay reserved or possible", n)
		}
	})
}

// The process dies while the model is asked: the next one asks again, once, and
// books what the lost answer may have cost.
func TestAnAnswerLostInACrashIsAskedForAgainAndBooked(t *testing.T) {
	t.Parallel()
	price := []model.Override{{Provider: "brain", Model: "brain-1", Price: model.Price{Input: 2, Output: 4}}}
	d, key := dbtest.SQLite(t), newVault(t)
	var asks atomic.Int32
	free := make(chan struct{})
	m := func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
		if asks.Add(1) == 1 {
			<-free
		}
		return echo(ctx, req, sink)
	}
	dead := open(t, d, setup{vault: key, prices: price, main: m})
	got := dead.tell("main", "hello")
	dead.until("the model to be asked", func() bool { return asks.Load() == 1 })

	b := open(t, d, setup{vault: key, prices: price, main: m}) // takes the first for dead, as after a kill
	rec := b.wait(got.Run)
	if a, _ := OutcomeOf(rec); a.Outcome != Completed || asks.Load() != 2 {
		t.Errorf("%+v, asked %d times", a, asks.Load())
	}
	if s := b.step(got.Run, "model/0"); s.Repeats != 1 {
		t.Errorf("%d repeats", s.Repeats)
	}
	if n := b.count("SELECT sum(possible) FROM budget_totals"); n <= 0 {
		t.Error("the lost answer is booked as free")
	}
	close(free) // the dead one's answer comes: it must change nothing
	dead.stop()
	if out := b.out(got.Conversation); len(out) != 1 {
		t.Errorf("told %q", out)
	}
	if _, err := b.Runs.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRecalledFactsAndTheirLabelReachTheContext(t *testing.T) {
	t.Parallel()
	facts := []Fact{{Text: "the boiler\ncode is 4711", Label: label.Of(label.Untrusted("web"), label.OperatorOnly)}}
	sqlite(t, setup{facts: facts, main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		return said(req.System)
	}}, func(t *testing.T, b *bench) {
		got := b.tell("main", "what is it?")
		a := b.answer(got.Run)
		mark := b.snap(got.Run).Mark
		if !strings.Contains(a.Reply, "- «data "+mark+" from web»\nthe boiler code is 4711\n«end of data "+mark+"»") {
			t.Errorf("the system prompt is %q", a.Reply)
		}
		snap := b.snap(got.Run)
		if !snap.Label.Tainted() || snap.Recalled != 1 || len(snap.Hash) != 64 || snap.System != a.Reply {
			t.Errorf("%+v", snap)
		}
	})
}

// keeps is a summary model that keeps every line with a number in it.
func keeps(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
	var kept []string
	for line := range strings.Lines(req.Messages[0].Text()) {
		if strings.Contains(line, "4711") {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return said("SUMMARY " + strings.Join(kept, "; "))
}

func TestCompactionKeepsWhatWasSaidAndDeletesNothing(t *testing.T) {
	t.Parallel()
	each(t, setup{cfg: Config{History: 1500, Compact: 2000}, summary: keeps, main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		text, n := asked(req)
		switch {
		case text == "look" && n == 0:
			return wants("t.far")
		case strings.HasPrefix(text, "what"):
			for _, m := range req.Messages[:len(req.Messages)-1] {
				if strings.Contains(m.Text(), "4711") {
					return said("it is 4711")
				}
			}
			return said("I do not know")
		}
		return said("fine")
	}}, func(t *testing.T, b *bench) {
		b.ask("main", "the code of the boiler is 4711")
		b.ask("main", "look")
		turns := 2
		summaries := func() int64 { return b.count("SELECT count(*) FROM history WHERE role = 'summary'") }
		for ; summaries() < 2 && turns < 60; turns++ {
			b.ask("main", fmt.Sprint(turns, strings.Repeat(" filling", 25)))
		}
		got := b.tell("main", "what is the code?")
		if a := b.answer(got.Run); a.Reply != "it is 4711" {
			t.Errorf("after %d turns and %d summaries: %q", turns, summaries(), a.Reply)
		}
		if snap := b.snap(got.Run); !snap.Label.Tainted() {
			t.Errorf("what a stranger wrote in the part summarised became %v", snap.Label)
		}
		if n, want := b.count("SELECT count(*) FROM history"), int64(2*(turns+1))+summaries(); n != want {
			t.Errorf("%d rows of history, not %d", n, want)
		}
	})
}

func TestASummaryThatDoesNotComeCostsNoAnswer(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{cfg: Config{History: 50, Compact: 100, Timeout: 7 * time.Second}, summary: func(ctx context.Context, _ model.Request, _ model.Sink) (model.Response, error) {
		<-ctx.Done()
		return model.Response{}, ctx.Err()
	}}, func(t *testing.T, b *bench) {
		b.ask("main", strings.Repeat("x", 200))
		if a := b.ask("main", "and on"); a.Outcome != Completed || a.Reply != "re: and on" {
			t.Errorf("%+v", a)
		}
	})
}

func TestNoHistoryCanBrickAConversation(t *testing.T) {
	t.Parallel()
	b := open(t, dbtest.SQLite(t), setup{cfg: Config{History: 4 << 10, Compact: 8 << 10}})
	first := b.tell("main", "hello")
	b.answer(first.Run)
	rapid.Check(t, func(r *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 0, 200)
		body := raw.Draw(r, "body")
		sealed := rapid.SampledFrom([]string{"no", "yes", "text"}).Draw(r, "sealed")
		role := rapid.SampledFrom([]string{roleUser, roleAssistant, roleSummary, "strange"}).Draw(r, "role")
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			var seq int64
			err := tx.QueryRow(ctx, "UPDATE conversations SET seq = seq + 1 WHERE id = $1 RETURNING seq", first.Conversation).Scan(&seq)
			if err != nil {
				return err
			}
			kept := body
			if sealed == "text" {
				if kept, err = json.Marshal(entryBody{Text: string(body)}); err != nil {
					return err
				}
			}
			if sealed != "no" {
				kept = b.Vault.Seal(vault.HistoryText, historyRow(first.Conversation, seq), kept)
			}
			_, err = tx.Exec(ctx, "INSERT INTO history (conversation, seq, run, role, at, body) VALUES ($1, $2, '', $3, 1, $4)",
				first.Conversation, seq, role, kept)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if a := b.ask("main", "next"); a.Outcome != Completed || a.Reply != "re: next" {
			r.Fatalf("%+v", a)
		}
	})
}

func TestNoAnswerOfAModelCanBrickAConversation(t *testing.T) {
	t.Parallel()
	var next atomic.Pointer[model.Response]
	b := open(t, dbtest.SQLite(t), setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if text, n := asked(req); text == "poison" && n == 0 {
			return *next.Load(), nil
		}
		return said("fine")
	}})
	rapid.Check(t, func(r *rapid.T) {
		raw := rapid.Custom(func(r *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(r, "raw")) })
		resp := model.Response{Text: raw.Draw(r, "text"), Stop: model.StopReason(raw.Draw(r, "stop"))}
		for range rapid.IntRange(0, 3).Draw(r, "calls") {
			resp.Calls = append(resp.Calls, model.ToolCall{
				ID: raw.Draw(r, "id"), BadInput: raw.Draw(r, "bad"),
				Name: rapid.OneOf(raw, rapid.Just("t.put"), rapid.Just("t.look")).Draw(r, "name"),
			})
		}
		next.Store(&resp)
		got := b.tell("main", "poison")
		b.answer(got.Run)
		if a := b.ask("main", "next"); a.Outcome != Completed {
			r.Fatalf("%+v", a)
		}
	})
	if _, err := b.Runs.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// The channel of a conversation is gone: its turns end all the same.
func TestAChannelThatIsGoneBricksNothing(t *testing.T) {
	t.Parallel()
	each(t, setup{}, func(t *testing.T, b *bench) {
		in := inbound("main", "hello")
		in.Address.Channel = "gone"
		got, err := b.Intake(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(got.Run); rec.State != run.Failed || !strings.Contains(rec.Error, `no channel "gone"`) {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
	})
}

// The call that was lost may have cost all there was: it is not made again, and
// what became of it is not left open.
func TestALostAnswerThatLeavesNoBudgetIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	price := []model.Override{{Provider: "brain", Model: "brain-1", Price: model.Price{Input: 1, Output: 1}}}
	d, key := dbtest.SQLite(t), newVault(t)
	var asks atomic.Int32
	free := make(chan struct{})
	m := func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
		if asks.Add(1) == 1 {
			<-free
		}
		return echo(ctx, req, sink)
	}
	limit := budget.Config{Run: budget.At(9000)} // one answer of 4096 tokens and its question, not two
	dead := open(t, d, setup{vault: key, prices: price, budget: limit, main: m})
	got := dead.tell("main", "hello")
	dead.until("the model to be asked", func() bool { return asks.Load() == 1 })
	reserved := dead.count("SELECT max(reserved) FROM budget_totals")
	if reserved <= 4500 || reserved > 9000 {
		t.Fatalf("%d are reserved: the limit of this test is wrong", reserved)
	}
	b := open(t, d, setup{vault: key, prices: price, budget: limit, main: m})
	if a := b.answer(got.Run); a.Outcome != OverBudget || asks.Load() != 1 {
		t.Errorf("%+v, asked %d times", a, asks.Load())
	}
	if s := b.step(got.Run, "model/0"); s.State == run.Open {
		t.Error("the run has ended and its step is open")
	}
	if n := b.count("SELECT sum(reserved) FROM budget_totals"); n != 0 {
		t.Errorf("%d stay reserved", n)
	}
	if n := b.count("SELECT sum(possible) FROM budget_totals"); n <= 0 {
		t.Error("the lost answer is booked as free")
	}
	close(free)
	dead.stop()
	if _, err := b.Runs.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}
