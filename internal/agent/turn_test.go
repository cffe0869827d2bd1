package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

// slow waits before it answers, heeding ctx.
func slow(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func TestAnswersComeInTheOrderOfTheirMessages(t *testing.T) {
	t.Parallel()
	lagging := func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
		slow(ctx, time.Duration(1+rand.IntN(100))*time.Millisecond)
		return echo(ctx, req, sink)
	}
	each(t, setup{main: lagging}, func(t *testing.T, b *bench) {
		var last []Accepted
		const n = 8
		for i := range n {
			for c := range 3 {
				got := b.tell(fmt.Sprint("c", c), fmt.Sprint(i))
				if i == n-1 {
					last = append(last, got)
				}
			}
		}
		for _, got := range last {
			b.answer(got.Run)
			var want []string
			for i := range n {
				want = append(want, fmt.Sprint("re: ", i))
			}
			if out := b.out(got.Conversation); !slices.Equal(out, want) {
				t.Errorf("answered %q", out)
			}
		}
	})
}

func TestAHundredConversationsDoNotWaitForAStuckOne(t *testing.T) {
	t.Parallel()
	each(t, setup{main: stuckOn, cfg: Config{Timeout: 5 * time.Minute}}, func(t *testing.T, b *bench) {
		stuck := b.tell("c0", "stuck")
		b.until("the stuck turn at work", func() bool { return b.state(stuck.Run) == run.Running })
		var others []Accepted
		for i := 1; i < 100; i++ {
			others = append(others, b.tell(fmt.Sprint("c", i), fmt.Sprint("hello ", i)))
		}
		for i, got := range others {
			if a := b.answer(got.Run); a.Reply != fmt.Sprint("re: hello ", i+1) {
				t.Errorf("%+v", a)
			}
		}
		if s := b.state(stuck.Run); s != run.Running {
			t.Errorf("the stuck turn is %s", s)
		}
		b.tell("c0", "/stop")
		b.answer(stuck.Run)
	})
}

func TestATurnEndsAtItsDeadlineIsToldAndTheNextIsTaken(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	deaf := func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
		if text, _ := asked(req); text == "stuck" {
			<-free
		}
		return echo(ctx, req, sink)
	}
	for name, m := range map[string]brain{"one that heeds its context": stuckOn, "one that does not": deaf} {
		t.Run(name, func(t *testing.T) {
			sqlite(t, setup{main: m, cfg: Config{Timeout: 1500 * time.Millisecond}}, func(t *testing.T, b *bench) {
				got := b.tell("main", "stuck")
				next := b.tell("main", "next")
				a := b.answer(got.Run)
				if a.Outcome != TimedOut || !strings.Contains(a.Reply, "1.5s") {
					t.Errorf("%+v", a)
				}
				if n := b.answer(next.Run); n.Reply != "re: next" {
					t.Errorf("the next: %+v", n)
				}
				if out := b.out(got.Conversation); !slices.Equal(out, []string{a.Reply, "re: next"}) {
					t.Errorf("told %q", out)
				}
			})
		})
	}
}

func TestStepsAreBounded(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		_, n := asked(req)
		return wants(fmt.Sprintf(`t.put {"n":%d}`, n))
	}}, func(t *testing.T, b *bench) {
		if a := b.ask("main", "go on"); a.Outcome != StepLimit || a.Calls != 32 || b.did("t.put") != 32 {
			t.Errorf("%+v, %d calls", a, b.did("t.put"))
		}
	})
}

func TestCallsAreBoundedAndEveryOneIsAnswered(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		var calls []string
		for i := range 200 {
			calls = append(calls, fmt.Sprintf(`t.look {"n":%d}`, i))
		}
		switch _, n := asked(req); n {
		case 0:
			return wants(calls...)
		case 1:
			last := req.Messages[len(req.Messages)-1]
			over := 0
			for i, p := range last.Parts {
				switch {
				case p.Result == nil || p.Result.CallID != fmt.Sprint("c", i):
					return said(fmt.Sprintf("result %d answers %+v", i, p.Result))
				case strings.Contains(p.Result.Text, "over the limit of 64 calls"):
					over++
				case i >= 64 || !strings.HasSuffix(p.Result.Text, fmt.Sprintf(`{"n":%d}`, i)):
					return said(fmt.Sprintf("result %d is %q", i, p.Result.Text))
				}
			}
			if len(last.Parts) != 200 || over != 136 {
				return said(fmt.Sprintf("%d results, %d over the limit", len(last.Parts), over))
			}
			return wants("t.put")
		}
		return said(strings.Join(results(req), ""))
	}}, func(t *testing.T, b *bench) {
		a := b.ask("main", "go on")
		if a.Outcome != Completed || !strings.Contains(a.Reply, "over the limit") || a.Calls != 64 || b.did("t.look") != 64 || b.did("t.put") != 0 {
			t.Errorf("%+v, %d looks, %d puts", a, b.did("t.look"), b.did("t.put"))
		}
	})
}

func TestATurnThatRepeatsItselfEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls []string // of answer n, the last again and again
		done  int      // calls made in the end
	}{
		"same call":                  {[]string{`t.put {"n":1}`}, 2},
		"same call, other spelling":  {[]string{`t.put {"n":1}`, `t.put { "n" : 1 }`, `t_put {"n":1}`}, 2},
		"cycle of two":               {[]string{"t.put {\"n\":1}", "t.look", "t.put {\"n\":1}", "t.look", "t.put {\"n\":1}", "t.look"}, 5},
		"cycle of three":             {[]string{"t.put {\"n\":1}", "t.look", "t.put", "t.put {\"n\":1}", "t.look", "t.put", "t.put {\"n\":1}", "t.look", "t.put"}, 8},
		"same result":                {[]string{`t.same {"n":1}`, `t.same {"n":2}`, `t.same {"n":3}`}, 3},
		"unknown tools":              {[]string{"t.nope"}, 0},
		"bad input, the same always": {[]string{`t.put {"m`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, dbtest.SQLite(t), setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
				_, n := asked(req)
				return wants(c.calls[min(n, len(c.calls)-1)])
			}})
			a := b.ask("main", "go on")
			if a.Outcome != Looping || !strings.HasPrefix(a.Reply, "I stopped because") || len(b.effects()) != c.done {
				t.Errorf("%+v, done %v", a, b.effects())
			}
		})
	}
}

func TestProgressIsNoLoop(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		_, n := asked(req)
		if n == 12 {
			return said("done")
		}
		return wants(fmt.Sprintf(`t.put {"n":%d}`, n), "t.look")
	}}, func(t *testing.T, b *bench) {
		if a := b.ask("main", "go on"); a.Outcome != Completed || a.Calls != 24 {
			t.Errorf("%+v", a)
		}
	})
}

func TestWhatIsWrongWithACallIsToldToTheModel(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if _, n := asked(req); n == 0 {
			return wants("t.putt", `t.put {"n":`, `t.put {"n":"x","m":1}`, "t.deny", "t.fail", "t_put", "\x00", "t.put [1]")
		}
		return said(strings.Join(results(req), "\n---\n"))
	}}, func(t *testing.T, b *bench) {
		a := b.ask("main", "go on")
		got := strings.Split(a.Reply, "\n---\n")
		if a.Outcome != Completed || len(got) != 8 {
			t.Fatalf("%+v", a)
		}
		for i, want := range []string{"t.put", "JSON", "/n", "not allowed", "it broke", "tool/0.5{}", "no tool", ""} {
			if !strings.Contains(got[i], want) {
				t.Errorf("call %d was answered %q, without %q", i, got[i], want)
			}
		}
		if !strings.Contains(got[2], "m") {
			t.Errorf("only the first problem is told: %q", got[2])
		}
		if n := b.did("t.put"); n != 1 {
			t.Errorf("%d good calls were made", n)
		}
	})
}

func TestAModelThatFailsIsToldAndAskedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var asks atomic.Int32
		failures := map[string]error{
			"denied":  fault.New(fault.Denied, "the key was refused").WithHint("set OTHER_KEY"),
			"busy":    fault.New(fault.Unavailable, "overloaded"),
			"invalid": fault.New(fault.Invalid, "the request is too long"),
			"strange": fmt.Errorf("a\x00b\xff"),
			"long":    fmt.Errorf("%s", strings.Repeat("ä\x00", 2<<20)),
		}
		b := open(t, d, setup{main: func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
			asks.Add(1)
			if text, _ := asked(req); failures[text] != nil {
				return model.Response{}, failures[text]
			}
			return echo(ctx, req, sink)
		}})
		for text, cause := range failures {
			asks.Store(0)
			got := b.tell(text, text)
			rec := b.wait(got.Run)
			a, _ := OutcomeOf(rec)
			if rec.State != run.Failed || a.Outcome != FailedTurn || rec.ErrorClass != fault.ClassOf(cause) || asks.Load() != 1 {
				t.Errorf("%s: %s, %+.300v, asked %d times", text, rec.State, a, asks.Load())
			}
			out := b.out(got.Conversation)
			if len(out) != 1 || !strings.HasPrefix(out[0], "I could not do this: ") || len(out[0]) > 16<<10 {
				t.Errorf("%s: told %.300q", text, out)
			}
			if text == "denied" && !strings.Contains(out[0], "the key was refused (set OTHER_KEY)") {
				t.Errorf("told %q", out)
			}
			if a := b.ask(text, "next"); a.Outcome != Completed {
				t.Errorf("after %s: %+.300v", text, a)
			}
		}
	})
}

func TestReadOnlyCallsRunTogetherAndAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	each(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if _, n := asked(req); n == 0 {
			return wants(`t.gated {"n":0}`, `t.gated {"n":1}`, `t.gated {"n":2}`, `t.gated {"n":3}`)
		}
		return said(strings.Join(results(req), " "))
	}}, func(t *testing.T, b *bench) {
		got := b.tell("main", "look")
		b.until("four calls at once", func() bool { return b.flying.Load() == 4 })
		close(b.gate)
		if a := b.answer(got.Run); a.Reply != `tool/0.0{"n":0} tool/0.1{"n":1} tool/0.2{"n":2} tool/0.3{"n":3}` {
			t.Errorf("%+v", a)
		}
	})
}

func TestCallsWithAnEffectGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: once(`t.look {"n":1}`, `t.put {"n":2}`, `t.look {"n":3}`, `t.put {"n":4}`)}, func(t *testing.T, b *bench) {
		b.ask("main", "go")
		want := []string{`t.look{"n":1}`, `t.put{"n":2}`, `t.look{"n":3}`, `t.put{"n":4}`}
		if got := b.effects(); !slices.Equal(got, want) || b.most.Load() != 1 {
			t.Errorf("done %v, %d at once", got, b.most.Load())
		}
	})
}

func TestALongResultIsCutForTheModelAndKeptWhole(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if _, n := asked(req); n == 0 {
			return wants("t.big")
		}
		return said(results(req)[0])
	}}, func(t *testing.T, b *bench) {
		got := b.tell("main", "go")
		a := b.answer(got.Run)
		if a.Outcome != Completed || len(a.Reply) > act.MaxText || !strings.Contains(a.Reply, "262144 bytes in all") {
			t.Errorf("%d bytes: %.100q", len(a.Reply), a.Reply)
		}
	})
}

// What is streamed is a hint: the reply is what the answer says.
func TestStreamedTextIsAHintAndTheReplyCounts(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{cfg: Config{Compact: 1, History: 1}, summary: func(_ context.Context, _ model.Request, sink model.Sink) (model.Response, error) {
		sink.Send(model.Delta{Text: "SUMMARY"})
		return said("SUMMARY")
	}, main: func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
		if text, _ := asked(req); text != "stream" {
			return echo(ctx, req, sink)
		}
		sink.Send(model.Delta{Text: "not "})
		sink.Send(model.Delta{Restart: true})
		for range 2 * liveBuffer {
			sink.Send(model.Delta{Text: "x"})
		}
		return said("the answer")
	}}, func(t *testing.T, b *bench) {
		b.ask("main", "hello")
		got := b.tell("main", "stream") // summarises, since there is history now
		notes, stop := b.Live().Watch(got.Run)
		defer stop()
		if a := b.answer(got.Run); a.Reply != "the answer" {
			t.Errorf("%+v", a)
		}
		b.step(got.Run, "summary")
		for len(notes) > 0 {
			if n := <-notes; strings.Contains(n.Text, "SUMMARY") {
				t.Error("the summary was streamed as if it were the reply")
			}
		}
	})
}
