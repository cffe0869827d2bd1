// Package daemon puts the parts together and runs them. It is the only package
// that knows all of them, and it holds no rules of its own.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/remote"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/deadletter"
	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/grant"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
	"github.com/ombud-run/ombud/internal/hold"
	"github.com/ombud-run/ombud/internal/httpd"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/mcp/asks"
	mcpclient "github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/mcp/guests"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/signed"
	"github.com/ombud-run/ombud/internal/tool"
	toolprocess "github.com/ombud-run/ombud/internal/tools/process"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

// Options says what to run.
type Options struct {
	Instance    instance.Instance
	Config      *config.Loaded
	Environment config.Environment
	Logger      *slog.Logger
	Version     string
	Auto        bool   // a command started it by itself
	Ready       func() // called once, when clients can connect

	// What can open the vault beside the configured sources: a passphrase that was
	// typed elsewhere, or found there in the variable, and a person to ask.
	Handed         *vault.Secret
	HandedVariable bool
	Ask            func(context.Context, vault.Question) (*vault.Secret, error)

	recovery *vault.Secret // opens the vault in the place of all others
	stretch  vault.Stretch // for tests; nil is Argon2id
}

// stopGrace is how long a stop waits for what is under way.
const stopGrace = 15 * time.Second

// Run runs a daemon until ctx ends or a client stops it. Errors: Running if another
// one has the instance, Config, Verification if the store cannot be trusted, or
// what kept a part from starting.
func Run(ctx context.Context, o Options) (err error) {
	noCore()
	defer o.Handed.Wipe()
	if o.Config.Config.Store.Postgres.Set() {
		return takeTurns(ctx, o)
	}
	return work(ctx, o, turn{})
}

// work is the daemon from its opening to its end.
func work(ctx context.Context, o Options, t turn) (err error) {
	d, err := open(ctx, o, t)
	if t.seat == nil {
		o.Handed.Wipe()
	}
	if err != nil {
		return err
	}
	defer func() { err = d.hide.Error(errors.Join(err, d.close())) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	if o.Ready != nil {
		o.Ready()
	}
	select {
	case <-ctx.Done():
		d.log.Info("stopping: a signal")
	case <-d.asked:
		if cause := d.failed.Load(); cause != nil {
			d.log.Error("stopping", "error", *cause)
			return *cause
		}
		d.log.Info("stopping: asked by a client")
	case <-t.asked():
		d.log.Info("stopping: asked by a client while it was becoming the active node")
	case <-t.lost():
		d.log.Warn("another node has become the active one: everything is stopped here")
		return db.ErrReplaced
	}
	return nil
}

// Daemon is every part, constructed.
type Daemon struct {
	o            Options
	log          *slog.Logger
	hide         *redact.Redactor // knows every secret; see hiding
	secrets      *secret.Secrets
	db           *db.DB
	seat         *db.Seat // nil: the store is SQLite, and this process alone has it
	awaited      *standby // answers clients until this daemon does; nil: there was nobody to wait for
	keeper       *vault.Keeper
	vault        *vault.Vault
	vaultNotes   []string // what opening the vault found and mended
	events       *eventlog.Log
	audit        *audit.Audit
	anchor       *audit.Anchor // nil: the record is not anchored
	blobs        *blob.Store
	budget       *budget.Budget
	tools        *tool.Registry
	confined     confining
	processes    *toolprocess.Processes
	servers      *mcpclient.Servers // of MCP, whose tools are called
	checkpoints  *checkpoint.Checkpoints
	roles        *policy.Roles
	approvals    *approval.Approvals
	grants       *grant.Grants
	hold         *hold.Hold
	act          *act.Act
	runs         *run.Engine
	schedules    *schedule.Schedules
	triggers     *trigger.Triggers
	kit          loops.Deps // what loops and recipes work with
	loopSet      *loops.Loops
	health       *loops.Integrations
	keys         *keyproxy.Broker // of coding agents, which do not have them
	delegations  *delegate.Service
	delegateDeps delegate.Deps // what they use, filled in when all of it is there
	signed       *signed.Library
	signedWork   *signed.Work
	recipes      *recipe.Library
	recipeWork   *recipe.Work
	memory       *memory.Memory
	outbox       *outbox.Outbox
	letters      *deadletter.Letters
	agents       *agent.Agents
	models       *models
	prices       *model.Catalog
	server       *ipc.Server

	listener *httpd.Server // the network's; nil: it is off

	// What connects below the operator.
	jobs        *job.Jobs
	pairing     *pairing.Pairing
	remote      *remote.Remote
	channels    *channel.Channels
	agentServer *ipc.Server
	mcpClients  *guests.Clients
	mcpHTTP     *server.HTTP

	mcpAsks  *asks.Service // answers what servers of MCP ask within a call
	asksDeps asks.Deps     // what it uses, filled in when all of it is there

	backing sync.Mutex // held while a backup is written
	began   time.Time
	asked   chan struct{} // closed when a client asks the daemon to stop
	askOnce sync.Once
	failed  atomic.Pointer[error] // why the daemon must end, if not because it was asked to
	stops   []stop                // in the order of the starts
	loops   sync.WaitGroup
	quit    context.CancelFunc
	unadopt func()
}

// start starts the parts in order and undoes it all if one fails (by close).
func (d *Daemon) start(ctx context.Context) error {
	type part struct {
		name  string
		start func(context.Context) error
		stop  func(context.Context) error
	}
	plain := func(f func()) func(context.Context) error {
		return func(context.Context) error { f(); return nil }
	}
	nothing := plain(func() {})
	agentStart, agentStop := d.serve(d.o.Instance.AgentSocket(), d.agentServer)
	operatorStart, operatorStop := d.serve(d.o.Instance.Socket(), d.server)
	for _, p := range []part{
		{"orphans", d.adopt, plain(func() { d.unadopt() })},
		{"anchors", d.startAnchor, d.stopAnchor},
		{"audit", d.audit.Start, d.audit.Stop},
		{"vault", d.startVault, plain(d.keeper.Close)},
		{"keys of coding agents", nil, d.keys.Close},
		{"programs", nil, d.closeConfine},
		{"secrets", nil, d.secrets.Flush},
		{"act", nil, d.act.Stop},
		{"approvals", d.approvals.Start, plain(d.approvals.Stop)},
		{"adapters", d.remote.Open, nothing},
		{"channels", d.channels.Open, nothing}, // they send from here on, and listen when all that hears is there
		{"outbox", d.outbox.Start, plain(d.outbox.Stop)},
		{"tool processes", d.processes.Start, d.processes.Stop},
		{"servers", d.servers.Start, d.servers.Stop},
		{"recipes", d.recipes.Start, plain(d.recipes.Stop)}, // before runs of them go on: what a file grants no longer is gone
		{"signed loops", d.startSigned, d.signedWork.Close}, // the same, and no run needs a module any more when it stops
		{"runs", d.runs.Open, d.runs.Stop},
		{"ends of tasks", d.settleDelegations, nothing},
		{"subscriptions", func(ctx context.Context) error { return d.events.Start(ctx, d.subscriptions()...) }, plain(d.events.Stop)},
		{"loops", d.startLoops, nothing},
		{"schedules", d.schedules.Start, plain(d.schedules.Stop)},
		{"upkeep", d.startUpkeep, plain(d.stopUpkeep)},
		{"standby", d.awaited.stop, nothing},
		{"agent socket", agentStart, agentStop},
		{"listener", d.startListener, d.stopListener},
		{"clients", nil, d.mcpHTTP.Close}, // streams they keep open would hold the listener up
		{"networks", d.channels.Start, plain(d.channels.Stop)},
		{"socket", operatorStart, operatorStop},
	} {
		if p.start != nil {
			if err := p.start(ctx); err != nil {
				return err
			}
		}
		d.stops = append(d.stops, stop{p.name, p.stop})
	}
	d.log.Info("ready", "pid", os.Getpid(), "instance", d.o.Instance.Name, "store", d.db.Kind(),
		"ms", time.Since(d.began).Milliseconds(), "model", d.models.main.why)
	return nil
}

// close stops what was started, the last first, and closes the store.
func (d *Daemon) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	last := []stop{
		{"store", func(context.Context) error { return d.db.Close() }},
		{"models", func(context.Context) error { d.models.close(); return nil }},
	}
	return stopAll(ctx, d.log, append(last, d.stops...))
}

// stop ends a part.
type stop struct {
	part string
	do   func(context.Context) error
}

// slowStop is how long a part may take to stop without a word.
const slowStop = time.Second

// stopAll stops parts, the last first. One that takes its time is named meanwhile, so
// that whoever waits can see for what.
func stopAll(ctx context.Context, log *slog.Logger, parts []stop) error {
	var errs []error
	for _, s := range slices.Backward(parts) {
		began := time.Now()
		slow := time.AfterFunc(slowStop, func() { log.Warn("stopping takes its time", "part", s.part) })
		errs = append(errs, s.do(ctx))
		if !slow.Stop() {
			log.Info("stopped at last", "part", s.part, "ms", time.Since(began).Milliseconds())
		}
	}
	return errors.Join(errs...)
}

// ask makes Run return.
func (d *Daemon) ask() { d.askOnce.Do(func() { close(d.asked) }) }

// startUpkeep begins what is done now and then.
func (d *Daemon) startUpkeep(context.Context) error {
	ctx, quit := context.WithCancel(context.Background())
	d.quit = quit
	if err := d.watchFiles(ctx); err != nil {
		quit()
		return err
	}
	clock := d.events.WatchClock(eventlog.Clocks())
	d.every(ctx, "look at the clock", 5*time.Second, func(ctx context.Context) error {
		_, err := clock.RunOnce(ctx)
		return err
	})
	d.every(ctx, "see whether another node let go", time.Second, func(ctx context.Context) error {
		if !d.hold.Held() {
			return nil
		}
		return d.hold.Look(ctx)
	})
	d.every(ctx, "write counted refusals", time.Minute, d.act.FlushRefusals)
	d.every(ctx, "write counted refusals of programs", time.Minute, func(ctx context.Context) error { return d.flushDenials(ctx, false) })
	d.every(ctx, "note which secrets were used", time.Minute, d.secrets.Flush)
	d.every(ctx, "write counted refusals of webhooks", time.Minute, d.triggers.FlushRefusals)
	d.every(ctx, "end jobs whose run has ended", 5*time.Second, func(ctx context.Context) error {
		_, err := d.jobs.Sweep(ctx)
		return err
	})
	d.every(ctx, "tell of dead letters", 5*time.Second, d.letters.TellDue)
	d.every(ctx, "forget what is old", time.Hour, d.forget)
	d.loops.Go(func() { d.giveBack(ctx) })
	return nil
}

// settled is how long after its start a daemon has what it needs.
const settled = 3 * time.Second

// giveBack gives what only the start needed back to the system, once: an idle daemon would keep
// it for many minutes, because it collects so rarely.
func (d *Daemon) giveBack(ctx context.Context) {
	t := time.NewTimer(settled)
	defer t.Stop()
	select {
	case <-t.C:
		debug.FreeOSMemory()
		if err := unmapPages(); err != nil {
			d.log.Debug("give pages of the program back", "error", err)
		}
	case <-ctx.Done():
	}
}

// forget clears away what is kept for a time. A held instance keeps all of it: its
// clock has moved on without it, and the refs of checkpoints that it does not know may
// be those of the instance its backup was made of, which has the same key and works on.
func (d *Daemon) forget(ctx context.Context) error {
	if d.hold.Held() {
		return nil
	}
	_, inbound := d.agents.PruneInbound(ctx, d.db.Time())
	_, facts := d.memory.Sweep(ctx)
	_, checkpoints := d.checkpoints.Sweep(ctx)
	_, blobs := d.blobs.Sweep(ctx)
	_, _, loops := d.kit.Forget(ctx)
	return errors.Join(inbound, facts, checkpoints, blobs, loops, d.jobs.Forget(ctx), d.letters.Forget(ctx), d.triggers.Prune(ctx), d.recipes.Forget(ctx), d.signed.Forget(ctx), d.channels.Forget(ctx), d.mcpClients.Forget(ctx))
}

func (d *Daemon) every(ctx context.Context, what string, pause time.Duration, do func(context.Context) error) {
	d.loops.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := do(ctx); err != nil && ctx.Err() == nil {
				d.log.Warn(what, "error", err)
			}
		}
	})
}

func (d *Daemon) stopUpkeep() {
	d.quit()
	d.loops.Wait()
}
