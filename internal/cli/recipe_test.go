//go:build unix

package cli

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedRecipes answers for recipes: one that is in order, one whose file is broken, one
// that never was any.
func cannedRecipes(m *ipc.Mux) {
	briefing := wire.Recipe{
		Name: "briefing", File: "/r/briefing.yaml", Hash: "1a2b", Description: "A short one.", State: "on", Starts: []string{`at the times "30 8 * * 1-5"`},
		Grants: []string{"net.fetch:https://example.com"}, Started: 3, LastRun: "run_5", LastAt: noon, Since: noon,
	}
	hook := wire.Recipe{
		Name: "hook", File: "/r/hook.yaml", Hash: "3c4d", State: "broken", Karmax: true, Starts: []string{"on a request to /hooks/x (not mounted: hook has no secret)"},
		Problems: []wire.RecipeProblem{{File: "/r/hook.yaml", Line: 6, Column: 3, Message: `a recipe has no key "stps"`, Fix: `did you mean "steps"?`}},
		Warnings: []wire.RecipeProblem{{File: "/r/hook.yaml", Line: 2, Message: "the webhook has no secret"}}, Withheld: 2, Since: noon,
	}
	never := wire.Recipe{File: "/r/x.yaml", State: "broken", Problems: []wire.RecipeProblem{{File: "/r/x.yaml", Message: "the file is empty"}}}
	ipc.Handle(m, wire.RecipeList, answer[wire.Empty](wire.RecipeListResult{Dir: "/r", Trouble: "no room", Late: "changes of recipes are seen only every 30s", Recipes: []wire.Recipe{briefing, hook, never}}))
	ipc.Handle(m, wire.RecipeShow, func(_ context.Context, req wire.RecipeRequest) (wire.RecipeShowResult, error) {
		switch req.Name {
		case "briefing":
			return wire.RecipeShowResult{Recipe: briefing, Says: []string{"It runs when it does.", "It may:", "  - notify you"}, Text: "name: briefing\n"}, nil
		case "hook":
			return wire.RecipeShowResult{Recipe: hook}, nil
		}
		return wire.RecipeShowResult{}, fault.New(fault.NotFound, "there is no recipe %q", req.Name).WithHint("did you mean \"briefing\"?")
	})
	ipc.Handle(m, wire.RecipeRun, func(_ context.Context, req wire.RecipeRunRequest) (wire.RecipeRunResult, error) {
		switch p := string(req.Payload); {
		case req.Name == "fails":
			return wire.RecipeRunResult{RunID: "run_9"}, nil
		case p != "" && p != `{"city":"Oslo","n":"3"}` && p != `{"a":1}`:
			return wire.RecipeRunResult{}, fault.New(fault.Internal, "payload %s", p)
		}
		return wire.RecipeRunResult{RunID: "run_5"}, nil
	})
	off := briefing
	off.State = "off"
	ipc.Handle(m, wire.RecipeEnable, answer[wire.RecipeRequest](wire.RecipeResult{Recipe: briefing}))
	ipc.Handle(m, wire.RecipeDisable, answer[wire.RecipeRequest](wire.RecipeResult{Recipe: off}))
	ipc.Handle(m, wire.RecipeWorld, answer[wire.Empty](wire.RecipeWorldResult{
		Tools: []wire.RecipeTool{
			{Name: "memory.note", Input: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string"}}}`)},
			{Name: "time.now", Input: json.RawMessage(`{"type":"object"}`)},
		},
		Kinds: recipe.Needs(), Loops: []string{"watch"}, Recipes: []string{"briefing"},
	}))
}
