package cli

import (
	"context"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

const (
	startLimit = 10 * time.Second // a daemon that has not answered by then is given up on
	stopLimit  = 30 * time.Second
	pollStep   = 10 * time.Millisecond
	pingLimit  = 3 * time.Second // a daemon that is there answers a ping at once
	respawnGap = 100 * time.Millisecond
	// respawnAnyway is for a lock that seems to be held.
	respawnAnyway = 2 * time.Second
	maxKills      = 3 // after that many daemons killed while they start it is no accident
)

// loadConfig reads the configuration as a daemon started here would.
func (a *app) loadConfig(flags ...config.Override) (*config.Loaded, error) {
	return a.loadConfigFile(a.where.ConfigFile(), flags...)
}

func (a *app) loadConfigFile(path string, flags ...config.Override) (*config.Loaded, error) {
	return config.Load(config.Input{
		File:     path,
		Getenv:   a.getenv,
		EnvNames: config.OSEnvNames(),
		Flags:    flags,
		Scope: func(s string) error {
			_, err := scope.Parse(s)
			return err
		},
	})
}

// place is what the roof needs to work on the store without a daemon.
func (a *app) place() (Place, error) {
	loaded, err := a.loadConfig()
	if err != nil {
		return Place{}, err
	}
	return a.placeOf(loaded), nil
}

func (a *app) placeOf(loaded *config.Loaded) Place {
	p := Place{Instance: a.where, Config: loaded, Environment: config.ReadEnvironment(a.getenv)}
	if a.hasTerminal() {
		p.Ask = func(ctx context.Context, q vault.Question) (*vault.Secret, error) {
			secret, err := a.askPassphrase(ctx, q)
			if err == nil {
				a.answered, err = vault.NewPassphrase("typed in the terminal", secret.Reveal()) // a command may need it twice
			}
			return secret, err
		}
	}
	return p
}

// running reports whether a daemon answers. An error says that this cannot be
// told, or that what answers is not to be trusted.
func (a *app) running(ctx context.Context) (bool, error) {
	if err := a.where.CheckRuntime(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingLimit, fault.New(fault.Timeout, "the daemon does not answer").
		WithHint("ombud doctor tells which process it is"))
	defer cancel()
	tick := time.NewTicker(pollStep)
	defer tick.Stop()
	for {
		_, err := a.client.SystemPing(ctx)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, wire.ErrNoDaemon):
			return false, nil
		case ctx.Err() != nil:
			return false, whyEnded(ctx)
		case !isLost(err):
			return false, err
		}
		// It died with the question on its desk; the next try tells.
		select {
		case <-ctx.Done():
			return false, whyEnded(ctx)
		case <-tick.C:
		}
	}
}

// ensure makes sure that a daemon answers and starts one if none does. started
// tells whether this call did it.
func (a *app) ensure(ctx context.Context) (started bool, err error) {
	up, err := a.running(ctx)
	if err != nil || up {
		return false, err
	}
	return true, a.start(ctx, startAuto)
}

// start starts a detached daemon and waits until one answers. It need not be the
// one started here: of several commands that start one at the same instant, all
// but one lose the lock and take the winner's.
func (a *app) start(ctx context.Context, args ...string) error {
	loaded, err := a.loadConfig()
	if err != nil {
		return err // what the child would say, without the detour
	}
	if err := a.where.MakeDirs(); err != nil {
		return err
	}
	if err := a.gather(ctx, loaded); err != nil {
		return err
	}
	defer func() {
		if a.hand != nil {
			a.hand.secret.Wipe()
			a.hand = nil
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fault.New(fault.Unavailable, "no daemon answered within %s", span(startLimit)).
		WithHint("ombud logs shows how far it came; ombud doctor looks at what it needs"))
	defer cancel()
	tick := time.NewTicker(pollStep)
	defer tick.Stop()
	var c *child
	var ended <-chan struct{}
	last := a.now().Add(-respawnGap) // when the last child ended
	kills := 0
	for {
		_, err := a.client.SystemPing(ctx)
		if err == nil {
			return nil
		}
		if c == nil && errors.Is(err, wire.ErrNoDaemon) && a.mayStart(last) {
			if c, err = a.spawn(args); err != nil {
				return err
			}
			ended = c.ended
		}
		select {
		case <-ctx.Done():
			return whyEnded(ctx)
		case <-ended:
			if c.killed() {
				kills++
			}
			if c.code != fault.CodeOf(fault.Running).Exit && (!c.killed() || kills > maxKills) {
				return c.failure()
			}
			// The lock is held by a daemon that is about to answer, or by one that is
			// about to end; or somebody killed the one we started. In some moments
			// another try tells.
			c, ended, last = nil, nil, a.now()
		case <-tick.C:
		}
	}
}

// mayStart reports whether it is time for a child, when the last one ended at last.
// While somebody holds the lock a child could only lose it, and many commands
// that try all the time keep the winner from its start. Now and then one tries all
// the same: where the lock is looked for, the lock of another file can look like it.
func (a *app) mayStart(last time.Time) bool {
	switch waited := a.now().Sub(last); {
	case waited < respawnGap:
		return false
	case waited >= respawnAnyway:
		return true
	}
	return !a.locked()
}

// greet looks at the daemon that was already there: it tells what the daemon
// lacks and this shell has, and replaces a daemon of another version if it was
// started by a command like this one and has nothing to do.
func (a *app) greet(ctx context.Context) error {
	status, err := a.client.SystemStatus(ctx)
	if err != nil {
		return nil //nolint:nilerr // whatever it is, the call that follows will tell
	}
	if own := thisBuild().Version; status.Version != "" && status.Version != own {
		if status.Detached && status.Idle {
			return a.replace(ctx, status)
		}
		a.note("note: the running daemon is %s, this program is %s; ombud stop and the next ask starts the new one", status.Version, own)
	}
	for _, m := range status.Missing {
		if isKey(m.Name) && a.getenv(m.Name) != "" {
			a.note("note: %s is set here, but not in the running daemon, which keeps the environment it was started in", m.Name)
			a.note("hint: ombud stop, then ask again")
		}
	}
	return nil
}

// isKey keeps to names of variables that hold a model's key.
func isKey(name string) bool { return name == "ANTHROPIC_API_KEY" || name == "OPENAI_API_KEY" }

func (a *app) replace(ctx context.Context, old wire.Status) error {
	a.note("note: restarting the idle daemon: it was %s, this program is %s", old.Version, thisBuild().Version)
	if _, err := a.stopDaemon(ctx); err != nil {
		return err
	}
	return a.start(ctx, startAuto)
}

// stopDaemon ends the daemon and waits until its process is gone, so that the
// next one finds the lock free. One that is starting or ending already has no
// open socket but the lock, and is waited for too. wire.ErrNoDaemon: there is none.
func (a *app) stopDaemon(ctx context.Context) (pid int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, fault.New(fault.Timeout, "the daemon has not ended within %s", span(stopLimit)).
		WithHint("ombud doctor tells its process; kill -9 ends it, and nothing acknowledged is lost"))
	defer cancel()
	tick := time.NewTicker(pollStep)
	defer tick.Stop()
	told := false // it was told to stop, or was seen to be stopping
	for {
		if pid == 0 {
			res, err := a.client.SystemStop(ctx)
			switch {
			case err == nil:
				pid, told = res.PID, true
			case errors.Is(err, wire.ErrNoDaemon) && !a.locked():
				if told {
					return 0, nil
				}
				return 0, err
			case errors.Is(err, wire.ErrNoDaemon) || fault.Is(err, fault.Unavailable):
				told = true
			case ctx.Err() == nil:
				return 0, err
			}
		} else if !alive(pid) {
			return pid, nil
		}
		select {
		case <-ctx.Done():
			return pid, whyEnded(ctx)
		case <-tick.C:
		}
	}
}

// locked reports whether some process is known to hold the instance.
func (a *app) locked() bool {
	_, held, err := lockHolder(a.where.LockFile())
	return err == nil && held
}
