package recipe

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Bounds of what a recipe can ask for.
const (
	maxSteps    = 200 // in all
	maxWithin   = 8   // steps within steps
	maxBranches = 16
	maxItems    = 1000
	maxTries    = 20
)

var valueName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}$`)

const valueNameText = "it has 1 to 48 letters, digits and _, and begins with no digit"

func nameOfValue(name string) bool { return valueName.MatchString(name) }

var stepKeys = []string{"as", "when", "else", "retry", "timeout"}

// steps reads a row of steps that may refer to names, and returns what may be referred to
// after it.
func (s *strict) steps(n *Node, prefix string, names *shape, depth int) ([]*Step, *shape) {
	if n == nil || n.Kind != ListNode || len(n.Items) == 0 {
		at := Place{1, 1}
		if n != nil {
			at = n.Place
		}
		s.notes.Bad(at, "write - notify: {title: Hello}", "steps are a list with at least one step, not %s", n.what())
		return nil, names
	}
	if depth > maxWithin {
		s.notes.Bad(n.Place, "give the inner steps to a recipe of their own, and run it", "steps are nested more than %d deep", maxWithin)
		return nil, names
	}
	var out []*Step
	for i, item := range n.Items {
		if item == nil || item.Kind != MapNode {
			s.notes.Bad(n.Place, "write - notify: {title: Hello}", "step %d is %s, not a mapping", i+1, item.what())
			continue
		}
		var st *Step
		if st, names = s.step(item, fmt.Sprintf("%s%d", prefix, i), names, depth); st != nil {
			out = append(out, st)
		}
	}
	return out, names
}

func (s *strict) step(n *Node, id string, names *shape, depth int) (*Step, *shape) {
	st := &Step{Place: n.Place, Args: map[string]*Template{}}
	v, body := s.verb(n)
	if v == nil {
		return nil, names
	}
	st.Verb, st.ID = v.name, id+"-"+v.name
	if s.ids[st.ID] = n.Place; len(s.ids) == maxSteps+1 {
		s.notes.Bad(n.Place, "", "the recipe has more than %d steps", maxSteps)
	}
	if v.needs == "workflow" {
		s.notes.Bad(body.Place, "leave the step out", "%s needs a later version of ombud", v.name)
		return nil, names
	}
	if when := n.Get("when"); when != nil {
		st.When = s.template(Field{Key: "when", Place: when.Place, Value: when}, asText, names)
	}
	result := s.body(st, v, body, names, depth)
	after := names
	var els *Node
	s.keys(n, "a step", append([]string{v.name}, stepKeys...), map[string]func(Field){
		v.name:    func(Field) {},
		"when":    func(Field) {},
		"as":      func(f Field) { after = s.bind(st, v, f, names, result) },
		"else":    func(f Field) { els = f.Value },
		"retry":   func(f Field) { s.retry(st, v, f) },
		"timeout": func(f Field) { s.timeout(st, v, f) },
	})
	if els == nil {
		return st, after
	}
	if st.When == nil {
		s.notes.Bad(els.Place, "write a when, or leave out else", "else without a when is never done")
	}
	var inner *shape
	st.Else, inner = s.steps(els, st.ID+"-else-", names, depth+1)
	for name, of := range inner.fields { // what else binds is empty where else is not done
		if names.fields[name] == nil && after.fields[name] == nil {
			after = after.with(name, of)
		}
	}
	return st, after
}

// verb finds the one verb of a step.
func (s *strict) verb(n *Node) (*verb, Field) {
	var found []Field
	for _, f := range n.Fields {
		if verbOf(f.Key) != nil {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 1:
		return verbOf(found[0].Key), found[0]
	case 0:
		for _, f := range n.Fields {
			if !slices.Contains(stepKeys, f.Key) {
				s.notes.Bad(f.Place, nearFix(f.Key, VerbNames()), "%q is nothing a step can do", clip(f.Key))
				return nil, Field{}
			}
		}
		s.notes.Bad(n.Place, "it is one of "+strings.Join(VerbNames(), ", "), "the step does nothing")
	default:
		s.notes.Bad(found[1].Place, "write a step for each", "a step does one thing, and this one has %s and %s", found[0].Key, found[1].Key)
	}
	return nil, Field{}
}

// bind gives the result of a step its name.
func (s *strict) bind(st *Step, v *verb, f Field, names, result *shape) *shape {
	st.As = s.word(f)
	switch {
	case st.As == "":
		return names
	case v.result == nil:
		s.notes.Bad(f.Place, "leave as out", "%s has no result that could be called %q", v.name, st.As)
		return names
	case !nameOfValue(st.As):
		s.notes.Bad(f.Value.Place, "", "%q is no name of a result: %s", clip(st.As), valueNameText)
		return names
	case slices.Contains(given, st.As):
		s.notes.Bad(f.Value.Place, "take another name", "every recipe has .%s already", st.As)
		return names
	case names.fields[st.As] != nil:
		s.notes.Bad(f.Value.Place, "take another name", "%q is the name of another result already", st.As)
		return names
	}
	return names.with(st.As, result)
}

func (s *strict) retry(st *Step, v *verb, f Field) {
	if !v.outside || f.Value == nil || f.Value.Kind != MapNode {
		if !v.outside {
			s.notes.Bad(f.Place, "put it on a step within", "%s cannot be tried again as a whole", v.name)
		} else {
			s.notes.Bad(f.Place, "write retry: {attempts: 3, backoff: 30s}", "retry takes attempts and backoff, not %s", f.Value.what())
		}
		return
	}
	st.Retry = &Retry{}
	s.keys(f.Value, "retry", []string{"attempts", "backoff"}, map[string]func(Field){
		"attempts": func(f Field) { st.Retry.Attempts = s.number(f, maxTries) },
		"backoff":  func(f Field) { st.Retry.Backoff = s.length(f) },
	})
	if a := f.Value.Get("attempts"); a == nil || a.Text == "1" {
		s.notes.Bad(f.Place, "write attempts: 3", "retry with fewer than 2 attempts never tries again")
	}
}

// timed are the verbs that work while they are under way, and so can be stopped in time.
// The others wait for somebody else, as a row.
var timed = []string{"http", "tool", "gateway", "recall"}

func (s *strict) timeout(st *Step, v *verb, f Field) {
	if !slices.Contains(timed, v.name) {
		s.notes.Bad(f.Place, "timeout goes with "+strings.Join(timed, ", ")+", and in the keys of wait_signal", "%s has no timeout", v.name)
		return
	}
	st.Timeout = s.length(f)
}

func (s *strict) template(f Field, u use, names *shape) *Template {
	if f.Value == nil || f.Value.Kind != TextNode {
		s.notes.Bad(f.Place, "", "%s takes a text, not %s", f.Key, f.Value.what())
		return nil
	}
	return newTemplate(f.Value, u, false, names, s.notes)
}

// body reads what the verb takes, and says what is known of its result.
func (s *strict) body(st *Step, v *verb, f Field, names *shape, depth int) *shape {
	n := f.Value
	if n == nil || n.Kind != MapNode {
		if v.main == "" || n == nil || n.Kind != TextNode {
			fix := fmt.Sprintf("write %s: {%s: …}", v.name, v.args[0].name)
			s.notes.Bad(f.Place, fix, "%s takes %s, not %s", v.name, strings.Join(v.argNames(), ", "), n.what())
			return v.result
		}
		n = &Node{Kind: MapNode, Place: n.Place, Fields: []Field{{Key: v.main, Place: n.Place, Value: n}}}
	}
	read := map[string]func(Field){}
	for _, a := range v.args {
		read[a.name] = func(f Field) { s.arg(st, a, f, names) }
	}
	s.keys(n, v.name, v.argNames(), read)
	for _, a := range v.args {
		if a.required && n.Get(a.name) == nil {
			s.notes.Bad(f.Place, fmt.Sprintf("write %s: {%s: …}", v.name, a.name), "%s needs %s", v.name, a.name)
		}
	}
	switch v.name {
	case "foreach":
		return s.foreach(st, n, names, depth)
	case "parallel":
		return s.parallel(st, n, names, depth)
	case "wait_signal":
		s.signal(st, n)
	case "run":
		s.target(st, n)
	case "tool":
		if name := n.Get("name"); name != nil && (name.Kind != TextNode || strings.Contains(name.Text, "{{") || name.Text == "") {
			s.notes.Bad(name.Place, "write the name of one tool", "which tool is used cannot depend on a value")
		} else if name != nil {
			st.Args["name"] = &Template{src: name.Text, file: s.recipe.File, at: name.Place}
		}
	case "http":
		if n.Get("body") != nil && n.Get("json") != nil {
			s.notes.Bad(n.Get("json").Place, "leave out one", "body and json are the same thing twice")
		}
		if m := st.Args["method"]; (m == nil || m.src == "GET" || m.src == "HEAD") && (n.Get("body") != nil || n.Get("json") != nil) {
			s.notes.Bad(f.Place, "write method: POST", "a GET request has no body")
		}
	}
	return v.result
}

// arg reads one key of a verb.
func (s *strict) arg(st *Step, a argument, f Field, names *shape) {
	switch a.kind {
	case special:
	case headers:
		if f.Value == nil || f.Value.Kind != MapNode {
			s.notes.Bad(f.Place, "write headers: {Accept: text/plain}", "headers takes names and values, not %s", f.Value.what())
			return
		}
		for _, h := range f.Value.Fields {
			if !HeaderName(h.Key) {
				s.notes.Bad(h.Place, "", "%q is no name of a header", clip(h.Key))
			}
			if t := s.template(h, asHeader, names); t != nil {
				st.Headers = append(st.Headers, Header{h.Key, t})
			}
		}
	case tree:
		st.Input = s.tree(f.Value, names)
		if f.Key == "input" && f.Value != nil && f.Value.Kind != MapNode {
			s.notes.Bad(f.Place, "write input: {key: value}", "input takes the keys of the tool, not %s", f.Value.what())
		}
	default:
		t := s.template(f, a.use, names)
		if t == nil {
			return
		}
		st.Args[a.name] = t
		if t.Plain() {
			s.plain(a, f)
		}
	}
}

// plain checks a value that does not depend on anything.
func (s *strict) plain(a argument, f Field) {
	switch {
	case a.kind == length:
		s.length(f)
	case a.kind == count:
		s.number(f, maxItems)
	case len(a.words) > 0:
		s.oneOf(f, a.words...)
	case a.required && strings.TrimSpace(f.Value.Text) == "":
		s.notes.Bad(f.Place, "", "%s is empty", f.Key)
	}
}

// HeaderName reports whether a text is the name of a header.
func HeaderName(name string) bool {
	return name != "" && len(name) <= 100 &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// tree reads a value whose texts are templates. What was written without quotes and is a
// number, a truth value or null in JSON is that.
func (s *strict) tree(n *Node, names *shape) *Tree {
	switch {
	case n == nil || n.Kind == NullNode:
		return &Tree{Value: json.RawMessage("null")}
	case n.Kind == MapNode:
		t := &Tree{Object: true}
		for _, f := range n.Fields {
			t.Fields = append(t.Fields, TreeField{f.Key, s.tree(f.Value, names)})
		}
		return t
	case n.Kind == ListNode:
		t := &Tree{Array: true}
		for _, i := range n.Items {
			t.Items = append(t.Items, s.tree(i, names))
		}
		return t
	case n.Bare && plainJSON(n.Text):
		return &Tree{Value: json.RawMessage(n.Text)}
	}
	return &Tree{Text: newTemplate(n, asText, false, names, s.notes)}
}

func plainJSON(text string) bool {
	return json.Valid([]byte(text)) && text != "" && strings.IndexByte(`"[{`, text[0]) < 0
}

func (s *strict) signal(st *Step, n *Node) {
	if name := n.Get("name"); name != nil {
		if name.Kind != TextNode || !nameRule.MatchString(name.Text) {
			s.notes.Bad(name.Place, "", "%q is no name of a signal: it has %s", clip(name.Text), nameText)
		}
		st.Args["name"] = &Template{src: name.Text, at: name.Place}
	}
	if t := n.Get("timeout"); t != nil {
		st.Timeout = s.length(Field{Key: "timeout", Place: t.Place, Value: t})
	}
}

func (s *strict) target(st *Step, n *Node) {
	t := n.Get("target")
	if t == nil {
		return
	}
	kind, name, ok := strings.Cut(t.Text, ":")
	if t.Kind != TextNode || !ok || kind != "recipe" && kind != "loop" || !ValidName(name) {
		s.notes.Bad(t.Place, "write run: recipe:NAME or run: loop:NAME", "%q is nothing that can be run", clip(t.Text))
		return
	}
	st.Args["target"] = &Template{src: t.Text, at: t.Place}
}

func (s *strict) foreach(st *Step, n *Node, names *shape, depth int) *shape {
	loop := &Foreach{Var: "item", Limit: 100, Concurrency: 1}
	st.Foreach = loop
	element := anyShape
	if in := n.Get("in"); in != nil {
		switch in.Kind {
		case TextNode:
			loop.In = newTemplate(in, asText, false, names, s.notes)
		case ListNode:
			element = textShape
			for _, i := range in.Items {
				if i == nil || i.Kind != TextNode {
					s.notes.Bad(in.Place, "", "an item is a text, not %s", i.what())
				} else if t := newTemplate(i, asText, false, names, s.notes); t != nil {
					loop.List = append(loop.List, t)
				}
			}
		default:
			s.notes.Bad(in.Place, `write in: "{{ .payload.items }}"`, "in takes a list, or a text that renders one, not %s", in.what())
		}
	}
	if v := n.Get("var"); v != nil {
		loop.Var = v.Text
		if v.Kind != TextNode || !nameOfValue(v.Text) {
			s.notes.Bad(v.Place, "", "%q is no name of an item: %s", clip(v.Text), valueNameText)
		}
	}
	if names.fields[loop.Var] != nil || slices.Contains(given, loop.Var) {
		s.notes.Bad(n.Place, "write var: NAME with another name", "%q is the name of something else already", loop.Var)
	}
	for key, to := range map[string]*int{"limit": &loop.Limit, "concurrency": &loop.Concurrency} {
		if k := n.Get(key); k != nil {
			most := map[string]int{"limit": maxItems, "concurrency": maxBranches}[key]
			*to = s.number(Field{Key: key, Place: k.Place, Value: k}, most)
		}
	}
	if len(loop.List) > loop.Limit {
		s.notes.Bad(n.Place, fmt.Sprintf("write limit: %d", len(loop.List)), "the list has %d items, and the limit is %d", len(loop.List), loop.Limit)
	}
	inner := names.with(loop.Var, element).with("index", textShape)
	var made *shape
	if do := n.Get("do"); do != nil {
		loop.Do, made = s.steps(do, st.ID+"-do-", inner, depth+1)
	}
	return &shape{elem: added(inner, made)}
}

// added is what made has and before has not.
func added(before, made *shape) *shape {
	out := &shape{fields: map[string]*shape{}}
	if made == nil {
		return out
	}
	for name, of := range made.fields {
		if before.fields[name] == nil {
			out.fields[name] = of
		}
	}
	return out
}

func (s *strict) parallel(st *Step, n *Node, names *shape, depth int) *shape {
	join := &Join{How: "all"}
	st.Join = join
	result := &shape{fields: map[string]*shape{}}
	if how := n.Get("join"); how != nil {
		join.How = s.oneOf(Field{Key: "join", Place: how.Place, Value: how}, joins...)
	}
	if q := n.Get("quorum"); q != nil {
		join.Quorum = s.number(Field{Key: "quorum", Place: q.Place, Value: q}, maxBranches)
	}
	branches := n.Get("branches")
	if branches == nil || branches.Kind != MapNode || len(branches.Fields) == 0 {
		if branches != nil {
			s.notes.Bad(branches.Place, "write branches: {one: [steps], two: [steps]}", "branches takes names with steps, not %s", branches.what())
		}
		return result
	}
	if len(branches.Fields) > maxBranches {
		s.notes.Bad(branches.Place, "use foreach", "there are %d branches; at most %d are taken", len(branches.Fields), maxBranches)
	}
	seen := map[string]string{}
	for _, b := range branches.Fields {
		if !nameOfValue(b.Key) {
			s.notes.Bad(b.Place, "", "%q is no name of a branch: %s", clip(b.Key), valueNameText)
		}
		if other, twice := seen[strings.ToLower(b.Key)]; twice {
			s.notes.Bad(b.Place, "take another name", "the branches %q and %q have one name but for its letters' case", other, b.Key)
		}
		seen[strings.ToLower(b.Key)] = b.Key
		steps, made := s.steps(b.Value, st.ID+"-"+b.Key+"-", names, depth+1)
		join.Branches = append(join.Branches, Branch{Name: b.Key, Steps: steps, Place: b.Place})
		of := added(names, made)
		for _, own := range []string{"state", "error"} {
			if of.fields[own] != nil {
				s.notes.Bad(b.Place, "take another name for it", "the branch %s has a result called %q, which says how the branch ended", b.Key, own)
			}
		}
		of.fields["state"], of.fields["error"] = textShape, textShape
		result.fields[b.Key] = of
	}
	s.quorum(join, n)
	return result
}

func (s *strict) quorum(j *Join, n *Node) {
	at := n.Place
	if q := n.Get("quorum"); q != nil {
		at = q.Place
	}
	switch {
	case j.How == "quorum" && j.Quorum == 0:
		s.notes.Bad(at, "write quorum: 2", "join: quorum does not say how many branches make one")
	case j.How != "quorum" && j.Quorum > 0:
		s.notes.Bad(at, "write join: quorum", "quorum has no meaning with join: %s", j.How)
	case j.Quorum > len(j.Branches):
		s.notes.Bad(at, "", "%d of %d branches cannot be reached", j.Quorum, len(j.Branches))
	}
}

// errOf is the fault of a place in a recipe, found while it ran.
func (r *Recipe) errOf(st *Step, err error) error {
	return fault.New(fault.ClassOf(err), "%s:%d: step %s: %w", r.File, st.Line, st.ID, err)
}
