package signed

import (
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/wasmloop"
)

// TestTheScreenTheRulesAndTheGateSayTheSameOfMemory whatever a manifest calls it.
func TestTheScreenTheRulesAndTheGateSayTheSameOfMemory(t *testing.T) {
	t.Parallel()
	for capabilities, want := range map[string]struct{ read, write bool }{
		"memory:main":                    {true, false},
		"memory:main:write":              {false, true},
		"memory:a-small-scratchpad":      {true, false},
		"memory:main,memory:other:write": {true, true},
		"memory:other:write,memory:main": {true, true},
		"memory:*":                       {true, true},
		"memory:nexus:write:write":       {false, true},
		"memory:":                        {false, false},
	} {
		m := wasmloop.Manifest{Capabilities: strings.Split(capabilities, ",")}
		rules, _ := Rules(m)
		for _, c := range []struct {
			line, rule, asked string
			want              bool
		}{
			{"search your memory", "memory.read", "memory:whatever", want.read},
			{"write to your memory", "memory.write", "memory:whatever:write", want.write},
		} {
			if got := slices.Contains(wasmloop.Describe(m), c.line); got != c.want {
				t.Errorf("%s: the screen says %q: %v", capabilities, c.line, got)
			}
			r, err := scope.ParseRule(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			got := false
			for _, rule := range rules {
				got = got || rule.Scope == r
			}
			if got != c.want {
				t.Errorf("%s: the rules have %s: %v", capabilities, c.rule, got)
			}
			class, value, _ := strings.Cut(c.asked, ":")
			if err := (gate{m}).Allow(t.Context(), class, value); (err == nil) != c.want {
				t.Errorf("%s: the gate says of %s: %v", capabilities, c.asked, err)
			}
		}
	}
	was := wasmloop.Entry{Capabilities: []string{"memory:main", "memory:main:write"}}
	if d := wasmloop.DiffCapabilities(was, wasmloop.Manifest{Capabilities: []string{"memory:x:write", "memory:x"}}); !d.Same {
		t.Errorf("another name of the memory is another reach: %+v", d)
	}
	if d := wasmloop.DiffCapabilities(was, wasmloop.Manifest{Capabilities: []string{"memory:x"}}); d.Same || !slices.Equal(d.Removed, []string{"memory:main:write"}) {
		t.Errorf("%+v", d)
	}
}
