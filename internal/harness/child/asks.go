package child

import (
	"context"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Bounds of what an agent may ask.
const (
	maxAtOnce = 16  // permissions that wait at the same time
	maxPaths  = 64  // that one names
	maxBooked = 500 // decisions that are noted for the record
)

// asks puts what an agent asks to whoever decides it, and notes what was decided.
type asks struct {
	ctx   context.Context // ends with the run
	task  *Task
	vigil *vigil
	room  chan struct{}
	open  sync.WaitGroup

	mu      sync.Mutex
	decided map[string]harness.Decision // by the id of the tool call
}

func newAsks(ctx context.Context, t *Task, v *vigil) *asks {
	return &asks{ctx: ctx, task: t, vigil: v, room: make(chan struct{}, maxAtOnce), decided: map[string]harness.Decision{}}
}

// ask decides, at once or by asking, and then replies. It does not wait: reply may be
// called by another goroutine, and is always called.
func (a *asks) ask(q Ask, reply func(Answer)) {
	q = bounded(q)
	if why := a.refuse(&q); why != "" {
		a.note(q.ID, Answer{})
		reply(Answer{Why: why})
		return
	}
	select {
	case a.room <- struct{}{}:
	default:
		a.note(q.ID, Answer{})
		reply(Answer{Why: "too many questions wait already"})
		return
	}
	a.vigil.ask(1)
	a.open.Go(func() {
		defer func() { <-a.room; a.vigil.ask(-1) }()
		answer := a.task.Permit(a.ctx, q)
		if a.ctx.Err() != nil {
			answer = Answer{Why: "the run is being ended"}
		}
		a.note(q.ID, answer)
		reply(answer)
	})
}

// refuse says why something is not even asked.
func (a *asks) refuse(q *Ask) string {
	changes := q.Kind == KindEdit || q.Kind == KindCommand
	switch {
	case len(q.Input) > maxAsked:
		return "that is too long to be looked at"
	case a.task.Brain && q.Kind != KindMCP:
		return "only the tools of " + server + " may be used here"
	case changes && !a.task.Write:
		return "nothing may be changed here: this task only reads"
	case a.task.Permit == nil:
		return "nobody is there to allow it"
	}
	return ""
}

func (a *asks) note(id string, answer Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == "" || len(a.decided) >= maxBooked {
		return
	}
	a.decided[id] = harness.Refusal
	if answer.Allow {
		a.decided[id] = harness.Allowed
	}
}

// book puts what was decided into a record: its reader did not see what we answered.
func (a *asks) book(r *harness.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range r.Permissions {
		p := &r.Permissions[i]
		if d, is := a.decided[p.ToolID]; is && p.Decision == harness.Asked {
			p.Decision = d
		}
	}
}

// wait returns when nobody is asked any more. The context has ended by then.
func (a *asks) wait() { a.open.Wait() }

// bounded cuts what is shown of a question; of its input nothing is cut, since that
// is what is decided on.
func bounded(q Ask) Ask {
	const longest = 4 << 10
	clean := func(text string, most int) string { return fault.Cut(strings.ToValidUTF8(text, "\uFFFD"), most) }
	q.ID, q.Tool, q.Title = clean(q.ID, 512), clean(q.Tool, 512), clean(q.Title, longest)
	if len(q.Paths) > maxPaths {
		q.Paths = append(q.Paths[:maxPaths:maxPaths], "…")
	}
	return q
}
