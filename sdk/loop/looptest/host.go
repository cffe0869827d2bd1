package looptest

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Errors of a run that the host ended.
var (
	// ErrCrashed is a run that was ended by CrashAfter or CrashIn. Again goes on with it.
	ErrCrashed = errors.New("the run was ended as by a crash")
	// ErrLimit is a run that was ended because it did more than one may.
	ErrLimit = errors.New("over the limits of a run")
)

// Host is a host of one loop. What a test sets, it sets before a run; what the loop did is
// there after it. The memory, the notes and the timers outlive a run.
type Host struct {
	// Trigger is what starts the next run: by hand if it is not set. Payload is an object.
	Trigger loop.Trigger
	// Config are the loop's settings.
	Config map[string]string
	// Time is what the clock says. It stands still but for what a run sleeps, and goes on by
	// a minute with Again. New sets it to 2026-08-10 09:00 UTC.
	Time time.Time

	// Attended says that somebody is there to be asked. If not, a web request of a run that has
	// read an answer of the web or a signal, or a note that such a run left, fails the test: in
	// ombud it waits for a person.
	Attended bool

	// HTTP, Ask and the others answer what the loop asks for; of one that is not set the call
	// fails. An error is a failure of the call.
	HTTP                             func(loop.Request) (loop.Response, error)
	Ask, Harness, Gateway, Summarize func(prompt string) (string, error)
	Tools                            map[string]func(input json.RawMessage) (string, error)
	RunLoop                          func(name string) error
	// Recall searches; if it is not set, Facts are searched for any word of the query.
	Recall func(query string, limit int) ([]string, error)
	// Signals are what is sent to the run, by names; each is taken once.
	Signals map[string]json.RawMessage
	// OperatorChats and HostTools are what these functions tell.
	OperatorChats []string
	HostTools     map[string]string

	// Calls is what the loop did, in order: each call that reached something and was made,
	// not those that were answered from the record or refused.
	Calls     []Call
	Facts     []string
	Notices   []abi.Notice
	Proposals []abi.Proposal
	Reminders []abi.Reminder
	Logs      []abi.Line
	Progress  []abi.Progress
	Timers    map[string]Timer
	Chats     map[string]loop.ChatSummary

	t       testing.TB
	m       manifest
	refused map[string]string
	notes   map[string]map[string]note

	record  []recorded
	steps   map[string]*ownStep
	crash   int    // behind which call, 0 for none
	crashIn string // at the end of which step
	attempted
}

// attempted is what one attempt of a run has come to.
type attempted struct {
	at      int    // calls that have a number
	total   int    // all calls
	printed int    // bytes of log
	lines   int    // of log
	kept    int    // bytes of what is recorded
	ended   error  // why the host ended it
	forked  bool   // it went another way than before, for something failed then
	read    string // what of others it has read, if anything
}

// Call is a call that was made.
type Call struct {
	Name    string
	Request string // JSON, or a bare word
}

// Timer is an After that is to come.
type Timer struct {
	At      time.Time
	Payload json.RawMessage
}

type note struct {
	value string
	read  string    // what of others the run that kept it had read
	until time.Time // zero for good
}

// New makes a host that holds the loop of this package to a loop.yaml.
func New(t testing.TB, path string) *Host {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("looptest: %v", err)
	}
	m, err := readManifest(string(text))
	if err != nil {
		t.Fatalf("looptest: %s: %v", path, err)
	}
	return &Host{
		t: t, m: m, Time: time.Date(2026, 8, 10, 9, 0, 0, 0, time.UTC),
		Config: map[string]string{}, Tools: map[string]func(json.RawMessage) (string, error){}, Signals: map[string]json.RawMessage{},
		HostTools: map[string]string{}, Timers: map[string]Timer{}, Chats: map[string]loop.ChatSummary{},
		refused: map[string]string{}, notes: map[string]map[string]note{}, steps: map[string]*ownStep{},
	}
}

// Refuse has the operator not allow something: a host function by its name, a tool as
// tool:NAME, a host of the web as http:HOST.
func (h *Host) Refuse(what, why string) { h.refused[what] = why }

// Allow takes back a Refuse.
func (h *Host) Allow(what string) { delete(h.refused, what) }

// CrashAfter has the next attempt end behind its n-th call that reaches something, before
// the loop hears the answer. The call was made and is recorded.
func (h *Host) CrashAfter(n int) { h.crash = n }

// CrashIn has the next attempt end within a Step or Once of this name: what it did was done
// and its result is lost.
func (h *Host) CrashIn(step string) { h.crashIn = step }

// Run is a new run, to its end. It returns what the loop returned.
func (h *Host) Run() error {
	h.t.Helper()
	h.record, h.steps = nil, map[string]*ownStep{}
	return h.attempt()
}

// Again is the next try of the last run, as ombud makes it a minute after a failure, and at
// once after a crash: what was done is answered from the record, what failed is done again.
func (h *Host) Again() error {
	h.t.Helper()
	h.Time = h.Time.Add(time.Minute)
	if !errors.Is(h.ended, ErrCrashed) {
		for n := range h.record {
			h.record[n].stale = h.record[n].status != ok
		}
	}
	return h.attempt()
}

// Fire is the run that a timer of After starts, at its time.
func (h *Host) Fire(id string) error {
	h.t.Helper()
	timer, there := h.Timers[id]
	if !there {
		h.t.Fatalf("looptest: there is no timer %q", id)
	}
	delete(h.Timers, id)
	if timer.At.After(h.Time) {
		h.Time = timer.At
	}
	before := h.Trigger
	defer func() { h.Trigger = before }()
	h.Trigger = loop.Trigger{Kind: "timer", Payload: timer.Payload}
	return h.Run()
}

// Serve calls a tool that the loop provides, as the agent does. It returns what is said to
// the agent.
func (h *Host) Serve(name string, input any) string {
	h.t.Helper()
	if !contains(h.m.provides, name) {
		h.t.Fatalf("looptest: loop.yaml does not name the tool %q under provides", name)
	}
	raw, err := json.Marshal(input)
	if err != nil {
		h.t.Fatalf("looptest: the input of %s: %v", name, err)
	}
	req, err := json.Marshal(abi.ToolCall{Name: name, Input: raw})
	if err != nil {
		h.t.Fatalf("looptest: the input of %s: %v", name, err)
	}
	inner := *h // a run of its own, with a record of its own
	inner.record, inner.steps = nil, map[string]*ownStep{}
	inner.crash, inner.crashIn, inner.attempted = 0, "", attempted{read: h.read}
	var out []byte
	inner.within(func() { out = loop.ServeOn(&inner, req) })
	if inner.ended != nil {
		h.t.Fatalf("looptest: the tool %s: %v", name, inner.ended)
	}
	h.takeFrom(&inner)
	var text string
	if json.Unmarshal(out, &text) == nil {
		return text
	}
	return string(out)
}

// takeFrom has what another run did be seen here.
func (h *Host) takeFrom(o *Host) {
	h.Calls, h.Facts, h.Notices, h.Proposals, h.Reminders, h.Logs, h.Progress = o.Calls, o.Facts, o.Notices, o.Proposals, o.Reminders, o.Logs, o.Progress
}

// asleep ends an attempt that is to go on at a time.
type asleep struct{ error }

// attempt runs the loop until it returns, and again whenever it slept.
func (h *Host) attempt() (err error) {
	h.t.Helper()
	for {
		h.attempted = attempted{}
		h.within(func() { err = loop.RunOn(h) })
		if _, zz := errors.AsType[asleep](h.ended); zz {
			continue
		}
		h.crash, h.crashIn = 0, ""
		if h.ended != nil {
			return h.ended
		}
		if err == nil && h.at < len(h.record) && !h.forked {
			h.t.Errorf("looptest: done again, the run made %d calls and before %d: %s was not made", h.at, len(h.record), h.record[h.at].Name)
		}
		return err
	}
}

// within has do run where the host can end it at any call.
func (h *Host) within(do func()) {
	done := make(chan any)
	go func() {
		var failure any
		defer func() { done <- failure }()
		defer func() { failure = recover() }() // nil when the host ended it
		do()
	}()
	if failure := <-done; failure != nil {
		panic(failure)
	}
}

// stop ends the attempt here. Deferred functions of the loop run.
func (h *Host) stop(why error) {
	h.ended = why
	runtime.Goexit()
}
