package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

const asVictim = "CHANNEL_TEST_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}

// site is the channels of a store, with one network and what stands for the agents.
type site struct {
	*Channels
	t       testing.TB
	db      *db.DB
	book    *audit.Audit
	net     *network
	talks   *talks
	people  *pairing.Pairing
	secrets secretMap
	held    bool
}

// talks stands for the agents: it judges messages in a transaction of the store, as they
// do, keeps them, and keeps what comes again apart.
type talks struct {
	db       *db.DB
	mu       sync.Mutex
	in       []agent.Inbound
	said     []string // notices to the sender
	keys     map[string]bool
	noticing sync.Mutex
	notices  []string // to the operator
	pressed  []string
	fail     error
	run      string          // that a message starts
	notes    chan agent.Note // of it
	over     atomic.Bool
}

func (c *talks) Intake(ctx context.Context, in agent.Inbound) (out agent.Accepted, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if c.keys[in.Key] {
			out.Duplicate = true
			return nil
		}
		judged := in
		notice, settled, err := in.Judge(ctx, tx, &judged)
		if err == nil {
			err = c.fail
		}
		if err != nil {
			return err
		}
		tx.AfterCommit(func() {
			c.in, c.keys[in.Key] = append(c.in, judged), true
			if settled {
				c.said = append(c.said, notice)
			} else if !judged.Overheard {
				out.Run = c.run
			}
		})
		return nil
	})
	return out, err
}

func (c *talks) ConversationIn(_ context.Context, _ db.Q, id string) (agent.Conversation, error) {
	return agent.Conversation{ID: id, Address: agent.Address{Channel: "net", Account: "me", Chat: id, Thread: "t"}}, nil
}

func (c *talks) PressTx(_ context.Context, _ *db.Tx, approval string, yes bool, by string) (string, error) {
	c.pressed = append(c.pressed, fmt.Sprint(approval, " ", yes, " by ", by))
	return "Approved: it", nil
}

func (c *talks) NoticeTx(_ context.Context, tx *db.Tx, _, text string) error {
	tx.AfterCommit(func() {
		c.noticing.Lock()
		defer c.noticing.Unlock()
		c.notices = append(c.notices, text)
	})
	return nil
}

func (c *talks) Watch(string) (<-chan agent.Note, func()) { return c.notes, func() {} }

func (c *talks) Over(context.Context, string) bool { return c.over.Load() }

func (c *talks) told() []string {
	c.noticing.Lock()
	defer c.noticing.Unlock()
	return slices.Clone(c.notices)
}

type secretMap map[string]string

func (m secretMap) PutTx(_ context.Context, tx *db.Tx, name, value string) error {
	tx.AfterCommit(func() { m[name] = value })
	return nil
}

func (m secretMap) DropTx(_ context.Context, tx *db.Tx, name string) error {
	tx.AfterCommit(func() { delete(m, name) })
	return nil
}

func (m secretMap) Hide(string, string) {}

func (m secretMap) Get(_ context.Context, name string) (string, error) {
	if v, ok := m[name]; ok {
		return v, nil
	}
	return "", fault.New(fault.NotFound, "no secret %s", name)
}

// network is a chat network of the test's own.
type network struct {
	mu    sync.Mutex
	in    Intake
	sent  []Outgoing
	asked int // how often it was run

	check func() (Me, error)
	run   func(ctx context.Context, in Intake) error
	send  func(out Outgoing) (string, error)
	probe func(out Outgoing) (outbox.Answer, string, error)

	editing *editing // if it can change what it sent
}

func (n *network) Capabilities() Capabilities { return Capabilities{Limit: 10} }

func (n *network) Check(context.Context) (Me, error) {
	if n.check != nil {
		return n.check()
	}
	return Me{ID: "me", Name: "@me"}, nil
}

func (n *network) Run(ctx context.Context, in Intake) error {
	n.mu.Lock()
	n.in = in
	n.asked++
	n.mu.Unlock()
	if n.run != nil {
		return n.run(ctx, in)
	}
	in.Up(Me{ID: "me", Name: "@me"})
	<-ctx.Done()
	return ctx.Err()
}

// intake is where what was run last puts messages.
func (n *network) intake() Intake {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.in
}

// Render makes a piece of each word.
func (n *network) Render(text string) (out []markup.Piece) {
	for _, w := range strings.Fields(text) {
		out = append(out, markup.Piece{Text: w})
	}
	return out
}

func (n *network) Send(_ context.Context, out Outgoing) (string, error) {
	if n.send != nil {
		ref, err := n.send(out)
		if err != nil {
			return "", err
		}
		n.note(out)
		return ref, nil
	}
	n.note(out)
	return "ref " + out.Piece.Text, nil
}

func (n *network) note(out Outgoing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, out)
}

func (n *network) texts() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.sent {
		out = append(out, o.Piece.Text)
	}
	return out
}

// editing is a network that can change what it sent.
type editing struct {
	*network
	edits []Outgoing
	wrong error
}

func (e *editing) Capabilities() Capabilities {
	return Capabilities{Limit: 10, Edits: 5 * time.Millisecond}
}

func (e *editing) Edit(_ context.Context, ref string, out Outgoing) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wrong != nil {
		return e.wrong
	}
	e.edits = append(e.edits, out)
	return nil
}

func (e *editing) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.edits) == 0 {
		return ""
	}
	return e.edits[len(e.edits)-1].Piece.Text
}

// asking is a network that can tell what became of a message.
type asking struct{ *network }

func (a asking) Probe(_ context.Context, out Outgoing, _ time.Time) (outbox.Answer, string, error) {
	return a.probe(out)
}

func kindOf(n *network) Kind {
	return Kind{
		Name: "net", About: "a network for tests",
		Needs: []Part{{Name: "token", About: "a key", Secret: true}, {Name: "url", Default: "http://net.example"}, {Name: "team", Optional: true}},
		Make: func(set Setup) (Adapter, error) {
			switch {
			case set.Values["url"] == "nowhere":
				return nil, fault.New(fault.Invalid, "url: nowhere is no address")
			case n.editing != nil:
				return n.editing, nil
			case n.probe != nil:
				return asking{n}, nil
			}
			return n, nil
		},
	}
}

func each(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		test(t, newSite(t, d, &network{}))
	})
}

// newSite opens the channels of a store and starts them.
func newSite(t testing.TB, d *db.DB, n *network) *site {
	t.Helper()
	s, err := assemble(d, n, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	if err := errors.Join(s.book.Start(t.Context()), s.Open(t.Context()), s.Outbox.Start(t.Context()), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		s.Outbox.Stop()
		if err := s.book.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func assemble(d *db.DB, n *network, log interface{ Write([]byte) (int, error) }) (*site, error) {
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		return nil, err
	}
	s := &site{db: d, net: n, secrets: secretMap{}, talks: &talks{db: d, keys: map[string]bool{}, notes: make(chan agent.Note, 9)}}
	logger := slog.New(slog.NewTextHandler(log, nil))
	events := eventlog.NewLog(d, v, nil, eventlog.Options{})
	s.book = audit.New(d, v, run.New(d, v, events, run.NewKinds(), run.Options{}).Node(), nil)
	s.people = pairing.New(d, v, events, s.book)
	out := outbox.NewSenders()
	box := outbox.New(d, v, events, out, outbox.Options{Logger: logger, Poll: 20 * time.Millisecond})
	s.Channels = New(Deps{
		DB: d, Vault: v, Log: events, Audit: s.book, Agents: s.talks, Senders: s.people, Outbox: box, Out: out, Secrets: s.secrets,
		Kinds: []Kind{kindOf(n)}, Held: func() bool { return s.held }, Logger: logger,
	}, Config{Grace: 10 * time.Millisecond, Pause: time.Millisecond, Longest: 5 * time.Millisecond, Denied: 10 * time.Millisecond, Calm: 3 * time.Second})
	return s, nil
}

// add adds the channel net, and waits until it listens.
func (s *site) add(values map[string]string) Info {
	s.t.Helper()
	i, err := s.Add(s.t.Context(), Adding{Kind: "net", Values: values, Secrets: map[string]string{"token": "sesame"}}, "operator")
	if err != nil {
		s.t.Fatal(err)
	}
	s.until("it listens", func() bool { return s.net.intake() != nil })
	return i
}

func (s *site) until(what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(20 * time.Second); !is(); {
		select {
		case <-tick.C:
		case <-over:
			s.t.Fatal("it never came to be that ", what)
		}
	}
}

// say puts a message into the outbox, as a turn does.
func (s *site) say(text string, change func(*outbox.Message)) string {
	s.t.Helper()
	m := outbox.Message{Conversation: "chat1", Channel: "net", Recipient: "chat1", Run: "run_" + text, Text: text}
	if change != nil {
		change(&m)
	}
	var it outbox.Item
	err := s.db.InTx(s.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		it, err = s.Outbox.AppendTx(ctx, tx, m)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return it.ID
}

func (s *site) item(id string) outbox.Item {
	s.t.Helper()
	it, err := s.Outbox.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return it
}

// ended waits until an item has left the line.
func (s *site) ended(id string) outbox.Item {
	s.t.Helper()
	s.until("the item has left the line", func() bool {
		state := s.item(id).State
		return state != outbox.Queued && state != outbox.Sending
	})
	return s.item(id)
}

// hear takes a message in from the network.
func (s *site) hear(m Received) agent.Inbound {
	s.t.Helper()
	s.until("it is taken", func() bool { // by the connection that stands, where another just ended
		err := s.net.intake().Take(s.t.Context(), m)
		if err != nil && !strings.Contains(err.Error(), "was ended") {
			s.t.Fatal(err)
		}
		return err == nil
	})
	s.talks.mu.Lock()
	defer s.talks.mu.Unlock()
	return s.talks.in[len(s.talks.in)-1]
}
