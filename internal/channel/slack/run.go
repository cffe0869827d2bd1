package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// run is one life of the connection. What comes in is worked off by one goroutine, in its
// order; others keep a socket open and read it.
type run struct {
	*Adapter
	in     channel.Intake
	inbox  chan delivery // from the sockets; 64, then they wait. Nobody closes it
	gap    chan struct{} // 1: there was a time without a socket
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	down   bool // of the goroutine that connects

	// Of the goroutine that works.
	cursor cursor
	behind map[string]bool // channels of which something may be missing
	pause  time.Time       // no history is read before
}

const inboxSize = 64

// Run connects and hands over what comes in until ctx ends or the tokens are refused.
func (a *Adapter) Run(ctx context.Context, in channel.Intake) error {
	saved, err := in.Cursor(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{Adapter: a, in: in, inbox: make(chan delivery, inboxSize), gap: make(chan struct{}, 1), cancel: cancel,
		cursor: readCursor(saved), behind: map[string]bool{}}
	defer r.wg.Wait()
	defer cancel(nil)
	r.start(ctx, func() error { return r.connect(ctx) })
	err = r.work(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// start runs a goroutine whose end by an error, or by a panic, ends the run.
func (r *run) start(ctx context.Context, fn func() error) {
	r.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				r.log.ErrorContext(ctx, "slack panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				r.cancel(fault.New(fault.Internal, "slack panicked: %v", v))
			}
		}()
		if err := fn(); err != nil {
			r.cancel(err)
		}
	})
}

// connect keeps a socket open. It returns when ctx ends or a token is refused.
func (r *run) connect(ctx context.Context) error {
	var last *socket
	for fails := 0; ; {
		s, err := r.enter(ctx, last)
		if err == nil {
			began := r.pace.now()
			last, err = s, r.hold(ctx, s)
			if r.pace.now().Sub(began) >= r.pace.steady {
				fails = 0
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused, ok := errors.AsType[*refused](err); ok && refused.key {
			return err
		}
		if err != nil {
			r.trouble(ctx, last, err)
		}
		if err := r.pace.wait(ctx, pauseAfter(fails, err)); err != nil {
			return err
		}
		fails++
	}
}

// trouble tells of an error, once: not while the last socket still works.
func (r *run) trouble(ctx context.Context, last *socket, err error) {
	r.log.WarnContext(ctx, "slack is not connected", "error", err)
	if last == nil || last.ended() {
		r.down = true
		r.in.Down(err)
	}
}

func (s *socket) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// enter opens a socket in place of the last one.
func (r *run) enter(ctx context.Context, last *socket) (*socket, error) {
	me, err := r.Check(ctx)
	if err != nil {
		return nil, err
	}
	s, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	r.start(ctx, func() error {
		defer close(s.done)
		s.err = s.read(ctx, r.hand(ctx))
		return nil
	})
	if last == nil || last.ended() {
		select {
		case r.gap <- struct{}{}:
		default:
		}
		r.down = true
	} else {
		last.retire(r.pace.grace)
	}
	if r.down {
		r.down = false
		r.in.Up(me)
	}
	return s, nil
}

func (r *run) hand(ctx context.Context) func(delivery) bool {
	return func(d delivery) bool {
		select {
		case r.inbox <- d:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// hold keeps a socket until it ends, which is an error, or has to be replaced.
func (r *run) hold(ctx context.Context, s *socket) error {
	ping := time.NewTicker(r.pace.ping)
	defer ping.Stop()
	for {
		select {
		case <-s.done:
			return s.err
		case <-s.replace:
			return nil
		case <-ping.C:
			_ = s.control(websocket.PingMessage, nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const longest = time.Minute

// pauseAfter is how long to wait before the next try: none after the first trouble, then 1
// to 60 seconds, not all at once; or as long as Slack says.
func pauseAfter(fails int, err error) time.Duration {
	var d time.Duration
	if fails > 0 {
		d = min(time.Second<<min(fails-1, 10), longest)
		d = d/2 + rand.N(d/2+1)
	}
	if limit, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		d = max(d, min(limit.After, 10*time.Minute))
	}
	return d
}

// work takes in what came, and between that what was missed.
func (r *run) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.gap:
			r.allBehind()
			continue
		default:
		}
		select {
		case d := <-r.inbox:
			r.handle(ctx, d)
			continue
		default:
		}
		if ch := r.nextBehind(); ch != "" && !r.pace.now().Before(r.pause) {
			r.catchUp(ctx, ch, catchUpWithin)
			continue
		}
		r.idle(ctx)
	}
}

// allBehind notes that Slack kept nothing for a while.
func (r *run) allBehind() {
	for ch := range r.cursor.Channels {
		r.behind[ch] = true
	}
}

// idle waits for something to do.
func (r *run) idle(ctx context.Context) {
	var due <-chan time.Time
	if len(r.behind) > 0 {
		t := time.NewTimer(r.pause.Sub(r.pace.now()))
		defer t.Stop()
		due = t.C
	}
	select {
	case d := <-r.inbox:
		r.handle(ctx, d)
	case <-r.gap:
		r.allBehind()
	case <-due:
	case <-ctx.Done():
	}
}

// handle deals with one envelope and acknowledges it, unless the store could not keep it.
// How often it came before says nothing: it may be the only one that arrived.
func (r *run) handle(ctx context.Context, d delivery) {
	var reply *answer
	var err error
	switch d.Type {
	case "events_api":
		err = r.event(ctx, d)
	case "interactive":
		err = r.press(ctx, d)
	case "slash_commands":
		if d.Accepts {
			reply = &answer{"ombud uses no slash commands. Write to it without the slash, in a direct message or by its name."}
		}
	default:
		r.log.DebugContext(ctx, "slack sent an unknown envelope", "type", word(d.Type))
	}
	if err != nil {
		r.log.WarnContext(ctx, "slack message was not taken in", "attempt", d.Attempt, "error", err)
		return
	}
	if err := d.from.ack(d.EnvelopeID, reply); err != nil {
		r.log.DebugContext(ctx, "slack envelope was not acknowledged", "error", err)
	}
}

// event takes a message in. What is no message, or cannot be read, is done with: it would
// be no better the next time.
func (r *run) event(ctx context.Context, d delivery) error {
	var c callback
	var m message
	if json.Unmarshal(d.Payload, &c) != nil || json.Unmarshal(c.Event, &m) != nil {
		r.log.WarnContext(ctx, "slack sent an event that cannot be read", "bytes", len(d.Payload))
		return nil //nolint:nilerr // it is done with
	}
	if !m.written() {
		return nil
	}
	if r.behind[m.Channel] && !r.pace.now().Before(r.pause) {
		r.catchUp(ctx, m.Channel, r.pace.names)
	}
	return r.take(ctx, m)
}

func (r *run) press(ctx context.Context, d delivery) error {
	var p pressed
	if json.Unmarshal(d.Payload, &p) != nil {
		return nil //nolint:nilerr // as an event
	}
	m, ok := p.received()
	if !ok {
		return nil
	}
	return r.in.Take(ctx, m)
}

// take hands a message over with the cursor behind it. If the store does not keep it the
// cursor stays before it, whatever comes later, until the history was read.
func (r *run) take(ctx context.Context, m message) error {
	me, err := r.known(ctx)
	if err != nil {
		return err
	}
	look, cancel := context.WithTimeout(ctx, r.pace.names)
	defer cancel()
	rec := m.received(me, r.people.within(look))
	next := r.cursor
	if !r.behind[m.Channel] {
		next = r.cursor.after(m.Channel, rec.Thread, m.TS)
	}
	rec.Cursor = next.String()
	if err := r.in.Take(ctx, rec); err != nil {
		at, _ := micros(m.TS) // written has read it
		if r.cursor.Channels[m.Channel] == "" {
			put(r.cursor.Channels, m.Channel, stamp(at-1), maxChannels)
		}
		r.behind[m.Channel] = true
		r.pause = r.pace.now().Add(r.pace.again)
		return err
	}
	r.cursor = next
	return nil
}
