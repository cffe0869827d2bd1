package supervise

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// Child is a program that was started, with everything it started.
type Child interface {
	PID() int
	Stdin() io.WriteCloser
	Wait() (confine.Exit, error)
	Stop() // politely, then not
	Kill()
	Done() <-chan struct{} // closed when nothing of it is left
}

var _ Child = (*confine.Job)(nil)

// Drain is how long is waited for what is in the pipe of a program that has ended.
const Drain = 2 * time.Second

// Lives is something that lives again and again.
type Lives struct {
	Hold func() bool // the instance is held: nothing is started
	Held func()      // is told so
	Once func(ctx context.Context) (ran time.Duration, err error)
	// Ended is told the end of each life, and says how long to pause before the next.
	Ended func(ctx context.Context, ran time.Duration, err error) time.Duration
	Kick  <-chan struct{} // ends a pause
}

// Run lives until ctx ends.
func (l Lives) Run(ctx context.Context) {
	for l.released(ctx) {
		ran, err := l.Once(ctx)
		if ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(l.Ended(ctx, ran, err))
		select {
		case <-timer.C:
		case <-l.Kick:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// lookEvery is how often is looked whether an instance was let go.
const lookEvery = time.Second

// released waits until the instance is not held; false if ctx ended first.
func (l Lives) released(ctx context.Context) bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for l.Hold() {
		l.Held()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// Gone is why a life ended: how its program ended goes before what was noticed of it first.
// over is closed when somebody ends the life, who knows the cause; said is the end of a
// sentence about it. hint, for a program that was refused something, may be empty.
func Gone(noticed error, child Child, over <-chan struct{}, said func() string, hint string) error {
	if _, told := errors.AsType[*fault.Error](noticed); told {
		return noticed
	}
	settle := time.NewTimer(Drain)
	defer settle.Stop()
	select {
	case <-over:
	case <-child.Done():
		exit, err := child.Wait()
		if err != nil {
			return fault.New(fault.Unavailable, "it ended: %w", err)
		}
		ended := fault.New(fault.Unavailable, "it ended: %s%s%s", exit, refused(exit), said())
		if len(exit.Denials) > 0 && hint != "" {
			return ended.WithHint("%s", hint)
		}
		return ended
	case <-settle.C:
	}
	return fault.New(fault.Unavailable, "%w", noticed)
}

// refused names what its walls kept a program from: often why it ended.
func refused(e confine.Exit) string {
	const most = 3
	var out []string
	for _, d := range e.Denials[:min(most, len(e.Denials))] {
		out = append(out, d.What+" "+guard.OneLine(d.Target, 120))
	}
	if len(out) == 0 {
		return ""
	}
	return "; it was refused: " + strings.Join(out, ", ")
}
