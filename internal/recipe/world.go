package recipe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// eventKinds are the kinds of event a recipe can wait for, those of KARMAX first.
var eventKinds = []string{
	"comms.message", "comms.sent", "timer.fired", "webhook.fired", "scheduler.job", "delegation.completed", "memory.updated",
	"tool.called", "tool.result", "system.critical", "user.defined",
	"comms.conflict", "scheduler.missed", "scheduler.skipped", "scheduler.failed", "run.created", "run.started", "run.waiting",
	"run.completed", "run.failed", "run.uncertain", "run.cancelled", "run.signalled", "grant.added", "grant.revoked", "level.set",
	"secret.set", "secret.removed", "system.clock", "approval.asked", "approval.resolved",
}

// unmade are those of them that nothing in this version records.
var unmade = []string{"delegation.completed", "user.defined"}

// comes reports whether an event of a kind, or of a family, is ever recorded.
func comes(kind string) bool {
	begin, family := strings.CutSuffix(kind, "*")
	return slices.ContainsFunc(eventKinds, func(k string) bool {
		return !slices.Contains(unmade, k) && (k == kind || family && strings.HasPrefix(k, begin))
	})
}

// knownEvent reports whether a kind, or the family "tool.*", can be waited for.
func knownEvent(kind string) bool {
	if slices.Contains(eventKinds, kind) || kind == "*" {
		return true
	}
	begin, family := strings.CutSuffix(kind, "*")
	return family && strings.HasSuffix(begin, ".") && slices.ContainsFunc(eventKinds, func(k string) bool { return strings.HasPrefix(k, begin) })
}

// eventFix is the way out for a kind that is not known: the nearest, those of its family,
// or the families.
func eventFix(kind string) string {
	if near := Nearest(kind, eventKinds); near != "" {
		return nearFix(kind, eventKinds)
	}
	begin, _, _ := strings.Cut(kind, ".")
	var kinds, families []string
	for _, k := range eventKinds {
		family, _, _ := strings.Cut(k, ".")
		if family == begin {
			kinds = append(kinds, k)
		}
		if !slices.Contains(families, family+".*") {
			families = append(families, family+".*")
		}
	}
	if len(kinds) > 0 {
		return "it is one of " + strings.Join(kinds, ", ")
	}
	return "it is of one of the families " + strings.Join(families, ", ")
}

// World is what recipes refer to outside their files. A nil part is not looked at.
type World struct {
	Tools   map[string]json.RawMessage // schemas of inputs by name
	Kinds   func(kind string) bool     // whether a kind of run is known
	Loops   []string                   // names
	Secrets func(name string) bool     // whether one of that name is set
	Recipes []string                   // names of those that are there beside the ones that are checked
}

// Check holds recipes against the world and against each other. problems are what cannot be
// done; warnings what is let pass, such as where a foreign format does.
func Check(w World, all []*Recipe) (problems, warnings []Problem) {
	for _, r := range all {
		notes := r.outside(w, all)
		problems, warnings = append(problems, notes.Problems...), append(warnings, notes.Warnings...)
	}
	problems = append(problems, clashes(all)...)
	return append(problems, cycles(all)...), warnings
}

// outside checks what one recipe refers to.
func (r *Recipe) outside(w World, all []*Recipe) *Notes {
	notes := &Notes{File: r.File}
	bad := notes.Bad
	if r.Foreign {
		bad = notes.Warn
	}
	for _, on := range r.On {
		if on.Event != nil && !knownEvent(on.Event.Kind) {
			bad(on.Place, eventFix(on.Event.Kind), "no event is of kind %q", clip(on.Event.Kind))
		} else if on.Event != nil && !comes(on.Event.Kind) {
			notes.Warn(on.Place, "wait for another kind, or let something else start it too", "no event of kind %q comes in this version, so it starts nothing", on.Event.Kind)
		}
		if on.Webhook != nil && w.Secrets != nil {
			for _, name := range on.Webhook.Secrets {
				if !w.Secrets(name) {
					notes.Warn(on.Place, "ombud secret set "+name, "no secret %q is set, so every request is refused until it is", name)
				}
			}
		}
	}
	Walk(r.Steps, func(s *Step) {
		v := verbOf(s.Verb)
		if v.needs != "" && w.Kinds != nil && !w.Kinds(v.needs) {
			bad(s.Place, "ask does work that needs no other program", "%s needs what this ombud does not have yet: runs of kind %s", s.Verb, v.needs)
		}
		switch s.Verb {
		case "tool":
			r.tool(w, s, bad)
		case "run":
			r.target(w, s, all, notes)
		}
	})
	return notes
}

func (r *Recipe) tool(w World, s *Step, bad func(Place, string, string, ...any)) {
	if w.Tools == nil {
		return
	}
	name := s.Args["name"].String()
	schema, there := w.Tools[name]
	if !there {
		bad(s.Place, nearFix(name, slices.Sorted(maps.Keys(w.Tools))), "there is no tool %q", clip(name))
		return
	}
	known := schemaOf(schema)
	if known == nil || s.Input == nil {
		return
	}
	names := slices.Sorted(maps.Keys(known.Properties))
	for _, f := range s.Input.Fields {
		if _, ok := known.Properties[f.Key]; !ok && known.closed() {
			bad(s.Place, nearFix(f.Key, names), "%s has no input %q", name, f.Key)
		}
	}
	for _, key := range known.Required {
		if !slices.ContainsFunc(s.Input.Fields, func(f TreeField) bool { return f.Key == key }) {
			bad(s.Place, "", "%s needs the input %q", name, key)
		}
	}
}

func (r *Recipe) target(w World, s *Step, all []*Recipe, notes *Notes) {
	kind, name, _ := strings.Cut(s.Args["target"].String(), ":")
	var names []string
	switch kind {
	case "recipe":
		names = slices.Clone(w.Recipes)
		for _, other := range all {
			names = append(names, other.Name)
		}
	case "loop":
		if names = w.Loops; names == nil {
			return
		}
	}
	if !slices.Contains(names, name) {
		notes.Bad(s.Place, nearFix(name, names), "there is no %s %q", kind, clip(name))
	}
}

// clashes are names and paths that two recipes have. Both files are named: which of them is
// meant nobody can tell.
func clashes(all []*Recipe) (problems []Problem) {
	type owner struct {
		r  *Recipe
		at Place
	}
	clash := func(a, b owner, what, fix string) {
		for _, x := range [][2]owner{{a, b}, {b, a}} {
			problems = append(problems, Problem{File: x[0].r.File, Place: x[0].at, Msg: fmt.Sprintf("%s is in %s:%d too", what, x[1].r.File, x[1].at.Line), Fix: fix})
		}
	}
	names, paths := map[string]owner{}, map[string]owner{}
	for _, r := range all {
		me, key := owner{r, r.Called}, strings.ToLower(r.Name)
		if other, twice := names[key]; twice {
			clash(me, other, fmt.Sprintf("the recipe %q", r.Name), "give one of them another name")
		}
		names[key] = me
		for _, on := range r.On {
			if on.Webhook == nil {
				continue
			}
			me.at = on.Place
			if other, twice := paths[on.Webhook.Path]; twice {
				clash(me, other, "the webhook "+on.Webhook.Path, "give one of them another path")
			}
			paths[on.Webhook.Path] = me
		}
	}
	return problems
}

// cycles are recipes that run themselves, by way of others or not.
func cycles(all []*Recipe) (problems []Problem) {
	byName := map[string]*Recipe{}
	for _, r := range all {
		byName[r.Name] = r
	}
	done := map[string]bool{}
	var visit func(r *Recipe, path []string)
	visit = func(r *Recipe, path []string) {
		if done[r.Name] {
			return
		}
		path = append(path, r.Name)
		Walk(r.Steps, func(s *Step) {
			name, ours := strings.CutPrefix(s.Args["target"].String(), "recipe:")
			next := byName[name]
			if s.Verb != "run" || !ours || next == nil {
				return
			}
			if i := slices.Index(path, name); i >= 0 {
				problems = append(problems, Problem{File: r.File, Place: s.Place,
					Msg: "the recipe would run itself: " + strings.Join(append(slices.Clone(path[i:]), name), " → "), Fix: "leave one of these steps out"})
				return
			}
			visit(next, path)
		})
		done[r.Name] = true
	}
	for _, r := range all {
		visit(r, nil)
	}
	return problems
}

// schema is the part of a JSON Schema that says how the keys of an input look.
type schema struct {
	Type       any                `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	Additional json.RawMessage    `json:"additionalProperties"`
}

func (s *schema) closed() bool { return string(s.Additional) == "false" }

func schemaOf(raw json.RawMessage) *schema {
	var s schema
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return &s
}

// takes reports whether a value of a type fits.
func (s *schema) takes(kind string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == kind
	case []any:
		return slices.Contains(t, any(kind))
	}
	return false
}

// Fit makes of the texts in a tool's input what its schema asks for, where they can be
// read as that: numbers, truth values, lists and objects. What cannot stays a text, and
// the tool says what is wrong with it.
func Fit(input, toolSchema json.RawMessage) json.RawMessage {
	s := schemaOf(toolSchema)
	x, err := decode(input)
	if s == nil || err != nil || x == nil {
		return input
	}
	raw, err := json.Marshal(s.fit(x))
	if err != nil {
		return input
	}
	return raw
}

func (s *schema) fit(x any) any {
	if s == nil {
		return x
	}
	switch x := x.(type) {
	case object:
		for key, v := range x {
			x[key] = s.Properties[key].fit(v)
		}
	case []any:
		for i, v := range x {
			x[i] = s.Items.fit(v)
		}
	case string:
		return s.read(x)
	}
	return x
}

func (s *schema) read(text string) any {
	if s.takes("string") || s.Type == nil {
		return text
	}
	t := strings.TrimSpace(text)
	got, err := decode(json.RawMessage(t))
	if err != nil {
		return text
	}
	switch got.(type) {
	case bool:
		if s.takes("boolean") {
			return got
		}
	case int64:
		if s.takes("integer") || s.takes("number") {
			return got
		}
	case float64:
		if s.takes("number") {
			return got
		}
	case []any:
		if s.takes("array") {
			return s.fit(got)
		}
	case object:
		if s.takes("object") {
			return s.fit(got)
		}
	case nil:
		if s.takes("null") {
			return nil
		}
	}
	return text
}
