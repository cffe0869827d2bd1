package confine

import (
	"context"
	"log/slog"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
)

// Launcher starts jobs. It is safe for concurrent use.
type Launcher struct {
	o   Options
	log *slog.Logger

	mu     sync.Mutex
	jobs   map[*Job]struct{}
	closed bool
}

// New returns a Launcher.
func New(o Options) (*Launcher, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Launcher{o: o, log: o.Logger, jobs: map[*Job]struct{}{}}, nil
}

// Start starts a program. An error says that nothing of it ran. ctx bounds the
// start alone: end the job by its methods.
func (l *Launcher) Start(ctx context.Context, s Spec) (*Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fault.New(fault.Unavailable, "run %s: not confined", s.Path)
}

// Report says what is in force.
func (l *Launcher) Report() Report { return Report{Enforce: l.o.Enforce} }

// Close ends every job and waits for them. Nothing starts afterwards.
func (l *Launcher) Close() {
	l.mu.Lock()
	l.closed = true
	jobs := make([]*Job, 0, len(l.jobs))
	for j := range l.jobs {
		jobs = append(jobs, j)
	}
	l.mu.Unlock()
	for _, j := range jobs {
		j.Kill()
	}
	for _, j := range jobs {
		<-j.Done()
	}
}
