package channel

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// faulty is a network over HTTP that answers sends as it is told.
type faulty struct {
	*httptest.Server
	send, check atomic.Value // of string: how it answers
	checks      atomic.Int64
	over        chan struct{}
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{over: make(chan struct{})}
	f.send.Store("200")
	f.check.Store("200")
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() { close(f.over); f.Close() })
	return f
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	how := f.send.Load().(string)
	if r.URL.Path == "/check" {
		f.checks.Add(1)
		how = f.check.Load().(string)
	}
	switch how {
	case "garbage":
		_, _ = io.WriteString(w, "<html>")
	case "cut":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "o")
	case "hang":
		select {
		case <-f.over:
		case <-r.Context().Done():
		}
	case "200":
		_, _ = io.WriteString(w, "ok")
	default: // a status
		status, err := strconv.Atoi(how)
		if err != nil {
			panic(err) // of the test's own
		}
		w.WriteHeader(status)
	}
}

// call makes a call as an adapter does.
func (f *faulty) call(c *http.Client, path string) error {
	resp, err := c.Post(f.URL+path, "text/plain", bytes.NewReader([]byte("x"))) //nolint:bodyclose,noctx // ReadAll closes it
	if err != nil {
		return fault.New(fault.Unknown, "no answer: %w", err)
	}
	data, err := ReadAll(resp, 100)
	switch {
	case resp.StatusCode != http.StatusOK:
		return Refused(resp.StatusCode, RetryAfter(resp.Header), "status %d", resp.StatusCode)
	case err != nil:
		return err
	case string(data) != "ok":
		return fault.New(fault.Unknown, "the answer cannot be read")
	}
	return nil
}

// overHTTP is a site whose network is f.
func overHTTP(t *testing.T, d *db.DB) (*site, *faulty) {
	t.Helper()
	f := newFaulty(t)
	c, err := Client(f.URL, 100*time.Millisecond, 1000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	n := &network{
		check: func() (Me, error) { return Me{ID: "me", Name: "@me"}, f.call(c, "/check") },
		send:  func(Outgoing) (string, error) { return "r", f.call(c, "/send") },
	}
	s := newSite(t, d, n)
	s.add(nil)
	s.until("it works", func() bool { return s.List()[0].State == Working })
	return s, f
}

// broken reports whether the operator was told that the channel does not work.
func (s *site) broken() bool {
	return strings.Contains(strings.Join(s.talks.told(), "\n"), "does not work")
}

// A message that fails is not trouble of its channel, as long as the network says who ombud
// is.
func TestAMessageThatFailsIsNoTroubleOfItsChannel(t *testing.T) {
	t.Parallel()
	for how, asks := range map[string]bool{"401": true, "403": false, "429": false, "500": true, "garbage": true, "cut": true, "hang": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, f := overHTTP(t, dbtest.SQLite(t))
			f.send.Store(how)
			before, since := f.checks.Load(), s.List()[0].Since
			id := s.say("one", nil)
			s.until("it was tried", func() bool { return s.item(id).Error != "" })
			if asks {
				s.until("the network was asked", func() bool { return f.checks.Load() > before })
			} else if f.checks.Load() != before {
				t.Error("the network was asked who ombud is")
			}
			if i := s.List()[0]; i.State != Working || i.Since != since || s.broken() {
				t.Errorf("%s %s since %d, not %d, told %q", i.State, i.Reason, i.Since, since, s.talks.told())
			}
		})
	}
}

// A channel whose network does not say either is in trouble until it does, and needs no
// message that arrives for it.
func TestAChannelIsWellAgainWhenItsNetworkSaysSo(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]State{"401": Degraded, "403": Failing, "500": Degraded, "garbage": Degraded, "cut": Degraded, "hang": Degraded} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, f := overHTTP(t, dbtest.SQLite(t))
			f.send.Store("500")
			f.check.Store(how)
			id := s.say("one", nil)
			s.until("it is in trouble, and that was told", func() bool { return s.List()[0].State == want && s.broken() })
			if it := s.ended(id); it.State != outbox.Uncertain {
				t.Errorf("%+v", it)
			}
			f.check.Store("200")
			s.until("it works", func() bool { return s.List()[0].State == Working })
			s.until("that was told", func() bool { return strings.Contains(strings.Join(s.talks.told(), "\n"), "works again") })
		})
	}
}

// Sends that fail in a row are trouble, whatever the network says of itself, until one
// arrives or none failed for a while.
func TestSendsThatFailInARowAreTrouble(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		s, f := overHTTP(t, dbtest.SQLite(t))
		f.send.Store("500")
		for _, text := range []string{"one", "two", "three"} {
			if i := s.List()[0]; i.State != Working {
				t.Errorf("before %s: %s %s", text, i.State, i.Reason)
			}
			s.ended(s.say(text, nil))
		}
		if i := s.List()[0]; i.State != Degraded || !strings.Contains(i.Reason, "500") {
			t.Errorf("%s %s", i.State, i.Reason)
		}
		if arrives {
			f.send.Store("200")
			s.ended(s.say("four", nil))
			if i := s.List()[0]; i.State != Working {
				t.Errorf("after one that arrived: %s %s", i.State, i.Reason)
			}
			continue
		}
		s.until("it is taken at its word", func() bool { return s.List()[0].State == Working })
	}
}

// A connection that takes the place of another begins when that has ended, and what the old
// one still hears is not taken.
func TestAConnectionBeginsWhenTheOneBeforeHasEnded(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int64
	hold := make(chan struct{})
	n := &network{}
	n.run = func(ctx context.Context, in Intake) error {
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		in.Up(Me{ID: "me", Name: "@me"})
		<-ctx.Done()
		<-hold
		return ctx.Err()
	}
	s := newSite(t, dbtest.SQLite(t), n)
	s.add(nil)
	old := n.intake()
	for _, rate := range []string{"rate=2", "rate=3", "rate=4"} {
		if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{rate}}, "operator"); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Take(t.Context(), Received{ID: "1", Chat: "c", Sender: "a", Text: "hi", Cursor: "9"}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the old connection is heard: %v", err)
	}
	if cursor, err := old.Cursor(t.Context()); err != nil || cursor != "" {
		t.Errorf("it moved the cursor to %q, %v", cursor, err)
	}
	close(hold)
	s.until("it listens again", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.asked == 2 })
	if most.Load() != 1 {
		t.Errorf("%d connections at once", most.Load())
	}
	if err := n.intake().Take(t.Context(), Received{ID: "1", Chat: "c", Sender: "a", Text: "hi"}); err != nil {
		t.Error(err)
	}
}

// One that does not end is not waited for without end.
func TestAConnectionThatDoesNotEndIsLeft(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	n := &network{}
	n.run = func(ctx context.Context, in Intake) error {
		in.Up(Me{ID: "me", Name: "@me"})
		<-ctx.Done()
		<-hold
		return ctx.Err()
	}
	d := dbtest.SQLite(t)
	s := newSite(t, d, n)
	defer close(hold)
	s.cfg.Handover = 20 * time.Millisecond
	s.add(nil)
	if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"rate=2"}}, "operator"); err != nil {
		t.Fatal(err)
	}
	s.until("it listens again", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.asked == 2 })
}
