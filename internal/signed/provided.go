package signed

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/wasmloop"
)

// toolTime is how long a provided tool may work.
const toolTime = 60 * time.Second

// ToolName is the name of a tool that a loop provides, as an agent knows it.
func ToolName(loop, name string) string { return prefix[:len(prefix)-1] + "." + loop + "." + name }

// invocation is the input of a run of ToolKind: a trigger whose payload is the tool's input.
type invocation struct {
	trigger.Trigger
	Tool string `json:"tool"`
}

// Lend makes the tools that installed loops provide known, and those of others unknown. It
// is called at the start and whenever what is installed has changed. What cannot be used as
// it is declared is returned, with the reason.
func (w *Work) Lend() ([]tool.Quarantine, error) {
	w.Judge()
	var offers []tool.Offer
	for _, name := range w.d.Shelf.Names() {
		x, there := w.d.Shelf.Current(name)
		if !there || x.Stopped() != "" {
			continue
		}
		for _, p := range x.Manifest.Provides {
			offers = append(offers, w.offer(x, p))
		}
	}
	return w.d.Tools.Replace(Owner, offers)
}

func (w *Work) offer(x Installed, p wasmloop.ToolSpec) tool.Offer {
	name := ToolName(x.Name, p.Name)
	input := p.Parameters
	if len(input) == 0 {
		input = json.RawMessage(`{"type":"object"}`)
	}
	need, bad := scope.Of("tool", name)
	def := tool.Definition{
		Name: name, Description: p.Description, Input: input, Kind: tool.Local, Lent: true, Timeout: 10 * time.Second, MaxOutput: 1 << 10,
		Source: label.Own, Revision: x.SHA256,
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{need}, bad },
		Summary: func(raw json.RawMessage) string { return "use " + name + " " + tool.Show(string(raw)) },
	}
	return tool.Offer{Definition: def, Handler: func(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
		return w.invoke(ctx, inv, x, p.Name)
	}}
}

// invoke starts the run of a call. It stands in no line: the loop's own run may be waiting
// for the agent that makes the call.
func (w *Work) invoke(ctx context.Context, inv tool.Invocation, x Installed, name string) (tool.Output, error) {
	if now, there := w.d.Shelf.Current(x.Name); !there || now.SHA256 != x.SHA256 || now.Stopped() != "" {
		return tool.Output{}, fault.New(fault.Conflict, "%s is not what it was: the loop %s was changed", ToolName(x.Name, name), x.Name)
	}
	id, err := w.d.Kit.Runs.StartTx(ctx, inv.Tx, run.Spec{
		Kind: ToolKind, Name: x.Subject(), Definition: x.Definition(), Parent: inv.Run, Actor: inv.Subject,
		Input: invocation{Tool: name, Trigger: trigger.Trigger{
			Kind: trigger.ByHand, Name: name, At: inv.Tx.Now(), Payload: inv.Input, By: inv.Subject, Parent: inv.Run, Target: x.Subject(),
			Label: label.Join(inv.Label, label.Of(label.Own, label.OperatorOnly)),
		}},
	})
	return tool.Output{Awaits: id}, err
}

func (w *Work) handleTool(ctx context.Context, r *run.Run) ([]byte, error) {
	var in invocation
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, fault.New(fault.Internal, "the input of %s: %w", r.ID(), err)
	}
	var out act.Awaited
	err := w.do(ctx, r, func(ctx context.Context, module *wasmloop.Runner, k *kit) error {
		_, input, err := started(in.Trigger)
		if err != nil {
			return err
		}
		if out.Text, err = module.InvokeTool(ctx, in.Tool, input, forever); err != nil {
			return err
		}
		out.Label = label.Join(k.k.Label(), label.Of(label.Own, label.OperatorOnly))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}
