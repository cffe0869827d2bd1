package process

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Deps are the parts tool processes use.
type Deps struct {
	DB    *db.DB
	Vault *vault.Vault
	Log   *eventlog.Log
	Audit Auditor
	Tools *tool.Registry
	// Launch starts a child inside its walls. An error says that nothing of it ran.
	Launch func(ctx context.Context, s confine.Spec) (supervise.Child, error)
	// Dir is the directory a process has for itself.
	Dir func(name string) string
	// Secret gives the value of a secret. Nil: there are none.
	Secret func(ctx context.Context, name string) (string, error)
	// Redact takes secrets out of a line for the log. Nil: as it is.
	Redact func(string) string
	// Held says whether the walls keep a process without network from it. Nil: no.
	Held func() bool
	// Hold says whether the instance is held: then no process is started. Nil: never.
	Hold func() bool
	// Notify makes the call by which the operator is told something. It returns when
	// the call is recorded, not when it is made. Nil: notices are refused.
	Notify func(ctx context.Context, n Notice) error
	Logger *slog.Logger
	Now    func() time.Time // default time.Now
}

// Config tunes the processes; zero fields have defaults.
type Config struct {
	Handshake   time.Duration   // how long a process may take to register; default 10 s
	ReadyWait   time.Duration   // how long a call waits for its process to get ready; default 10 s
	CancelGrace time.Duration   // how long a cancelled call may take to say how it ended; default 1.5 s, below what act allows
	StopGrace   time.Duration   // how long a process may take to end when asked; default 2 s
	Stable      time.Duration   // how long it has to run for its failures to be forgotten; default 1 min
	Backoff     []time.Duration // before each start after a failure, the last for all further; default 1, 5, 25, 125, 300 s
	CrashLoop   int             // failures in a row that are said; default 5
	Calls       int             // calls of one process at a time; default 8
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.Handshake, 10 * time.Second}, {&c.ReadyWait, 10 * time.Second}, {&c.CancelGrace, 1500 * time.Millisecond},
		{&c.StopGrace, 2 * time.Second}, {&c.Stable, time.Minute},
	} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	if len(c.Backoff) == 0 {
		c.Backoff = []time.Duration{time.Second, 5 * time.Second, 25 * time.Second, 125 * time.Second, 300 * time.Second}
	}
	if c.CrashLoop <= 0 {
		c.CrashLoop = 5
	}
	if c.Calls <= 0 {
		c.Calls = 8
	}
	return c
}

// Processes are the tool processes of one daemon. It is safe for concurrent use.
type Processes struct {
	Deps
	cfg    Config
	starts chan struct{} // so many get ready at a time
	change sync.Mutex    // of Add and Remove, for all they take: a name has one process at a time

	mu      sync.Mutex
	byName  map[string]*process
	ctx     context.Context //nolint:containedctx // of all loops, between Start and Stop
	quit    context.CancelFunc
	stopped bool
}

// New returns the processes of a store. None is known before Open, none runs before
// Start.
func New(d Deps, c Config) *Processes {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Redact == nil {
		d.Redact = func(s string) string { return s }
	}
	if d.Hold == nil {
		d.Hold = func() bool { return false }
	}
	if d.Held == nil {
		d.Held = func() bool { return false }
	}
	return &Processes{Deps: d, cfg: c.withDefaults(), starts: make(chan struct{}, 2), byName: map[string]*process{}}
}

func (p *Processes) now() time.Time { return p.Now() }

func (p *Processes) secret(ctx context.Context, name string) (string, error) {
	if p.Secret == nil {
		return "", fault.New(fault.Unavailable, "there are no secrets here")
	}
	return p.Secret(ctx, name)
}

// record is tell in a transaction of its own.
func (p *Processes) record(ctx context.Context, kind, by, outcome string, d eventData) error {
	return p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return p.tell(ctx, tx, kind, by, outcome, d) })
}

// Open makes the tools of all processes known as they were registered last.
func (p *Processes) Open(ctx context.Context) error {
	rows, err := p.load(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rows {
		x := newProcess(p, r)
		if r.known != nil {
			if x.tools, err = x.offer(*r.known); err != nil {
				return err
			}
		}
		p.byName[r.spec.Name] = x
	}
	return nil
}

// Start begins to start every process, and does not wait for any.
func (p *Processes) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx != nil {
		return nil
	}
	p.ctx, p.quit = context.WithCancel(context.Background())
	for _, x := range p.byName {
		p.begin(x)
	}
	return nil
}

// begin is called with the lock, after Start.
func (p *Processes) begin(x *process) {
	ctx, quit := context.WithCancel(p.ctx)
	x.quit = quit
	go x.loop(ctx)
}

// Stop ends every process and waits until nothing of them is left. Their tools stay
// known, and are refused.
func (p *Processes) Stop(context.Context) error {
	p.mu.Lock()
	p.stopped = true
	all := make([]*process, 0, len(p.byName))
	if p.ctx != nil {
		p.quit()
	}
	for _, x := range p.byName {
		if x.quit != nil {
			all = append(all, x)
		}
	}
	p.mu.Unlock()
	for _, x := range all {
		<-x.done
	}
	return nil
}

// Add keeps a process and begins to start it. It gives nobody anything. Errors:
// Invalid, NotFound for a program that is not there, Conflict for a name that is taken.
func (p *Processes) Add(ctx context.Context, s Spec, by string) (Info, error) {
	if err := s.Check(); err != nil {
		return Info{}, err
	}
	if info, err := os.Stat(s.Command[0]); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return Info{}, fault.New(fault.NotFound, "there is no program at %s", guard.OneLine(s.Command[0], 200))
	}
	p.change.Lock()
	defer p.change.Unlock()
	for _, d := range p.Tools.List() {
		if d.Name == s.Name || strings.HasPrefix(d.Name, s.Name+".") {
			return Info{}, p.taken(s.Name, d.Name)
		}
	}
	var r row
	err := p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if r, err = p.insert(ctx, tx, s); err != nil {
			return err
		}
		return p.tell(ctx, tx, KindAdded, by, "ok", eventData{Name: s.Name, Spec: &s})
	})
	if err != nil {
		return Info{}, err
	}
	x := newProcess(p, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[s.Name] = x
	if p.ctx != nil && !p.stopped {
		p.begin(x)
	}
	return x.info(), nil
}

func (p *Processes) taken(name, by string) error {
	p.mu.Lock()
	_, ours := p.byName[name]
	p.mu.Unlock()
	if ours {
		return fault.New(fault.Conflict, "there is a tool process %s", name).WithHint("remove it first: ombud tools rm %s", name)
	}
	return fault.New(fault.Conflict, "%s is the name of tools that ombud has, such as %s", name, by).WithHint("take another name")
}

// Remove ends a process, forgets it and takes its tools away. What was granted for
// them stays granted.
func (p *Processes) Remove(ctx context.Context, name, by string) error {
	p.change.Lock()
	defer p.change.Unlock()
	x, err := p.get(name)
	if err != nil {
		return err
	}
	err = p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM tool_processes WHERE name = $1", name)
		if err == nil && n == 0 {
			err = errNone(name)
		}
		if err != nil {
			return err
		}
		return p.tell(ctx, tx, KindRemoved, by, "ok", eventData{Name: name})
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	quit := x.quit
	p.mu.Unlock()
	if quit != nil {
		quit()
		<-x.done
	}
	// After its loop, which might have put them back.
	_, err = p.Tools.Replace(owner(name), nil)
	p.mu.Lock()
	delete(p.byName, name)
	p.mu.Unlock()
	return err
}

func errNone(name string) error {
	return fault.New(fault.NotFound, "no tool process %q", guard.OneLine(name, maxExcerpt)).WithHint("ombud tools list shows them")
}

func (p *Processes) get(name string) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.byName[name]; x != nil {
		return x, nil
	}
	return nil, errNone(name)
}

// Info is what there is to know of a process. Times are Unix microseconds, 0 for none.
type Info struct {
	Spec     Spec
	State    State
	Since    int64
	PID      int
	Failures int // in a row
	Loops    bool
	Error    string // why it ended last, if it failed since it was well
	Next     int64  // when it is started again
	Added    int64
	Changed  int64 // when it last registered other tools than before
	Says     string
	Tools    []Tool
}

func (x *process) info() Info {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := Info{
		Spec: x.spec, State: x.state, Since: x.since.UnixMicro(), Failures: x.failures, Loops: x.failures >= x.p.cfg.CrashLoop,
		Added: x.added, Changed: x.changed, Tools: slices.Clone(x.tools),
	}
	if x.failed != nil && x.failures > 0 {
		out.Error = guard.OneLine(x.failed.Error(), 500)
	}
	if x.state == Waiting {
		out.Next = x.next.UnixMicro()
	}
	if x.life != nil {
		out.PID = x.life.child.PID()
		if x.p.now().Sub(x.since) >= x.p.cfg.Stable {
			out.Failures, out.Loops, out.Error = 0, false, ""
		}
	}
	if x.known != nil {
		out.Says = x.known.Process
	}
	return out
}

// List returns all processes, by name.
func (p *Processes) List() []Info {
	p.mu.Lock()
	all := make([]*process, 0, len(p.byName))
	for _, x := range p.byName {
		all = append(all, x)
	}
	p.mu.Unlock()
	out := make([]Info, 0, len(all))
	for _, x := range all {
		out = append(out, x.info())
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return out
}

// Test starts a process that is not running, without waiting for its time, and says
// what it registers. Nothing of it is called. If it does not get ready, the error says
// why and the Info what is known.
func (p *Processes) Test(ctx context.Context, name string) (Info, error) {
	x, err := p.get(name)
	if err != nil {
		return Info{}, err
	}
	limit := time.NewTimer(p.cfg.Handshake + p.cfg.ReadyWait)
	defer limit.Stop()
	failures := -1
	for {
		x.mu.Lock()
		state, failed, failuresNow, changed := x.state, x.failed, x.failures, x.changedC
		x.mu.Unlock()
		if failures < 0 {
			failures = failuresNow
			if state == Waiting {
				x.wake()
			}
		}
		switch {
		case state == Ready:
			return x.info(), nil
		case state == Held:
			return x.info(), errHeld(name)
		case state == Waiting && failuresNow != failures:
			return x.info(), fault.New(fault.Unavailable, "tool process %s does not get ready: %w", name, failed)
		}
		select {
		case <-changed:
		case <-x.done:
			return x.info(), fault.New(fault.Unavailable, "tool process %s was stopped", name)
		case <-limit.C:
			return x.info(), fault.New(fault.Timeout, "tool process %s does not get ready", name).WithHint("ombud tools list says why")
		case <-ctx.Done():
			return x.info(), ctx.Err()
		}
	}
}
