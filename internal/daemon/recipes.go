package daemon

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/compat/karmax"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// openRecipes constructs the recipes and what does their runs.
func (d *Daemon) openRecipes(cfg config.Config, kinds *run.Kinds) error {
	role, err := d.roles.Get(policy.RoleRecipe)
	if err != nil {
		return err
	}
	d.recipes = recipe.New(recipe.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Targets: d.triggers, Foreign: karmax.Recipe, World: d.recipeWorld,
		Changed: d.recipeChanged, Tell: d.agents.NoticeTx, Mount: func(name string) string { return cfg.Recipes.Webhooks[name] }, Logger: d.log,
	}, recipe.Options{Dir: d.o.Instance.RecipeDir(), Files: cfg.Recipes.Files})
	d.recipeWork = recipe.NewWork(d.recipes, d.kit, role, d.budget, func(name string) json.RawMessage {
		def, err := d.tools.Get(name)
		if err != nil {
			return nil
		}
		return def.Input
	})
	return kinds.Add(d.recipeWork.Kind())
}

// recipeWorld is what recipes can refer to.
func (d *Daemon) recipeWorld(ctx context.Context) recipe.World {
	w := recipe.World{
		Tools: map[string]json.RawMessage{}, Kinds: d.runs.Knows, Loops: d.loopNames(),
		Secrets: func(name string) bool { return d.secrets.Check(ctx, name) == nil },
	}
	for _, def := range d.tools.List() {
		if !def.Within && !def.Lent {
			w.Tools[def.Name] = def.Input
		}
	}
	return w
}

// recipeChanged records what a recipe may do now where that is another than before, and
// tells the operator of it, who may not have been the one to edit the file.
func (d *Daemon) recipeChanged(ctx context.Context, tx *db.Tx, c recipe.Change) error {
	before, after := c.Before.Scopes(), c.After.Scopes()
	more := slices.DeleteFunc(slices.Clone(after), func(s string) bool { return slices.Contains(before, s) })
	less := slices.DeleteFunc(slices.Clone(before), func(s string) bool { return slices.Contains(after, s) })
	if len(more)+len(less) == 0 {
		return nil
	}
	for kind, scopes := range map[string][]string{"grant": more, "revoke": less} {
		if len(scopes) == 0 {
			continue
		}
		if _, err := d.audit.AppendTx(ctx, tx, audit.Entry{
			Kind: kind, Actor: byOperator, Subject: recipe.Subject(c.Name), Scopes: scopes, Outcome: "ok", Reason: "recipe file",
		}); err != nil {
			return err
		}
	}
	if c.First && c.Before == nil {
		return nil // what is there when ombud first looks is the operator's word
	}
	text := "The grants of the recipe " + c.Name + " have changed, for its file has."
	if len(more) > 0 {
		text += "\nIt may now use: " + strings.Join(more, ", ")
	}
	if len(less) > 0 {
		text += "\nNo longer: " + strings.Join(less, ", ")
	}
	return d.agents.NoticeTx(ctx, tx, c.Cause, text)
}

// recipeNotices are the files that hold no recipe in order, each in a line.
func (d *Daemon) recipeNotices() (out []string) {
	if t := d.recipes.Trouble(); t != "" {
		out = append(out, "the recipes cannot be read, and those in use stay: "+t)
	}
	broken := d.recipes.Broken()
	for _, path := range slices.Sorted(maps.Keys(broken)) {
		what := "it is not used"
		if name := broken[path]; name != "" {
			what = "the last good version of " + name + " stays in use"
		}
		out = append(out, "the recipe "+path+" is broken; "+what+" (ombud recipe list)")
	}
	return out
}

// recipeCheck is the line of ombud doctor about recipes.
func (d *Daemon) recipeCheck() wire.Check {
	bad := d.recipeNotices()
	if late := d.recipes.Late(); late != "" {
		bad = append(bad, late)
	}
	if len(bad) > 0 {
		return wire.Check{ID: "recipes", Status: "warn", Detail: strings.Join(bad, "; "), Hint: "ombud recipe list says what is wrong"}
	}
	return wire.Check{ID: "recipes", Status: "ok", Detail: "every recipe is in order"}
}

// recipeMethods are the operator's methods about recipes.
func (d *Daemon) recipeMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.RecipeList, d.recipeList)
	ipc.Handle(m, wire.RecipeShow, d.recipeShow)
	ipc.Handle(m, wire.RecipeRun, d.recipeRun)
	ipc.Handle(m, wire.RecipeEnable, d.recipeSwitch(d.triggers.Resume))
	ipc.Handle(m, wire.RecipeDisable, d.recipeSwitch(d.triggers.Pause))
	ipc.Handle(m, wire.RecipeWorld, d.wireRecipeWorld)
}

// wireRecipeWorld tells a check of a file what this daemon checks its own against.
func (d *Daemon) wireRecipeWorld(ctx context.Context, _ wire.Empty) (out wire.RecipeWorldResult, err error) {
	w := d.recipeWorld(ctx)
	for _, name := range slices.Sorted(maps.Keys(w.Tools)) {
		out.Tools = append(out.Tools, wire.RecipeTool{Name: name, Input: w.Tools[name]})
	}
	for _, kind := range recipe.Needs() {
		if w.Kinds(kind) {
			out.Kinds = append(out.Kinds, kind)
		}
	}
	out.Loops = w.Loops
	known, err := d.secrets.List(ctx)
	if err != nil {
		return out, err
	}
	for _, s := range known {
		out.Secrets = append(out.Secrets, s.Name)
	}
	all, err := d.recipes.List(ctx)
	for _, s := range all {
		if s.Recipe != nil {
			out.Recipes = append(out.Recipes, s.Name)
		}
	}
	return out, err
}

func (d *Daemon) recipeSwitch(turn func(ctx context.Context, target, by string) (trigger.Standing, error)) func(context.Context, wire.RecipeRequest) (wire.RecipeResult, error) {
	return func(ctx context.Context, req wire.RecipeRequest) (out wire.RecipeResult, err error) {
		s, err := d.recipes.Get(ctx, req.Name)
		if err != nil {
			return out, err
		}
		if s.Recipe == nil {
			return out, recipe.Fault(s.Problems)
		}
		if _, err := turn(ctx, recipe.Subject(s.Name), byOperator); err != nil {
			return out, err
		}
		out.Recipe, err = d.wireRecipe(ctx, s)
		return out, err
	}
}

func (d *Daemon) recipeList(ctx context.Context, _ wire.Empty) (wire.RecipeListResult, error) {
	out := wire.RecipeListResult{Dir: d.o.Instance.RecipeDir(), Trouble: d.recipes.Trouble(), Late: d.recipes.Late()}
	list, err := d.recipes.List(ctx)
	if err != nil {
		return out, err
	}
	for _, s := range list {
		shown, err := d.wireRecipe(ctx, s)
		if err != nil {
			return out, err
		}
		out.Recipes = append(out.Recipes, shown)
	}
	return out, nil
}

func (d *Daemon) recipeShow(ctx context.Context, req wire.RecipeRequest) (out wire.RecipeShowResult, err error) {
	s, err := d.recipes.Get(ctx, req.Name)
	if err != nil {
		return out, err
	}
	if out.Recipe, err = d.wireRecipe(ctx, s); err != nil || s.Recipe == nil {
		return out, err
	}
	out.Says = s.Recipe.Describe()
	text, err := d.recipes.Text(ctx, s.Hash)
	out.Text = string(text)
	return out, err
}

func (d *Daemon) recipeRun(ctx context.Context, req wire.RecipeRunRequest) (out wire.RecipeRunResult, err error) {
	s, err := d.recipes.Get(ctx, req.Name)
	if err != nil {
		return out, err
	}
	if s.Recipe == nil {
		return out, recipe.Fault(s.Problems)
	}
	var payload map[string]json.RawMessage
	if len(req.Payload) > 0 {
		if err := json.Unmarshal(req.Payload, &payload); err != nil {
			return out, fault.New(fault.Invalid, "the payload is no object: %w", err)
		}
	}
	if err := s.Recipe.AcceptJSON("manual", req.Payload); err != nil {
		return out, err
	}
	start := d.triggers.Manual
	if req.Force {
		start = d.triggers.Force
	}
	out.RunID, err = start(ctx, recipe.Subject(s.Name), req.Payload, byOperator)
	return out, err
}

// wireRecipe shows a recipe with what starts it.
func (d *Daemon) wireRecipe(ctx context.Context, s recipe.Standing) (wire.Recipe, error) {
	out := wire.Recipe{Name: s.Name, File: s.File, Hash: s.Hash, State: "on", Since: s.Since, Problems: wireProblems(s.Problems)}
	if s.Recipe != nil {
		_, warnings := recipe.Check(d.recipeWorld(ctx), []*recipe.Recipe{s.Recipe})
		out.Description, out.Karmax, out.Grants, out.Starts = s.Recipe.Description, s.Recipe.Foreign, s.Recipe.Scopes(), s.Recipe.Starts(d.recipes.Mounted)
		out.Warnings = wireProblems(slices.Concat(s.Recipe.Warnings, warnings))
		var t trigger.Standing
		err := d.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			t, err = d.triggers.GetIn(ctx, q, recipe.Subject(s.Name))
			return err
		})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return out, err
		}
		out.Started, out.LastRun, out.LastAt, out.Withheld = t.Started, t.LastRun, t.LastAt, t.Withheld
		if t.Stopped() {
			out.State = "off"
		}
	}
	if len(s.Problems) > 0 {
		out.State = "broken"
	}
	return out, nil
}

func wireProblems(list []recipe.Problem) (out []wire.RecipeProblem) {
	for _, p := range list {
		out = append(out, wire.RecipeProblem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Msg, Fix: p.Fix})
	}
	return out
}
