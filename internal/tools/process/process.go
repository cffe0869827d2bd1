package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
)

// State says where a process stands.
type State string

// The states.
const (
	Stopped  State = "stopped" // not started by this daemon yet, or no longer
	Starting State = "starting"
	Ready    State = "ready"
	Waiting  State = "waiting" // to be started again
	Held     State = "held"    // nothing is started in an instance that is held
)

// process is one tool process. Its loop starts one child after the other.
type process struct {
	p    *Processes
	spec Spec
	quit context.CancelFunc // nil before its loop runs; under the lock of p
	done chan struct{}      // closed when the loop and its child are gone

	slots   chan struct{} // calls under way
	notices notices       // of the reader alone
	kick    chan struct{} // somebody wants it started now

	mu       sync.Mutex
	changedC chan struct{} // closed and replaced when something below changes
	state    State
	since    time.Time
	next     time.Time // when it is started again, if it waits
	life     *life     // if it is ready
	known    *registration
	tools    []Tool
	failures int   // in a row
	failed   error // the last
	added    int64
	changed  int64
}

func newProcess(p *Processes, r row) *process {
	return &process{
		p: p, spec: r.spec, done: make(chan struct{}), slots: make(chan struct{}, p.cfg.Calls), kick: make(chan struct{}, 1),
		changedC: make(chan struct{}), state: Stopped, since: p.now(), known: r.known, added: r.added, changed: r.changed,
		notices: notices{budget: noticeBurst},
	}
}

// set changes the state under its lock and wakes whoever waits for it.
func (x *process) set(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.state
	change()
	if x.state != before {
		x.since = x.p.now()
	}
	close(x.changedC)
	x.changedC = make(chan struct{})
}

// loop keeps the process running until ctx ends.
func (x *process) loop(ctx context.Context) {
	defer close(x.done)
	defer x.set(func() { x.state, x.life = Stopped, nil })
	supervise.Lives{
		Hold: x.p.Hold, Held: func() { x.set(func() { x.state = Held }) }, Once: x.once, Ended: x.ended, Kick: x.kick,
	}.Run(ctx)
}

// ended notes the end of a child and says how long to wait before the next.
func (x *process) ended(ctx context.Context, ran time.Duration, err error) time.Duration {
	var pause time.Duration
	var loops bool
	x.set(func() {
		if ran >= x.p.cfg.Stable {
			x.failures = 0
		}
		x.failures++
		pause = x.p.cfg.Backoff[min(x.failures, len(x.p.cfg.Backoff))-1]
		x.state, x.life, x.failed, x.next = Waiting, nil, err, x.p.now().Add(pause)
		loops = x.failures == x.p.cfg.CrashLoop
	})
	x.p.Logger.Warn("a tool process ended", "process", x.spec.Name, "why", err, "again_in", pause)
	if loops {
		told := x.p.record(ctx, KindCrashLoop, "ombud", "failed", eventData{Name: x.spec.Name, Reason: err.Error()})
		if told != nil {
			x.p.Logger.Warn("record a crash loop", "process", x.spec.Name, "error", told)
		}
	}
	return pause
}

// once is one child from start to end. ran is how long it was ready.
func (x *process) once(ctx context.Context) (ran time.Duration, err error) {
	x.set(func() { x.state = Starting })
	turn := x.p.starts // a few at a time: a start of ombud is not slowed down by theirs
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-turn })
	defer release()
	v, err := x.start(ctx)
	if err != nil {
		return 0, err
	}
	err = x.greet(ctx, v)
	release()
	if err != nil {
		v.end(err)
		_ = v.wait() // says the same
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, v.cause
	}
	ready := x.p.now()
	select {
	case <-v.over:
	case <-ctx.Done():
		v.stop()
	}
	x.set(func() { x.life = nil })
	err = v.wait()
	v.lines.Flush()
	return x.p.now().Sub(ready), err
}

// newOutput is what a child says to its standard error, and in Log events.
func newOutput(log *slog.Logger, redact func(string) string) *supervise.Output {
	return supervise.NewOutput(log, supervise.Config{What: "a tool process", Redact: redact, Now: time.Now, Burst: 50, Every: 2 * time.Second, Keep: 1})
}

// start starts a child. An error says that nothing runs.
func (x *process) start(ctx context.Context) (*life, error) {
	dir := x.p.Dir(x.spec.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Permission, "make the directory of tool process %s: %w", x.spec.Name, err)
	}
	env, err := x.spec.environment(dir, func(name string) (string, error) { return x.p.secret(ctx, name) })
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "start tool process %s: %w", x.spec.Name, err)
	}
	says := newOutput(x.p.Logger.With("process", x.spec.Name), x.p.Redact)
	child, err := x.p.Launch(ctx, confine.Spec{
		Path: x.spec.Command[0], Args: x.spec.Command, Env: env, Dir: dir, StdinPipe: true, Stdout: w, Stderr: says,
		Profile: x.spec.profile(dir), Owner: confine.Owner{Subject: x.spec.Subject(), Tool: x.spec.Name},
	})
	closed := w.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start tool process %s: %w", x.spec.Name, err), r.Close())
	}
	v := newLife(x.spec.Name, child, r, says, x.notice, x.p.cfg, x.p.Logger)
	if closed != nil {
		v.end(closed)
	}
	return v, nil
}

// greet takes a child from its start to where it can be called.
func (x *process) greet(ctx context.Context, v *life) error {
	hello, err := toTool{Type: typeHello, ProtocolVersion: Version}.encode()
	if err != nil {
		return err
	}
	v.send <- &outgoing{frame: hello} // the first: there is room
	limit := time.NewTimer(x.p.cfg.Handshake)
	defer limit.Stop()
	var reg registration
	select {
	case reg = <-v.reg:
	case <-v.over:
		return v.cause
	case <-limit.C:
		return fault.New(fault.Timeout, "it did not register within %v", x.p.cfg.Handshake).
			WithHint("a tool process answers ToolHello with ToolRegister; see docs/tool-process.md")
	case <-ctx.Done():
		return ctx.Err()
	}
	return x.adopt(ctx, v, reg)
}

// adopt puts in force what a child registered: recorded first, if it is not what was
// known, then known to the registry, then called.
func (x *process) adopt(ctx context.Context, v *life, reg registration) error {
	x.mu.Lock()
	before, changed := x.known, x.changed
	x.mu.Unlock()
	if before == nil || string(before.encode()) != string(reg.encode()) {
		var at int64
		err := x.p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			at, err = x.p.keepTx(ctx, tx, x.spec.Name, before, reg)
			return err
		})
		if err != nil {
			return fmt.Errorf("keep what it registered: %w", err)
		}
		changed = at
		if before != nil {
			x.p.Logger.Warn("a tool process registers other tools than before", "process", x.spec.Name, "tools", difference(*before, reg).String())
		}
	}
	tools, err := x.offer(reg)
	if err != nil {
		return err
	}
	inForce := map[string]string{}
	for _, t := range tools {
		if t.Refused == "" {
			inForce[t.local] = t.revision
		}
	}
	v.mu.Lock()
	v.tools = inForce
	v.mu.Unlock()
	x.set(func() { x.known, x.tools, x.changed, x.life, x.state = &reg, tools, changed, v, Ready })
	x.p.Logger.Info("tool process ready", "process", x.spec.Name, "pid", v.child.PID(), "tools", len(inForce), "refused", len(tools)-len(inForce))
	return nil
}

// offer makes the registry know the tools, and returns what became of each.
func (x *process) offer(reg registration) ([]Tool, error) {
	tools := x.spec.judge(reg)
	var offers []tool.Offer
	var refused []tool.Quarantine
	seen := map[string]bool{}
	for i, t := range tools {
		if t.Refused == "" && seen[t.Name] {
			tools[i].Refused, tools[i].Needs = "it is registered twice", nil
		}
		if t = tools[i]; t.Refused != "" {
			refused = append(refused, tool.Quarantine{Name: t.Name, Reason: t.Refused})
			continue
		}
		seen[t.Name] = true
		def, err := x.spec.definition(reg.Tools[i], t, x.p.Held)
		if err != nil {
			return nil, err
		}
		offers = append(offers, tool.Offer{Definition: def, Handler: x.handler(t)})
	}
	bad, err := x.p.Tools.Replace(owner(x.spec.Name), offers, refused...)
	for _, q := range bad {
		i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == q.Name && t.Refused == "" })
		if i >= 0 && !slices.ContainsFunc(refused, func(r tool.Quarantine) bool { return r == q }) {
			tools[i].Refused, tools[i].Needs = q.Reason, nil
		}
	}
	return tools, err
}

func owner(name string) string { return "process " + name }

// handler makes a call of a tool as it was registered.
func (x *process) handler(t Tool) tool.Handler {
	return func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		select {
		case x.slots <- struct{}{}:
			defer func() { <-x.slots }()
		case <-ctx.Done():
			return tool.Output{}, fault.New(fault.Timeout, "%s has %d calls under way; it was not told of this one", x.spec.Name, cap(x.slots))
		}
		for again := true; ; again = false {
			v, err := x.ready(ctx)
			if err != nil {
				return tool.Output{}, err
			}
			out, err := v.call(ctx, t.local, t.revision, in, t.Repeatable)
			if _, early := errors.AsType[tooSoon](err); early && again {
				continue
			}
			return out, err
		}
	}
}

// ready waits a little for the process to be there. An error says that it was not
// told of the call.
func (x *process) ready(ctx context.Context) (*life, error) {
	limit := time.NewTimer(x.p.cfg.ReadyWait)
	defer limit.Stop()
	for {
		x.mu.Lock()
		v, state, failed, next, changed := x.life, x.state, x.failed, x.next, x.changedC
		x.mu.Unlock()
		switch {
		case v != nil && !v.isOver():
			return v, nil
		case state == Held:
			return nil, errHeld(x.spec.Name)
		case state == Waiting && next.Sub(x.p.now()) > x.p.cfg.ReadyWait:
			return nil, fault.New(fault.Unavailable, "tool process %s is not running: %w", x.spec.Name, failed).
				WithHint("it is started again at %s; ombud tools test %s starts it now", next.Format(time.TimeOnly), x.spec.Name)
		}
		select {
		case <-changed:
		case <-x.done:
			return nil, fault.New(fault.Unavailable, "tool process %s was stopped", x.spec.Name)
		case <-limit.C:
			return nil, fault.New(fault.Unavailable, "tool process %s does not get ready", x.spec.Name).WithHint("ombud tools list says why")
		case <-ctx.Done():
			return nil, fault.New(fault.Timeout, "tool process %s does not get ready; it was not told of this call", x.spec.Name)
		}
	}
}

func errHeld(name string) error {
	return fault.New(fault.Unavailable, "tool process %s is not started: the instance is held", name).WithHint("ombud restore release lets it go")
}

// wake starts a process that waits to be started, at once.
func (x *process) wake() {
	select {
	case x.kick <- struct{}{}:
	default: // it is being woken
	}
}

// Bounds of the notices of a process.
const (
	noticeBurst = 5                // at once
	noticeEvery = time.Minute      // then one each
	noticeSize  = 4 << 10          // bytes
	noticeWait  = 10 * time.Second // for its call to be recorded
	noticeTo    = "operator"       // the only one notices are sent to
)

// notices counts the notices of a process.
type notices struct {
	budget  float64
	at      time.Time
	refused map[string]bool // reasons that were audited
}

// Notice is what a process wants its operator told.
type Notice struct {
	Process string `json:"process"`
	Subject string `json:"subject,omitempty"`
	Message string `json:"message"`
}

// notice takes a DispatchNotification. It is refused, and that is audited, unless the
// operator gave the process a scope for it. What is passed on is a call like any
// other, of the subject tool:NAME, which policy decides.
func (x *process) notice(m fromTool) error {
	n := &x.notices
	if now := x.p.now(); !n.at.IsZero() {
		n.budget, n.at = min(noticeBurst, n.budget+now.Sub(n.at).Seconds()/noticeEvery.Seconds()), now
	} else {
		n.at = now
	}
	need, err := scope.Of(noticeBase, noticeTo)
	if err != nil {
		return err
	}
	switch {
	case m.Target != "" && m.Target != noticeTo:
		return x.refuse("a notice to " + guard.OneLine(m.Target, maxExcerpt) + ": notices are sent to the operator only")
	case !x.spec.notifies(need):
		return x.refuse("a notice without a scope for it: " + need.String())
	case n.budget < 1:
		return x.refuse("more notices than are sent on")
	case x.p.Notify == nil:
		return x.refuse("nothing sends notices here")
	}
	n.budget--
	notice := Notice{Process: x.spec.Name, Subject: guard.OneLine(m.Subject, 200), Message: guard.Lines(m.Message, noticeSize)}
	ctx, cancel := context.WithTimeout(context.Background(), noticeWait)
	defer cancel()
	if err := x.p.Notify(ctx, notice); err != nil {
		x.p.Logger.Warn("pass on a notice", "process", x.spec.Name, "error", err)
	}
	return nil
}

// refuse audits what a process did of its own accord and may not: each kind once, the
// others are counted as offences of the child.
func (x *process) refuse(what string) error {
	if x.notices.refused == nil {
		x.notices.refused = map[string]bool{}
	}
	const most = 20
	if !x.notices.refused[what] && len(x.notices.refused) < most {
		x.notices.refused[what] = true
		err := x.p.record(context.Background(), KindRefused, x.spec.Subject(), "refused", eventData{Name: x.spec.Name, Reason: what})
		if err != nil {
			x.p.Logger.Warn("record a refusal", "process", x.spec.Name, "error", err)
		}
	}
	return errors.New(what)
}
