package discord

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/channel/markup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an adapter with the Discord it talks to and the intake it hands over to.
type bench struct {
	*Adapter
	t      *testing.T
	server *discordtest.Server
	in     *channeltest.Intake
	ctx    context.Context // of the test: it ends before the test would hang

	mu    sync.Mutex
	waits []time.Duration
	log   bytes.Buffer
	ended func() error // waits until Run has ended by itself
	stop  func() error
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// wait remembers what was to be waited for, and waits for a moment.
func (b *bench) wait(ctx context.Context, d time.Duration) error {
	b.mu.Lock()
	b.waits = append(b.waits, d)
	b.mu.Unlock()
	return channel.Wait(ctx, min(d, 2*time.Millisecond))
}

func (b *bench) waited() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]time.Duration(nil), b.waits...)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func setup(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	b := &bench{t: t, server: discordtest.New(t), in: channeltest.NewIntake(), ctx: ctx}
	a, err := newAdapter(channel.Setup{
		Name: "discord", Values: map[string]string{"api_url": b.server.URL},
		Secret: func(context.Context, string) (string, error) { return b.server.Token, nil },
		Logger: slog.New(slog.NewTextHandler(b, nil)),
	}, settings{timeout: time.Second, wait: b.wait, settle: 100 * time.Millisecond, retry: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	b.Adapter = a
	t.Cleanup(a.api.client.CloseIdleConnections)
	return b
}

// start runs the adapter until the test ends or stop is called, which returns Run's error.
func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, b.in) }()
	b.ended = sync.OnceValue(func() error { return <-done })
	b.stop = func() error { cancel(); return b.ended() }
	b.t.Cleanup(func() { _ = b.stop() })
}

// until waits until what was taken in is as wanted.
func (b *bench) until(what string, is func(channeltest.Seen) bool) channeltest.Seen {
	b.t.Helper()
	seen, ok := b.in.Until(b.ctx, is)
	if !ok {
		b.t.Fatalf("%s did not come: %+v\nlog: %s", what, seen, b.logged())
	}
	return seen
}

func (b *bench) up(n int) channeltest.Seen {
	b.t.Helper()
	return b.until("a connection", func(s channeltest.Seen) bool { return len(s.Ups) >= n })
}

func (b *bench) taken(n int) []channel.Received {
	b.t.Helper()
	return b.until("a message", func(s channeltest.Seen) bool { return len(s.Taken) >= n }).Taken
}

func texts(list []channel.Received) (out []string) {
	for _, r := range list {
		out = append(out, r.Text)
	}
	return out
}

// piece is one that goes out to the general channel.
func piece(text, key string) channel.Outgoing {
	return channel.Outgoing{Place: channel.Place{Chat: discordtest.General}, Key: key, Piece: markup.Piece{Text: text}}
}
