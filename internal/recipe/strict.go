package recipe

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/trigger"
)

// Reader makes a recipe of a file that is not in this package's format.
type Reader func(file string, data []byte, now time.Time) (*Recipe, []Problem)

// Read makes a recipe of a file, or says all that is wrong with it. foreign reads a file
// without the mark of this format; nil takes none.
func Read(file string, data []byte, now time.Time, foreign Reader) (*Recipe, []Problem) {
	notes := &Notes{File: file}
	n := Parse(data, foreign != nil, notes)
	if n == nil {
		return nil, notes.Problems
	}
	if n.Kind != MapNode {
		notes.Bad(n.Place, "ombud recipe example shows one", "a recipe is a mapping with name, on and steps; this is %s", n.what())
		return nil, notes.Problems
	}
	if n.Get(MarkKey) == nil {
		if foreign != nil {
			return foreign(file, data, now)
		}
		notes.Bad(n.Place, fmt.Sprintf("write %s: %s first", MarkKey, Mark), "the file does not say what it is")
		return nil, notes.Problems
	}
	if n = Parse(data, false, notes); n == nil {
		return nil, notes.Problems
	}
	s := &strict{notes: notes, now: now, recipe: &Recipe{File: file, Enabled: true}, ids: map[string]Place{}}
	s.file(n)
	if len(notes.Problems) > 0 {
		return nil, notes.Problems
	}
	s.recipe.Warnings = notes.Warnings
	return s.recipe, nil
}

type strict struct {
	notes  *Notes
	now    time.Time
	recipe *Recipe
	ids    map[string]Place
	later  map[string]int
}

var topKeys = []string{MarkKey, "name", "description", "enabled", "on", "inputs", "grants", "steps"}

// keys calls read for each field of a mapping that has a reader, and notes the others.
func (s *strict) keys(n *Node, what string, known []string, read map[string]func(Field)) {
	for _, f := range n.Fields {
		if fn := read[f.Key]; fn != nil {
			fn(f)
			continue
		}
		s.notes.Bad(f.Place, nearFix(f.Key, known), "%s has no key %q", what, f.Key)
	}
}

func (s *strict) file(n *Node) {
	s.later = map[string]int{}
	later(n, s.later)
	r := s.recipe
	s.keys(n, "a recipe", topKeys, map[string]func(Field){
		MarkKey: func(f Field) {
			if f.Value.Kind != TextNode || f.Value.Text != Mark {
				s.notes.Bad(f.Place, "write "+MarkKey+": "+Mark, "%q is no format of a recipe that is known here", clip(f.Value.Text))
			}
		},
		"name": func(f Field) {
			r.Called = f.Place
			if r.Name = s.word(f); r.Name != "" && !ValidName(r.Name) {
				s.notes.Bad(f.Value.Place, "", "%q is no name of a recipe: it has %s", clip(r.Name), nameText)
			}
		},
		"description": func(f Field) { r.Description = s.word(f) },
		"enabled":     func(f Field) { r.Enabled = s.truth(f) },
		"on":          func(Field) {},
		"inputs":      s.inputs,
		"grants":      s.grants,
		"steps":       func(Field) {},
	})
	if n.Get("name") == nil {
		s.notes.Bad(n.Place, "write name: morning-briefing", "a recipe needs a name")
	}
	if on := n.Get("on"); on != nil {
		s.triggers(on)
	} else {
		s.notes.Bad(n.Place, "write on: {manual: true}, or a schedule, an event or a webhook", "nothing starts this recipe")
	}
	steps := n.Get("steps")
	if steps == nil {
		s.notes.Bad(n.Place, "", "a recipe needs steps")
		return
	}
	r.Steps, _ = s.steps(steps, "", s.names(), 0)
}

// later collects which names are bound in which line.
func later(n *Node, out map[string]int) {
	if n == nil {
		return
	}
	for _, f := range n.Fields {
		if f.Key == "as" && f.Value != nil && f.Value.Kind == TextNode {
			out[f.Value.Text] = f.Line
		}
		later(f.Value, out)
	}
	for _, i := range n.Items {
		later(i, out)
	}
}

// names are those every recipe has.
func (s *strict) names() *shape {
	inputs := &shape{fields: map[string]*shape{}}
	for _, in := range s.recipe.Inputs {
		inputs.fields[in.Name] = anyShape
	}
	trigger := &shape{fields: map[string]*shape{}}
	for _, name := range []string{"kind", "name", "at", "event", "event_kind"} {
		trigger.fields[name] = textShape
	}
	return &shape{later: s.later, fields: map[string]*shape{
		"trigger": trigger, "payload": anyShape, "inputs": inputs, "now": textShape, "today": textShape, "recipe": textShape,
	}}
}

var given = []string{"trigger", "payload", "inputs", "now", "today", "recipe"}

func (s *strict) word(f Field) string {
	if f.Value == nil || f.Value.Kind != TextNode || strings.TrimSpace(f.Value.Text) == "" {
		s.notes.Bad(f.Place, "", "%s takes a text, not %s", f.Key, f.Value.what())
		return ""
	}
	return f.Value.Text
}

func (s *strict) oneOf(f Field, words ...string) string {
	w := s.word(f)
	if w != "" && !slices.Contains(words, w) {
		s.notes.Bad(f.Value.Place, nearFix(w, words), "%s cannot be %q", f.Key, clip(w))
	}
	return w
}

func (s *strict) truth(f Field) bool {
	v, ok := f.Value.Truth()
	if !ok {
		s.notes.Bad(f.Place, "write true or false", "%s is true or false", f.Key)
	}
	return v
}

func (s *strict) length(f Field) time.Duration {
	w := s.word(f)
	if w == "" {
		return 0
	}
	d, err := Length(w)
	if err != nil {
		s.notes.Bad(f.Value.Place, fault.HintOf(err), "%s: %v", f.Key, err)
	}
	return d
}

func (s *strict) number(f Field, most int) int {
	w := s.word(f)
	if w == "" {
		return 1
	}
	k, err := strconv.Atoi(w)
	if err != nil || k < 1 || k > most {
		s.notes.Bad(f.Value.Place, "", "%s is a whole number from 1 to %d", f.Key, most)
		return 1
	}
	return k
}

// words reads a text, or a list of texts.
func (s *strict) words(f Field) (out []string) {
	list := []*Node{f.Value}
	if f.Value != nil && f.Value.Kind == ListNode {
		list = f.Value.Items
	}
	for _, n := range list {
		if n == nil || n.Kind != TextNode || n.Text == "" {
			s.notes.Bad(f.Place, "", "%s takes texts, not %s", f.Key, n.what())
			continue
		}
		out = append(out, n.Text)
	}
	if len(list) == 0 {
		s.notes.Bad(f.Place, "", "%s is empty", f.Key)
	}
	return out
}

var triggerKinds = []string{"schedule", "event", "webhook", "manual"}

func (s *strict) triggers(n *Node) {
	list := []*Node{n}
	if n.Kind == ListNode {
		list = n.Items
	}
	if len(list) == 0 || n.Kind == TextNode || n.Kind == NullNode {
		s.notes.Bad(n.Place, "write on: {manual: true}, or a schedule, an event or a webhook", "nothing starts this recipe")
		return
	}
	for _, t := range list {
		if t == nil || t.Kind != MapNode {
			s.notes.Bad(n.Place, "write - schedule: \"30 8 * * *\"", "what starts a recipe is a mapping, not %s", t.what())
			continue
		}
		s.trigger(t)
	}
}

func (s *strict) trigger(n *Node) {
	var kinds []string
	for _, k := range triggerKinds {
		if n.Get(k) != nil {
			kinds = append(kinds, k)
		}
	}
	switch {
	case len(kinds) == 0:
		fix := "it is one of " + strings.Join(triggerKinds, ", ")
		if len(n.Fields) > 0 {
			fix = nearFix(n.Fields[0].Key, triggerKinds)
		}
		s.notes.Bad(n.Place, fix, "this is nothing that starts a recipe")
		return
	case len(kinds) > 1:
		s.notes.Bad(n.Place, "write a list with one each", "%s stand in one trigger", strings.Join(kinds, " and "))
		return
	}
	on := On{Place: n.Place}
	switch kinds[0] {
	case "schedule":
		on.Schedule = s.schedule(n)
	case "event":
		on.Event = s.event(n)
	case "webhook":
		on.Webhook = s.webhook(n)
	case "manual":
		s.keys(n, "a manual trigger", []string{"manual"}, map[string]func(Field){"manual": func(f Field) {
			if on.Manual = s.truth(f); !on.Manual {
				s.notes.Bad(f.Place, "leave it out", "manual: false starts nothing")
			}
		}})
	}
	s.recipe.On = append(s.recipe.On, on)
}

func (s *strict) schedule(n *Node) *Schedule {
	out := &Schedule{}
	var at Place
	s.keys(n, "a schedule", []string{"schedule", "zone", "missed", "grace", "jitter"}, map[string]func(Field){
		"schedule": func(f Field) { out.When, at = s.word(f), f.Place },
		"zone":     func(f Field) { out.Zone = s.word(f) },
		"missed":   func(f Field) { out.Missed = s.oneOf(f, "once", "skip", "all") },
		"grace":    func(f Field) { out.Grace = s.length(f) },
		"jitter":   func(f Field) { out.Jitter = s.length(f) },
	})
	CheckSchedule(out, at, s.now, s.notes)
	return out
}

// CheckSchedule notes what is wrong with a schedule: a text that cannot be read, an
// unknown zone, or that no instant of it is left.
func CheckSchedule(x *Schedule, at Place, now time.Time, notes *Notes) {
	if x.When == "" {
		return
	}
	loc, err := cron.Zone(cmpZone(x.Zone))
	if err != nil {
		notes.Bad(at, fault.HintOf(err), "%v", err)
		return
	}
	c, err := cron.Parse(x.When, loc)
	if err != nil {
		notes.Bad(at, fault.HintOf(err), "%v", err)
		return
	}
	if _, ok := c.Anchored(now).Next(now); !ok {
		notes.Bad(at, "ombud schedule next '"+x.When+"' shows when one fires", "the schedule %q never fires", x.When)
	}
	for _, note := range c.Notes() {
		notes.Warn(at, "", "%s", note)
	}
}

func cmpZone(zone string) string {
	if zone == "" {
		return "Local"
	}
	return zone
}

func (s *strict) event(n *Node) *Event {
	out := &Event{}
	s.keys(n, "an event trigger", []string{"event", "where"}, map[string]func(Field){
		"event": func(f Field) { out.Kind = s.word(f) },
		"where": func(f Field) {
			if f.Value == nil || f.Value.Kind != MapNode || len(f.Value.Fields) == 0 {
				s.notes.Bad(f.Place, "write where: {sender: Priya}", "where takes keys of the payload, not %s", f.Value.what())
				return
			}
			for _, w := range f.Value.Fields {
				out.Where = append(out.Where, s.match(w))
			}
		},
	})
	return out
}

// match reads what a key of a payload must be.
func (s *strict) match(f Field) Match {
	m := Match{Key: f.Key}
	if f.Value == nil || f.Value.Kind != MapNode {
		m.OneOf = s.words(f)
		return m
	}
	if len(f.Value.Fields) != 1 {
		s.notes.Bad(f.Place, "", "where %s takes a text, a list of texts, or one of prefix and exists", f.Key)
	}
	s.keys(f.Value, "where "+f.Key, []string{"prefix", "exists"}, map[string]func(Field){
		"prefix": func(f Field) { m.Prefix = s.word(f) },
		"exists": func(f Field) { v := s.truth(f); m.Exists = &v },
	})
	return m
}

func (s *strict) webhook(n *Node) *Webhook {
	out := &Webhook{}
	var at Place
	s.keys(n, "a webhook", []string{"webhook", "verify", "secrets", "header", "id_header"}, map[string]func(Field){
		"webhook": func(f Field) {
			at = f.Place
			if out.Path = s.word(f); out.Path != "" && !ValidPath(out.Path) {
				s.notes.Bad(f.Value.Place, "write webhook: /hooks/name", "%q is no path of a webhook", clip(out.Path))
			}
		},
		"verify":    func(f Field) { out.Verify = s.oneOf(f, trigger.Schemes...) },
		"secrets":   func(f Field) { out.Secrets = s.words(f) },
		"header":    func(f Field) { out.Header = s.header(f) },
		"id_header": func(f Field) { out.IDHeader = s.header(f) },
	})
	switch {
	case out.Verify == "":
		s.notes.Bad(at, "write verify: generic and secrets: [NAME], or verify: open if anybody may start it",
			"the webhook does not say how a request proves itself")
	case out.Verify == "open" && len(out.Secrets) > 0:
		s.notes.Bad(at, "leave out one", "the webhook is open, so nothing asks for its secrets")
	case out.Verify != "open" && len(out.Secrets) == 0:
		s.notes.Bad(at, "write secrets: [NAME] and set it with ombud secret set NAME", "the webhook names no secret")
	case len(out.Secrets) > 8:
		s.notes.Bad(at, "", "a webhook has at most 8 secrets")
	case out.Header != "" && out.Verify != string(trigger.Generic) || out.IDHeader != "" && out.Verify != string(trigger.Generic) && out.Verify != "open":
		s.notes.Bad(at, "leave it out", "verify: %s says itself where its signature and id are", out.Verify)
	}
	for _, name := range out.Secrets {
		if err := secret.CheckName(name); err != nil {
			s.notes.Bad(at, fault.HintOf(err), "%v", err)
		}
	}
	return out
}

func (s *strict) header(f Field) string {
	name := s.word(f)
	if name != "" && !HeaderName(name) {
		s.notes.Bad(f.Value.Place, "", "%q is no name of a header", clip(name))
	}
	return name
}

// ValidPath reports whether a webhook can be mounted there.
func ValidPath(path string) bool {
	rest, ok := strings.CutPrefix(path, trigger.HooksPath)
	return ok && len(rest) <= 128 && hookPath.MatchString(rest)
}

var hookPath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

var inputTypes = []string{"text", "number", "truth"}

func (s *strict) inputs(f Field) {
	if f.Value == nil || f.Value.Kind != MapNode {
		s.notes.Bad(f.Place, "write inputs: {city: {type: text}}", "inputs takes names, not %s", f.Value.what())
		return
	}
	for _, n := range f.Value.Fields {
		in := Input{Name: n.Key, Type: "text", Place: n.Place}
		if !nameOfValue(in.Name) {
			s.notes.Bad(n.Place, "", "%q is no name of an input: %s", clip(in.Name), valueNameText)
		}
		var given *Node
		if n.Value != nil && n.Value.Kind == MapNode {
			s.keys(n.Value, "an input", []string{"type", "required", "default", "description"}, map[string]func(Field){
				"type":        func(f Field) { in.Type = s.oneOf(f, inputTypes...) },
				"required":    func(f Field) { in.Required = s.truth(f) },
				"default":     func(f Field) { given = f.Value },
				"description": func(f Field) { in.Description = s.word(f) },
			})
		} else if n.Value != nil && n.Value.Kind == TextNode {
			in.Type = s.oneOf(n, inputTypes...)
		}
		if given != nil {
			raw, err := in.read(given.Text)
			if err != nil || given.Kind != TextNode {
				s.notes.Bad(given.Place, "", "the default of %s is no %s", in.Name, in.Type)
			}
			if in.Required {
				s.notes.Bad(given.Place, "leave out one", "%s is required, so nothing asks for its default", in.Name)
			}
			in.Default = raw
		}
		s.recipe.Inputs = append(s.recipe.Inputs, in)
	}
}

// read makes a value of the type of an input.
func (in Input) read(text string) (json.RawMessage, error) {
	switch in.Type {
	case "number":
		if f, err := strconv.ParseFloat(text, 64); err != nil || f != f || f > 1e300 || f < -1e300 {
			return nil, fault.New(fault.Invalid, "%s: %q is no number", in.Name, clip(text))
		}
		if !json.Valid([]byte(text)) {
			return nil, fault.New(fault.Invalid, "%s: write the number %q as 12 or 1.5", in.Name, clip(text))
		}
		return json.RawMessage(text), nil
	case "truth":
		if text != "true" && text != "false" {
			return nil, fault.New(fault.Invalid, "%s: %q is neither true nor false", in.Name, clip(text))
		}
		return json.RawMessage(text), nil
	}
	return json.Marshal(text)
}

func (s *strict) grants(f Field) {
	if f.Value == nil || f.Value.Kind != ListNode {
		s.notes.Bad(f.Place, "write grants: [\"net.fetch:https://example.com/\"]", "grants takes a list, not %s", f.Value.what())
		return
	}
	for _, n := range f.Value.Items {
		if n == nil || n.Kind != TextNode {
			s.notes.Bad(f.Place, "", "a grant is a text, not %s", n.what())
			continue
		}
		x, err := scope.ParseRule(n.Text)
		if err != nil {
			s.notes.Bad(n.Place, fault.HintOf(err), "the grant %q grants nothing: %v", clip(n.Text), err)
			continue
		}
		if i := slices.IndexFunc(s.recipe.Grants, func(g Grant) bool { return scope.Must(g.Scope).Covers(x) }); i >= 0 {
			s.notes.Bad(n.Place, "leave it out", "the grant %q grants nothing: %q covers it", clip(n.Text), s.recipe.Grants[i].Text)
			continue
		}
		if Beyond(x) {
			s.notes.Bad(n.Place, "change authority yourself, with ombud caps", "the grant %q grants nothing: no recipe changes authority", clip(n.Text))
			continue
		}
		s.recipe.Grants = append(s.recipe.Grants, Grant{Scope: x.String(), Text: n.Text, Place: n.Place})
	}
}

// Beyond reports whether no file can grant a scope: what changes authority, and secrets.
func Beyond(x scope.Scope) bool {
	switch x.Base().String() {
	case "caps.write", "role.switch", "role.update", "config.write", "secret.write":
		return true
	}
	return false
}
