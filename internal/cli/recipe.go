package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) recipeCmd() *cobra.Command {
	list := a.recipeListCmd()
	return byDefault(a.noun(spec{
		use: "recipe", short: "work that is described in files",
		long: `A recipe is one YAML file in the directory recipes beside config.yaml: what starts it,
and its steps. docs/recipes.md is the reference. A file in KARMAX's format is taken as it
is. A change of a file is seen at once; a broken one leaves the last good version in use.`,
		example: `ombud recipe example > ~/.config/ombud/recipes/morning-briefing.yaml
ombud recipe test ~/.config/ombud/recipes/morning-briefing.yaml
ombud recipe run morning-briefing`,
	}, list, a.recipeShowCmd(), a.recipeCheckCmd(), a.recipeTestCmd(), a.recipeRunCmd(),
		a.recipeSwitchCmd("enable", "let a recipe be started again"), a.recipeSwitchCmd("disable", "keep a recipe from being started by anything"),
		a.recipeEjectCmd(), a.recipeExampleCmd(), a.recipeImportCmd()), list)
}

func (a *app) recipeListCmd() *cobra.Command {
	return a.command(spec{
		use: "list", short: "recipes, when they run and how the last run went", example: "ombud recipe list --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.RecipeList(ctx)
		if err != nil {
			return err
		}
		return a.show("recipes/1", res, func(p *page) { recipesPage(p, res) })
	})
}

func recipesPage(p *page, res wire.RecipeListResult) {
	if res.Trouble != "" {
		p.line("%s", p.bad("the recipes cannot be read, and those in use stay: "+oneLine(res.Trouble)))
	}
	if res.Late != "" {
		p.line("%s", p.bad(oneLine(res.Late)))
	}
	if len(res.Recipes) == 0 {
		p.line("no recipes in %s", oneLine(res.Dir))
		p.line("%s", p.faint("ombud recipe example shows one"))
		return
	}
	t := table{head: []string{"NAME", "STATE", "RUNS", "LAST", "STARTED"}}
	for _, r := range res.Recipes {
		last := "-"
		if r.LastAt > 0 {
			last = p.clock(r.LastAt)
		}
		t.add(recipeName(r), r.State, short(strings.Join(r.Starts, "; "), 60), last, fmt.Sprint(r.Started))
	}
	p.table(t)
	for _, r := range res.Recipes {
		recipeTrouble(p, r)
	}
}

func recipeName(r wire.Recipe) string {
	if r.Name == "" {
		return r.File
	}
	return r.Name
}

// recipeTrouble tells what is wrong with a recipe, and what is in use meanwhile.
func recipeTrouble(p *page, r wire.Recipe) {
	if len(r.Problems) > 0 {
		what := "it is not used"
		if r.Name != "" {
			what = "the last good version stays in use"
		}
		p.line("%s: %s", oneLine(recipeName(r)), p.bad("its file is broken; "+what))
		problemLines(p, r.Problems)
	}
	if r.Withheld > 0 {
		p.line("%s: %s came while it is off", oneLine(recipeName(r)), plural(r.Withheld, "trigger"))
	}
}

// problemLines writes problems as a compiler does, each with the way out below it.
func problemLines(p *page, list []wire.RecipeProblem) {
	for _, x := range list {
		at := x.File
		if x.Line > 0 {
			at += fmt.Sprintf(":%d", x.Line)
		}
		if x.Column > 0 {
			at += fmt.Sprintf(":%d", x.Column)
		}
		p.line("%s: %s", oneLine(at), oneLine(x.Message))
		if x.Fix != "" {
			p.line("  try: %s", oneLine(x.Fix))
		}
	}
}

func (a *app) recipeShowCmd() *cobra.Command {
	var text bool
	c := a.command(spec{
		use: "show NAME", short: "one recipe: when it runs, what it may do and what it is granted",
		example: "ombud recipe show morning-briefing\nombud recipe show morning-briefing --text", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.RecipeShow(ctx, wire.RecipeRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if text && !a.json {
			_, err := a.stdout.Write([]byte(res.Text))
			return outputFault(err)
		}
		return a.show("recipe/1", res, func(p *page) { recipePage(p, res) })
	})
	c.Flags().BoolVar(&text, "text", false, "the text of the version in use, as it was written")
	return c
}

func recipePage(p *page, res wire.RecipeShowResult) {
	r := res.Recipe
	p.line("%s", p.strong(oneLine(recipeName(r))))
	if r.Description != "" {
		p.line("%s", oneLine(r.Description))
	}
	p.field("state", r.State)
	p.field("file", r.File)
	if r.Hash != "" {
		p.field("version", r.Hash)
	}
	if r.Karmax {
		p.field("format", "KARMAX's")
	}
	if r.LastRun != "" {
		p.field("last run", r.LastRun+" "+p.clock(r.LastAt))
	}
	for _, line := range res.Says {
		p.line("%s", line)
	}
	for _, s := range r.Starts {
		if _, why, ok := strings.Cut(s, "not mounted: "); ok {
			p.line("%s", p.bad("its webhook is not mounted: "+oneLine(strings.TrimSuffix(why, ")"))))
		}
	}
	recipeTrouble(p, r)
	if len(r.Warnings) > 0 {
		p.line("let pass:")
		problemLines(p, r.Warnings)
	}
}

func (a *app) recipeRunCmd() *cobra.Command {
	var pairs []string
	var force, nowait bool
	c := a.command(spec{
		use: "run NAME", short: "start a recipe now and follow it to its end",
		long: `--payload gives the inputs: KEY=VALUE, as often as needed, or one JSON object. The exit
code is 0 if the run completed, else the error is that of the run. Ctrl-C ends the watch
and not the run.`,
		example: "ombud recipe run morning-briefing\nombud recipe run greet --payload city=Oslo --payload n=3 --no-wait",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		payload, err := payloadOf(pairs)
		if err != nil {
			return err
		}
		res, err := a.client.RecipeRun(ctx, wire.RecipeRunRequest{Name: args[0], Payload: payload, Force: force})
		if err != nil {
			return err
		}
		if nowait {
			return a.show("recipe-run/1", res, func(p *page) {
				p.line("started %s: %s", oneLine(args[0]), res.RunID)
				p.line("%s", p.faint("ombud runs watch "+res.RunID))
			})
		}
		return a.watchRun(ctx, res.RunID)
	})
	c.Flags().StringArrayVar(&pairs, "payload", nil, "KEY=VALUE, or one JSON object")
	c.Flags().BoolVar(&force, "force", false, "also if it is off")
	c.Flags().BoolVar(&nowait, "no-wait", false, "do not follow the run")
	return c
}

// payloadOf makes an object of what --payload says.
func payloadOf(pairs []string) (json.RawMessage, error) {
	if len(pairs) == 1 && strings.HasPrefix(strings.TrimSpace(pairs[0]), "{") {
		if !json.Valid([]byte(pairs[0])) {
			return nil, fault.New(fault.Usage, "--payload is no JSON object")
		}
		return json.RawMessage(pairs[0]), nil
	}
	if len(pairs) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fault.New(fault.Usage, "--payload %q is not KEY=VALUE", pair)
		}
		out[key] = value
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fault.New(fault.Usage, "--payload: %w", err)
	}
	return raw, nil
}

func (a *app) recipeSwitchCmd(verb, doc string) *cobra.Command {
	return a.command(spec{
		use: verb + " NAME", short: doc, example: "ombud recipe " + verb + " morning-briefing", args: cobra.ExactArgs(1),
		long: "This holds until it is taken back, whatever becomes of the file. Runs under way are left alone.",
	}, func(ctx context.Context, args []string) error {
		call := a.client.RecipeEnable
		if verb == "disable" {
			call = a.client.RecipeDisable
		}
		res, err := call(ctx, wire.RecipeRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("recipe/1", res, func(p *page) { p.line("%s is %s", oneLine(recipeName(res.Recipe)), res.Recipe.State) })
	})
}
