package act

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

// interrupted starts a call, lets another process take its run over while the
// call is under way, and returns the result there. The first process goes on as a
// zombie after that; what it comes to must not count.
func interrupted(t *testing.T, def tool.Definition, between func(*bench)) (*bench, string, Result) {
	t.Helper()
	b := setup(t, dbtest.SQLite(t))
	began, release := make(chan struct{}), make(chan struct{})
	b.add(def, func(context.Context, tool.Invocation) (tool.Output, error) {
		if b.called(def.Name) == 1 {
			close(began)
			<-release
			return tool.Output{Text: "of a zombie"}, nil
		}
		return tool.Output{Text: "again"}, nil
	})
	c := to("tool/1", def.Name, `{"as":"free"}`)
	id := b.start(c)
	<-began
	if between != nil {
		between(b)
	}
	zombie := b.Engine
	b.boot()
	got := b.end(id, c)[0]
	close(release)
	if err := zombie.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	return b, id, got
}

func TestAnInterruptedCallGoesByItsTool(t *testing.T) {
	t.Parallel()
	probe := func(s tool.ProbeState) func(context.Context, tool.Invocation) (tool.ProbeResult, error) {
		return func(_ context.Context, in tool.Invocation) (tool.ProbeResult, error) {
			return tool.ProbeResult{State: s, Output: tool.Output{Text: "found " + in.Key[len(in.Key)-6:]}}, nil
		}
	}
	for name, c := range map[string]struct {
		repeat tool.Repeat
		probe  func(context.Context, tool.Invocation) (tool.ProbeResult, error)
		status Status
		state  run.StepState
		text   string
		calls  int
	}{
		"at most once":       {tool.AtMostOnce, nil, Unclear, run.Unknown, "interrupted", 1},
		"repeatable":         {tool.Repeatable, nil, OK, run.Done, "again", 2},
		"probed: done":       {tool.Probed, probe(tool.Done), OK, run.Done, "found tool/1", 1},
		"probed: not done":   {tool.Probed, probe(tool.NotDone), OK, run.Done, "again", 2},
		"probed: who knows?": {tool.Probed, probe(tool.Unclear), Unclear, run.Unknown, "cannot be told", 1},
		"probe that panics": {tool.Probed, func(context.Context, tool.Invocation) (tool.ProbeResult, error) { panic("oh") },
			Unclear, run.Unknown, "cannot be told", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def := define("t.send")
			def.Repeat, def.Probe = c.repeat, c.probe
			b, id, got := interrupted(t, def, nil)
			expect(t, got, c.status, c.text)
			s := b.step(id, "tool/1")
			if s.State != c.state || b.called("t.send") != c.calls || s.Audit.Seq == 0 || s.Repeats != c.calls-1 {
				t.Errorf("step %s, called %d times, %d repeats, audit %d", s.State, b.called("t.send"), s.Repeats, s.Audit.Seq)
			}
			if strings.Contains(string(s.Result), "zombie") {
				t.Errorf("the zombie wrote %s", s.Result)
			}
		})
	}
}

func TestAnInterruptedCallOfAToolThatIsGoneIsUnknown(t *testing.T) {
	t.Parallel()
	for _, repeat := range []tool.Repeat{tool.AtMostOnce, tool.Repeatable} {
		def := define("t.send")
		def.Repeat = repeat
		b, id, got := interrupted(t, def, (*bench).newTools)
		expect(t, got, Unclear)
		if s := b.step(id, "tool/1"); s.State != run.Unknown || b.called("t.send") != 1 {
			t.Errorf("%s: step is %s, called %d times", repeat, s.State, b.called("t.send"))
		}
	}
}

func TestAnApprovalThatLapsedBeforeItsUseIsARefusal(t *testing.T) {
	t.Parallel()
	for _, kind := range []tool.Kind{tool.Effect, tool.Local} {
		b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Good = time.Microsecond })
		def := define("t.send")
		def.Kind = kind
		b.add(def, text("sent"))
		c := to("tool/1", "t.send", `{"as":"ask"}`)
		id := b.start(c)
		b.decide(b.asked(id), approval.Approve)
		expect(t, b.end(id, c)[0], Refused, "has expired")
		if s := b.step(id, "tool/1"); s.State != run.Errored || s.Audit.Seq == 0 {
			t.Errorf("step is %s", s.State)
		}
	}
}

// TestAnOutcomeWaitsForTheStore cuts the store off between effect and outcome.
func TestAnOutcomeWaitsForTheStore(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	d := dbtest.Open(t, o)
	at, err := url.Parse(o.DSN)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(at.Path, "/")
	at.Path = "/postgres"
	admin, err := pgx.Connect(t.Context(), at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	exec := func(sql string) {
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Error(err)
		}
	}
	b := setup(t, d)
	gone := make(chan struct{})
	b.add(define("t.send"), func(context.Context, tool.Invocation) (tool.Output, error) {
		exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
		exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
		close(gone)
		return tool.Output{Text: "sent"}, nil
	})
	c := to("tool/1", "t.send", `{"as":"free"}`)
	id := b.start(c)
	<-gone
	if _, _, err := b.Get(t.Context(), id); err == nil {
		t.Error("the store is still there")
	}
	exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	expect(t, b.ended(id, c), OK, "sent")
	if s := b.step(id, "tool/1"); s.State != run.Done || b.called("t.send") != 1 || s.Audit.Seq == 0 {
		t.Errorf("step is %s, called %d times", s.State, b.called("t.send"))
	}
}

// ended is end for a store that may be away for a while.
func (b *bench) ended(id string, c planned) Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if rec, err := b.Wait(ctx, id); err == nil && rec.State == run.Completed {
			break
		}
		tick(b.t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.results[id+"/"+c.Step]
}
