package child

import (
	"context"
	"log/slog"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Config of a Starter.
type Config struct {
	Grace  time.Duration // from SIGTERM to SIGKILL; default 3 s
	Linger time.Duration // for a program that was told to end, or closed its output, to do so; default 5 s
	Lang   []string      // LANG, LC_*, TZ and PATH of the daemon, "NAME=value"; anything else is passed over
	Logger *slog.Logger  // nil: nothing is logged
}

// Starter starts coding agents. It is safe for concurrent use.
type Starter struct {
	launcher *confine.Launcher
	cfg      Config
}

// New returns a Starter that starts its programs by launcher.
func New(launcher *confine.Launcher, cfg Config) *Starter {
	return &Starter{launcher: launcher, cfg: cfg}
}

// Run runs a task to its end. An error says that the program was not started and
// why; whatever happened after that is in the record.
func (s *Starter) Run(ctx context.Context, t Task) (harness.Record, error) {
	return harness.Record{}, fault.New(fault.Unavailable, "run %s: not built yet", t.CLI)
}

// Probe asks a program for its version and whether it is logged in. It uses no
// tokens. An error says that the program could not be run.
func (s *Starter) Probe(ctx context.Context, t Target) (Probe, error) {
	return Probe{}, fault.New(fault.Unavailable, "probe %s: not built yet", t.CLI)
}

func newPi(version string) bool { return version != "" && version[0] != '0' }
