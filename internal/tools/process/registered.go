package process

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	maxTools       = 128     // of one process
	maxDescription = 4 << 10 // bytes a model is shown
	maxRegister    = 4 << 20 // bytes of all that is registered
	maxSummary     = 1 << 10 // bytes a person is shown of an input
	maxSaid        = 2 << 10 // bytes of an error a process gives
)

// registration is what a process registered, as it is kept: each tool in its shortest
// form, in order, so that the same tools are the same bytes.
type registration struct {
	Process string            `json:"process,omitempty"` // what it calls itself
	Tools   []json.RawMessage `json:"tools"`
}

// registered reads a ToolRegister.
func registered(m fromTool) (registration, error) {
	major, _, _ := strings.Cut(Version, ".")
	if v, _, _ := strings.Cut(m.ProtocolVersion, "."); v != "" && v != major {
		return registration{}, errProtocol("it speaks version %s, ombud speaks %s", guard.OneLine(m.ProtocolVersion, 20), Version).
			WithHint("look for a version of the tool for protocol %s", Version)
	}
	if len(m.Tools) > maxTools {
		return registration{}, errProtocol("it registers %d tools, at most %d", len(m.Tools), maxTools)
	}
	reg := registration{Process: guard.OneLine(m.Process, 64), Tools: []json.RawMessage{}}
	size := 0
	for _, raw := range m.Tools {
		reg.Tools = append(reg.Tools, compact(raw))
		size += len(raw)
	}
	if size > maxRegister {
		return registration{}, errProtocol("what it registers has %d bytes, at most %d", size, maxRegister)
	}
	slices.SortFunc(reg.Tools, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	return reg, nil
}

func (r registration) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("process: checked JSON does not marshal: " + err.Error())
	}
	return b
}

// descriptor is a tool as its process describes it.
type descriptor struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	InputSchema   json.RawMessage `json:"input_schema"`
	RequiredScope string          `json:"required_scope"`
}

// Tool is what became of a tool that a process registered.
type Tool struct {
	Name        string   // as ombud knows it: NAME.tool
	Description string   //
	Needs       []string // scopes a call needs; none if it is refused
	Says        string   // the scope the process says it needs
	ReadOnly    bool     //
	Repeatable  bool     //
	Refused     string   // why it cannot be used

	local    string // as the process knows it
	revision string
}

// judge says what becomes of each tool, before the registry looks at it.
func (s *Spec) judge(reg registration) []Tool {
	out := make([]Tool, 0, len(reg.Tools))
	for i, raw := range reg.Tools {
		t, err := s.judgeOne(raw)
		if err != nil {
			t.Refused, t.Needs = err.Error(), nil
			if hint := fault.HintOf(err); hint != "" {
				t.Refused += " (" + hint + ")"
			}
		}
		if t.Name == "" {
			t.Name = fmt.Sprintf("%s.#%d", s.Name, i+1)
		}
		out = append(out, t)
	}
	return out
}

func (s *Spec) judgeOne(raw json.RawMessage) (t Tool, err error) {
	var d descriptor
	if err := json.Unmarshal(raw, &d); err != nil {
		return t, fmt.Errorf("its description cannot be read: %w", err)
	}
	t.local = d.Name
	local := strings.TrimPrefix(d.Name, s.Name+".")
	t.Description, _ = guard.CutText(guard.CleanText(d.Description), maxDescription)
	t.Says = guard.OneLine(d.RequiredScope, 200)
	if !toolForm.MatchString(local) {
		return t, fmt.Errorf("%q is no name of a tool", guard.OneLine(d.Name, maxExcerpt))
	}
	t.Name = s.Name + "." + local
	if !s.lists(local) {
		return t, errors.New("it is not among the tools the operator listed")
	}
	if d.RequiredScope == "" {
		return t, errors.New("it names no scope it needs")
	}
	need, err := scope.Parse(d.RequiredScope)
	if err != nil {
		return t, err
	}
	if narrow, ok := s.narrowed(local); ok {
		if !need.Covers(narrow) {
			return t, fmt.Errorf("the operator's %s is not within %s, which it says it needs; a scope can only be narrowed", narrow, need)
		}
		need = narrow
	}
	if !s.allows(local, need) {
		return t, fmt.Errorf("it asks for %s, which is more than the operator allowed: %s", need, s.ceiling(local))
	}
	own, err := scope.Of("tool", t.Name)
	if err != nil {
		return t, err
	}
	t.Needs = []string{own.String()}
	if !need.Covers(own) && !s.itself(need) {
		t.Needs = append(t.Needs, need.String())
	}
	t.ReadOnly = slices.Contains(s.Reads, local)
	t.Repeatable = t.ReadOnly || slices.Contains(s.Repeatable, local)
	t.revision, err = s.revision(raw)
	return t, err
}

// revision is over all an approval of a call is bound to beside what a model is told:
// the tool as it was registered, and the program and its walls.
func (s *Spec) revision(raw json.RawMessage) (string, error) {
	spec, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	canonical, err := tool.Canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(append(spec, 0), canonical...))
	return hex.EncodeToString(sum[:]), nil
}

// definition is a tool that may be used, for the registry. held says whether the walls
// of the process hold now.
func (s *Spec) definition(raw json.RawMessage, t Tool, held func() bool) (tool.Definition, error) {
	var d descriptor
	if err := json.Unmarshal(raw, &d); err != nil {
		return tool.Definition{}, err
	}
	var needs []scope.Scope
	reads := true
	for i, text := range t.Needs {
		need, err := scope.Parse(text)
		if err != nil {
			return tool.Definition{}, err
		}
		needs = append(needs, need)
		reads = reads && (i == 0 && len(t.Needs) > 1 || need.Base().ReadOnly())
	}
	def := tool.Definition{
		Name: t.Name, Description: t.Description, Input: d.InputSchema, Kind: tool.Effect,
		ReadOnly: t.ReadOnly, Irreversible: !t.ReadOnly && !reads, Repeat: tool.AtMostOnce,
		Timeout: s.CallTimeout(), MaxOutput: maxOutput, Source: label.Untrusted("tool:" + s.Name), Revision: t.revision,
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return slices.Clone(needs), nil },
		Summary: func(input json.RawMessage) string { return t.Name + " " + guard.OneLine(string(input), maxSummary) },
	}
	if t.Repeatable {
		def.Repeat = tool.Repeatable
	}
	if len(s.Write) > 0 { // its own directory is nobody's work tree
		def.Touches = func(json.RawMessage) []string { return slices.Clone(s.Write) }
	}
	def.Destination = func(json.RawMessage) tool.Destination {
		if networks[s.Network] == 0 && held() {
			return tool.Destination{Nobody: true}
		}
		return tool.Destination{Readers: label.Anyone, Name: "whatever " + s.Name + " talks to"}
	}
	return def, nil
}

// difference says in a few words how one registration differs from another.
func difference(before, after registration) changes {
	type named struct{ raw string }
	index := func(r registration) map[string]named {
		out := map[string]named{}
		for _, raw := range r.Tools {
			var d descriptor
			name := excerpt(raw)
			if json.Unmarshal(raw, &d) == nil {
				name = guard.OneLine(d.Name, maxExcerpt)
			}
			out[name] = named{out[name].raw + string(raw)}
		}
		return out
	}
	var c changes
	was, is := index(before), index(after)
	for name, t := range is {
		switch old, there := was[name]; {
		case !there:
			c.Added = append(c.Added, name)
		case old != t:
			c.Changed = append(c.Changed, name)
		}
	}
	for name := range was {
		if _, there := is[name]; !there {
			c.Removed = append(c.Removed, name)
		}
	}
	for _, list := range [][]string{c.Added, c.Changed, c.Removed} {
		slices.Sort(list)
	}
	return c
}

// changes are the names of tools that differ.
type changes struct {
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

func (c changes) String() string {
	var parts []string
	for _, p := range []struct {
		what string
		list []string
	}{{"new", c.Added}, {"changed", c.Changed}, {"gone", c.Removed}} {
		if len(p.list) > 0 {
			parts = append(parts, p.what+": "+strings.Join(p.list, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
