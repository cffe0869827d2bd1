package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// said is one message of the scenario.
type said struct{ conversation, text, run string }

// story lets everything happen, through any death, and returns the messages in the
// order they were sent.
func (l *life) story() []said {
	l.t.Helper()
	one := l.say("a", "one")
	l.turn(one)
	two := l.say("b", "two")
	l.turn(two)
	three := l.say("a", "three")
	l.approveFor(three, func() {})
	five := l.say("a", "five")
	l.approve(three)
	l.turn(three)
	l.turn(five)
	four := l.say("b", "four")
	l.turn(four)
	return []said{one, two, three, five, four}
}

func (l *life) say(conversation, text string) said {
	l.t.Helper()
	got := insist(l, "say "+text, func(ctx context.Context) (wire.MessageSendResult, error) {
		return l.client.MessageSend(ctx, wire.MessageSendRequest{Conversation: conversation, Text: text, Key: "key-" + text})
	})
	if got.RunID == "" {
		l.t.Fatalf("%s: no turn for %q: %+v", l.name, text, got)
	}
	return said{conversation, text, got.RunID}
}

// turn waits for the end of a turn and checks its reply.
func (l *life) turn(s said) {
	l.t.Helper()
	got := insist(l, "the turn of "+s.text, func(ctx context.Context) (wire.TurnResult, error) {
		return l.client.TurnWatch(ctx, wire.TurnWatchRequest{RunID: s.run}, func(wire.TurnNote) error { return nil })
	})
	if want := "reply to " + s.text; got.Outcome != "completed" || !strings.Contains(got.Reply, want) {
		l.t.Errorf("%s: turn %q ended %s: %q %v", l.name, s.text, got.Outcome, got.Reply, got.Error)
	}
}

// approveFor waits until the turn asks.
func (l *life) approveFor(s said, then func()) {
	l.t.Helper()
	l.question(s, func(a wire.Approval) bool { return a.ID != "" })
	then()
}

func (l *life) approve(s said) {
	l.t.Helper()
	l.question(s, func(a wire.Approval) bool {
		if a.State != "open" {
			return true // an answer that got through though we were not told
		}
		insist(l, "approve", func(ctx context.Context) (bool, error) {
			_, err := l.client.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: a.ID, Decision: wire.Approve})
			if now := l.approvalOf(ctx, s); err != nil && now.State != "" && now.State != "open" {
				return true, nil
			}
			return true, err
		})
		return true
	})
}

// question looks for the approval a turn asks until the visitor is content.
func (l *life) question(s said, visit func(wire.Approval) bool) {
	l.t.Helper()
	insist(l, "the question of "+s.text, func(ctx context.Context) (bool, error) {
		list, err := l.client.ApprovalsList(ctx, wire.ApprovalsListRequest{State: "all"})
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Approvals, func(a wire.Approval) bool { return a.RunID == s.run })
		if i < 0 || !visit(list.Approvals[i]) {
			return false, errNotYet
		}
		return true, nil
	})
}

func (l *life) approvalOf(ctx context.Context, s said) wire.Approval {
	list, err := l.client.ApprovalsList(ctx, wire.ApprovalsListRequest{State: "all"})
	if err != nil {
		return wire.Approval{}
	}
	for _, a := range list.Approvals {
		if a.RunID == s.run {
			return a
		}
	}
	return wire.Approval{}
}

type notYet struct{}

func (notYet) Error() string { return "not yet" }

var errNotYet = notYet{}

// found is what is there when everything has settled.
type found struct {
	unknown int            // steps of unknown outcome
	repeats map[string]int // by kind of step: how often interrupted ones were begun again
	asked   map[string]int // by request: how often the model got it
	outside map[string]int // by line: how often it was left
}

// inspect checks what must hold whatever happened, and returns the rest.
func (l *life) inspect(story []said) found {
	l.t.Helper()
	bad := func(format string, args ...any) {
		l.t.Helper()
		l.t.Errorf("%s: "+format, append([]any{l.name}, args...)...)
	}
	ctx := l.t.Context()
	f := found{repeats: map[string]int{}, asked: map[string]int{}, outside: map[string]int{}}
	for _, line := range l.lines("world") {
		text, _, _ := strings.Cut(line, "\t")
		f.outside[text]++
	}
	for _, line := range l.lines("asked") {
		f.asked[line]++
	}
	sent := l.events("comms.sent")
	if got := l.events("comms.message"); len(got) != len(story) {
		bad("%d messages for %d that were sent", len(got), len(story))
	}
	var order []string
	for _, s := range story {
		if n := len(slices.DeleteFunc(slices.Clone(sent), func(e wire.Event) bool { return !strings.Contains(string(e.Data), "reply to "+s.text) })); n != 1 {
			bad("message %q has %d replies", s.text, n)
		}
		got, err := l.client.RunsGet(ctx, wire.RunsGetRequest{ID: s.run})
		if err != nil {
			bad("%v", err)
			continue
		}
		if got.Run.State != "completed" {
			bad("turn %q is %s", s.text, got.Run.State)
		}
		f.unknown += got.Run.Unknown
		for _, step := range got.Steps {
			if step.State == "open" {
				bad("turn %q ended with step %s open", s.text, step.Name)
			}
			if step.Attempts > 1 {
				f.repeats[step.Kind] += step.Attempts - 1
			}
		}
	}
	for _, e := range sent {
		var d struct{ Content, ChannelID string }
		if err := json.Unmarshal(e.Data, &d); err != nil {
			bad("%v", err)
		}
		order = append(order, string(e.Data))
	}
	l.inOrder(order, story)
	runs, err := l.client.RunsList(ctx, wire.RunsListRequest{Limit: 1000})
	if err != nil || len(runs.Runs) != len(story) {
		bad("%d runs for %d messages: %v", len(runs.Runs), len(story), err)
	}
	if _, err := l.client.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		bad("audit verify: %v", err)
	}
	if v, err := l.client.RunsVerify(ctx); err != nil || len(v.Mismatches) > 0 {
		bad("runs verify: %v %v", v.Mismatches, err)
	}
	if dead, err := l.client.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) > 0 {
		bad("dead letters: %v %v", dead, err)
	}
	return f
}

// inOrder checks that the replies of a conversation came in the order of its messages.
func (l *life) inOrder(sent []string, story []said) {
	l.t.Helper()
	for _, conversation := range []string{"a", "b"} {
		last := -1
		for _, s := range story {
			if s.conversation != conversation {
				continue
			}
			i := slices.IndexFunc(sent, func(data string) bool { return strings.Contains(data, "reply to "+s.text) })
			if i >= 0 && i < last {
				l.t.Errorf("%s: the reply to %q came too early", l.name, s.text)
			}
			last = i
		}
	}
}

func (l *life) events(kind string) []wire.Event {
	l.t.Helper()
	got, err := l.client.EventsList(l.t.Context(), wire.EventsListRequest{Kinds: []string{kind}, Limit: 1000})
	if err != nil {
		l.t.Error(err)
	}
	return got.Events
}

// pass is one counted pass of a fail point.
type pass struct {
	point string
	n     int // from 1, among those of its point
	at    int // among all
}

func (p pass) kill() string { return fmt.Sprintf("%s:%d", p.point, p.n) }

// count lets a life go by undisturbed and returns what it passed.
func count(t *testing.T, kind dbtest.Kind) ([]pass, found) {
	t.Helper()
	l := newLife(t, kind)
	l.start()
	story := l.story()
	f := l.inspect(story)
	l.stop()
	if _, err := os.Stat(l.in.StateDB()); (err == nil) != (kind == dbtest.KindSQLite) {
		t.Errorf("the story on %s was kept somewhere else: %v", kind, err)
	}
	var passes []pass
	seen := map[string]int{}
	for i, point := range l.lines("passes0") {
		seen[point]++
		passes = append(passes, pass{point, seen[point], i})
	}
	t.Logf("undisturbed on %s: %v; asked %d times", kind, seen, len(f.asked))
	if f.unknown != 0 || len(f.repeats) != 0 {
		t.Errorf("undisturbed: %d unknown, repeats %v", f.unknown, f.repeats)
	}
	for line := range effects {
		if f.outside[line] != 1 {
			t.Errorf("undisturbed: %q was left %d times", line, f.outside[line])
		}
	}
	return passes, f
}

// campaign tries every stride-th pass and reports.
func campaign(t *testing.T, kind dbtest.Kind, stride int) {
	passes, base := count(t, kind)
	var chosen []pass
	for i, p := range passes {
		if i%stride == 0 {
			chosen = append(chosen, p)
		}
	}
	var tried, unknown, again atomic.Int64
	t.Run("kill", func(t *testing.T) {
		for _, p := range chosen {
			t.Run(p.kill(), func(t *testing.T) {
				t.Parallel()
				f, ok := kill(t, kind, p)
				if !ok {
					return
				}
				tried.Add(1)
				unknown.Add(int64(f.unknown))
				judge(t, p, passes, base, f, &again)
			})
		}
	})
	t.Logf("%s: %d passes counted, %d chosen, %d tried; %d steps unknown, the model asked again %d times",
		kind, len(passes), len(chosen), tried.Load(), unknown.Load(), again.Load())
	if int(tried.Load()) != len(chosen) {
		t.Errorf("%d passes were chosen and %d tried", len(chosen), tried.Load())
	}
}

// kill lives the story with a death at p. It reports false if p was not passed: the
// loops of a daemon may share a commit in one life and not in another, so it tries
// a few lives.
func kill(t *testing.T, kind dbtest.Kind, p pass) (found, bool) {
	t.Helper()
	for range 5 {
		if f, deaths := live(t, kind, p.kill()); deaths == 1 {
			return f, true
		}
	}
	return found{}, false
}

// live lives the story with a death at each of kills, as far as they are passed.
func live(t *testing.T, kind dbtest.Kind, kills ...string) (found, int) {
	t.Helper()
	l := newLife(t, kind, kills...)
	l.start()
	story := l.story()
	if l.deaths == 0 { // it may be passed only at the end
		l.stop()
		if l.killed() {
			l.deaths++
		}
		l.start()
	}
	insist(l, "settle", l.client.SystemStatus)
	deaths := l.deaths
	f := l.inspect(story)
	l.stop()
	return f, deaths
}

// judge holds what was found against what may happen at that pass.
func judge(t *testing.T, p pass, passes []pass, base, f found, again *atomic.Int64) {
	t.Helper()
	for line, policy := range effects {
		n := f.outside[line]
		switch {
		case n == 1:
		case policy == repeatable && n == 2 && f.repeats["tool"] == 1:
		case policy == atMostOnce && n == 0 && f.unknown == 1:
		default:
			t.Errorf("%q was left %d times, with %d steps unknown, repeats %v", line, n, f.unknown, f.repeats)
		}
	}
	low, high := expectUnknown(p, passes)
	if f.unknown < low || f.unknown > high {
		t.Errorf("%d steps are unknown, expected %d to %d", f.unknown, low, high)
	}
	extra := 0
	for line, n := range f.asked {
		extra += n - base.asked[line]
	}
	for line, n := range base.asked {
		if f.asked[line] < n {
			t.Errorf("the model was not asked %s", line)
		}
	}
	again.Add(int64(extra))
	if extra != 0 && (extra != 1 || !modelUnderWay(p, passes)) {
		t.Errorf("the model was asked %d times more", extra)
	}
	if p.point == "model.after" && extra != 1 {
		t.Errorf("the answer was not recorded and the model was asked %d times more", extra)
	}
}

// atMostOnceEffects are the numbers, in the story, of the effects that are never
// begun twice.
var atMostOnceEffects = []int{1, 4}

// expectUnknown says how many steps are unknown after a death at p: one if it lies
// between the commit of the intent of such an effect and the commit of its outcome.
func expectUnknown(p pass, passes []pass) (low, high int) {
	for _, n := range atMostOnceEffects {
		before := slices.IndexFunc(passes, func(q pass) bool { return q.point == "run.effect.before" && q.n == n })
		after := slices.IndexFunc(passes, func(q pass) bool { return q.point == "run.effect.after" && q.n == n })
		intent := lastBefore(passes, before, "db.commit.after")
		outcome := firstAfter(passes, after, "db.commit.before")
		if p.at >= intent && p.at <= outcome {
			return 1, 1
		}
	}
	return 0, 0
}

// modelUnderWay reports whether at p an answer is there that is not yet recorded.
func modelUnderWay(p pass, passes []pass) bool {
	asked := lastBefore(passes, p.at+1, "model.after")
	return asked >= 0 && p.at <= firstAfter(passes, asked, "db.commit.before")
}

func lastBefore(passes []pass, at int, point string) int {
	for i := at - 1; i >= 0; i-- {
		if passes[i].point == point {
			return i
		}
	}
	return -1
}

func firstAfter(passes []pass, at int, point string) int {
	for i := at + 1; i < len(passes); i++ {
		if passes[i].point == point {
			return i
		}
	}
	return -1
}

func TestCampaignOnSQLite(t *testing.T) {
	supported(t)
	campaign(t, dbtest.KindSQLite, stride)
}

// TestDyingAgainWhileRecovering kills the second process, too, at an early pass.
func TestDyingAgainWhileRecovering(t *testing.T) {
	t.Parallel()
	supported(t)
	passes, base := count(t, dbtest.KindSQLite)
	var twice atomic.Int64
	t.Run("kill", func(t *testing.T) {
		for i, p := range passes {
			if i%twiceStride != twiceStride/2 {
				continue
			}
			again := fmt.Sprintf("%s:%d", []string{"db.commit.before", "db.commit.after", "db.commit.after", "model.after", "run.effect.before"}[i%5], 1+i%3)
			t.Run(p.kill()+","+again, func(t *testing.T) {
				t.Parallel()
				f, deaths := live(t, dbtest.KindSQLite, p.kill(), again)
				if deaths == 2 {
					twice.Add(1)
				}
				for line, policy := range effects {
					most := 1
					if policy == repeatable {
						most += f.repeats["tool"]
					}
					if n := f.outside[line]; n > most || n == 0 && (policy != atMostOnce || f.unknown == 0) {
						t.Errorf("%q was left %d times, with %d steps unknown, repeats %v", line, n, f.unknown, f.repeats)
					}
				}
				extra := 0
				for line, n := range f.asked {
					extra += n - base.asked[line]
				}
				if f.unknown > 2 || extra < 0 || extra > deaths {
					t.Errorf("%d steps unknown, the model asked %d times more, in %d deaths", f.unknown, extra, deaths)
				}
			})
		}
	})
	if t.Logf("%d lives with two deaths", twice.Load()); twice.Load() == 0 {
		t.Error("nobody died twice")
	}
}
