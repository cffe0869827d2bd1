//go:build unix

package cli

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedSchedules answers for schedules: a briefing in Stockholm, one of an agent that was
// paused, and one that is done.
func cannedSchedules(m *ipc.Mux) {
	next := time.Date(2026, 1, 3, 7, 30, 0, 0, time.UTC)
	briefing := wire.Schedule{
		ID: "sch_1", Name: "briefing", Owner: "operator", When: "30 8 * * *", Zone: "Europe/Stockholm", Say: "briefing", Missed: "once", GraceS: 3600,
		Overlap: "skip", State: "active", AddedAt: noon, NextAt: next.UnixMicro(), Next: "2026-01-03T08:30:00+01:00", FireAt: next.UnixMicro(),
		Fired: 1, MissedCount: 2,
		Last: &wire.ScheduleLast{Outcome: "late", At: noon - 16_200_000_000, InZone: "2026-01-02T08:30:00+01:00", EndedAt: noon, RunID: "run_1"},
	}
	paused := wire.Schedule{
		ID: "sch_2", Name: "morning", Owner: "agent:main", When: "@daily", Zone: "Local", Say: "good morning", Missed: "skip", Overlap: "queue",
		State: "paused", AddedAt: noon,
	}
	done := wire.Schedule{
		ID: "sch_3", Name: "sch_3", Owner: "operator", When: "@at 2026-01-02T12:00:00Z", Zone: "UTC", Say: "x", Conversation: "c", Missed: "once",
		State: "done", AddedAt: noon - 1, Last: &wire.ScheduleLast{Outcome: "failed", At: noon, InZone: "2026-01-02T12:00:00Z", Error: "there is no agent x"},
	}
	ipc.Handle(m, wire.ScheduleList, func(_ context.Context, req wire.ScheduleListRequest) (wire.ScheduleListResult, error) {
		if req.Owner != "" {
			return wire.ScheduleListResult{Schedules: []wire.Schedule{paused}}, nil
		}
		return wire.ScheduleListResult{Schedules: []wire.Schedule{briefing, paused, done}}, nil
	})
	ipc.Handle(m, wire.ScheduleAdd, func(_ context.Context, req wire.ScheduleAddRequest) (wire.ScheduleResult, error) {
		if req.Name == "briefing" && !req.Replace {
			return wire.ScheduleResult{}, fault.New(fault.Conflict, "there is a schedule briefing already (sch_1)").WithHint("replace it, or take another name")
		}
		x := briefing
		x.When, x.Zone, x.Last = req.When, req.Zone, nil
		return wire.ScheduleResult{Schedule: x}, nil
	})
	ipc.Handle(m, wire.SchedulePause, answer[wire.ScheduleRequest](wire.ScheduleResult{Schedule: paused}))
	ipc.Handle(m, wire.ScheduleResume, answer[wire.ScheduleRequest](wire.ScheduleResult{Schedule: briefing}))
	ipc.Handle(m, wire.ScheduleRemove, answer[wire.ScheduleRequest](wire.ScheduleResult{Schedule: done}))
	ipc.Handle(m, wire.ScheduleRun, answer[wire.ScheduleRequest](wire.ScheduleRunResult{Schedule: briefing, RunID: "run_7"}))
}
