package daemon

import (
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestAnAgentAsksBeforeItSetsASchedule, and never sets one where nobody waits.
func TestAnAgentAsksBeforeItSetsASchedule(t *testing.T) {
	t.Parallel()
	o := options(t, obeys(t, `{tool: schedule.add, input: {name: brief, when: "@daily", say: brief me}}`))
	c, _ := up(t, o)
	got, err := c.MessageSend(t.Context(), wire.MessageSendRequest{Text: "brief me every day"})
	if err != nil {
		t.Fatal(err)
	}
	q := waiting(t, c, got.RunID)
	if q.Summary != "schedule brief at @daily: brief me" {
		t.Errorf("asked %q", q.Summary)
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve, Standing: wire.StandingAlways}); err != nil {
		t.Fatal(err)
	}
	done(t, c, got.RunID)
	list, err := c.ScheduleList(t.Context(), wire.ScheduleListRequest{Owner: "agent:main"})
	if err != nil || len(list.Schedules) != 1 || list.Schedules[0].Conversation != "main" || list.Schedules[0].Agent != "main" {
		t.Fatalf("%+v, %v", list, err)
	}
	// A yes for always does not reach the work that starts by itself.
	if _, err := c.ScheduleRemove(t.Context(), wire.ScheduleRequest{Schedule: "agent:main/brief"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ScheduleAdd(t.Context(), wire.ScheduleAddRequest{When: "@daily", Say: "brief me every hour", Name: "own"}); err != nil {
		t.Fatal(err)
	}
	ran, err := c.ScheduleRun(t.Context(), wire.ScheduleRequest{Schedule: "own"})
	if err != nil {
		t.Fatal(err)
	}
	done(t, c, ran.RunID)
	if list, err := c.ScheduleList(t.Context(), wire.ScheduleListRequest{Owner: "agent:main"}); err != nil || len(list.Schedules) != 0 {
		t.Errorf("unattended it set %+v, %v", list, err)
	}
	steps, err := c.RunsGet(t.Context(), wire.RunsGetRequest{ID: ran.RunID})
	if err != nil {
		t.Fatal(err)
	}
	refused := false
	for _, s := range steps.Steps {
		refused = refused || s.Call != nil && s.Call.Outcome != "ok" && s.Error != nil && s.Error.Class == fault.Denied
	}
	if !refused {
		t.Errorf("nothing was refused: %+v", steps.Steps)
	}
}
