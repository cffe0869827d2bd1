package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

// overBudgetError marks a model call that was not made for want of budget.
type overBudgetError struct{ err error }

func (e *overBudgetError) Error() string { return e.err.Error() }
func (e *overBudgetError) Unwrap() error { return e.err }

// heedTime is how long a cancelled provider may take to return.
const heedTime = 2 * time.Second

// think asks the model as step model/n. The intent, with the budget it reserves,
// is committed before and the answer after, so a crash in between shows as a
// repeat and is booked as a possible cost.
func (t *turn) think(ctx context.Context, n int) (model.Response, error) {
	m := t.a.Models.For("main")
	req := model.Request{System: t.snap.System, Messages: t.messages, Tools: t.specs, MaxTokens: t.a.cfg.MaxTokens, Model: m.Name}
	out, err := t.asking().ask(ctx, "model/"+strconv.Itoa(n), m, req, func(d model.Delta) {
		t.a.live.send(t.r.ID(), Note{Text: d.Text, Restart: d.Restart})
	})
	if err != nil || out.Err != nil {
		return model.Response{}, errors.Join(err, out.Err)
	}
	var resp model.Response
	if err := json.Unmarshal(out.Result, &resp); err != nil {
		return resp, fmt.Errorf("recorded answer of a model: %w", err)
	}
	t.last = resp
	return resp, nil
}

// asking asks models as steps of a run.
type asking struct {
	a     *Agents
	r     *run.Run
	agent string // whose budget pays
}

func (t *turn) asking() asking { return asking{t.a, t.r, t.identity.Name} }

// ask is one model call as a step. What is streamed goes to sink.
func (t asking) ask(ctx context.Context, step string, m Model, req model.Request, sink model.Sink) (run.Outcome, error) {
	var resp model.Response
	reserve := t.reservation(step, m, req)
	spec := run.StepSpec{
		Name: step, Kind: "model", Policy: run.Policy{Kind: run.Noted}, InputMAC: t.requestMAC(req),
		OnOpen: func(ctx context.Context, tx *db.Tx) error {
			_, err := t.a.Budget.ReserveTx(ctx, tx, reserve)
			return overBudget(err)
		},
		OnReopen: func(ctx context.Context, tx *db.Tx, _ int) error {
			rid, err := t.a.Budget.OpenOf(ctx, tx, t.r.ID(), step)
			if err != nil {
				return err
			}
			return overBudget(t.a.Budget.RepeatTx(ctx, tx, rid))
		},
		OnClose: func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
			if o.State != run.Done {
				return t.a.Budget.NoAnswerTx(ctx, tx, t.r.ID(), step, mayCost(o.Err))
			}
			o.Cost, o.CostKnown = t.a.Prices.Cost(resp.Provider, resp.Model, resp.Usage)
			return t.a.Budget.AnswerTx(ctx, tx, t.r.ID(), step, budget.Answer{
				Provider: resp.Provider, Model: resp.Model, Cost: o.Cost, Known: o.CostKnown,
				Tokens: budget.Tokens{
					Input: resp.Usage.Input, Output: resp.Usage.Output, CacheRead: resp.Usage.CacheRead, CacheWrite: resp.Usage.CacheWrite,
				},
			})
		},
	}
	return t.r.Do(ctx, spec, func(ctx context.Context) run.Outcome {
		t.a.live.send(t.r.ID(), Note{Status: "thinking"})
		failpoint.Hit("model.before")
		got, err := t.generate(ctx, m, req, sink)
		failpoint.Hit("model.after")
		if err != nil {
			return t.unanswered(err)
		}
		resp = got
		raw, err := json.Marshal(got)
		if err != nil {
			return run.Fail(err)
		}
		return run.Outcome{State: run.Done, Result: raw}
	})
}

func overBudget(err error) error {
	if fault.Is(err, fault.Denied) {
		return &overBudgetError{err}
	}
	return err
}

// mayCost reports whether a provider may have charged for an answer that did not
// arrive: not if it refused the request.
func mayCost(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Denied, fault.Invalid, fault.NotFound:
		return false
	}
	return true
}

// unanswered is the outcome of a model call without an answer. One that ended
// because the daemon stops is not recorded: it is made again at the next start.
func (t asking) unanswered(err error) run.Outcome {
	select {
	case <-t.r.Halted():
		return run.Abandon()
	default:
		return run.Fail(brief(err))
	}
}

// generate asks the provider, and holds it to the turn's time even if it ignores
// its context.
func (t asking) generate(ctx context.Context, m Model, req model.Request, sink model.Sink) (model.Response, error) {
	type answer struct {
		resp model.Response
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan answer, 1)
	go func() { // ends when the provider returns; it writes to nobody after that
		resp, err := model.Hiding(ctx, t.a.Hide, m.Provider, req, sink)
		done <- answer{resp, err}
	}()
	select {
	case got := <-done:
		return got.resp, got.err
	case <-t.r.Halted():
		cancel()
	case <-ctx.Done():
	}
	heed := time.NewTimer(heedTime)
	defer heed.Stop()
	select {
	case got := <-done:
		return got.resp, got.err
	case <-heed.C:
		return model.Response{}, fault.New(fault.Timeout, "%s does not answer and ignores its cancellation", m.Provider.Name())
	}
}

// reservation is the most the call can cost, as far as that is known.
func (t asking) reservation(step string, m Model, req model.Request) budget.Reserve {
	amount, known := t.a.Prices.Cost(m.Provider.Name(), m.Name, model.Estimate(req, t.a.cfg.MaxTokens))
	return budget.Reserve{
		Run: t.r.ID(), Step: step, Agent: t.agent, Amount: amount, Known: known, Provider: m.Provider.Name(), Model: m.Name,
	}
}

func (t asking) requestMAC(req model.Request) []byte {
	raw, err := json.Marshal(req)
	if err != nil {
		return nil // the call will fail with the same error and say so
	}
	return t.a.Vault.MAC("model.request", raw)
}
