//go:build unix

package process

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
)

func TestACallReachesAToolAndItsAnswerComesBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		s.add(spec("good"))
		s.ready()
		if got := s.says("act.echo", `{"a":[1,"ü"]}`); got != `{"input":{"a":[1,"ü"]},"key":"run_1/tool/0.0"}` {
			t.Error(got)
		}
		for name, want := range map[string]string{
			"act.text":      "a\uFFFD b\uFFFD c⟦U+202E⟧\uFFFD d",
			"act.chunks":    "one two three",
			"act.events":    "done",
			"act.twice":     "first",
			"act.unknown":   "mine",
			"act.unchecked": "[act did not check whether this had its effect]\n" + `{"sent":true}`,
		} {
			if got := s.says(name, `{}`); got != want {
				t.Errorf("%s says %q, want %q", name, got, want)
			}
		}
		if got := s.says("act.big", `{}`); len(got) != 6_000_000 {
			t.Errorf("a big result has %d bytes; what is kept of it is the caller's to bound", len(got))
		}
		if got := s.entries(KindRegistered); len(got) != 1 || !strings.Contains(got[0], "echo") {
			t.Errorf("audited: %v", got)
		}
		if got := s.entries(KindAdded); len(got) != 1 {
			t.Errorf("audited: %v", got)
		}
		evs, err := s.log.Read(t.Context(), 0, 10, eventlog.Filter{Kinds: []string{KindAdded}})
		if err != nil || len(evs) != 1 || !strings.Contains(string(evs[0].Data), `"scopes":[{"scope":"tool:act.*"}]`) {
			t.Errorf("what was added is not in the event: %v, %v", evs, err)
		}
	})
}

func TestACallWhoseProcessDiesIsUnknownUnlessItCanBeRepeated(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	s.ready()
	_, err := s.call(t.Context(), "act.die", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "about to die") {
		t.Errorf("a call under way: %v", err)
	}
	if got := s.says("act.exit-after", `{}`); got != "my last word" {
		t.Errorf("what it said before it ended is lost: %q", got)
	}
	s.until("ended", func(i Info) bool { return i.Failures == 2 }) // before, it might still have been told of a call
	if got := s.says("act.echo", `{}`); got == "" {
		t.Error("not there again")
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp := spec("good")
	sp.Repeatable = []string{"die"}
	s.add(sp)
	s.ready()
	if _, err := s.call(t.Context(), "act.die", `{}`); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "can be made again") {
		t.Errorf("a call that can be repeated: %v", err)
	}
}

func TestWhatAToolSaysOfAFailureIsTold(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	s.ready()
	_, err := s.call(t.Context(), "act.escalate", `{}`)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "asks for more than it was given and did not do it: I want⟦U+202E⟧ more") {
		t.Errorf("an escalation: %v", err)
	}
	_, err = s.call(t.Context(), "act.fail", `{}`)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "act says: no such\uFFFD thing (not_found)") {
		t.Errorf("a failure: %v", err)
	}
}

func TestACancelledCallEndsPolitelyOrWithItsProcess(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	pid := s.ready().PID
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.call(ctx, "act.slow", `{}`)
	if !fault.Is(err, fault.Cancelled) || !strings.Contains(err.Error(), "as you wish") {
		t.Errorf("a tool that heeds it: %v", err)
	}
	if now := s.ready().PID; now != pid {
		t.Error("the process was ended for nothing")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { _, other = s.call(context.Background(), "act.slow", `{}`) })
	_, err = s.call(ctx, "act.stubborn", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "did not end a call that was cancelled") {
		t.Errorf("a tool that ignores it: %v", err)
	}
	wg.Wait()
	if !fault.Is(other, fault.Unknown) && !fault.Is(other, fault.Unavailable) { // it may have waited for the next child
		t.Errorf("the other call of the process: %v", other)
	}
	s.until("started again", func(i Info) bool { return i.State == Ready && i.PID != pid && i.PID != 0 })
}

func TestAFloodEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"act.flood-events": "a flood", "act.flood-chunks": "a flood", "act.stray": "of no use"} {
		s := setup(t, dbtest.SQLite(t), quick())
		s.add(spec("good"))
		s.ready()
		_, err := s.call(t.Context(), name, `{}`)
		if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		s.until("started again", func(i Info) bool { return i.State == Ready && i.Failures == 1 && i.PID != 0 })
	}
}

func TestStandardErrorIsBoundedRedactedAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("stderr"))
	s.ready()
	s.says("act.echo", `{}`)
	if n := strings.Count(s.logged.String(), "noise"); n > 60*30 {
		t.Errorf("%d words of noise are in the log", n)
	}
	l := newOutput(s.Logger, s.Redact)
	fmt.Fprintf(l, "open sesame\nthe second %s", strings.Repeat("x", 10_000))
	l.Flush()
	log := s.logged.String()
	if strings.Contains(log, "sesame") || !strings.Contains(log, "open •••") || strings.Contains(log, strings.Repeat("x", 2*supervise.LineLength)) {
		t.Error(log)
	}
}

func TestCallsOverlapUpToABound(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Calls = 2
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("good"))
	s.ready()
	slow, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.call(slow, "act.slow", `{}`) })
	if got := s.says("act.echo", `{}`); got == "" {
		t.Error("a slow call holds up another")
	}
	wg.Go(func() { _, _ = s.call(slow, "act.slow", `{}`) })
	s.until("two under way", func(Info) bool { x, _ := s.get("act"); return len(x.slots) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, "act.echo", `{}`); !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "2 calls under way") {
		t.Errorf("over the bound: %v", err)
	}
	stop()
	wg.Wait()
}

func TestNoticesNeedAScopeAndAreAuditedIfNot(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("notices"))
	s.ready()
	s.says("act.echo", `{}`)
	if got := s.entries(KindRefused); len(got) != 1 || !strings.Contains(got[0], "refused: a notice without a scope for it: notify.send:operator") {
		t.Errorf("audited: %v", got)
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp := spec("good")
	sp.Scopes = append(sp.Scopes, Bound{Scope: scope.Must("notify.send:operator")})
	s.add(sp)
	s.ready()
	for range 2 * noticeBurst {
		s.says("act.notify", `{"Target":"operator"}`)
	}
	s.says("act.notify", `{"Target":"ana@example.org"}`)
	s.says("act.echo", `{}`) // all before it has been read
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notices) != noticeBurst || s.notices[0] != (Notice{Process: "act", Message: "look"}) {
		t.Errorf("passed on: %+v", s.notices)
	}
	got := strings.Join(s.entries(KindRefused), "\n")
	if !strings.Contains(got, "more notices than are sent on") || !strings.Contains(got, "a notice to ana@example.org") || strings.Count(got, "\n") != 2 {
		t.Errorf("audited: %s", got)
	}
}

// A call does not wait for a process that is far from being started again.
func TestACallOfAProcessInALoopIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Backoff, cfg.ReadyWait = []time.Duration{time.Hour}, time.Minute
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("good"))
	s.ready()
	s.says("act.exit-after", `{}`)
	s.until("waiting", func(i Info) bool { return i.State == Waiting })
	_, err := s.call(t.Context(), "act.echo", `{}`)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "ombud tools test act") {
		t.Errorf("%v", err)
	}
}
