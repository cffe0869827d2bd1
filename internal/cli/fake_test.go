//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// fakeDaemon is a daemon whose conversations are scripted by what is said:
//
//	echo TEXT      replies TEXT, in two pieces
//	ramble TEXT    streams something else first
//	die TEXT       the daemon dies while the turn runs; its next life replies TEXT
//	lose TEXT      the daemon dies before it answers message.send, the first time
//	allow TEXT     asks for an approval, then replies TEXT, or "no" if denied
//	fill TEXT      asks for an approval with a form, then replies what was filled in
//	end OUTCOME [CLASS]
//	hang           until it is cancelled
//
// What it was told is kept in a file, so that another life of it knows.
type fakeDaemon struct {
	opts UpOptions
	path string
	stop context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	state   fakeState
}

type fakeState struct {
	Lives    int               // daemons so far
	Keys     map[string]string // key → run
	Texts    map[string]string // run → text
	Decided  map[string]string // run → decision
	Filled   map[string]string // run → what was filled in
	Canceled map[string]bool   // run
	Died     map[string]bool   // text it died of
	Sent     int               // message.send requests
	Watched  int               // turn.watch requests that wait for a cancel
}

func runFake(ctx context.Context, o UpOptions) error {
	lock, err := os.OpenFile(o.Instance.LockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fault.New(fault.Running, "another daemon holds %s", o.Instance.LockFile())
	}
	fmt.Fprintf(lock, "%d\n", os.Getpid())
	if err := fakeTrouble(os.Getenv("OMBUD_TEST_TROUBLE"), o.Instance.StateDir); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute) // a test that forgot it
	defer stop()
	d := &fakeDaemon{opts: o, path: filepath.Join(o.Instance.StateDir, "fake.json"), stop: stop, changed: make(chan struct{})}
	if err := d.load(); err != nil {
		return err
	}
	d.change(func(s *fakeState) { s.Lives++ })
	server := ipc.New(ipc.Config{Socket: o.Instance.Socket(), HoldsLock: true, UID: os.Getuid(), Hide: func(b []byte) []byte { return b }}, d.mux(), o.Logger)
	if err := server.Start(ctx); err != nil {
		return err
	}
	o.Logger.Info("daemon started", "instance", o.Instance.Name)
	o.Ready()
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Stop(end)
}

func fakeTrouble(kind, dir string) error {
	switch kind {
	case "schema":
		return fault.New(fault.Config, "the store was written by a newer ombud").WithHint("install that one")
	case "crash":
		fmt.Fprintln(os.Stderr, "fatal error: out of cheese")
		os.Exit(42)
	case "slow":
		<-time.After(1500 * time.Millisecond) // below the time when a lock is tried anyway
	case "killed", "killed-once":
		once, err := os.OpenFile(filepath.Join(dir, "killed"), os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil && kind == "killed-once" {
			return nil
		}
		_ = once.Close()
		fmt.Fprintln(os.Stderr, "error: the last words of another daemon")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it comes at once
	}
	return nil
}

func (d *fakeDaemon) load() error {
	d.state = fakeState{
		Keys: map[string]string{}, Texts: map[string]string{}, Decided: map[string]string{}, Filled: map[string]string{},
		Canceled: map[string]bool{}, Died: map[string]bool{},
	}
	raw, err := os.ReadFile(d.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, &d.state)
}

// change changes the state, durably, and wakes who waits for it.
func (d *fakeDaemon) change(fn func(*fakeState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn(&d.state)
	raw, err := json.Marshal(d.state)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(d.path, raw, 0o600); err != nil {
		panic(err)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// until waits until is says true, or ctx ends.
func (d *fakeDaemon) until(ctx context.Context, is func(*fakeState) bool) error {
	for {
		d.mu.Lock()
		ok, changed := is(&d.state), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// dies ends the process as kill -9 does, the first time it meets a text.
func (d *fakeDaemon) dies(text string) {
	again := false
	d.change(func(s *fakeState) { again, s.Died[text] = s.Died[text], true })
	if !again {
		os.Exit(137)
	}
}

func (d *fakeDaemon) send(_ context.Context, req wire.MessageSendRequest) (wire.MessageSendResult, error) {
	if notice, ok := map[string]string{"/status": "idle", "/new": "started afresh"}[req.Text]; ok {
		return wire.MessageSendResult{EventID: "evt_control", Conversation: req.Conversation, Notice: notice}, nil
	}
	if req.Text == "full" {
		return wire.MessageSendResult{}, fault.New(fault.Unavailable, "the disk is full").WithHint("free some space")
	}
	if req.Key == "" {
		return wire.MessageSendResult{}, fault.New(fault.Invalid, "a command sends a key")
	}
	res := wire.MessageSendResult{Conversation: req.Conversation}
	d.change(func(s *fakeState) {
		s.Sent++
		res.RunID, res.Duplicate = s.Keys[req.Key], s.Keys[req.Key] != ""
		if !res.Duplicate {
			res.RunID = fmt.Sprintf("run_%d", len(s.Keys)+1)
			s.Keys[req.Key], s.Texts[res.RunID] = res.RunID, req.Text
		}
	})
	res.EventID = strings.Replace(res.RunID, "run", "evt", 1)
	if strings.HasPrefix(req.Text, "lose ") {
		d.dies(req.Text)
	}
	return res, nil
}

func (d *fakeDaemon) watch(ctx context.Context, req wire.TurnWatchRequest, send func(wire.TurnNote) error) (wire.TurnResult, error) {
	d.mu.Lock()
	text := d.state.Texts[req.RunID]
	d.mu.Unlock()
	verb, rest, _ := strings.Cut(text, " ")
	res := wire.TurnResult{RunID: req.RunID, Outcome: "completed", Reply: rest, CostMicroUSD: 1200, CostKnown: true}
	say := func(pieces ...string) error {
		for _, p := range pieces {
			if err := send(wire.TurnDelta{Text: p}); err != nil {
				return err
			}
		}
		return nil
	}
	switch verb {
	case "echo", "lose":
		half := len(rest) / 2
		return res, say(rest[:half], rest[half:])
	case "ramble":
		return res, say("Let me see", "…")
	case "die":
		d.mu.Lock()
		again := d.state.Died[text]
		d.mu.Unlock()
		if again {
			return res, say(rest)
		}
		if err := say("half a rep"); err != nil {
			return res, err
		}
		d.dies(text)
	case "allow":
		return d.watchApproval(ctx, res, nil, send)
	case "fill":
		return d.watchApproval(ctx, res, cannedForm(), send)
	case "end":
		outcome, class, _ := strings.Cut(rest, " ")
		res.Outcome, res.Reply = outcome, ""
		if class != "" {
			res.Error = &wire.Problem{Class: fault.Class(class), Message: "it was " + class, Hint: "look closer"}
		}
		return res, nil
	case "hang":
		d.change(func(s *fakeState) { s.Watched++ })
		err := d.until(ctx, func(s *fakeState) bool { return s.Canceled[req.RunID] })
		res.Outcome = "cancelled"
		return res, err
	}
	return res, fault.New(fault.NotFound, "no run %s", req.RunID)
}

func (d *fakeDaemon) watchApproval(ctx context.Context, res wire.TurnResult, f *wire.ApprovalForm, send func(wire.TurnNote) error) (wire.TurnResult, error) {
	decided := func(s *fakeState) bool { return s.Decided[res.RunID] != "" }
	d.mu.Lock()
	open := !decided(&d.state)
	d.mu.Unlock()
	if open {
		if err := send(wire.TurnApproval{ID: "apr_" + res.RunID, Summary: "write notes.txt (12 bytes)", Form: f}); err != nil {
			return res, err
		}
	}
	err := d.until(ctx, decided)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.state.Decided[res.RunID] == wire.Deny:
		res.Reply = "no"
	case f != nil:
		res.Reply = d.state.Filled[res.RunID]
	}
	return res, err
}

func (d *fakeDaemon) resolve(_ context.Context, req wire.ApprovalsResolveRequest) (wire.ApprovalsResolveResult, error) {
	run := strings.TrimPrefix(req.ID, "apr_")
	var res wire.ApprovalsResolveResult
	var wrong error
	d.change(func(s *fakeState) {
		text, ok := s.Texts[run]
		if !ok || s.Decided[run] != "" {
			return
		}
		if res.RunID = run; req.Decision == wire.Approve && strings.HasPrefix(text, "fill ") {
			var answer json.RawMessage
			if answer, wrong = formOf(cannedForm()).Check(req.Answer); wrong != nil {
				return
			}
			s.Filled[run] = string(answer)
		}
		s.Decided[run] = req.Decision
	})
	if wrong != nil {
		return res, wrong
	}
	if res.RunID == "" {
		return res, fault.New(fault.NotFound, "no open approval %s", req.ID).WithHint("ombud inbox")
	}
	if req.Standing != "" {
		g := cannedGrant()
		g.Origin, g.Conversation = "approval:"+req.ID, map[string]string{wire.StandingConversation: "main"}[req.Standing]
		res.Grants = []wire.Grant{g}
	}
	res.Approval = wire.Approval{ID: req.ID, State: map[string]string{wire.Approve: "approved", wire.Deny: "denied"}[req.Decision], Summary: "write notes.txt (12 bytes)"}
	return res, nil
}

func (d *fakeDaemon) cancel(_ context.Context, req wire.TurnCancelRequest) (wire.TurnCancelResult, error) {
	d.change(func(s *fakeState) { s.Canceled[req.RunID] = true })
	return wire.TurnCancelResult{RunID: req.RunID, State: "cancelling", Moved: true}, nil
}

func (d *fakeDaemon) status(context.Context, wire.Empty) (wire.Status, error) {
	version := d.opts.Version
	if v := os.Getenv("OMBUD_TEST_VERSION"); v != "" {
		version = v
	}
	s := wire.Status{
		PID: os.Getpid(), Version: version, Instance: d.opts.Instance.Name, Store: "sqlite", UptimeS: 90, Ready: true,
		Detached: d.opts.Auto, Idle: os.Getenv("OMBUD_TEST_BUSY") == "",
		Models: wire.Models{Main: wire.Model{Provider: "builtin", Why: "no key and no Ollama was found"}},
		Disk:   wire.Disk{FreeBytes: 5 << 30, StoreBytes: 1 << 20}, Conversations: 1, Approvals: 2,
	}
	if !d.opts.Environment.AnthropicAPIKey.Set() {
		s.Missing = append(s.Missing, wire.Missing{Name: "ANTHROPIC_API_KEY", Hint: "set it and restart"})
	}
	return s, nil
}
