package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
)

// keptLines is how many of the last lines of its standard error are kept, for ombud mcp logs.
const keptLines = 200

// State says where a server stands.
type State string

// The states.
const (
	Off      State = "off"     // the operator switched it off
	Stopped  State = "stopped" // not reached by this daemon yet, or no longer
	Starting State = "starting"
	Ready    State = "ready"
	Waiting  State = "waiting" // to be reached again
	Held     State = "held"    // nothing is started in an instance that is held
)

// server is one server. Its loop makes one connection after the other.
type server struct {
	s     *Servers
	name  string
	lines *supervise.Output
	quit  context.CancelFunc // nil before its loop runs; under the lock of s
	done  chan struct{}      // closed when the loop and its connection are gone

	slots   chan struct{} // calls under way
	kick    chan struct{} // somebody wants it reached now
	keeping sync.Mutex    // held from reading the row in memory to having written another
	old     bool          // the next connection begins with initialize; of the loop alone

	mu       sync.Mutex
	changedC chan struct{} // closed and replaced when something below changes
	row      row
	state    State
	since    time.Time
	next     time.Time // when it is reached again, if it waits
	life     *life     // if it is ready
	tools    []Tool
	inForce  map[string]string // what of its offer is in the registry: key → hash; nil: nothing was put there yet
	failures int               // in a row
	failed   error             // the last
}

func newServer(s *Servers, r row) *server {
	x := &server{
		s: s, name: r.spec.Name, row: r, done: make(chan struct{}), slots: make(chan struct{}, s.cfg.Calls), kick: make(chan struct{}, 1),
		changedC: make(chan struct{}), state: Stopped, since: s.Now(),
		lines: supervise.NewOutput(s.Logger.With("server", r.spec.Name), supervise.Config{
			What: "a server", Redact: s.Redact, Now: s.Now, Burst: 20, Every: 5 * time.Second, Keep: keptLines,
		}),
	}
	if r.spec.Disabled {
		x.state = Off
	}
	return x
}

// stored is its row as it was written last.
func (x *server) stored() row {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.row
}

func (x *server) storedAs(sp Spec) row {
	r := x.stored()
	r.spec = sp
	return r
}

// set changes the state under its lock and wakes whoever waits for it.
func (x *server) set(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.state
	change()
	if x.state != before {
		x.since = x.s.Now()
	}
	close(x.changedC)
	x.changedC = make(chan struct{})
}

// loop keeps the server reached until ctx ends.
func (x *server) loop(ctx context.Context) {
	defer close(x.done)
	if x.stored().spec.Disabled {
		<-ctx.Done()
		return
	}
	defer x.set(func() { x.state, x.life = Stopped, nil })
	supervise.Lives{
		Hold: x.s.Hold, Held: func() { x.set(func() { x.state = Held }) }, Once: x.connect, Ended: x.ended, Kick: x.kick,
	}.Run(ctx)
}

// ended notes the end of a connection and says how long to wait before the next.
func (x *server) ended(ctx context.Context, ran time.Duration, err error) time.Duration {
	var pause time.Duration
	var loops bool
	x.set(func() {
		if ran >= x.s.cfg.Stable {
			x.failures = 0
		}
		x.failures++
		pause = x.s.cfg.Backoff[min(x.failures, len(x.s.cfg.Backoff))-1]
		x.state, x.life, x.failed, x.next = Waiting, nil, err, x.s.Now().Add(pause)
		loops = x.failures == x.s.cfg.CrashLoop
	})
	x.s.Logger.Warn("a server is gone", "server", x.name, "why", err, "again_in", pause)
	if loops {
		told := x.s.record(ctx, KindCrashLoop, "ombud", "failed", eventData{Name: x.name, Reason: err.Error()})
		if told != nil {
			x.s.Logger.Warn("record a crash loop", "server", x.name, "error", told)
		}
	}
	return pause
}

// connect is one connection from start to end. ran is how long it was ready.
func (x *server) connect(ctx context.Context) (ran time.Duration, err error) {
	x.set(func() { x.state = Starting })
	turn := x.s.starts // a few at a time: a start of ombud is not slowed down by theirs
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-turn })
	defer release()
	patience := time.AfterFunc(x.s.cfg.Turn, release) // one that hangs keeps no other waiting
	defer patience.Stop()
	v, err := x.begin(ctx)
	if err == nil {
		err = x.list(ctx, v)
	}
	release()
	if err != nil {
		x.old = !x.old // some end at a request they do not know, some know no other
		if v != nil {
			v.end(err)
			err = v.wait()
			v.lines.Flush()
		}
		return 0, err
	}
	ready := x.s.Now()
	x.attend(ctx, v)
	x.set(func() { x.life = nil })
	err = v.wait()
	v.lines.Flush()
	return x.s.Now().Sub(ready), err
}

// maxRelist is the longest between two looks at what a server offers that says all the
// time that it changed.
const maxRelist = 5 * time.Minute

// attend looks at what is offered when the server says that it changed, until the
// connection or ctx ends. One that says so again and again is looked at ever more seldom:
// each change is a row, and may be a word to the operator.
func (x *server) attend(ctx context.Context, v *life) {
	pause := x.s.cfg.Relist
	quiet := x.s.Now()
	for {
		select {
		case <-v.over:
			return
		case <-ctx.Done():
			x.set(func() { x.life = nil }) // no further call
			v.stop()
			return
		case <-v.changed:
		}
		if x.s.Now().Sub(quiet) > 2*pause {
			pause = x.s.cfg.Relist
		}
		if err := x.list(ctx, v); err != nil {
			v.end(err)
			return
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-v.over:
		case <-ctx.Done():
		}
		wait.Stop()
		pause, quiet = min(2*pause, max(maxRelist, x.s.cfg.Relist)), x.s.Now()
	}
}

// begin makes a connection and its session. An error with a nil life says that nothing
// was started.
func (x *server) begin(ctx context.Context) (v *life, err error) {
	sp := x.stored().spec
	v = x.newLife(&sp)
	t := &handed{}
	if sp.Remote() {
		err = x.remote(&sp, v, t)
	} else {
		err = x.start(ctx, &sp, v)
	}
	if err != nil {
		v.quit()
		return nil, err
	}
	if v.conn != nil {
		t.conn = v.conn
	}
	stop := context.AfterFunc(ctx, func() { v.end(errStopped) }) // a daemon that stops does not wait for a handshake
	defer stop()
	return v, v.greet(t, x.s.Version, x.old)
}

// start starts a program.
func (x *server) start(ctx context.Context, sp *Spec, v *life) error {
	dir := x.s.Dir(x.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.New(fault.Permission, "make the directory of server %s: %w", x.name, err)
	}
	env, err := sp.environment(dir, func(name string) (secret.Value, error) { return x.secretFor(ctx, name) })
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fault.New(fault.Unavailable, "start server %s: %w", x.name, err)
	}
	where := sp.Dir
	if where == "" {
		where = dir
	}
	child, err := x.s.Launch(ctx, confine.Spec{
		Path: sp.Command[0], Args: sp.Command, Env: env, Dir: where, StdinPipe: true, Stdout: w, Stderr: x.lines,
		Profile: sp.profile(dir), Owner: confine.Owner{Subject: subject(x.name), Tool: "mcp." + x.name},
	})
	closed := w.Close() // the child has its own
	if err != nil {
		return errors.Join(fmt.Errorf("start server %s: %w", x.name, err), r.Close())
	}
	v.attach(child, r)
	if closed != nil {
		v.end(closed)
	}
	return nil
}

// secretFor is a secret for the environment of a program, which may send it anywhere it
// reaches.
func (x *server) secretFor(ctx context.Context, name string) (secret.Value, error) {
	v, err := x.s.Secret(ctx, name)
	if err == nil && v.Bound() {
		return v, fault.New(fault.Denied, "secret %s is bound to hosts, and a program could send it to others", name).
			WithHint("set a secret of its own for the server, without --host")
	}
	return v, err
}

// list asks what a server offers, keeps it, and puts in force what of it was accepted.
func (x *server) list(ctx context.Context, v *life) error {
	ctx, cancel := context.WithTimeout(ctx, x.s.cfg.List)
	defer cancel()
	now, err := v.offers(ctx)
	if err != nil {
		return v.listError(ctx, err, x.s.cfg.List)
	}
	x.keeping.Lock()
	defer x.keeping.Unlock()
	was := x.stored()
	var r row
	err = x.s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		r, err = x.s.offersTx(ctx, tx, x, was, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep what it offers: %w", err)
	}
	if diff := compare(r.pinned, now.Items); !diff.empty() {
		x.s.Logger.Warn("a server offers other than what was accepted", "server", x.name, "tools", diff.String())
	}
	x.mu.Lock()
	tools, inForce := x.tools, x.inForce
	x.mu.Unlock()
	if inForce == nil || string(r.offered.encode()) != string(was.offered.encode()) {
		if tools, inForce, err = x.offer(r); err != nil {
			return err
		}
	}
	v.force(inForce)
	x.set(func() { x.row, x.tools, x.inForce, x.life, x.state = r, tools, inForce, v, Ready })
	return nil
}

func (v *life) listError(ctx context.Context, err error, limit time.Duration) error {
	select {
	case <-v.over:
		return v.cause
	default:
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "it did not say within %v what it offers", limit)
	}
	return v.gone(said("it does not say what it offers", err))
}

// adopt puts a row in force that was written.
func (x *server) adopt(r row) error {
	tools, inForce, err := x.offer(r)
	if err != nil {
		return err
	}
	x.set(func() {
		x.row, x.tools, x.inForce = r, tools, inForce
		if x.life != nil {
			x.life.force(inForce)
		}
	})
	return nil
}

func (v *life) force(items map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.items = items
}

// offers asks a server for all it offers.
func (v *life) offers(ctx context.Context) (Offering, error) {
	init := v.cs.InitializeResult()
	var tools []*mcp.Tool
	cut := false
	if init == nil || init.Capabilities == nil || init.Capabilities.Tools != nil {
		cursor := ""
		for page := 0; ; page++ {
			res, err := v.cs.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
			if err != nil {
				return Offering{}, err
			}
			tools = append(tools, res.Tools...)
			if res.NextCursor == "" {
				break
			}
			if page+1 == maxPages || len(tools) > maxTools || res.NextCursor == cursor {
				cut = true
				break
			}
			cursor = res.NextCursor
		}
	}
	return gather(tools, init, cut)
}

// handler makes a call of something that was accepted.
func (x *server) handler(u use) tool.Handler {
	return func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		select {
		case x.slots <- struct{}{}:
			defer func() { <-x.slots }()
		case <-ctx.Done():
			return tool.Output{}, fault.New(fault.Timeout, "%s has %d calls under way; it was not told of this one", x.name, cap(x.slots))
		}
		sp := x.stored().spec
		for again := true; ; again = false {
			v, err := x.ready(ctx)
			if err != nil {
				return tool.Output{}, err
			}
			out, err := v.call(ctx, x, u, in, u.called(sp.Reads) || u.called(sp.Repeatable))
			if _, early := errors.AsType[tooSoon](err); early && again {
				continue
			}
			return out, err
		}
	}
}

// ready waits a little for the server to be there. An error says that it was not told of
// the call.
func (x *server) ready(ctx context.Context) (*life, error) {
	limit := time.NewTimer(x.s.cfg.ReadyWait)
	defer limit.Stop()
	for {
		x.mu.Lock()
		v, state, failed, next, changed := x.life, x.state, x.failed, x.next, x.changedC
		x.mu.Unlock()
		switch {
		case v != nil && !v.isOver():
			return v, nil
		case state == Held:
			return nil, errHeld(x.name)
		case state == Waiting && next.Sub(x.s.Now()) > x.s.cfg.ReadyWait:
			return nil, fault.New(fault.Unavailable, "server %s is not there: %w", x.name, failed).
				WithHint("it is reached again at %s; ombud mcp test %s does it now", next.Format(time.TimeOnly), x.name)
		}
		select {
		case <-changed:
		case <-x.done:
			return nil, fault.New(fault.Unavailable, "server %s was stopped", x.name)
		case <-limit.C:
			return nil, fault.New(fault.Unavailable, "server %s does not get ready", x.name).WithHint("ombud mcp list says why")
		case <-ctx.Done():
			return nil, fault.New(fault.Timeout, "server %s does not get ready; it was not told of this call", x.name)
		}
	}
}

func errHeld(name string) error {
	return fault.New(fault.Unavailable, "server %s is not reached: the instance is held", name).WithHint("ombud restore release lets it go")
}

// wake reaches a server that waits to be, at once.
func (x *server) wake() {
	select {
	case x.kick <- struct{}{}:
	default: // it is being woken
	}
}

// Info is what there is to know of a server. Times are Unix microseconds, 0 for none.
type Info struct {
	Spec     Spec
	State    State
	Since    int64
	PID      int
	Failures int // in a row
	Loops    bool
	Error    string // why it ended last, if it failed since it was well
	Hint     string
	Next     int64 // when it is reached again
	Added    int64
	Changed  int64 // since when it offers other than what was accepted
	Says     string
	Protocol string
	Cut      bool // it offers more than is taken
	LoggedIn bool
	Noise    int64 // lines on its standard output that were no message
	Tools    []Tool
}

func (x *server) info() Info {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.row
	out := Info{
		Spec: r.spec, State: x.state, Since: x.since.UnixMicro(), Failures: x.failures, Loops: x.failures >= x.s.cfg.CrashLoop,
		Added: r.added, Changed: r.changed, Says: r.offered.Says, Protocol: r.offered.Protocol, Cut: r.offered.Cut,
		LoggedIn: r.login != nil, Tools: slices.Clone(x.tools),
	}
	if x.failed != nil && x.failures > 0 {
		out.Error, out.Hint = guard.OneLine(x.failed.Error(), 500), fault.HintOf(x.failed)
	}
	if x.state == Waiting {
		out.Next = x.next.UnixMicro()
	}
	if x.life != nil {
		out.PID = x.life.pid()
		if x.life.conn != nil {
			out.Noise = x.life.conn.noise.Load()
		}
		if x.s.Now().Sub(x.since) >= x.s.cfg.Stable {
			out.Failures, out.Loops, out.Error = 0, false, ""
		}
	}
	return out
}
