package signed

import (
	"slices"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

// A tool is a way out like a host function: a screen that forgets it says of a loop that
// hands the memory to anybody that it reaches nothing.
func TestTheScreenSaysWhatALoopCanDoByItsToolsAtWorst(t *testing.T) {
	t.Parallel()
	facts := func(name string) (ToolFacts, bool) {
		switch name {
		case "web.fetch", "fs.read", "maps.search", "time.now":
			return ToolFacts{ReadOnly: true}, true
		}
		return ToolFacts{}, false
	}
	for _, c := range []struct {
		what string
		m    wasmloop.Manifest
		want []string
	}{
		{
			"a fetch that no capability narrows",
			wasmloop.Manifest{Host: []string{"recall", "tool"}, Tools: []string{"web.fetch"}, Capabilities: []string{"memory:main"}},
			[]string{"send what is in your memory, what its tools return to anybody"},
		}, {
			"a fetch that capabilities narrow",
			wasmloop.Manifest{Host: []string{"recall", "tool"}, Tools: []string{"web.fetch"}, Capabilities: []string{"memory:main", "http:a.example"}},
			[]string{"send what is in your memory, what its tools return to a.example"},
		}, {
			"a fetch that a capability would narrow if it were one",
			wasmloop.Manifest{Host: []string{"http", "tool"}, Tools: []string{"web.fetch"}, Capabilities: []string{"http:a b"}},
			[]string{"send what its tools return to anybody"},
		}, {
			"a fetch that it cannot call",
			wasmloop.Manifest{Host: []string{"recall"}, Tools: []string{"web.fetch"}, Capabilities: []string{"memory:main"}},
			[]string{"read what is in your memory, and keep it in its log; it can send it nowhere"},
		}, {
			"a tool of another program that only reads",
			wasmloop.Manifest{Host: []string{"recall", "tool"}, Tools: []string{"maps.search"}, Capabilities: []string{"memory:main"}},
			[]string{"tell what is in your memory, what its tools return to whoever is behind maps.search"},
		}, {
			"files",
			wasmloop.Manifest{Host: []string{"tool"}, Tools: []string{"fs.read"}},
			[]string{"read what its tools return, and keep it in its log; it can send it nowhere"},
		}, {
			"nothing",
			wasmloop.Manifest{Host: []string{"log"}},
			[]string{"use up its own time and memory: it reaches nothing else"},
		},
	} {
		if got := Worst(c.m, facts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
