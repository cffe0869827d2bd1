//go:build unix

package process

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestWhatAToolIsTakenFor(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Reads, sp.Repeatable, sp.Narrow = []string{"echo"}, []string{"slow"}, []Bound{{Tool: "env", Scope: scope.Must("tool:act.env")}}
	sp.Write = []string{"/notes"}
	s.add(sp)
	s.ready()
	def := func(name string) tool.Definition {
		d, err := s.tools.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	echo, slow, die := def("act.echo"), def("act.slow"), def("act.die")
	if !echo.ReadOnly || echo.Irreversible || echo.Repeat != tool.Repeatable {
		t.Errorf("declared to change nothing: %+v", echo)
	}
	if slow.ReadOnly || !slow.Irreversible || slow.Repeat != tool.Repeatable {
		t.Errorf("declared repeatable: %+v", slow)
	}
	if die.ReadOnly || !die.Irreversible || die.Repeat != tool.AtMostOnce {
		t.Errorf("not declared to be anything: %+v", die)
	}
	if die.Source != label.Untrusted("tool:act") || die.Timeout != defaultTimeout || die.MaxOutput != maxOutput {
		t.Errorf("%+v", die)
	}
	if got := die.Touches(nil); !slices.Equal(got, sp.Write) {
		t.Errorf("may change %v", got)
	}
	needs, err := die.Scopes(nil)
	if err != nil || len(needs) != 1 || needs[0].String() != "tool:act.die" {
		t.Errorf("needs %v, %v", needs, err)
	}
	if to := die.Destination(nil); to.Nobody || to.Readers != label.Anyone {
		t.Errorf("without walls it tells %+v", to)
	}
}

// Adding a process gives nobody anything, not even those who hold all its tools say
// they need: each call needs a scope of its own that nobody had.
func TestAToolNeedsAScopeThatNobodyHolds(t *testing.T) {
	t.Parallel()
	sp := spec("good")
	sp.Scopes = []Bound{{Scope: scope.Must("memory.read")}}
	raw := json.RawMessage(`{"name":"look","description":"d","input_schema":{"type":"object"},"required_scope":"memory.read:x"}`)
	got := sp.judge(registration{Tools: []json.RawMessage{raw}})[0]
	if !slices.Equal(got.Needs, []string{"tool:act.look", "memory.read:x"}) || got.Refused != "" {
		t.Errorf("%+v", got)
	}
}

func TestBadToolsAreQuarantinedWithAReasonAndTheGoodOneWorks(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("schemas"))
	info := s.ready()
	if got := s.says("act.good", `{}`); !strings.Contains(got, "input") {
		t.Error(got)
	}
	reasons := map[string]string{
		"act.string": "root has type string", "act.dollar": `"$.xgafv"`, "act.allof": "/allOf/0 has type string",
		"act.items": "type array without items", "act.anyof": "/anyOf/0 has type string", "act.noschema": "must be an object",
		"act.wide": "net.fetch, which is more than the operator allowed: tool:act.*", "act.malformed": "malformed path",
		"act.unknown": "did you mean fs.read", "act.none": "names no scope", "act.good": "registered twice",
	}
	refused := 0
	for _, tl := range info.Tools {
		if tl.Refused == "" {
			continue
		}
		refused++
		if want, ok := reasons[tl.Name]; ok && !strings.Contains(tl.Refused, want) {
			t.Errorf("%s is refused because %q, want %q", tl.Name, tl.Refused, want)
		}
		delete(reasons, tl.Name)
		if len(tl.Needs) != 0 {
			t.Errorf("%s is refused and needs %v", tl.Name, tl.Needs)
		}
	}
	if len(reasons) > 0 || refused != 14 || len(s.tools.List()) != 1 || len(s.tools.Quarantined()) != 14 {
		t.Errorf("not refused: %v; %d refused, %d usable, %d in quarantine: %+v", reasons, refused, len(s.tools.List()), len(s.tools.Quarantined()), info.Tools)
	}
}

func TestScopesCanOnlyBeNarrowedAndNamesAreAList(t *testing.T) {
	t.Parallel()
	of := func(name, needs string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"description":"d","input_schema":{"type":"object"},"required_scope":%q}`, name, needs))
	}
	bounds := func(texts ...string) (out []Bound) {
		for _, text := range texts {
			b, err := ParseBound(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	for name, c := range map[string]struct {
		scopes, narrow []string
		tool, needs    string
		want, refused  string
	}{
		"within":              {[]string{"net.fetch"}, nil, "get", "net.fetch:https://a.example", "net.fetch:https://a.example", ""},
		"wider":               {[]string{"net.fetch:https://a.example"}, nil, "get", "net.fetch", "", "more than the operator allowed"},
		"other base":          {[]string{"net.fetch"}, nil, "get", "net.post", "", "more than the operator allowed"},
		"not listed":          {[]string{"put=net.post"}, nil, "get", "net.post", "", "not among the tools"},
		"listed":              {[]string{"put=net.post"}, nil, "put", "net.post", "net.post", ""},
		"the other's ceiling": {[]string{"put=net.post", "get=net.fetch"}, nil, "get", "net.post", "", "allowed: net.fetch"},
		"with its own prefix": {[]string{"get=net.fetch"}, nil, "act.get", "net.fetch", "net.fetch", ""},
		"narrowed":            {[]string{"net.fetch"}, []string{"get=net.fetch:https://a.example"}, "get", "net.fetch", "net.fetch:https://a.example", ""},
		"narrowed into what is allowed": {
			[]string{"net.fetch:https://a.example"}, []string{"get=net.fetch:https://a.example/x"}, "get", "net.fetch", "net.fetch:https://a.example/x", "",
		},
		"widened":                  {[]string{"net.fetch"}, []string{"get=net.fetch"}, "get", "net.fetch:https://a.example", "", "can only be narrowed"},
		"another":                  {[]string{"net.fetch", "net.post"}, []string{"get=net.post"}, "get", "net.fetch", "", "can only be narrowed"},
		"notices are no ceiling":   {[]string{"notify.send:operator"}, nil, "say", "notify.send:operator", "", "not among the tools"},
		"notices beside the tools": {[]string{"notify.send:operator", "get=net.fetch"}, nil, "get", "net.fetch", "net.fetch", ""},
	} {
		sp := Spec{Name: "act", Command: []string{"/bin/true"}, Scopes: bounds(c.scopes...), Narrow: bounds(c.narrow...)}
		if err := sp.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := sp.judge(registration{Tools: []json.RawMessage{of(c.tool, c.needs)}})[0]
		if c.refused != "" {
			if !strings.Contains(got.Refused, c.refused) || len(got.Needs) > 0 {
				t.Errorf("%s: %+v, want refused with %q", name, got, c.refused)
			}
			continue
		}
		if got.Refused != "" || !slices.Equal(got.Needs, []string{"tool:act." + strings.TrimPrefix(c.tool, "act."), c.want}) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestASpecThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	good := func() Spec {
		return Spec{Name: "act", Command: []string{"/bin/true"}, Scopes: []Bound{{Scope: scope.Must("tool:act")}}}
	}
	sp := good()
	if err := sp.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"a tool process's name":      func(s *Spec) { s.Name = "Act" },
		"must be an absolute path":   func(s *Spec) { s.Command = []string{"true"} },
		"at least one scope":         func(s *Spec) { s.Scopes = nil },
		"empty scope":                func(s *Spec) { s.Scopes = []Bound{{}} },
		"every scope of act names":   func(s *Spec) { s.Scopes = append(s.Scopes, Bound{Tool: "x", Scope: scope.Must("tool:act")}) },
		"none, proxy or all":         func(s *Spec) { s.Network = "some" },
		"NUL byte":                   func(s *Spec) { s.Command = append(s.Command, "a\x00") },
		"clean absolute path":        func(s *Spec) { s.Read = []string{"/a/../b"} },
		"into the variable \"PATH\"": func(s *Spec) { s.Secrets = map[string]string{"PATH": "x"} },
		"not a name of a secret":     func(s *Spec) { s.Secrets = map[string]string{"KEY": "two words"} },
		"takes at most":              func(s *Spec) { s.Timeout = time.Hour },
		"once for a tool":            func(s *Spec) { s.Narrow = []Bound{{Scope: scope.Must("tool:act")}} },
		"entries, at most":           func(s *Spec) { s.Read = slices.Repeat([]string{"/a"}, 100) },
		"no name of a tool":          func(s *Spec) { s.Reads = []string{"a b"} },
		"may register": func(s *Spec) {
			s.Scopes, s.Repeatable = []Bound{{Tool: "x", Scope: scope.Must("tool:act")}}, []string{"y"}
		},
	} {
		sp := good()
		change(&sp)
		if err := sp.Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
