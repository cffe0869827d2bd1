package act

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/guard"
)

// KindWarned is the event of a result in which others' words read like orders to a
// model. It is for people: nothing is decided by it.
const KindWarned = "guard.warned"

type warnedData struct {
	Tool    string   `json:"tool"`
	Run     string   `json:"run"`
	Step    string   `json:"step"`
	Phrases []string `json:"phrases"`
}

// warnings are the phrases of orders in a result that others wrote.
func warnings(r Result) []string {
	if !r.Label.Tainted() {
		return nil
	}
	return guard.Phrases(r.Text)
}

func (a *Act) warned(ctx context.Context, tx *db.Tx, k *call, res Result) error {
	if len(res.Warnings) == 0 {
		return nil
	}
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "tool:" + k.Tool, Kind: KindWarned, Actor: "ombud", Cause: k.run.Record().Cause, Trace: k.run.ID(), Expect: eventlog.Any,
		Data: warnedData{Tool: k.Tool, Run: k.run.ID(), Step: k.Step, Phrases: res.Warnings},
	})
	return err
}
