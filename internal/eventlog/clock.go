package eventlog

import (
	"context"
	"time"
)

// KindClock is the kind of events that tell of a stepped clock.
const KindClock = "system.clock"

// clockStep is how far the wall clock must leave the monotonic one to be told.
const clockStep = 2 * time.Second

// ClockStep is the payload of KindClock.
type ClockStep struct {
	StepUS int64 `json:"step_us"` // how far it went, negative if back
	WallUS int64 `json:"wall_us"` // what it shows now
}

// Reading is what both clocks of the machine showed at one instant. Only
// differences of Mono mean anything.
type Reading struct {
	Wall time.Time
	Mono time.Duration
}

// Clocks returns a function that reads both clocks.
func Clocks() func() Reading {
	start := time.Now()
	return func() Reading {
		now := time.Now()
		return Reading{Wall: now.Round(0), Mono: now.Sub(start)}
	}
}

// ClockWatch notices when the wall clock is set or the machine was suspended
// (the monotonic clock stands still then). One goroutine uses it.
type ClockWatch struct {
	log  *Log
	read func() Reading
	last Reading
}

// WatchClock returns a watch that compares from now on. read is Clocks() outside
// of tests.
func (l *Log) WatchClock(read func() Reading) *ClockWatch {
	return &ClockWatch{log: l, read: read, last: read()}
}

// RunOnce compares the clocks with the last time and appends an event if the wall
// clock stepped by more than two seconds. After an error it will tell of the same
// step again.
func (w *ClockWatch) RunOnce(ctx context.Context) (time.Duration, error) {
	now := w.read()
	step := now.Wall.Sub(w.last.Wall) - (now.Mono - w.last.Mono)
	if step.Abs() <= clockStep {
		// A slow drift is not a step: what was small is not added up.
		w.last = now
		return 0, nil
	}
	_, err := w.log.Append(ctx, New{
		Stream: "system", Kind: KindClock, Actor: "clock", Expect: Any,
		Data: ClockStep{StepUS: step.Microseconds(), WallUS: now.Wall.UnixMicro()},
	})
	if err != nil {
		return step, err
	}
	w.last = now
	return step, nil
}
