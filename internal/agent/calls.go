package agent

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
)

// act makes the calls of one answer: together if all are read-only, else in order.
// Calls over the turn's bound are answered without being made.
func (t *turn) act(ctx context.Context, n int, calls []model.ToolCall) ([]model.ToolResult, error) {
	out := make([]model.ToolResult, len(calls))
	room := max(0, t.a.cfg.Calls-len(t.ran))
	for i := room; i < len(calls); i++ {
		out[i] = model.ToolResult{CallID: calls[i].ID, IsError: true,
			Text: fmt.Sprintf("not made: over the limit of %d calls in one turn", t.a.cfg.Calls)}
	}
	made := calls[:min(room, len(calls))]
	results := make([]act.Result, len(made))
	at := t.label // calls of one answer come from the same context
	one := func(i int) error {
		res, err := t.call(ctx, n, i, made[i], at)
		results[i] = res
		return err
	}
	var err error
	if t.readOnly(made) {
		err = together(len(made), one)
	} else {
		for i := range made {
			if err = one(i); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	for i, res := range results {
		out[i] = model.ToolResult{CallID: made[i].ID, Text: t.data(res), IsError: res.Status != act.OK}
		t.label = label.Join(t.label, res.Label)
		t.ran = append(t.ran, res)
		if res.Status == act.Parked && !slices.Contains(t.parked, res.Approval) {
			t.parked = append(t.parked, res.Approval)
		}
	}
	return out, nil
}

// shown is a result as the model is told it.
func shown(res act.Result) string {
	if res.Status == act.Unclear {
		return "outcome unknown, do not repeat: " + res.Text
	}
	return res.Text
}

// data is a result as the model is told it: what others wrote stands between marks.
func (t *turn) data(res act.Result) string {
	text := shown(res)
	if !res.Label.Tainted() {
		return text
	}
	return guard.FenceOf(t.snap.Mark).Wrap(strangers(res.Label), text)
}

// together runs calls at the same time. All are waited for; the first error wins.
func together(n int, one func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = one(i)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) readOnly(calls []model.ToolCall) bool {
	for _, c := range calls {
		d, err := t.a.Tools.Get(c.Name)
		if err != nil || !d.ReadOnly {
			return false
		}
	}
	return len(calls) > 1
}

func (t *turn) call(ctx context.Context, n, i int, c model.ToolCall, at label.Label) (act.Result, error) {
	step := "tool/" + strconv.Itoa(n) + "." + strconv.Itoa(i)
	t.a.live.send(t.r.ID(), Note{Status: c.Name})
	input := c.Input
	if input == nil {
		input = []byte(c.BadInput)
		if c.BadInput == "" {
			input = []byte("{}")
		}
	}
	name := c.Name
	d, known := t.a.Tools.Get(name)
	lent := known == nil && t.in.Within.lent(d)
	if t.identity.Tools != nil && !allowedTool(t.identity.Tools, name) && !lent {
		if d, err := t.a.Tools.Get(name); err == nil {
			name = d.Name + " (not among the tools of this agent)"
		}
	}
	if d, err := t.a.Tools.Get(name); err == nil && t.in.Within.Observe && !observes(d) {
		name = d.Name + " (this turn only observes)"
	}
	res, err := t.a.Act.Call(ctx, t.r, act.Call{
		Step: step, Tool: name, Input: input, Authority: t.auth, Label: at, Said: t.snap.said(), Lent: lent,
	})
	if err != nil && ctx.Err() != nil && fault.ClassOf(err) == fault.Cancelled {
		return res, context.Cause(ctx)
	}
	return res, err
}
