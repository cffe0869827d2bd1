package channel

import (
	"context"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// State is how a channel stands.
type State string

// The states.
const (
	Connecting State = "connecting"
	Working    State = "working"
	Degraded   State = "degraded" // it fails and is tried again
	Failing    State = "failing"  // somebody has to do something: its key is refused, or its settings cannot be used
	Paused     State = "paused"
	Held       State = "held"
)

// Info is a channel for people. Times are Unix microseconds.
type Info struct {
	Name     string
	Kind     string
	Me       Me
	Settings Settings
	State    State
	Reason   string // why it does not work
	Since    int64  // when it came into its state; 0: since the start
	Heard    int64  // when the last message came in, since the start
	Said     int64  // when the last one went out
	Added    int64
	Caps     Capabilities
	Hook     string // the path its network calls, if it does
}

// line is one channel while the daemon runs.
type line struct {
	c        *Channels
	name     string
	changing sync.Mutex // held while its row is changed

	mu      sync.Mutex
	row     row
	kind    Kind
	adapter Adapter
	broken  error // why there is no adapter
	me      Me
	stop    context.CancelFunc // ends what runs; nil: nothing does
	ended   chan struct{}      // closed when what ran last has ended; nil: nothing ever did

	state   State
	reason  string
	since   int64
	heard   int64
	said    int64
	deaf    error         // trouble with hearing
	mute    error         // trouble with saying
	fails   int           // sends in a row that failed by what may be the channel
	failed  time.Time     // when the last did
	doubt   chan struct{} // 1: a send failed, and it may be the channel; never closed
	told    bool          // the operator was told of the trouble
	telling *time.Timer   // tells them, if it lasts
	over    bool          // the channels have stopped: nobody is told any more

	pace     Pace
	previews map[string]*preview // by run
	unknown  Unknown
	gates    map[Place]gate // chats whose network asked to leave them alone
}

func newLine(c *Channels, name string) *line {
	return &line{c: c, name: name, state: Connecting, previews: map[string]*preview{}, gates: map[Place]gate{}, doubt: make(chan struct{}, 1)}
}

// set takes over what the row says.
func (l *line) set(x row, k Kind, a Adapter, broken error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.row, l.kind, l.adapter, l.broken = x, k, a, broken
	if x.body.Me.ID != "" {
		l.me = x.body.Me
	}
	if l.stop != nil { // with another adapter, or none
		l.stop()
		l.stop = nil
	}
	l.deaf, l.mute, l.fails = nil, nil, 0
	l.lockedHealth()
}

// turn is one run of a line: it begins when the one before has ended.
type turn struct {
	ctx    context.Context
	before <-chan struct{} // closed when the one before has ended; nil: there was none
	ended  chan struct{}   // closed when this one and the one before have
}

// begin makes the next run of the line, unless it may not or need not run.
func (l *line) begin(parent context.Context) (turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil || l.row.removed != 0 || l.row.paused {
		return turn{}, false
	}
	t := turn{before: l.ended, ended: make(chan struct{})}
	t.ctx, l.stop = context.WithCancel(parent)
	l.ended = t.ended
	return t, true
}

// alone waits until the run before has ended: two connections of one account take each
// other's messages, or are thrown out. One that does not end is waited for no longer than
// Config.Handover; it is not heard any more.
func (l *line) alone(t turn) {
	if t.before == nil {
		return
	}
	late := time.NewTimer(l.c.cfg.Handover)
	defer late.Stop()
	select {
	case <-t.before:
	case <-late.C:
		l.c.Logger.Warn("a channel was replaced and its old connection does not end", "channel", l.name)
	case <-t.ctx.Done():
		<-t.before // whoever comes next waits for both
	}
}

func (l *line) isRemoved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row.removed != 0
}

func (l *line) rowOf() row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row
}

func (l *line) kindOf() Kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kind
}

func (l *line) settings() (Settings, Me) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row.body.Settings, l.me
}

// ready returns the adapter, or why nothing can be done through it now.
func (l *line) ready() (Adapter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.row.removed != 0:
		return nil, errRemoved(l.name)
	case l.row.paused:
		return nil, fault.New(fault.Unavailable, "channel %s is paused", l.name).WithHint("ombud channel resume %s", l.name)
	case l.adapter == nil:
		return nil, fault.New(fault.Unavailable, "channel %s cannot be used: %w", l.name, l.broken)
	}
	return l.adapter, nil
}

func (l *line) info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := Info{
		Name: l.name, Kind: l.row.kind, Me: l.me, Settings: l.row.body.Settings, State: l.state, Reason: l.reason, Since: l.since,
		Heard: l.heard, Said: l.said, Added: l.row.added,
	}
	if l.adapter != nil {
		i.Caps = l.adapter.Capabilities()
		if _, ok := l.adapter.(Hooked); ok {
			i.Hook = HookPrefix + l.name
		}
	}
	if i.State != Paused && l.c.Held() {
		i.State, i.Reason = Held, "the instance is held: ombud restore release"
	}
	return i
}

// supervise runs the adapter again and again until the context of its turn ends.
func (l *line) supervise(t turn) {
	defer close(t.ended)
	l.alone(t)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { l.lookAfter(t.ctx) })
	ctx, pause := t.ctx, l.c.cfg.Pause
	for ctx.Err() == nil {
		if !l.whileHeld(ctx) {
			return
		}
		began := time.Now()
		err := l.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = fault.New(fault.Unavailable, "the connection ended")
		}
		l.hearing(err)
		if time.Since(began) > l.c.cfg.Longest {
			pause = l.c.cfg.Pause
		}
		wait := pause
		if needsPerson(err) {
			wait = l.c.cfg.Denied
		}
		if Wait(ctx, wait) != nil {
			return
		}
		pause = min(2*pause, l.c.cfg.Longest)
	}
}

// whileHeld waits until the instance is not held. It reports false when ctx has ended.
func (l *line) whileHeld(ctx context.Context) bool {
	for l.c.Held() {
		if Wait(ctx, time.Second) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

func (l *line) runOnce(ctx context.Context) (err error) {
	a, err := l.ready()
	if err != nil {
		return err
	}
	defer caught(l, "listening", &err)
	return a.Run(ctx, hearing{l, ctx})
}

// caught turns a panic of an adapter into an error.
func caught(l *line, what string, err *error) {
	if p := recover(); p != nil {
		l.c.Logger.Error("a channel panicked", "channel", l.name, "while", what, "panic", p, "stack", string(debug.Stack()))
		*err = fault.New(fault.Internal, "channel %s panicked while %s: %v", l.name, what, p)
	}
}

// check asks an adapter who ombud is.
func check(ctx context.Context, a Adapter) (me Me, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Internal, "the adapter panicked: %v", p)
		}
	}()
	me, err = a.Check(ctx)
	if err == nil && !goodID(me.ID) {
		err = fault.New(fault.Unavailable, "the network does not say who ombud is")
	}
	return me, err
}

// up notes that the connection stands.
func (l *line) up(me Me) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = nil
	if me.ID != "" {
		l.me = me
	}
	if l.state == Connecting {
		l.state, l.since = Working, l.c.DB.Time()
	}
	l.lockedHealth()
}

// ServeHTTP answers the calls of networks to channels: HookPrefix and a name, or a path that a
// kind has for programs that know no other.
func (c *Channels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l, a := c.hooked(r.URL.Path)
	if l == nil {
		answer(w, http.StatusNotFound, `{"error":{"class":"not_found","message":"no channel is called here"}}`)
		return
	}
	if _, err := l.ready(); err != nil || c.Held() {
		answer(w, http.StatusServiceUnavailable, `{"error":{"class":"unavailable","message":"the channel takes nothing now"}}`)
		return
	}
	a.Hook(l).ServeHTTP(w, r)
}

// answer answers a call that no adapter takes, in the form of the listener's errors.
func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body+"\n") // the caller is gone: nothing is to be done
}

// HookPrefix begins the paths that networks call.
const HookPrefix = "/channels/"

func (c *Channels) hooked(path string) (*line, Hooked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.lines)) { // a path that several have is always the same one's
		l := c.lines[name]
		l.mu.Lock()
		a, ok := l.adapter.(Hooked)
		l.mu.Unlock()
		if ok && (path == HookPrefix+name || a.HookPath() != "" && path == a.HookPath()) {
			return l, a
		}
	}
	return nil, nil
}
