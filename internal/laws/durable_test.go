//go:build unix

package laws

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/wire"
)

const echoes = `turns:
  - steps: [{text: noted}]`

// TestLaw01AcknowledgedMeansDurable kills the daemon while messages come in, again
// and again: each one it acknowledged is there afterwards, whole, once, and is
// answered. Between the request and its acknowledgement the store was flushed.
func TestLaw01AcknowledgedMeansDurable(t *testing.T) {
	t.Parallel()
	h := build(t, echoes, "")
	acked := map[string]string{} // event → text
	runs := map[string]bool{}
	for round := range 3 {
		p := h.spawn()
		var mu sync.Mutex
		var wg sync.WaitGroup
		begun := make(chan struct{}, 1000)
		for c := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					text := fmt.Sprintf("round %d, client %d, message %d", round, c, i)
					got, err := h.client.MessageSend(context.Background(), wire.MessageSendRequest{
						Conversation: fmt.Sprint("c", c), Text: text, Key: text,
					})
					if err != nil {
						return // it was killed
					}
					mu.Lock()
					acked[got.EventID], runs[got.RunID] = text, true
					mu.Unlock()
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 10 + rand.IntN(20) {
			<-begun
		}
		p.kill()
		wg.Wait()
	}
	p := h.spawn()
	have := map[string]string{}
	for _, e := range h.events("comms.message") {
		have[e.ID] = string(e.Data)
	}
	for id, text := range acked {
		if !strings.Contains(have[id], `"`+text+`"`) {
			t.Errorf("%q was acknowledged as %s; there is %q", text, id, have[id])
		}
	}
	for id := range runs {
		if a := h.answer(id); a.Outcome != "completed" || a.Reply != "noted" {
			t.Errorf("%+v", a)
		}
	}
	for id, text := range acked { // what is sent again is known
		c := strings.Split(strings.Split(text, "client ")[1], ",")[0]
		got, err := h.client.MessageSend(t.Context(), wire.MessageSendRequest{Conversation: "c" + c, Text: text, Key: text})
		if err != nil || !got.Duplicate || got.EventID != id {
			t.Errorf("%q again: %+v, %v", text, got, err)
		}
	}
	h.proved()
	p.kill()

	t.Run("the store is flushed first", func(t *testing.T) {
		strace, err := exec.LookPath("strace")
		if err != nil {
			missing(t, "strace is not installed (make test installs it as root on Debian)")
		}
		h := build(t, echoes, "")
		trace := filepath.Join(h.dir, "trace")
		p := h.spawn(strace, "-f", "-y", "-s", "128", "-o", trace, "-e", "trace=read,write,pwrite64,fsync,fdatasync")
		h.ask("main", "a message to be flushed")
		ctx, cancel := h.within()
		defer cancel()
		if _, err := h.client.SystemStop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := confine.Wait(p.cmd); err != nil {
			t.Fatal(err)
		}
		if err := flushedBetween(h.read(trace)); err != nil {
			t.Error(err)
		}
	})
}

// flushedBetween judges a trace: after the message was read, the log was written
// and then flushed before the answer with its event was written.
func flushedBetween(trace string) error {
	var read, written, flushed, flushing bool
	for line := range strings.Lines(trace) {
		wal := strings.Contains(line, "ombud.db-wal>")
		flush := strings.Contains(line, "fsync(") || strings.Contains(line, "fdatasync(")
		switch {
		case strings.Contains(line, "a message to be flushed") && strings.Contains(line, "message.send"):
			read = true
		case !read:
		case strings.Contains(line, "event_id") && strings.Contains(line, "write("):
			if !flushed {
				return errors.New("the message was acknowledged before the store was flushed")
			}
			return nil
		case wal && flush:
			flushed = flushed || written && strings.Contains(line, "= 0")
			flushing = written && strings.Contains(line, "unfinished")
		case flushing && strings.Contains(line, "sync resumed"):
			flushed = flushed || strings.Contains(line, "= 0")
		case wal:
			written = true
		}
	}
	return fmt.Errorf("the trace has no acknowledgement (read: %t, written: %t)", read, written)
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI=true: %s", why)
	}
	fmt.Fprintf(os.Stderr, "\n*** %s NOT RUN: %s\n\n", t.Name(), why)
	t.Skip(why)
}

// TestLaw02NothingThatMattersIsOnlyInMemory kills a daemon that has a turn at work,
// one that waits for a person, one that waits for its turn, a reminder, a memory
// and an open deadline. Every one of them goes on.
func TestLaw02NothingThatMattersIsOnlyInMemory(t *testing.T) {
	t.Parallel()
	h := build(t, `turns:
  - match: write
    steps:
      - calls: [{tool: fs.write, input: {path: note.txt, content: hello}}]
      - text: written
  - match: slow
    steps:
      - text: first I look
        calls: [{tool: time.now}]
      - delay: 1s
        text: at last
  - match: remind
    steps:
      - calls: [{tool: remind.set, input: {text: the kettle, in_seconds: 2}}]
      - text: set
  - match: remember
    steps:
      - calls: [{tool: memory.remember, input: {text: the boiler code is 4711}}]
      - text: kept
  - steps: [{text: noted}]`, "")
	p := h.spawn()
	h.ask("main", "remember the code")
	h.ask("reminders", "remind me")
	asks := h.send("asks", "write it")
	q := h.question(asks.RunID)
	behind := h.send("asks", "and then?")
	slow := h.send("slow", "slow, please")
	h.until("the slow turn to think again", func() bool { return strings.Count(h.read(filepath.Join(h.dir, "asked.log")), "slow") == 2 })
	p.kill()

	h.spawn()
	if a := h.answer(slow.RunID); a.Outcome != "completed" || a.Reply != "at last" {
		t.Errorf("the turn at work: %+v", a)
	}
	if n := strings.Count(h.read(filepath.Join(h.dir, "asked.log")), "slow"); n != 3 {
		t.Errorf("it asked its model %d times, not once more", n)
	}
	if still := h.question(asks.RunID); still.ID != q.ID || still.Summary != q.Summary {
		t.Errorf("the question was %+v and is %+v", q, still)
	}
	h.decide(q.ID, wire.Approve)
	if a := h.answer(asks.RunID); a.Reply != "written" || h.read(h.file("note.txt")) != "hello" {
		t.Errorf("the turn that waited: %+v", a)
	}
	if a := h.answer(behind.RunID); a.Reply != "noted" {
		t.Errorf("the turn behind it: %+v", a)
	}
	facts, err := h.client.MemorySearch(t.Context(), wire.MemorySearchRequest{Query: "boiler"})
	if err != nil || len(facts.Facts) != 1 || facts.Facts[0].Text != "the boiler code is 4711" {
		t.Errorf("the memory: %+v, %v", facts, err)
	}
	h.until("the reminder", func() bool {
		return slices.ContainsFunc(h.events("comms.sent"), func(e wire.Event) bool { return strings.Contains(string(e.Data), "the kettle") })
	})
	if fired := h.events("timer.fired"); len(fired) != 1 {
		t.Errorf("the timer fired %d times", len(fired))
	}
	h.proved()
}

// TestLaw03OneVisibleEffectPerCause kills the daemon between an effect and its
// record. The effect is not done again; its outcome is unknown and said to be so.
func TestLaw03OneVisibleEffectPerCause(t *testing.T) {
	t.Parallel()
	h := build(t, `turns:
  - match: ring
    steps:
      - calls: [{tool: shell.exec, input: {argv: [sh, -c, "echo rung >> bell.txt; exec sleep 3"]}}]
      - text: I do not know whether it rang
  - match: write
    steps:
      - calls: [{tool: fs.write, input: {path: note.txt, content: hello}}]
      - calls: [{tool: shell.exec, input: {argv: [sh, -c, "echo rung >> once.txt"]}}]
      - delay: 1s
        text: written
  - steps: [{text: noted}]`, "tools:\n  shell:\n    allow: [sh, sleep]\n")
	p := h.spawn()
	rung := h.send("bell", "ring the bell")
	h.decide(h.question(rung.RunID).ID, wire.Approve)
	h.until("the bell", func() bool { return h.read(h.file("bell.txt")) != "" })
	p.kill()

	p = h.spawn()
	if a := h.answer(rung.RunID); a.Outcome != "completed" {
		t.Errorf("%+v", a)
	}
	e := h.explain(rung.EventID)
	i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Name == "tool/0.0" })
	if i < 0 || e.Steps[i].State != "unknown" || e.Run.Unknown != 1 || !strings.Contains(fmt.Sprint(e.Steps[i].Error), "may or may not") {
		t.Errorf("the step is not told as unknown: %+v", e.Steps)
	}
	if got := h.read(h.file("bell.txt")); got != "rung\n" {
		t.Errorf("the bell rang %q", got)
	}

	// Recorded effects are not done again when the daemon dies behind them.
	turn := h.send("note", "write it down")
	for range 2 {
		h.decide(h.question(turn.RunID).ID, wire.Approve)
		h.until("the decision to be used", func() bool {
			list, err := h.client.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
			return err == nil && (len(list.Approvals) > 0 || h.read(h.file("once.txt")) != "")
		})
	}
	h.until("the model to think of the end", func() bool { return strings.Contains(h.read(filepath.Join(h.dir, "asked.log")), "2 3 ") })
	p.kill()
	h.spawn()
	if a := h.answer(turn.RunID); a.Reply != "written" {
		t.Errorf("%+v", a)
	}
	if got := h.read(h.file("once.txt")); got != "rung\n" {
		t.Errorf("done %q", got)
	}
	// One cause is one turn, however often it is told.
	for range 3 {
		if _, err := h.client.MessageSend(t.Context(), wire.MessageSendRequest{Conversation: "keyed", Text: "hello", Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.client.RunsList(t.Context(), wire.RunsListRequest{})
	if err != nil || len(list.Runs) != 3 {
		t.Errorf("%d runs, %v", len(list.Runs), err)
	}
	h.answer(list.Runs[0].ID)
	h.proved()
}

// TestLaw07OrderWithinAConversationFreedomAcross has a hundred conversations at
// once, one of them with a model that never answers. The others are answered, in
// order, while it is stuck, however long that takes. Then a daemon with a short
// deadline takes over: the stuck one ends at it, says so, and goes on.
func TestLaw07OrderWithinAConversationFreedomAcross(t *testing.T) {
	t.Parallel()
	h := build(t, `turns:
  - match: stuck
    steps: [{hang: true}]
  - regexp: '[02468]$'
    steps: [{delay: 30ms, text: even}]
  - steps: [{text: odd}]`, "turn:\n  timeout: 10m\n")
	stop := h.live()
	stuck := h.send("stuck", "stuck")
	next := h.send("stuck", "message 1")
	const n = 3
	last := make([]wire.MessageSendResult, 99)
	var wg sync.WaitGroup
	for c := range last {
		wg.Go(func() {
			for i := range n {
				last[c] = h.send(fmt.Sprint("c", c), fmt.Sprint("message ", i))
			}
		})
	}
	wg.Wait()
	for _, got := range last {
		if a := h.answer(got.RunID); a.Reply != "even" {
			t.Errorf("%+v", a)
		}
	}
	res, err := h.client.RunsGet(t.Context(), wire.RunsGetRequest{ID: stuck.RunID})
	if err != nil || res.Run.State != "running" {
		t.Errorf("the stuck turn is %s, %v", res.Run.State, err)
	}
	stop()
	h.write(h.in.ConfigFile(), strings.Replace(h.read(h.in.ConfigFile()), "10m", "2s", 1))
	h.live()
	if a := h.answer(stuck.RunID); a.Outcome != "timed_out" || !strings.Contains(a.Reply, "2s") {
		t.Errorf("the stuck one: %+v", a)
	}
	if a := h.answer(next.RunID); a.Reply == "" || a.Outcome != "completed" {
		t.Errorf("the message behind it: %+v", a)
	}
	replies := map[string]string{} // by conversation
	for _, e := range h.events("comms.sent") {
		for _, word := range []string{"even", "odd", "ran out of time"} {
			if strings.Contains(string(e.Data), word) {
				replies[e.Stream] += word + " "
			}
		}
	}
	wrong := 0
	for stream, got := range replies {
		if got != "even odd even " {
			if wrong++; got != "ran out of time odd " {
				t.Errorf("%s was told %q", stream, got)
			}
		}
	}
	if len(replies) != 100 || wrong != 1 {
		t.Errorf("%d conversations were told, %d of them otherwise", len(replies), wrong)
	}
	h.proved()
}
