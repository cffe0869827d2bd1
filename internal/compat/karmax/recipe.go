package karmax

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/scope"
)

var _ recipe.Reader = Recipe

// Recipe reads a recipe of KARMAX.
func Recipe(file string, data []byte, now time.Time) (*recipe.Recipe, []recipe.Problem) {
	r := &reader{notes: &recipe.Notes{File: file}, now: now, recipe: &recipe.Recipe{File: file, Enabled: true, Foreign: true}}
	n := recipe.Parse(data, true, r.notes)
	if n == nil {
		return nil, r.notes.Problems
	}
	if n.Kind != recipe.MapNode {
		r.notes.Bad(n.Place, "ombud recipe example shows one", "a recipe is a mapping with name, on and steps; this is %s", n.Kind)
		return nil, r.notes.Problems
	}
	r.file(n)
	if len(r.notes.Problems) > 0 {
		return nil, r.notes.Problems
	}
	r.recipe.Warnings = r.notes.Warnings
	return r.recipe, nil
}

type reader struct {
	notes  *recipe.Notes
	now    time.Time
	recipe *recipe.Recipe
	bound  map[string]int // names results have so far, and where
}

var topKeys = []string{"name", "enabled", "on", "steps", "grants"}

func (r *reader) file(n *recipe.Node) {
	out := r.recipe
	for _, f := range n.Fields { // first: what is said of others has it
		if f.Key == "name" {
			out.Name, out.Called = r.name(f), f.Place
		}
	}
	for _, f := range n.Fields {
		switch f.Key {
		case "name":
		case "enabled":
			out.Enabled = r.truth(f)
		case "on":
			r.triggers(f)
		case "grants":
			r.grants(f)
		case "steps":
		default:
			fix := ""
			if near := recipe.Nearest(f.Key, topKeys); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
			}
			r.notes.Warn(f.Place, fix, "the key %q is not known and has no effect", f.Key)
		}
	}
	if n.Get("name") == nil {
		r.notes.Bad(n.Place, "write name: morning-briefing", "a recipe needs a name")
	}
	if n.Get("on") == nil {
		r.notes.Bad(n.Place, "write on: {manual: true}", "nothing starts this recipe: on needs schedule, event, webhook or manual")
	}
	steps := n.Get("steps")
	if steps == nil {
		r.notes.Bad(n.Place, "", "a recipe needs steps")
		return
	}
	r.bound = map[string]int{}
	out.Steps = r.steps(steps, "", 0)
	r.unbound()
}

func (r *reader) text(f recipe.Field) string {
	if f.Value == nil || f.Value.Kind != recipe.TextNode {
		r.notes.Bad(f.Place, "", "%s takes a text", f.Key)
		return ""
	}
	return f.Value.Text
}

func (r *reader) name(f recipe.Field) string {
	name := r.text(f)
	switch {
	case name == "":
	case strings.ContainsAny(name, " /\\"):
		r.notes.Bad(f.Value.Place, "write it with dashes", "the name %q has a space, / or \\", name)
	case !recipe.ValidName(name):
		r.notes.Bad(f.Value.Place, "use letters, digits and . _ -, at most 48", "the name %q cannot name a run, a schedule and a conversation here", name)
	}
	return name
}

// truth reads a truth value as YAML 1.1 knows them.
func (r *reader) truth(f recipe.Field) bool {
	switch strings.ToLower(r.text(f)) {
	case "true", "yes", "on", "y":
		return true
	case "false", "no", "off", "n", "":
		return false
	}
	r.notes.Bad(f.Place, "write true or false", "%s is true or false", f.Key)
	return false
}

func (r *reader) triggers(f recipe.Field) {
	if f.Value == nil || f.Value.Kind != recipe.MapNode {
		r.notes.Bad(f.Place, "write on: {schedule: \"30 8 * * *\"}", "on takes schedule, event, webhook and manual")
		return
	}
	kinds := []string{"schedule", "event", "webhook", "manual"}
	for _, t := range f.Value.Fields {
		on := recipe.On{Place: t.Place}
		switch t.Key {
		case "schedule":
			on.Schedule = &recipe.Schedule{When: r.text(t)}
			recipe.CheckSchedule(on.Schedule, t.Place, r.now, r.notes)
		case "event":
			on.Event = &recipe.Event{Kind: r.text(t)}
		case "webhook":
			on.Webhook = &recipe.Webhook{Path: mounted(r.text(t))}
			if !recipe.ValidPath(on.Webhook.Path) {
				r.notes.Bad(t.Place, "write webhook: /hooks/name", "%q is no path of a webhook", r.text(t))
			}
			r.notes.Warn(t.Place, fmt.Sprintf("say how it proves itself in the configuration: recipes.webhooks: [%s=SECRET], or %[1]s=open", r.recipe.Name),
				"the webhook has no secret, so it is not mounted as it stands")
		case "manual":
			if on.Manual = r.truth(t); !on.Manual {
				continue
			}
		default:
			fix := "it is one of " + strings.Join(kinds, ", ")
			if near := recipe.Nearest(t.Key, kinds); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
			}
			r.notes.Warn(t.Place, fix, "the trigger %q is not known and starts nothing", t.Key)
			continue
		}
		r.recipe.On = append(r.recipe.On, on)
	}
	if len(r.recipe.On) == 0 {
		r.notes.Bad(f.Place, "write on: {manual: true}", "nothing starts this recipe: on needs schedule, event, webhook or manual")
	}
}

// mounted is where ombud mounts what KARMAX mounted at the root.
func mounted(path string) string {
	if path == "" || strings.HasPrefix(path, "/hooks/") {
		return path
	}
	return "/hooks/" + strings.TrimPrefix(path, "/")
}

// grants reads KARMAX's capabilities as scopes. What means nothing here is said to grant
// nothing, and stays without effect.
func (r *reader) grants(f recipe.Field) {
	if f.Value == nil || f.Value.Kind != recipe.ListNode {
		r.notes.Bad(f.Place, "write grants: [\"http:api.example.com\"]", "grants takes a list")
		return
	}
	for _, n := range f.Value.Items {
		if n == nil || n.Kind != recipe.TextNode {
			r.notes.Bad(f.Place, "", "a grant is a text")
			continue
		}
		scopes, why := Scopes(n.Text)
		if why != "" {
			r.notes.Warn(n.Place, "write a scope as ombud caps list --bases names them", "the grant %q grants nothing: %s", n.Text, why)
		}
		for _, s := range scopes {
			r.recipe.Grants = append(r.recipe.Grants, recipe.Grant{Scope: s, Text: n.Text, Place: n.Place})
		}
	}
}

// Scopes are what a capability of KARMAX is here, or why it is nothing. One of ombud's own
// scopes is itself.
func Scopes(capability string) (scopes []string, why string) {
	class, rest, _ := strings.Cut(capability, ":")
	var texts []string
	switch {
	case class == "http" && rest == "*":
		texts = []string{"net.fetch", "net.post"}
	case class == "http" && rest != "":
		for _, scheme := range []string{"https://", "http://"} {
			texts = append(texts, "net.fetch:"+scheme+rest+"/", "net.post:"+scheme+rest+"/")
		}
	case class == "tool" && rest == "harness":
		texts = []string{"harness"}
	case class == "channel" && rest != "":
		texts = []string{"channel.send:" + rest}
	default:
		texts = []string{capability}
	}
	for _, t := range texts {
		s, err := scope.ParseRule(t)
		switch {
		case err != nil:
			why = err.Error()
			if hint := fault.HintOf(err); hint != "" {
				why += " (" + hint + ")"
			}
			continue
		case recipe.Beyond(s):
			why = "no recipe changes authority"
			continue
		}
		scopes = append(scopes, s.String())
	}
	return scopes, why
}

// required are the keys a verb cannot do without.
var required = map[string][]string{
	"http": {"url"}, "tool": {"name"}, "remember": {"fact"}, "notify": {"title"}, "propose": {"title", "action"},
	"remind": {"title"}, "send": {"to", "text"}, "sleep": {"for"},
}

// known are the keys a verb takes, the first of which a plain text stands for.
var known = map[string][]string{
	"ask": {"text"}, "observe": {"text"}, "harness": {"text"}, "gateway": {"text"}, "log": {"text"}, "recall": {"text", "limit"},
	"http": {"url", "method", "body"}, "remember": {"fact"}, "notify": {"title", "body"}, "propose": {"title", "action", "summary"},
	"remind": {"title", "due", "notes"}, "send": {"to", "text"}, "sleep": {"for"},
}

const maxWithin = 16

func (r *reader) steps(n *recipe.Node, prefix string, depth int) (out []*recipe.Step) {
	if n.Kind != recipe.ListNode || len(n.Items) == 0 {
		r.notes.Bad(n.Place, "write - notify: {title: Hello}", "steps are a list with at least one step")
		return nil
	}
	if depth > maxWithin {
		r.notes.Bad(n.Place, "", "else is nested more than %d deep", maxWithin)
		return nil
	}
	for i, item := range n.Items {
		if item == nil || item.Kind != recipe.MapNode {
			r.notes.Bad(n.Place, "write - notify: {title: Hello}", "step %d is no mapping", i+1)
			continue
		}
		if s := r.step(item, fmt.Sprintf("%s%d", prefix, i), depth); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func (r *reader) step(n *recipe.Node, id string, depth int) *recipe.Step {
	verbs := recipe.KarmaxVerbs()
	s := &recipe.Step{Place: n.Place, Args: map[string]*recipe.Template{}}
	var els *recipe.Node
	for _, f := range n.Fields {
		switch f.Key {
		case "as":
			s.As = r.text(f)
		case "when":
			s.When = r.template(f, "", "when")
		case "else":
			els = f.Value
		default:
			if !slices.Contains(verbs, f.Key) {
				r.notes.Bad(f.Place, r.verbFix(f.Key, verbs), "%q is nothing a step can do", f.Key)
				return nil
			}
			if s.Verb != "" {
				r.notes.Bad(f.Place, "write a step for each", "a step does one thing, and this one has %s and %s", s.Verb, f.Key)
				return nil
			}
			s.Verb, s.ID = f.Key, id+"-"+f.Key
			r.body(s, f)
		}
	}
	if s.Verb == "" {
		r.notes.Bad(n.Place, "it is one of "+strings.Join(verbs, ", "), "the step does nothing")
		return nil
	}
	if s.As != "" {
		r.bind(s, n)
	}
	if els != nil {
		if s.When == nil {
			r.notes.Bad(els.Place, "write a when, or leave out else", "else without a when is never done")
		}
		s.Else = r.steps(els, s.ID+"-else-", depth+1)
	}
	return s
}

func (r *reader) verbFix(name string, verbs []string) string {
	if slices.Contains(recipe.VerbNames(), name) {
		return fmt.Sprintf("%s is a verb of ombud's own format: write %s: %s first in the file", name, recipe.MarkKey, recipe.Mark)
	}
	if near := recipe.Nearest(name, verbs); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "it is one of " + strings.Join(verbs, ", ")
}

func (r *reader) bind(s *recipe.Step, n *recipe.Node) {
	at := n.Place
	if as := n.Get("as"); as != nil {
		at = as.Place
	}
	if !recipe.Result(s.Verb) {
		r.notes.Bad(at, "leave as out", "%s has no result that could be called %q", s.Verb, s.As)
	}
	if first, twice := r.bound[s.As]; twice {
		r.notes.Warn(at, "take another name", "%q is the result of the step in line %d too; the later one wins", s.As, first)
	}
	r.bound[s.As] = n.Line
}

func (r *reader) template(f recipe.Field, verb, key string) *recipe.Template {
	if f.Value == nil || f.Value.Kind == recipe.NullNode {
		return recipe.ForeignTemplate(&recipe.Node{Kind: recipe.TextNode, Place: f.Place}, verb, key, r.notes)
	}
	if f.Value.Kind != recipe.TextNode {
		r.notes.Bad(f.Place, "write each header flat: header.X: value", "%s takes a plain text, not something nested", f.Key)
		return nil
	}
	return recipe.ForeignTemplate(f.Value, verb, key, r.notes)
}

var headerName = regexp.MustCompile(`^header\.`)

// body reads what a verb takes: a text, or a flat mapping of texts.
func (r *reader) body(s *recipe.Step, f recipe.Field) {
	n := f.Value
	if n == nil || n.Kind != recipe.MapNode {
		if s.Verb == "http" || s.Verb == "tool" || n == nil || n.Kind == recipe.ListNode {
			r.notes.Bad(f.Place, "", "%s takes keys: %s", s.Verb, strings.Join(append(slices.Clone(known[s.Verb]), required[s.Verb]...), ", "))
			return
		}
		n = &recipe.Node{Kind: recipe.MapNode, Place: f.Place, Fields: []recipe.Field{{Key: known[s.Verb][0], Place: f.Place, Value: n}}}
	}
	if s.Verb == "tool" {
		s.Input = &recipe.Tree{Object: true}
	}
	for _, k := range n.Fields {
		switch {
		case s.Verb == "http" && headerName.MatchString(k.Key):
			name := headerName.ReplaceAllString(k.Key, "")
			if !recipe.HeaderName(name) {
				r.notes.Bad(k.Place, "write header.Accept: text/plain", "%q is no name of a header", name)
			}
			s.Headers = append(s.Headers, recipe.Header{Name: name, Value: r.template(k, s.Verb, "header")})
		case s.Verb == "tool" && k.Key != "name":
			s.Input.Fields = append(s.Input.Fields, recipe.TreeField{Key: k.Key, Value: &recipe.Tree{Text: r.template(k, s.Verb, k.Key)}})
		default:
			s.Args[k.Key] = r.template(k, s.Verb, k.Key)
			if s.Verb != "tool" && !slices.Contains(known[s.Verb], k.Key) {
				r.notes.Warn(k.Place, "it takes "+strings.Join(known[s.Verb], ", "), "%s has no key %q, so it has no effect", s.Verb, k.Key)
			}
		}
	}
	for _, key := range required[s.Verb] {
		if t := s.Args[key]; n.Get(key) == nil || t != nil && t.String() == "" {
			r.notes.Bad(f.Place, "", "%s needs %s", s.Verb, key)
		}
	}
	if t := s.Args["for"]; s.Verb == "sleep" && t != nil && t.Plain() && t.String() != "" {
		if _, err := recipe.Length(t.String()); err != nil {
			r.notes.Bad(f.Place, fault.HintOf(err), "sleep: %v", err)
		}
	}
	if t := s.Args["text"]; len(required[s.Verb]) == 0 && (t == nil || strings.TrimSpace(t.String()) == "") {
		r.notes.Warn(f.Place, "", "%s has no text", s.Verb)
	}
}

// unbound warns of names that nothing can bind: only the keys of a payload could, and
// what starts this recipe brings none of that name.
func (r *reader) unbound() {
	for _, on := range r.recipe.On {
		if on.Schedule == nil {
			return
		}
	}
	names := []string{"trigger", "payload", "now", "today", "job_id", "job_name", "at", "firing"}
	for name := range r.bound {
		names = append(names, name)
	}
	warn := func(at recipe.Place, t *recipe.Template) {
		if t == nil {
			return
		}
		for _, name := range t.Names() {
			if slices.Contains(names, name) {
				continue
			}
			fix := ""
			if near := recipe.Nearest(name, names); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
			}
			r.notes.Warn(at, fix, ".%s is nothing here, so it is always empty", name)
		}
	}
	recipe.Walk(r.recipe.Steps, func(s *recipe.Step) {
		warn(s.Place, s.When)
		for _, t := range s.Args {
			warn(s.Place, t)
		}
		for _, h := range s.Headers {
			warn(s.Place, h.Value)
		}
		if s.Input != nil {
			for _, f := range s.Input.Fields {
				warn(s.Place, f.Value.Text)
			}
		}
	})
}
