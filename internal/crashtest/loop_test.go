package crashtest

import (
	"context"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// loopStory runs the loop that takes every verb, through any death, until it and the timer
// it armed have come to an end. It returns the loop's run.
func (l *life) loopStory() string {
	l.t.Helper()
	id := insist(l, "start the loop", func(ctx context.Context) (string, error) {
		if runs := l.loopRuns(ctx); len(runs) > 0 {
			return runs[0].ID, nil // it was started, though we were not told
		}
		res, err := l.client.LoopRun(ctx, wire.LoopRunRequest{Name: "crash"})
		return res.RunID, err
	})
	insist(l, "the end of the loop", func(ctx context.Context) (bool, error) {
		for _, r := range l.loopRuns(ctx) {
			if r.State == "uncertain" {
				l.settle(ctx, r)
			}
		}
		runs := l.loopRuns(ctx)
		for _, r := range runs {
			if r.State != "completed" && r.State != "failed" {
				return false, errNotYet
			}
		}
		if len(runs) < 2 { // the timer has not come
			return false, errNotYet
		}
		return true, nil
	})
	return id
}

// loopRuns are the runs of the loop, the first first.
func (l *life) loopRuns(ctx context.Context) (out []wire.Run) {
	got, err := l.client.RunsList(ctx, wire.RunsListRequest{Limit: 1000})
	if err != nil {
		return nil
	}
	for _, r := range got.Runs {
		if r.Kind == "loop" && r.Name == "loop:crash" {
			out = append([]wire.Run{r}, out...)
		}
	}
	return out
}

// settle says of a call in doubt what a person would find out: whether its line is there.
func (l *life) settle(ctx context.Context, r wire.Run) {
	decision := "retry"
	for _, line := range l.lines("world") {
		if strings.HasPrefix(line, "loop-once\t") {
			decision = "done"
		}
	}
	_, _ = l.client.RunsResolve(ctx, wire.RunsResolveRequest{ID: r.ID, Decision: decision}) // asked again until it is settled
}

// inspectLoop checks that everything the loop does was done once, whatever died.
func (l *life) inspectLoop(id string) {
	l.t.Helper()
	ctx := l.t.Context()
	bad := func(format string, args ...any) {
		l.t.Helper()
		l.t.Errorf("%s: "+format, append([]any{l.name}, args...)...)
	}
	got, err := l.client.RunsGet(ctx, wire.RunsGetRequest{ID: id})
	if err != nil || got.Run.State != "completed" {
		bad("the run is %s: %+v %v", got.Run.State, got.Run.Error, err)
	}
	outside := map[string]int{}
	for _, line := range l.lines("world") {
		text, _, _ := strings.Cut(line, "\t")
		outside[text]++
	}
	for text, most := range map[string]int{"loop-once": 1, "loop-probed": 1, "loop-repeat": 2, "inner": 2} {
		if n := outside[text]; n < 1 || n > most {
			bad("%q was left %d times", text, n)
		}
	}
	told := map[string]int{}
	for _, e := range l.events("comms.sent") {
		for _, text := range []string{"sent by the loop", "told by the loop"} {
			if strings.Contains(string(e.Data), text) {
				told[text]++
			}
		}
	}
	if told["sent by the loop"] != 1 || told["told by the loop"] != 1 {
		bad("the operator was told %v", told)
	}
	logs, err := l.client.LoopLogs(ctx, wire.LoopLogsRequest{Name: "crash"})
	if err != nil || len(logs.Lines) != 2 {
		bad("log %+v %v", logs.Lines, err)
	}
	open, err := l.client.ApprovalsList(ctx, wire.ApprovalsListRequest{})
	if err != nil || len(open.Approvals) != 1 || !strings.Contains(open.Approvals[0].Summary, "a proposal") {
		bad("inbox %+v %v", open.Approvals, err)
	}
	facts, err := l.client.MemoryList(ctx, wire.MemoryListRequest{})
	if err != nil || len(facts.Facts) != 1 || !strings.Contains(facts.Facts[0].Text, "reply to five") {
		bad("memory %+v %v", facts, err)
	}
	asked := 0
	for _, line := range l.lines("asked") {
		if strings.Contains(line, "five") {
			asked++
		}
	}
	if asked < 3 || asked > 3+l.deaths {
		bad("the model was asked %d times", asked)
	}
	if _, err := l.client.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		bad("audit verify: %v", err)
	}
	if v, err := l.client.RunsVerify(ctx); err != nil || len(v.Mismatches) > 0 {
		bad("runs verify: %v %v", v.Mismatches, err)
	}
	if dead, err := l.client.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) > 0 {
		bad("dead letters: %+v %v", dead, err)
	}
}

// TestALoopWithEveryVerbDoesEachOnceWhereverItDies kills the daemon at the passes of the
// fail points that a loop with every verb makes, commits among them, and counts.
func TestALoopWithEveryVerbDoesEachOnceWhereverItDies(t *testing.T) {
	supported(t)
	l := newLife(t, dbtest.KindSQLite)
	l.start()
	before := len(l.lines("passes0"))
	l.inspectLoop(l.loopStory())
	l.stop()
	seen := map[string]int{}
	var passes []pass
	for i, point := range l.lines("passes0") {
		seen[point]++
		if i >= before {
			passes = append(passes, pass{point, seen[point], i})
		}
	}
	t.Logf("%d passes", len(passes))
	for i := range passes {
		if i%loopStride != loopFirst && !strings.HasPrefix(passes[i].point, "run.effect.after") {
			continue
		}
		t.Run(passes[i].kill(), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, dbtest.KindSQLite, passes[i].kill())
			l.start()
			l.inspectLoop(l.loopStory())
			l.stop()
		})
	}
}
