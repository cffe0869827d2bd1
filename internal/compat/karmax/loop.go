package karmax

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/wasmloop"
)

// classes are the classes of capability that grant something: those of KARMAX, and ours.
var classes = []string{"http", "memory", "tool", "channel", "secret"}

// Loop says what of the manifest of a signed loop (.kloop) KARMAX passes over in silence: it
// takes it as it is, and so does ombud, but tells.
func Loop(m wasmloop.Manifest) (warnings []string) {
	add := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	for _, list := range []struct {
		what  string
		items []string
	}{{"the capability", m.Capabilities}, {"the host function", m.Host}, {"the tool", m.Tools}, {"the event", m.Events}} {
		for i, item := range list.items {
			if slices.Index(list.items, item) < i {
				add("%s %s is named twice; once counts", list.what, item)
			}
		}
	}
	for _, c := range slices.Compact(slices.Sorted(slices.Values(m.Capabilities))) {
		class, value, ok := strings.Cut(c, ":")
		switch {
		case !ok || class == "" || value == "":
			add("the capability %q is not CLASS:VALUE; it grants nothing", c)
		case class == "spend":
			add("the capability %s grants nothing: what a loop may spend is a budget", c)
		case !slices.Contains(classes, class):
			add("the capability %s has a class that is none; it grants nothing", c)
		case class == "memory" && strings.Contains(strings.TrimSuffix(value, ":write"), ":"):
			as := "memory:NAME"
			if strings.HasSuffix(value, ":write") {
				as += ":write"
			}
			add("the capability %s is mistyped, and nothing to KARMAX; it is taken for %s", c, as)
		case class == "channel":
			add("the capability %s was never enforced by KARMAX; here it counts for what it says", c)
		}
	}
	return warnings
}
