//go:build unix

package laws

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/model/modeltest"
	"github.com/ombud-run/ombud/internal/wire"
)

// What another daemon of this kind did wrong when it was killed, busy or refused, done
// to the whole of ours. The table of all such tests is in internal/faults.

// TestWeakness06AFailedTurnIsToldAndItsStepsAreRetried: a model that is overloaded is
// asked again within the turn; one that refuses ends the turn, which says so where it
// was asked, and the next message is answered.
func TestWeakness06AFailedTurnIsToldAndItsStepsAreRetried(t *testing.T) {
	t.Parallel()
	busy := modeltest.Step{Fault: modeltest.Refuse, Status: 503, Header: map[string]string{"retry-after-ms": "10"}}
	api := modeltest.New(t, busy, busy, modeltest.Step{Text: "at last"},
		modeltest.Step{Fault: modeltest.Refuse, Status: 400}, modeltest.Step{Text: "the next"})
	h := build(t, "", "models:\n  main: fake/small\n  providers:\n    fake: {base_url: "+api.URL+"/v1, api_key_env: FAKE_API_KEY}\n")
	h.env = map[string]string{"FAKE_API_KEY": modeltest.Key}
	h.live()
	if a := h.answer(h.send("main", "one").RunID); a.Outcome != "completed" || a.Reply != "at last" {
		t.Errorf("a busy model: %+v", a)
	}
	failed := h.send("main", "two")
	if a := h.answer(failed.RunID); a.Outcome != "failed" || !strings.HasPrefix(a.Reply, "I could not do this: ") {
		t.Errorf("a model that refuses: %+v", a)
	}
	if e := h.explain(failed.EventID); len(e.Deliveries) != 1 || e.Deliveries[0].State != "delivered" {
		t.Errorf("the failure was not told: %+v", e.Deliveries)
	}
	if a := h.answer(h.send("main", "three").RunID); a.Reply != "the next" {
		t.Errorf("the next message: %+v", a)
	}
	if status, err := h.client.SystemStatus(t.Context()); err != nil || status.DeadLetters != 0 {
		t.Errorf("%d dead letters of turns that told of themselves, %v", status.DeadLetters, err)
	}
	h.proved()
}

// TestWeakness07ARunKilledShortlyBeforeARestartGoesOnAtOnce: the run of a daemon that
// died a moment ago is not taken for one that is still being worked on, nor does it keep
// what comes after it waiting.
func TestWeakness07ARunKilledShortlyBeforeARestartGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	h := build(t, `turns:
  - match: slow
    steps: [{delay: 1s, text: at last}]
  - steps: [{text: noted}]`, "")
	p := h.spawn()
	slow := h.send("main", "slow, please")
	h.until("the model to be asked", func() bool { return strings.Contains(h.read(filepath.Join(h.dir, "asked.log")), "slow") })
	p.kill()
	h.spawn()
	ready := time.Now()
	behind := h.send("main", "and then?")
	if a := h.answer(slow.RunID); a.Outcome != "completed" || a.Reply != "at last" {
		t.Errorf("the run that was killed: %+v", a)
	}
	if a := h.answer(behind.RunID); a.Reply != "noted" {
		t.Errorf("the message behind it: %+v", a)
	}
	if took := time.Since(ready); took > 15*time.Second { // a lease of the engine is 30 s
		t.Errorf("it took %s", took)
	}
	h.proved()
}

// TestWeakness08ResumedTurnsKeepTheirOrder kills the daemon with several messages queued
// in each of several conversations. They are answered in the order in which they came.
func TestWeakness08ResumedTurnsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const conversations, messages = 5, 6
	var script strings.Builder
	script.WriteString("turns:\n")
	for m := range messages {
		fmt.Fprintf(&script, "  - match: message %d\n    steps: [{delay: 40ms, text: answer %d}]\n", m, m)
	}
	h := build(t, script.String(), "")
	p := h.spawn()
	var last []wire.MessageSendResult
	var want []string
	for m := range messages {
		want = append(want, fmt.Sprint("answer ", m))
		for c := range conversations {
			got := h.send(fmt.Sprint("c", c), fmt.Sprint("message ", m))
			if m == messages-1 {
				last = append(last, got)
			}
		}
	}
	p.kill()
	h.spawn()
	if sent := len(h.events("comms.sent")); sent == conversations*messages {
		t.Fatal("all was answered before the kill: nothing is tested")
	}
	for _, got := range last {
		h.answer(got.RunID)
	}
	replies := map[string][]string{}
	for _, e := range h.events("comms.sent") {
		i := strings.Index(string(e.Data), "answer ")
		if i < 0 {
			t.Fatalf("told %s", e.Data)
		}
		replies[e.Stream] = append(replies[e.Stream], string(e.Data)[i:i+len("answer 0")])
	}
	for stream, got := range replies {
		if !slices.Equal(got, want) {
			t.Errorf("%s was answered %q", stream, got)
		}
	}
	if len(replies) != conversations {
		t.Errorf("%d conversations were answered", len(replies))
	}
	h.proved()
}

// TestWeakness29AThousandConversationsAtOnce: none is refused because others are active.
func TestWeakness29AThousandConversationsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 1000
	h := build(t, `turns: [{steps: [{delay: 200ms, text: noted}]}]`, "")
	h.live()
	sent := make([]wire.MessageSendResult, n)
	var senders sync.WaitGroup
	for s := range 20 {
		senders.Go(func() {
			for c := s; c < n; c += 20 {
				sent[c] = h.send(fmt.Sprint("c", c), "hello")
			}
		})
	}
	senders.Wait()
	conversations := map[string]bool{}
	for c, got := range sent {
		if a := h.answer(got.RunID); a.Outcome != "completed" || a.Reply != "noted" {
			t.Fatalf("conversation %d: %+v", c, a)
		}
	}
	for _, e := range h.events("comms.sent") {
		conversations[e.Stream] = true
	}
	status, err := h.client.SystemStatus(t.Context())
	if err != nil || status.DeadLetters != 0 || status.Conversations < n || len(conversations) != n {
		t.Errorf("%d conversations were told, of %d, %d dead letters, %v", len(conversations), status.Conversations, status.DeadLetters, err)
	}
}
