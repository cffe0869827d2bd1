package whatsapp

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/fault"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	whatsapptest.Main()
	goleak.VerifyTestMain(m)
}

// secrets is where a channel's secrets are kept.
type secrets struct {
	mu   sync.Mutex
	all  map[string]string
	fail error
}

func (s *secrets) get(_ context.Context, part string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.all[part]
	switch {
	case s.fail != nil:
		return "", s.fail
	case !ok:
		return "", fault.New(fault.NotFound, "no %s", part)
	}
	return v, nil
}

func (s *secrets) set(part, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[part] = value
}

// logged is a log that a test reads.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLog() (*slog.Logger, *logged) {
	l := &logged{}
	return slog.New(slog.NewTextHandler(l, nil)), l
}

const secret = "correct horse battery staple"

// setup is an adapter with a wacli.
func setup(t *testing.T) (*wacli, *whatsapptest.Wacli, *secrets) {
	t.Helper()
	w := whatsapptest.NewWacli(t)
	s := &secrets{all: map[string]string{partSecret: secret}}
	log, _ := newLog()
	a, err := Kind().Make(channel.Setup{
		Name: "wa", Values: map[string]string{partPath: w.Path}, Secret: s.get, Logger: log,
		Environ: []string{"HOME=/home/ann", "PATH=/usr/bin", "TZ=UTC", "XDG_DATA_HOME=/x", "LC_ALL=C", "ANTHROPIC_API_KEY=sk-secret", "OMBUD_PASSPHRASE=secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.(*wacli), w, s
}

// inProcess lets the adapter's commands run in this process, where a test holds the clock.
func inProcess(a *wacli, w *whatsapptest.Wacli) {
	a.exec = func(_ context.Context, max int, args ...string) (ended, error) {
		out, code := w.Run(args...)
		return ended{out: out[:min(len(out), max)], over: len(out) > max, code: code}, nil
	}
}

func out(chat, text string) channel.Outgoing {
	return channel.Outgoing{Place: channel.Place{Chat: chat}, Key: "item-1/0", Piece: markup.Piece{Text: text}}
}

// later is a context for what should have happened long before.
func later(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
