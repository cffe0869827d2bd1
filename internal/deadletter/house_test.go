package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// asVictim makes this binary a process that decides a letter and is killed meanwhile.
const asVictim = "OMBUD_TEST_DEADLETTER_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

const (
	workKind = "work"
	reader   = "reader"
	channel  = "net"
)

// house is everything that can give something up, on one store. What handlers and the
// network do is counted in rows of the log: the streams "handled", "worked" and "told".
type house struct {
	t       testing.TB
	db      *db.DB
	log     *eventlog.Log
	audit   *audit.Audit
	runs    *run.Engine
	outbox  *outbox.Outbox
	letters *Letters
	ahead   atomic.Int64 // of the real time

	mu   sync.Mutex
	bad  map[string]bool // what fails: "handle", "work", "send"
	how  error           // how it does
	held error
	sent []outbox.Item
}

func newHouse(ctx context.Context, t testing.TB, o db.Options) (*house, error) {
	t.Helper()
	h := &house{t: t, bad: map[string]bool{}, how: fault.New(fault.Invalid, "it is bad")}
	o.Now = func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
	var err error
	if h.db, err = db.Open(ctx, o); err != nil {
		return nil, err
	}
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		return nil, err
	}
	h.log = eventlog.NewLog(h.db, v, nil, eventlog.Options{
		Now: o.Now, Poll: 10 * time.Millisecond, Retries: []time.Duration{},
		OnDead: func(ctx context.Context, tx *db.Tx, d eventlog.DeadLetter) error { return h.letters.OnDead(ctx, tx, d) },
	})
	kinds := run.NewKinds()
	if err := kinds.Add(run.Kind{Name: workKind, Handle: h.work, Attempts: 2, Backoff: func(int) time.Duration { return 0 }}); err != nil {
		return nil, err
	}
	h.runs = run.New(h.db, v, h.log, kinds, run.Options{Poll: 10 * time.Millisecond})
	h.audit = audit.New(h.db, v, h.runs.Node(), nil)
	senders := outbox.NewSenders()
	if err := senders.Add(channel, h); err != nil {
		return nil, err
	}
	h.outbox = outbox.New(h.db, v, h.log, senders, outbox.Options{Poll: 10 * time.Millisecond})
	h.letters = New(Deps{DB: h.db, Log: h.log, Audit: h.audit, Runs: h.runs, Deliveries: h.outbox, Tell: h.tell, Held: h.refuse}, Options{})
	return h, h.audit.Start(ctx)
}

// each runs a test in a house on each kind of store, with everything started.
func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := open(t, dbtest.Options(t, kind))
			test(t, h)
		})
	}
}

func open(t *testing.T, o db.Options) *house {
	t.Helper()
	h, err := newHouse(t.Context(), t, o)
	if err != nil {
		t.Fatal(err)
	}
	h.start(t.Context())
	t.Cleanup(h.close)
	return h
}

func (h *house) start(ctx context.Context) {
	h.t.Helper()
	sub := eventlog.Subscription{Name: reader, Filter: eventlog.Filter{Kinds: []string{"k"}}, Handle: h.handle}
	if err := errors.Join(h.runs.Open(ctx), h.outbox.Start(ctx), h.log.Start(ctx, sub)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) close() {
	ctx := context.Background()
	h.log.Stop()
	h.outbox.Stop()
	if err := errors.Join(h.runs.Stop(ctx), h.audit.Stop(ctx), h.db.Close()); err != nil {
		h.t.Error(err)
	}
}

func (h *house) fails(what string, yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad[what] = yes
}

func (h *house) failure(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bad[what] {
		return h.how
	}
	return nil
}

func (h *house) refuse() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *house) note(ctx context.Context, tx *db.Tx, stream string, data any) error {
	_, err := h.log.AppendTx(ctx, tx, eventlog.New{Stream: stream, Kind: "note", Data: data, Expect: eventlog.Any})
	return err
}

func (h *house) tell(ctx context.Context, tx *db.Tx, cause, text string) error {
	return h.note(ctx, tx, "told", cause+": "+text)
}

func (h *house) handle(ctx context.Context, tx *db.Tx, e eventlog.Event) error {
	if err := h.note(ctx, tx, "handled", fmt.Sprintf("%s %v", e.ID, e.OutOfOrder)); err != nil {
		return err
	}
	return h.failure("handle")
}

// work has a step that is done once and one that may fail.
func (h *house) work(ctx context.Context, r *run.Run) ([]byte, error) {
	for _, step := range []string{"first", "second"} {
		out, err := r.DoTx(ctx, run.StepSpec{Name: step, Policy: run.Policy{Kind: run.Repeatable}}, func(ctx context.Context, tx *db.Tx) run.Outcome {
			if err := h.failure("work"); step == "second" && err != nil {
				return run.Fail(fault.New(fault.Internal, "%w", err)) // tried again
			}
			if err := h.note(ctx, tx, "worked", fmt.Sprintf("%s %s %s", r.ID(), step, r.Input())); err != nil {
				return run.Fail(err)
			}
			return run.Succeed(nil)
		})
		if err != nil {
			return nil, err
		}
		if out.Err != nil {
			return nil, out.Err
		}
	}
	return json.Marshal("done")
}

// Send is the network's.
func (h *house) Send(_ context.Context, it outbox.Item) (outbox.Receipt, error) {
	if err := h.failure("send"); err != nil {
		return outbox.Receipt{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, it)
	return outbox.Receipt{Ref: "r"}, nil
}

func (h *house) notes(stream string) (out []string) {
	h.t.Helper()
	list, err := h.log.Stream(context.Background(), stream, 0, 1000)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range list {
		var s string
		if err := json.Unmarshal(e.Data, &s); err != nil {
			h.t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// event lets an event be given up and returns its letter.
func (h *house) event(id string) eventlog.DeadLetter {
	h.t.Helper()
	h.fails("handle", true)
	if _, err := h.log.Append(context.Background(), eventlog.New{ID: id, Stream: "s", Kind: "k", Expect: eventlog.Any}); err != nil {
		h.t.Fatal(err)
	}
	return h.letterOf(id)
}

// run lets a run fail and returns its letter.
func (h *house) run(input string) eventlog.DeadLetter {
	h.t.Helper()
	h.fails("work", true)
	id, err := h.runs.Start(context.Background(), run.Spec{Kind: workKind, Name: "the name", Definition: "d1", Key: "key", Actor: "test", Input: input})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.letterOf(id)
}

// delivery lets a message not arrive and returns its letter.
func (h *house) delivery(text string) eventlog.DeadLetter {
	h.t.Helper()
	h.fails("send", true)
	var it outbox.Item
	err := h.db.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) (err error) {
		it, err = h.outbox.AppendTx(ctx, tx, outbox.Message{Conversation: "c", Channel: channel, Recipient: "you", Run: "run_" + text, Text: text})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.letterOf(it.ID)
}

// letterOf waits for the letter of a thing.
func (h *house) letterOf(ref string) (found eventlog.DeadLetter) {
	h.t.Helper()
	until(h.t, func() bool {
		for _, d := range h.list(eventlog.LetterFilter{State: eventlog.LetterWaiting}) {
			if d.Ref == ref {
				found = d
			}
		}
		return found.ID != ""
	})
	return found
}

func (h *house) list(f eventlog.LetterFilter) []eventlog.DeadLetter {
	h.t.Helper()
	list, err := h.log.DeadLetters(context.Background(), f)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func (h *house) replay(letter string) error {
	_, err := h.letters.Replay(context.Background(), Request{ID: letter, By: "operator", Note: "again"})
	return err
}

func (h *house) drop(letter string) error {
	_, err := h.letters.Drop(context.Background(), Request{ID: letter, By: "operator", Note: "no more"})
	return err
}

func (h *house) get(letter string) eventlog.DeadLetter {
	h.t.Helper()
	d, err := h.letters.Get(context.Background(), letter)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *house) wait(runID string, state run.State) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rec, err := h.runs.Wait(ctx, runID)
	if err != nil || rec.State != state {
		h.t.Fatalf("run %s is %s (%s), want %s: %v", runID, rec.State, rec.Error, state, err)
	}
}

// decisions are the events and the audited outcomes of a letter.
func (h *house) decisions(letter string) (events, audited []string) {
	h.t.Helper()
	list, err := h.log.Stream(context.Background(), "deadletter:"+letter, 0, 100)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range list {
		events = append(events, e.Kind)
	}
	var out bytes.Buffer
	if err := h.audit.Export(context.Background(), &out); err != nil {
		h.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"outcome":"([^"]*)","reason":"`+letter+`"`).FindAllStringSubmatch(strings.ReplaceAll(out.String(), `\"`, `"`), -1) {
		audited = append(audited, m[1])
	}
	return events, audited
}

func until(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
		<-time.After(5 * time.Millisecond)
	}
}
