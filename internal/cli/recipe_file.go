package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/compat/karmax"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/wholefile"
	"github.com/ombud-run/ombud/internal/wire"
)

// readRecipe reads a file without a daemon.
func (a *app) readRecipe(path string) (*recipe.Recipe, []byte, []recipe.Problem, error) {
	text, err := readText(path)
	if err != nil {
		return nil, nil, nil, err
	}
	r, problems := recipe.Read(path, text, a.now(), karmax.Recipe)
	return r, text, problems, nil
}

// readText reads a file, and no more of it than shows that it is too long.
func readText(path string) ([]byte, error) {
	text, err := readFile(path, recipe.MaxFile)
	if err != nil {
		return nil, fault.New(fault.ClassOf(err), "%w", err).WithHint("it takes the path of a file; ombud recipe show NAME tells that of a recipe in use")
	}
	return text, nil
}

// checked is what a check found.
type checked struct {
	OK       bool                 `json:"ok"`
	Recipes  []string             `json:"recipes,omitempty"`
	Problems []wire.RecipeProblem `json:"problems,omitempty"`
	Warnings []wire.RecipeProblem `json:"warnings,omitempty"`
	Daemon   bool                 `json:"daemon"` // whether one told which tools, secrets and recipes there are
}

func problemsOf(list []recipe.Problem) (out []wire.RecipeProblem) {
	for _, p := range list {
		out = append(out, wire.RecipeProblem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Msg, Fix: p.Fix})
	}
	return out
}

func (a *app) recipeCheckCmd() *cobra.Command {
	return a.command(spec{
		use: "check FILE…", short: "all that is wrong with recipes",
		long: `Each problem has its file, line and column, the reason and the way out. What a foreign
format lets pass is shown too and is no error. Exits 78 if anything is wrong. While a
daemon runs it tells which tools there are and what they take, and which secrets, loops
and other recipes; without one these are not looked at, which is said.`,
		example: "ombud recipe check *.yaml\nombud recipe check briefing.yaml --json", args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		var all []*recipe.Recipe
		var problems, warnings []recipe.Problem
		out := checked{}
		for _, path := range args {
			r, _, bad, err := a.readRecipe(path)
			if err != nil {
				return err
			}
			problems = append(problems, bad...)
			if r != nil {
				all, warnings = append(all, r), append(warnings, r.Warnings...)
				out.Recipes = append(out.Recipes, r.Name)
			}
		}
		world := recipe.World{}
		if len(all) > 0 {
			world, out.Daemon = a.recipeWorld(ctx)
		}
		more, let := recipe.Check(world, all)
		for _, p := range more {
			if out.Daemon || len(args) > 1 || !strings.Contains(p.Msg, "there is no recipe ") { // the others were not given
				problems = append(problems, p)
			}
		}
		err := recipe.Fault(problems)
		out.OK, out.Problems, out.Warnings = err == nil, problemsOf(problems), problemsOf(append(warnings, let...))
		if shown := a.show("recipe-check/1", out, func(p *page) {
			problemLines(p, out.Problems)
			if len(out.Warnings) > 0 {
				p.line("let pass:")
				problemLines(p, out.Warnings)
			}
			if out.OK {
				p.line("%s: in order", oneLine(strings.Join(out.Recipes, ", ")))
			}
		}); shown != nil || err == nil {
			return shown
		}
		return fault.New(fault.Config, "%s", plural(int64(len(problems)), "problem"))
	})
}

// recipeWorld is what the daemon says there is. It reports false if none says it, which
// leaves a check of the files alone.
func (a *app) recipeWorld(ctx context.Context) (w recipe.World, told bool) {
	res, err := a.client.RecipeWorld(ctx)
	if err != nil {
		why := "no daemon runs"
		if !errors.Is(err, wire.ErrNoDaemon) {
			why = "the daemon does not tell them (" + oneLine(err.Error()) + ")"
		}
		a.note("note: %s: tools, secrets and what is in other files were not looked at", why)
		return w, false
	}
	w = recipe.World{
		Tools: map[string]json.RawMessage{}, Loops: append([]string{}, res.Loops...), Recipes: res.Recipes,
		Kinds:   func(kind string) bool { return slices.Contains(res.Kinds, kind) },
		Secrets: func(name string) bool { return slices.Contains(res.Secrets, name) },
	}
	for _, t := range res.Tools {
		w.Tools[t.Name] = t.Input
	}
	return w, true
}

// tried is a dry run of one file.
type tried struct {
	Recipe string `json:"recipe"`
	recipe.Trial
}

func (a *app) recipeTestCmd() *cobra.Command {
	var pairs []string
	var kind string
	c := a.command(spec{
		use: "test FILE", short: "a dry run: what each step would be given, and what it needs",
		long: `Nothing is done and no daemon is needed: the clock stands at 2026-08-10 09:00 UTC, each
answer is a canned one, nothing waits. ALLOW is what the role recipe and the file's own
grants say to what the step needs: allow, ask or deny. Exits 78 if the file is broken, 2
if a step is.`,
		example: "ombud recipe test briefing.yaml\nombud recipe test hook.yaml --kind webhook --payload '{\"action\":\"completed\"}' --json",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		payload, err := payloadOf(pairs)
		if err != nil {
			return err
		}
		r, _, problems, err := a.readRecipe(args[0])
		if err != nil {
			return err
		}
		if err := recipe.Fault(problems); err != nil {
			return err
		}
		judge, err := judgeOf(r)
		if err != nil {
			return err
		}
		out := tried{r.Name, r.Try(ctx, kind, payload, judge)}
		if err := a.show("recipe-test/1", out, func(p *page) { trialPage(p, out) }); err != nil || out.Error == "" {
			return err
		}
		return fault.New(fault.Invalid, "a step failed: %s", oneLine(out.Error))
	})
	c.Flags().StringArrayVar(&pairs, "payload", nil, "KEY=VALUE, or one JSON object")
	c.Flags().StringVar(&kind, "kind", "manual", "what starts it: manual, schedule, event or webhook")
	return c
}

// judgeOf says what the shipped role and a recipe's own grants come to.
func judgeOf(r *recipe.Recipe) (func(need string) string, error) {
	roles, err := policy.LoadRoles("/workspace", nil)
	if err != nil {
		return nil, err
	}
	role, err := roles.Get(policy.RoleRecipe)
	if err != nil {
		return nil, err
	}
	rules := role.Layers()[0].Rules()
	return func(need string) string {
		s, err := scope.Parse(need)
		if err != nil {
			return policy.Deny.String()
		}
		return verdict(rules, r.Scopes(), s).String()
	}, nil
}

// verdict is what the rules of a role and the grants of a file come to: a grant answers what
// would be asked, and never what the role denies.
func verdict(rules []policy.Rule, grants []string, need scope.Scope) policy.Effect {
	says := func(e policy.Effect, touches func(scope.Scope) bool) bool {
		return slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Effect == e && touches(r.Scope) })
	}
	overlaps := func(s scope.Scope) bool { return s.Overlaps(need) }
	covers := func(s scope.Scope) bool { return s.Covers(need) }
	switch {
	case says(policy.Deny, overlaps):
		return policy.Deny
	case slices.ContainsFunc(grants, func(text string) bool { return scope.Must(text).Covers(need) }):
		return policy.Allow
	case says(policy.Ask, overlaps):
		return policy.Ask
	case says(policy.Allow, covers):
		return policy.Allow
	}
	return policy.Deny
}

func trialPage(p *page, out tried) {
	for _, s := range out.Steps {
		line := p.strong(oneLine(s.Step))
		if s.Verdict != "" {
			verdict := s.Verdict + " " + strings.Join(s.Needs, " ")
			if s.Verdict == "deny" {
				verdict = p.bad(verdict)
			}
			line += "  " + verdict
		}
		p.line("%s", line)
		for _, key := range slices.Sorted(maps.Keys(s.Input)) {
			p.line("  %s: %s", key, strings.ReplaceAll(strings.TrimSpace(p.clean(s.Input[key])), "\n", "\n    "))
		}
	}
	if out.Error == "" {
		p.line("%s", p.faint("nothing was done"))
	}
}

func (a *app) recipeEjectCmd() *cobra.Command {
	return a.command(spec{
		use: "eject FILE", short: "a recipe as Go, to be compiled into ombud as a loop",
		long:    "What is written is a file for a directory of its own below internal/ of ombud's source. It does what the recipe does.",
		example: "ombud recipe eject briefing.yaml > internal/briefing/briefing.go", args: cobra.ExactArgs(1),
	}, func(_ context.Context, args []string) error {
		r, _, problems, err := a.readRecipe(args[0])
		if err == nil {
			err = recipe.Fault(problems)
		}
		if err != nil {
			return err
		}
		code, err := r.Eject()
		if err != nil {
			return err
		}
		return a.show("recipe-eject/1", struct {
			Recipe string `json:"recipe"`
			Go     string `json:"go"`
		}{r.Name, string(code)}, func(p *page) { p.buf.Write(code) })
	})
}

func (a *app) recipeExampleCmd() *cobra.Command {
	return a.command(spec{
		use: "example [NAME]", short: "write an example, or without a name the morning briefing",
		long:    "The examples are " + strings.Join(recipe.Examples(), ", ") + ".",
		example: "ombud recipe example > ~/.config/ombud/recipes/morning-briefing.yaml", args: cobra.MaximumNArgs(1),
	}, func(_ context.Context, args []string) error {
		name := "morning-briefing"
		if len(args) > 0 {
			name = args[0]
		}
		text, err := recipe.Example(name)
		if err != nil {
			return err
		}
		return a.show("recipe-example/1", struct {
			Name string `json:"name"`
			Text string `json:"text"`
		}{name, string(text)}, func(p *page) { p.buf.Write(text) })
	})
}

// imported is what an import did.
type imported struct {
	Name     string               `json:"name"`
	File     string               `json:"file"`
	Warnings []wire.RecipeProblem `json:"warnings,omitempty"`
}

func (a *app) recipeImportCmd() *cobra.Command {
	var replace bool
	c := a.command(spec{
		use: "import FILE…", short: "check recipes and put them, unchanged, where ombud reads them",
		example: "ombud recipe import ~/.karmax/recipes/*.yaml", args: cobra.MinimumNArgs(1),
	}, func(_ context.Context, args []string) error {
		if err := a.where.MakeDirs(); err != nil {
			return err
		}
		var done []imported
		for _, path := range args {
			r, text, problems, err := a.readRecipe(path)
			if err == nil {
				err = recipe.Fault(problems)
			}
			if err != nil {
				return err
			}
			to := filepath.Join(a.where.RecipeDir(), r.Name+".yaml")
			if err := putFile(to, text, replace); err != nil {
				return err
			}
			done = append(done, imported{r.Name, to, problemsOf(r.Warnings)})
		}
		return a.show("recipe-import/1", struct {
			Recipes []imported `json:"recipes"`
		}{done}, func(p *page) {
			for _, x := range done {
				p.line("%s: %s", oneLine(x.Name), oneLine(x.File))
				problemLines(p, x.Warnings)
			}
		})
	})
	c.Flags().BoolVar(&replace, "replace", false, "also over one that is there")
	return c
}

// putFile writes a file, over another one only if it is to replace it.
func putFile(path string, text []byte, replace bool) error {
	put := wholefile.Create
	if replace {
		put = wholefile.Replace
	}
	switch err := put(path, text); {
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.Conflict, "%s is there already", path).WithHint("--replace puts the new one in its place")
	case err != nil:
		return fault.New(fault.Unavailable, "write %s: %w", path, err)
	}
	return nil
}
