// Package clock is the tool time.now.
package clock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	_ "time/tzdata" // zones by name on machines that have no table of them

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Clock is the tool.
type Clock struct {
	now  func() time.Time
	zone *time.Location
}

// New returns a clock that tells now in zone unless it is asked for another.
func New(now func() time.Time, zone *time.Location) *Clock { return &Clock{now: now, zone: zone} }

// Register makes the tool known to r.
func (c *Clock) Register(r *tool.Registry) error { return r.Add(c.definition(), c.tell) }

const schema = `{"type":"object","additionalProperties":false,"properties":{
"zone":{"type":"string","maxLength":64,"description":"IANA zone such as Europe/Stockholm, default the operator's"}}}`

type input struct {
	Zone string `json:"zone"`
}

func (c *Clock) definition() tool.Definition {
	need := []scope.Scope{scope.Must("time.read")}
	return tool.Definition{
		Name:        "time.now",
		Description: "Tell the date, weekday, time and zone it is now.",
		Input:       json.RawMessage(schema), Kind: tool.Local, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return need, nil },
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[input](raw) // validated; an empty zone is the operator's
			if in.Zone == "" {
				return "tell the time"
			}
			return "tell the time in " + tool.Show(in.Zone)
		},
	}
}

func (c *Clock) tell(_ context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[input](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	zone := c.zone
	if in.Zone != "" {
		if zone, err = time.LoadLocation(in.Zone); err != nil {
			return tool.Output{}, fault.New(fault.Invalid, "there is no time zone %s; zones are named like Europe/Stockholm or UTC", tool.Show(in.Zone))
		}
	}
	now := c.now().In(zone)
	short, offset := now.Zone()
	return tool.Output{Text: fmt.Sprintf("%s, %s (%s, %s, UTC%s), week %s", now.Format("Monday 2 January 2006"),
		now.Format("15:04:05"), zone, short, utc(offset), week(now))}, nil
}

func utc(offset int) string {
	sign := '+'
	if offset < 0 {
		sign, offset = '-', -offset
	}
	return fmt.Sprintf("%c%02d:%02d", sign, offset/3600, offset/60%60)
}

func week(t time.Time) string {
	year, week := t.ISOWeek()
	return fmt.Sprintf("%d-W%02d", year, week)
}
