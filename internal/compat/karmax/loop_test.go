package karmax

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

func TestWhatAManifestSaysTwiceOrWronglyIsTold(t *testing.T) {
	t.Parallel()
	got := Loop(wasmloop.Manifest{ // as that of a public loop
		Host: []string{"tool", "recall"}, Tools: []string{"whatsapp.read"},
		Capabilities: []string{"memory:nexus", "memory:nexus:write:write", "memory:nexus", "tool:app.push", "htpp:x.org", "spend", "spend:5", "memory:a:b"},
	})
	for _, want := range []string{"memory:nexus is named twice", "memory:nexus:write:write is mistyped, and nothing to KARMAX; it is taken for memory:NAME:write", "memory:a:b is mistyped, and nothing to KARMAX; it is taken for memory:NAME", "spend:5 grants nothing", "htpp:x.org has a class that is none", `"spend" is not CLASS:VALUE`} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if len(got) != 6 {
		t.Errorf("%q", got)
	}
	if got := Loop(wasmloop.Manifest{Capabilities: []string{"memory:nexus", "memory:nexus:write", "http:*", "secret:token"}}); len(got) != 0 {
		t.Errorf("what is in order is warned of: %q", got)
	}
}
