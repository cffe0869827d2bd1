package channel

import (
	"context"
	"fmt"
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

	state   State
	reason  string
	since   int64
	heard   int64
	said    int64
	deaf    error       // trouble with hearing
	mute    error       // trouble with saying
	told    bool        // the operator was told of the trouble
	telling *time.Timer // tells them, if it lasts
	over    bool        // the channels have stopped: nobody is told any more

	pace      Pace
	previews  map[string]*preview  // by run
	strangers map[string]time.Time // when the operator was told of one
	gates     map[Place]gate       // chats whose network asked to leave them alone
}

func newLine(c *Channels, name string) *line {
	return &line{c: c, name: name, state: Connecting, previews: map[string]*preview{}, strangers: map[string]time.Time{}, gates: map[Place]gate{}}
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
	l.deaf, l.mute = nil, nil
	l.lockedHealth()
}

// begin makes a context for a run of the line, unless it may not or need not run.
func (l *line) begin(parent context.Context) (context.Context, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil || l.row.removed != 0 || l.row.paused {
		return nil, false
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(parent)
	return ctx, true
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

// supervise runs the adapter again and again until ctx ends.
func (l *line) supervise(ctx context.Context) {
	pause := l.c.cfg.Pause
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
	return a.Run(ctx, l)
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

// needsPerson reports whether trying again will not help by itself.
func needsPerson(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Denied, fault.Config, fault.Permission, fault.Invalid, fault.NotFound, fault.Conflict:
		return true
	}
	return false
}

// hearing notes how it stands with what comes in; nil: it works.
func (l *line) hearing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = err
	l.lockedHealth()
}

// saying notes how it stands with what goes out.
func (l *line) saying(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = err
	l.lockedHealth()
}

// lockedHealth works out the state, and sees to it that the operator is told of a change
// that lasts; the caller holds l.mu.
func (l *line) lockedHealth() {
	before := l.state
	trouble := l.deaf
	if trouble == nil {
		trouble = l.mute
	}
	switch {
	case l.row.removed != 0 || l.row.paused:
		l.state, l.reason = Paused, ""
	case l.broken != nil:
		l.state, l.reason = Failing, l.broken.Error()
	case trouble != nil:
		l.state, l.reason = Degraded, trouble.Error()
		if needsPerson(trouble) {
			l.state = Failing
		}
	case l.stop == nil || l.said == 0 && l.heard == 0 && before == Connecting:
		l.state, l.reason = Connecting, ""
	default:
		l.state, l.reason = Working, ""
	}
	if l.state != before {
		l.since = l.c.DB.Time()
	}
	l.lockedNotice()
}

// lockedNotice tells the operator once of trouble that lasts, and once of its end.
func (l *line) lockedNotice() {
	if l.over {
		return
	}
	bad := l.state == Degraded || l.state == Failing
	switch {
	case bad && !l.told && l.telling == nil:
		wait := l.c.cfg.Grace
		if l.state == Failing {
			wait = 0
		}
		l.telling = time.AfterFunc(wait, l.tellTrouble)
	case !bad && l.telling != nil:
		l.telling.Stop()
		l.telling = nil
	}
	if bad || !l.told || l.state == Connecting { // that it is tried again is no sign that it works
		return
	}
	l.told = false
	if l.state == Working {
		l.c.notices.Go(func() { l.notice(KindWorks, "", fmt.Sprintf("%s works again.", l.name)) })
	}
}

// quiet says whether the operator is told of the channel's health.
func (l *line) quiet(over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = over
	if over && l.telling != nil {
		l.telling.Stop()
		l.telling = nil
	}
}

func (l *line) tellTrouble() {
	l.mu.Lock()
	reason, state := l.reason, l.state
	if l.telling == nil || state != Degraded && state != Failing {
		l.mu.Unlock()
		return
	}
	l.telling, l.told = nil, true
	l.c.notices.Add(1) // before quiet can have passed
	l.mu.Unlock()
	defer l.c.notices.Done()
	text := fmt.Sprintf("The channel %s does not work: %s. It is tried again by itself; what is to be sent waits.", l.name, reason)
	if state == Failing {
		text = fmt.Sprintf("The channel %s does not work, and needs you: %s. `ombud channel show %s` tells more; what is to be sent waits.", l.name, reason, l.name)
	}
	l.notice(KindTrouble, reason, text)
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
