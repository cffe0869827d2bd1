package discord

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Bounds of the pauses between connections.
const (
	minPause = time.Second
	maxPause = time.Minute
	stable   = time.Minute // a connection that stood so long begins the pauses anew
)

// runner is one run of an adapter: what outlives its connections.
type runner struct {
	*Adapter
	in  channel.Intake
	me  channel.Me
	seq atomic.Int64 // of the last event that was handled

	session string // "": none, so the next connection identifies
	resume  string // where the session is gone on with

	cursor  *cursor
	behind  behind
	told    bool          // that something is wrong
	pause   time.Duration // before the next connection
	garbage int           // connections in a row that ended with what is no event
	callers sync.WaitGroup
}

// Run connects and hands over what comes in until ctx ends or Discord refuses the bot for
// good: Denied for a token, and for intents or a number of shards that a person has to change.
func (a *Adapter) Run(ctx context.Context, in channel.Intake) error {
	text, err := in.Cursor(ctx)
	if err != nil {
		return err
	}
	r := &runner{Adapter: a, in: in, cursor: parseCursor(text)}
	defer r.callers.Wait()
	for {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err = r.judge(err); fault.Is(err, fault.Denied) {
			return err
		}
		if err := r.set.wait(ctx, r.next(err, time.Since(began))); err != nil {
			return err
		}
	}
}

// again is the end of a connection that is no trouble, and how long to wait.
type again struct {
	after  time.Duration
	reason string
}

func (e *again) Error() string { return e.reason }

// next is how long to wait before the next connection.
func (r *runner) next(err error, stood time.Duration) time.Duration {
	if stood >= stable {
		r.pause = 0
	}
	if e, ok := errors.AsType[*again](err); ok && r.pause == 0 {
		r.pause = minPause // a second time in a row is trouble
		return e.after
	}
	r.down(err)
	r.pause = min(max(2*r.pause, minPause), maxPause)
	pause := between(r.pause*3/4, r.pause)
	if e, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		pause = max(pause, e.After)
	}
	return pause
}

func (r *runner) down(err error) {
	r.told = true
	r.in.Down(err)
}

// judge makes of the end of a connection what it means for the session and for the run.
func (r *runner) judge(err error) error {
	if _, ok := errors.AsType[*garbled](err); ok {
		if r.garbage++; r.garbage > 1 {
			r.drop()
		}
		return err
	}
	r.garbage = 0
	switch closeCode(err) {
	case 4004:
		return fault.New(fault.Denied, "Discord refuses the bot's token").
			WithHint("reset it in the Discord Developer Portal at Bot, and set the new one")
	case 4014:
		return fault.New(fault.Denied, "Discord does not let the bot read what is written").
			WithHint("switch on Message Content Intent in the Discord Developer Portal: your application, Bot, Privileged Gateway Intents")
	case 4010, 4011, 4012, 4013:
		return fault.New(fault.Denied, "Discord refuses the connection for good (close code %d)", closeCode(err)).
			WithHint("4011 means the bot is in more servers than one connection may serve, 4010, 4012 and 4013 that this version of ombud is too old")
	case 4007, 4009, 4003, 4005:
		r.drop()
	}
	return refusedKey(err) // last, so that only what is judged here is Denied
}

func (r *runner) drop() {
	r.session, r.resume = "", ""
	r.seq.Store(0)
}

// address is where to connect to. It waits while no more sessions may be started: whoever
// starts more loses the token.
func (r *runner) address(ctx context.Context) (string, error) {
	if r.session != "" && r.resume != "" {
		return r.resume, nil
	}
	var g discordgo.GatewayBotResponse
	if err := r.api.call(ctx, http.MethodGet, "/gateway/bot", nil, &g); err != nil {
		return "", err
	}
	limit := g.SessionStartLimit
	if r.session == "" && limit.Total > 0 && limit.Remaining <= 0 {
		wait := min(max(time.Duration(limit.ResetAfter)*time.Millisecond, minPause), 24*time.Hour)
		return "", &outbox.RetryAfter{After: wait, Err: fault.New(fault.Unavailable, "Discord lets this bot start no more sessions today")}
	}
	return g.URL, nil
}

// once is one connection, from its beginning to its end.
func (r *runner) once(ctx context.Context) error {
	token, err := r.api.key(ctx)
	if err != nil {
		return err
	}
	address, err := r.address(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, interval, err := open(ctx, r.set.dial, address, &r.seq)
	if err != nil {
		r.resume = "" // it may be that host which is away
		return err
	}
	var parts sync.WaitGroup
	zombie := make(chan error, 1)
	parts.Go(func() { l.read(ctx) })
	parts.Go(func() { zombie <- l.hearts(ctx, interval) })
	err = l.begin(token, r.session)
	if err == nil {
		err = r.handle(ctx, l, zombie)
	}
	code := keepSession
	if context.Cause(ctx) != nil {
		code = 1000 // ombud stops: the bot is shown as offline at once
	}
	cancel()
	l.end(code)
	parts.Wait()
	return err
}

// handle handles what comes, in order, until the connection ends. What is told comes
// before what is read up on.
func (r *runner) handle(ctx context.Context, l *link, zombie <-chan error) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	idle := make(chan struct{}) // always ready: there is nothing else to do
	close(idle)
	for {
		due := r.behind.due(time.Now())
		retry.Reset(due)
		now := idle
		if due > 0 || len(l.frames) > 0 {
			now = nil
		}
		select {
		case f, ok := <-l.frames:
			if err := r.frame(ctx, l, f, ok); err != nil {
				return err
			}
		case err := <-zombie:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-now:
			if err := r.readUp(ctx, r.behind.first()); err != nil {
				return err
			}
		case <-retry.C:
		}
	}
}

// frame handles one frame; ok is false when there will be no more.
func (r *runner) frame(ctx context.Context, l *link, f frame, ok bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ok:
		return l.err
	case f.Op == opReconnect:
		return &again{0, "the Gateway asks to connect anew"}
	case f.Op == opInvalid:
		if string(f.Data) != "true" {
			r.drop()
		}
		return &again{between(time.Second, 5*time.Second), "the Gateway says that the session is over"}
	case f.Op != opDispatch:
		return nil
	}
	if err := r.event(ctx, f); err != nil {
		return err
	}
	if f.Seq != nil && *f.Seq > r.seq.Load() {
		r.seq.Store(*f.Seq)
	}
	return nil
}
