package slack

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen.
const patience = 10 * time.Second

// bundle is a fake Slack with an adapter for it.
type bundle struct {
	*slacktest.Server
	t     *testing.T
	in    *gated
	log   *log
	pace  pace
	setup channel.Setup
	a     *Adapter

	mu    sync.Mutex
	waits []time.Duration
}

// setup has the pace of a test: waits are noted and short.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{Server: slacktest.New(t), t: t, log: &log{}}
	b.in = &gated{Intake: channeltest.NewIntake()}
	b.pace = defaults()
	b.pace.names = patience // a busy machine is no slow Slack
	b.pace.again, b.pace.settle, b.pace.grace = 20*time.Millisecond, time.Millisecond, time.Second
	b.pace.now = b.Now
	b.pace.wait = func(ctx context.Context, d time.Duration) error {
		b.mu.Lock()
		b.waits = append(b.waits, d)
		b.mu.Unlock()
		return channel.Wait(ctx, min(d, 5*time.Millisecond))
	}
	b.setup = channel.Setup{
		Name: "slack", Values: map[string]string{partURL: b.URL},
		Secret: func(_ context.Context, part string) (string, error) {
			return map[string]string{partApp: b.AppToken, partBot: b.BotToken}[part], nil
		},
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	t.Cleanup(func() {
		for _, secret := range []string{b.AppToken, b.BotToken, "ticket="} {
			if secret != "" && strings.Contains(b.log.text(), secret) {
				t.Error("the log shows a secret")
			}
		}
	})
	b.make()
	return b
}

// impatient is for tests in which something hangs.
func (b *bundle) impatient() {
	b.t.Helper()
	b.pace.call, b.pace.hello, b.pace.names = 300*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
	b.make()
}

func (b *bundle) make() {
	b.t.Helper()
	a, err := newAdapter(b.setup, b.pace)
	if err != nil {
		b.t.Fatal(err)
	}
	b.a = a
}

type log struct {
	mu sync.Mutex
	w  strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}

// running is an adapter at work.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

// run starts the adapter and waits until it is connected.
func (b *bundle) run() *running {
	b.t.Helper()
	r := b.start()
	b.until("connected", func(s channeltest.Seen) bool { return len(s.Ups) > 0 })
	return r
}

func (b *bundle) start() *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan error, 1)}
	a := b.a
	go func() { r.done <- a.Run(ctx, b.in) }()
	b.t.Cleanup(func() {
		cancel()
		a.api.client.CloseIdleConnections()
	})
	return r
}

// stop ends it and waits.
func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.cancel()
	return r.wait(t)
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(patience):
		t.Fatal("Run does not end")
		return nil
	}
}

func (b *bundle) until(what string, is func(channeltest.Seen) bool) channeltest.Seen {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	s, ok := b.in.Until(ctx, is)
	if !ok {
		b.t.Fatalf("not %s: %+v", what, s)
	}
	return s
}

// taken waits until n messages were taken in.
func (b *bundle) taken(n int) []channel.Received {
	b.t.Helper()
	return b.until("taken", func(s channeltest.Seen) bool { return len(s.Taken) >= n }).Taken
}

func (b *bundle) server(what string, is func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if !b.Until(ctx, is) {
		b.t.Fatalf("not %s", what)
	}
}

// gated is an intake whose Take can be held up.
type gated struct {
	*channeltest.Intake
	mu   sync.Mutex
	gate chan struct{} // Take waits until it is closed, if there is one
	in   chan struct{} // gets one for each Take that waits
}

func (g *gated) hold() (entered <-chan struct{}, release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate, in := make(chan struct{}), make(chan struct{}, 100)
	g.gate, g.in = gate, in
	return in, sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.gate, g.in = nil, nil
		close(gate)
	})
}

func (g *gated) Take(ctx context.Context, m channel.Received) error {
	g.mu.Lock()
	gate, in := g.gate, g.in
	g.mu.Unlock()
	if gate != nil {
		in <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g.Intake.Take(ctx, m)
}

// silent checks that an error shows no token and no ticket.
func (b *bundle) silent(err error) {
	b.t.Helper()
	if err == nil {
		return
	}
	for _, secret := range []string{b.AppToken, b.BotToken, "ticket="} {
		if secret != "" && strings.Contains(err.Error()+fault.HintOf(err), secret) {
			b.t.Errorf("an error shows a secret: %v", err)
		}
	}
}
