package act

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

// starter adds a tool that starts a run of kind "work", which does what work says.
func (b *bench) starter(work func(ctx context.Context, r *run.Run) ([]byte, error)) {
	if err := b.kinds.Add(run.Kind{Name: "work", Heard: true, Handle: work}); err != nil {
		b.t.Fatal(err)
	}
	def := define("start")
	def.Kind = tool.Local
	b.add(def, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		b.called("start")
		id, err := b.StartTx(ctx, in.Tx, run.Spec{Kind: "work", Parent: in.Run, Actor: in.Subject})
		return tool.Output{Awaits: id}, err
	})
}

// parked waits until a run waits for another, and returns which.
func (b *bench) parked(id string) string {
	b.t.Helper()
	woken, stop := b.Watch()
	defer stop()
	for {
		rec, _, err := b.Get(b.t.Context(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if rec.State == run.Waiting && rec.Wait == run.ForRun {
			return rec.WaitRef
		}
		<-woken
	}
}

func TestACallThatStartsARunIsWhatTheRunComesTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status Status
		class  fault.Class
		text   string
	}{
		"done":   {nil, OK, "", "its report"},
		"failed": {fault.New(fault.Unavailable, "no such program"), Failed, fault.Unavailable, "it did not come to an end: no such program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := setup(t, d)
				b.starter(func(ctx context.Context, r *run.Run) ([]byte, error) {
					if _, err := r.WaitSignal(ctx, "wait", "go", 0); err != nil {
						return nil, err
					}
					if c.err != nil {
						return nil, c.err
					}
					return json.Marshal(Awaited{Text: "its report", Label: label.Of(label.Untrusted("work"), label.OperatorOnly)})
				})
				call := to("tool/1", "start", `{"as":"free"}`)
				id := b.start(call)
				work := b.parked(id)
				b.halt() // it survives the process
				b.boot()
				if err := b.Signal(t.Context(), work, "go", json.RawMessage("{}"), "test"); err != nil {
					t.Fatal(err)
				}
				got := b.end(id, call)[0]
				if got.Status != c.status || got.Text != c.text || got.Class != c.class || !got.Label.Tainted() {
					t.Errorf("the call came to %+v", got)
				}
				if n := b.calls["start"]; n != 1 {
					t.Errorf("the run was started %d times", n)
				}
			})
		})
	}
}

func TestACallThatCanGoOnIsNotWaitedForWhenTheDaemonStops(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		def := define("long")
		def.Repeat, def.Resumes = tool.Repeatable, true
		began := make(chan string, 2)
		b.add(def, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
			began <- in.Key
			if b.called("long") > 1 {
				return tool.Output{Text: "went on"}, nil
			}
			<-ctx.Done()
			return tool.Output{}, fault.New(fault.Unknown, "stopped: %w", context.Cause(ctx))
		})
		call := to("tool/1", "long", `{"as":"free"}`)
		id := b.start(call)
		first := <-began
		b.halt()
		b.boot()
		if got := b.end(id, call)[0]; got.Status != OK || got.Text != "went on" {
			t.Errorf("the call came to %+v", got)
		}
		if again := <-began; again != first {
			t.Errorf("it was made with the key %s and went on with %s", first, again)
		}
	})
}

func TestOnlyAnEffectThatIsRepeatableResumes(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	def := define("odd")
	def.Resumes = true
	err := b.tools.Add(def, func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{}, nil })
	if !fault.Is(err, fault.Config) {
		t.Errorf("it was added: %v", err)
	}
}
