package telegram

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an adapter at a Bot API in memory.
type bench struct {
	*adapter
	t     *testing.T
	api   *telegramtest.Server
	in    *channeltest.Intake
	token func() (string, error)
	log   *safeBuffer

	mu    sync.Mutex
	waits []time.Duration // that were asked for; none is waited for
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, api: telegramtest.New(t), in: channeltest.NewIntake(), log: &safeBuffer{}}
	b.token = func() (string, error) { return b.api.Token, nil }
	b.adapter = b.make()
	t.Cleanup(func() {
		b.calls.CloseIdleConnections()
		b.polls.CloseIdleConnections()
	})
	return b
}

// make makes an adapter as a start of the daemon does.
func (b *bench) make() *adapter {
	b.t.Helper()
	s := channel.Setup{Name: "tg", Values: map[string]string{partAPI: b.api.URL}, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		Secret: func(_ context.Context, part string) (string, error) {
			if part != partToken {
				return "", errors.New("asked for " + part)
			}
			return b.token()
		}}
	a, err := newAdapter(s, tuning{call: 2 * time.Second, late: time.Second, wait: b.wait})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bench) wait(ctx context.Context, d time.Duration) error {
	b.mu.Lock()
	b.waits = append(b.waits, d)
	b.mu.Unlock()
	return ctx.Err()
}

func (b *bench) waited() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.waits)
}

// run runs the adapter until stop is called, which returns what Run did.
func (b *bench) run() (stop func() error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, b.in) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	b.t.Cleanup(func() { _ = stop() }) // a second time it says the same
	return stop
}

// until waits until the intake is as a test wants it.
func (b *bench) until(what string, is func(channeltest.Seen) bool) channeltest.Seen {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	s, ok := b.in.Until(ctx, is)
	if !ok {
		b.t.Fatalf("not %s: %+v\n%s", what, s, b.log)
	}
	return s
}

// untilAPI waits until the server is as a test wants it.
func (b *bench) untilAPI(what string, is func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if !b.api.Until(ctx, is) {
		b.t.Fatalf("not %s: %+v\n%s", what, b.api.Calls(), b.log)
	}
}

func texts(s channeltest.Seen) (out []string) {
	for _, m := range s.Taken {
		out = append(out, m.Text)
	}
	return out
}

func (b *bench) say(texts ...string) {
	for _, text := range texts {
		b.api.Say(telegramtest.Words{Text: text})
	}
}

func taken(n int) func(channeltest.Seen) bool {
	return func(s channeltest.Seen) bool { return len(s.Taken) >= n }
}

func up(n int) func(channeltest.Seen) bool {
	return func(s channeltest.Seen) bool { return len(s.Ups) >= n }
}

func class(err error) fault.Class {
	if r, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		return "retry after " + fault.Class(r.After.String())
	}
	return fault.ClassOf(err)
}
