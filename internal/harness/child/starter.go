package child

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Config of a Starter.
type Config struct {
	Grace   time.Duration // from SIGTERM to SIGKILL; default 3 s
	Linger  time.Duration // for a program that was told to end, or closed its output, to do so; default 5 s
	Environ []string      // the daemon's environment; only PATH, LANG, LC_* and TZ of it are handed on
	Logger  *slog.Logger  // nil: nothing is logged
}

// Starter starts coding agents. It is safe for concurrent use.
type Starter struct {
	launcher *confine.Launcher
	cfg      Config
	log      *slog.Logger
	rooms    rooms

	mu   sync.Mutex
	busy map[session]struct{} // the sessions with a run under way
}

type session struct {
	cli harness.Name
	id  string
}

// New returns a Starter that starts its programs by launcher.
func New(launcher *confine.Launcher, cfg Config) *Starter {
	cfg.Grace = cmp.Or(cfg.Grace, 3*time.Second)
	cfg.Linger = cmp.Or(cfg.Linger, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Starter{launcher: launcher, cfg: cfg, log: cfg.Logger, busy: map[session]struct{}{}}
}

// Run runs a task to its end, and returns when nothing of the program is left. An
// error says that the program was not started and why; whatever happened after that
// is in the record. When ctx ends, so does the run: the agent is interrupted if it
// can be, then everything of it gets SIGTERM and after a grace SIGKILL.
//
// What this package ended has the outcome harness.Killed and one of the Reasons,
// unless the run had told its outcome before.
func (s *Starter) Run(ctx context.Context, t Task) (harness.Record, error) {
	adapter, err := harness.ByName(t.CLI)
	if err != nil {
		return harness.Record{}, err
	}
	if err := t.check(); err != nil {
		return harness.Record{}, err
	}
	release, err := s.claim(&t)
	if err != nil {
		return harness.Record{}, err
	}
	defer release()
	room, err := s.rooms.open(t.State, t.CLI)
	if err != nil {
		return harness.Record{}, err
	}
	defer s.clear(room)
	p := planOf(&t, room, s.launcher.Report().Confined)
	if err := room.write(p.files); err != nil {
		return harness.Record{}, err
	}
	return s.hold(ctx, &t, p, room, adapter.Decoder(t.Version))
}

// claim sees that no session has two runs at once: claude mixes them, others refuse.
func (s *Starter) claim(t *Task) (release func(), err error) {
	id := session{t.CLI, cmp.Or(t.Session, t.NewSession)}
	if id.id == "" {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.busy[id]; is {
		return nil, fault.New(fault.Conflict, "run %s: session %s has a run under way", t.CLI, id.id).
			WithHint("wait for that run, or stop it")
	}
	s.busy[id] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, id)
	}, nil
}

func (s *Starter) clear(r *room) {
	if err := s.rooms.close(r); err != nil {
		s.log.Warn("remove the files of a run", "error", err)
	}
}
