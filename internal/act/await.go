package act

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// Awaited is the result of a run that a call has started and waits for.
type Awaited struct {
	Text  string      `json:"text"`
	Label label.Label `json:"label"`
}

// awaited turns the result of a call that started a run into what the run comes to. The
// run that makes the call is parked meanwhile, and ends the other if it ends first.
func (a *Act) awaited(ctx context.Context, r *run.Run, step string) func(Result, error) (Result, error) {
	return func(res Result, err error) (Result, error) {
		if err != nil || res.Awaits == "" || res.Status != OK {
			return res, err
		}
		rec, err := r.WaitRun(ctx, step+"/run", func(context.Context, *db.Tx) (string, error) { return res.Awaits, nil })
		if err != nil {
			return res, err
		}
		if rec.State != run.Completed {
			res.Status, res.Class = Failed, rec.ErrorClass
			// What it said as it failed can be of what it had read, and nobody knows the label of that.
			return a.answer(res, "it did not come to an end: "+rec.Error, label.Of(label.Untrusted(rec.Kind), label.OperatorOnly)), nil
		}
		var out Awaited
		if len(rec.Result) > 0 { // none where a person has said that it is done
			if err := json.Unmarshal(rec.Result, &out); err != nil {
				return res, fault.New(fault.Verification, "the result of run %s: %w", rec.ID, err)
			}
		}
		return a.answer(res, out.Text, out.Label), nil
	}
}

// answer is a result with another text, which is held to what holds any tool's output.
func (a *Act) answer(res Result, text string, l label.Label) Result {
	res.Size, res.Label = int64(len(text)), l
	res.Text, res.Cut = a.clean(text)
	res.Warnings = warnings(res)
	return res
}
