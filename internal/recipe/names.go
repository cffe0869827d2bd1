package recipe

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/loops"
)

// Names are what a recipe that was ejected renders its texts with: the values that the
// steps of the recipe could refer to. The first error is kept; what is rendered after it is
// empty.
type Names struct {
	r   *Recipe
	v   *values
	k   Flow
	err error
}

// NewNames returns the names of a run of r, of which only the head is looked at: its name
// and format, its inputs, and the zones of its schedules.
func NewNames(k *loops.Kit, r *Recipe) (*Names, error) {
	r.File = r.Name
	v, err := r.begin(k.Fence, r.start(k.Trigger(), k.Run().Record().Created))
	if err != nil {
		return nil, err
	}
	return &Names{r: r, v: v, k: &worked{Kit: k, r: k.Run()}}, nil
}

// Err is the first error of rendering, nil if there was none.
func (n *Names) Err() error { return n.err }

// Set binds a name. from says whose words the value is, "" for the loop's own.
func (n *Names) Set(name string, value any, from string) { n.v.set(name, value, from) }

func (n *Names) render(src string, u use) string {
	if n.err != nil {
		return ""
	}
	notes := &Notes{File: n.r.File}
	t := newTemplate(&Node{Kind: TextNode, Text: src}, u, n.r.Foreign, nil, notes)
	if n.err = Fault(notes.Problems); n.err != nil {
		return ""
	}
	out, err := t.render(n.v)
	n.err = err
	return out
}

// Text renders a text, Prompt one that a model reads, URL an address, Header the value of a
// header.
func (n *Names) Text(src string) string { return n.render(src, asText) }

// Prompt renders what a model reads: others' words are marked.
func (n *Names) Prompt(src string) string { return n.render(src, asPrompt) }

// URL renders an address.
func (n *Names) URL(src string) string { return strings.TrimSpace(n.render(src, asURL)) }

// Header renders the value of a header.
func (n *Names) Header(src string) string { return n.render(src, asHeader) }

// If reports whether a condition holds.
func (n *Names) If(src string) bool { return Truthy(n.render(src, asText)) && n.err == nil }

// Length renders how long something takes.
func (n *Names) Length(src string) time.Duration {
	text := n.render(src, asText)
	if n.err != nil {
		return 0
	}
	d, err := Length(text)
	n.err = err
	return d
}

// Count renders a whole number.
func (n *Names) Count(src string) int {
	var out int
	if text := n.render(src, asText); n.err == nil {
		n.err = json.Unmarshal([]byte(strings.TrimSpace(text)), &out)
	}
	return out
}

// JSON renders a JSON value whose texts are templates.
func (n *Names) JSON(src string) json.RawMessage {
	var x any
	if n.err == nil {
		x, n.err = decode(json.RawMessage(src))
	}
	if n.err != nil {
		return nil
	}
	t := n.tree(x)
	if n.err != nil {
		return nil
	}
	raw, err := t.render(n.v)
	n.err = err
	return raw
}

func (n *Names) tree(x any) *Tree {
	switch x := x.(type) {
	case string:
		notes := &Notes{File: n.r.File}
		t := newTemplate(&Node{Kind: TextNode, Text: x}, asText, n.r.Foreign, nil, notes)
		if err := Fault(notes.Problems); err != nil {
			n.err, t = err, &Template{}
		}
		return &Tree{Text: t}
	case object:
		t := &Tree{Object: true}
		for key, v := range x {
			t.Fields = append(t.Fields, TreeField{key, n.tree(v)})
		}
		return t
	case []any:
		t := &Tree{Array: true}
		for _, v := range x {
			t.Items = append(t.Items, n.tree(v))
		}
		return t
	}
	raw, err := json.Marshal(x)
	if err != nil {
		n.err = err
	}
	return &Tree{Value: raw}
}

// Answer is the body of a response that is a success.
func (n *Names) Answer(r loops.HTTPResponse) (string, error) {
	if r.Status < 200 || r.Status > 299 {
		return "", fault.New(fault.Unavailable, "the answer of the server is %d", r.Status)
	}
	return r.Body, nil
}

// Again does a step as often as it may be tried, each time under another name.
func (n *Names) Again(ctx context.Context, step string, attempts int, backoff time.Duration, do func(step string) error) error {
	return repeat(ctx, n.k, &Retry{attempts, backoff}, step, do)
}

// Within does a step within its time.
func (n *Names) Within(ctx context.Context, d time.Duration, do func(ctx context.Context) error) error {
	return within(ctx, n.k, &Step{Timeout: d, Verb: "a step"}, do)
}

// Items is the list that a text renders: JSON, or a line for an item.
func (n *Names) Items(src string, limit int) (list []any, from string) {
	if n.err != nil {
		return nil, ""
	}
	notes := &Notes{File: n.r.File}
	t := newTemplate(&Node{Kind: TextNode, Text: src}, asText, n.r.Foreign, nil, notes)
	if n.err = Fault(notes.Problems); n.err != nil {
		return nil, ""
	}
	list, n.err = (&worker{}).items(&Step{Foreach: &Foreach{In: t, Limit: limit}}, n.v)
	return list, n.v.fromOf(t)
}

// Each does steps for each item, and returns what each round has bound. What is recorded
// in a round begins with in.
func (n *Names) Each(ctx context.Context, step, name string, list []any, from string, lanes int, do func(ctx context.Context, n *Names, in string) error) ([]any, error) {
	return rounds(ctx, n.k, step, len(list), lanes, func(ctx context.Context, i int) (object, error) {
		inner := n.inner()
		inner.Set(name, list[i], from)
		inner.Set("index", int64(i), "")
		if err := do(ctx, inner, roundName(step, i)); err != nil {
			return nil, err
		}
		return inner.made(n, name, "index"), nil
	})
}

// Line is one branch of Side.
type Line struct {
	Name  string
	Binds []string // what its steps give names to
	Do    func(ctx context.Context, n *Names) error
}

// Side does branches side by side, and tells how each ended.
func (n *Names) Side(ctx context.Context, step, how string, quorum int, lines ...Line) (any, error) {
	branches, names := make([]Strand, len(lines)), make([][]string, len(lines))
	for i, l := range lines {
		names[i] = l.Binds
		branches[i] = Strand{Name: l.Name, Do: func(ctx context.Context) (json.RawMessage, error) {
			inner := n.inner()
			if err := l.Do(ctx, inner); err != nil {
				return nil, err
			}
			return json.Marshal(inner.made(n))
		}}
	}
	return side(ctx, n.k, step, how, quorum, branches, names)
}

func (n *Names) inner() *Names {
	return &Names{r: n.r, v: n.v.inner(), k: n.k}
}

// made is what n has and outer has not, less the names given.
func (n *Names) made(outer *Names, less ...string) object {
	out := object{}
	for name, x := range n.v.names {
		if _, there := outer.v.names[name]; !there && !slices.Contains(less, name) {
			out[name] = x
		}
	}
	return out
}

// Use is the result of a tool: what it says in JSON has parts.
func (n *Names) Use(out string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return parts(out, n.r.Foreign), nil
}

// Lines are the hits of a search, a line each.
func (n *Names) Lines(hits []string, err error) (string, error) { return strings.Join(hits, "\n"), err }

// Value is a JSON value.
func (n *Names) Value(raw json.RawMessage, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return decode(raw)
}
