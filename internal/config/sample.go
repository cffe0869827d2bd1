package config

import (
	"slices"
	"strings"
)

// Sample returns a configuration file in which every key stands with its meaning
// and its default, all of it commented out. It is made from the table, so it
// cannot be out of date.
func Sample() string {
	var b strings.Builder
	b.WriteString(`# The configuration of ombud. Every key is here with its default; take the "# "
# away from a line, and from the headings above it, to change it. A key that is
# not known is an error. Keys that do not hold a name you choose can be set by a
# variable too: turn.steps is OMBUD_TURN_STEPS. Secrets never go in here, only
# references to them (secret:NAME) or the names of the variables that hold them.
`)
	writeSample(&b, tree(table()), "", "", 0)
	return b.String()
}

// writeSample writes what is below n. path is n's own with names in place of "*".
func writeSample(b *strings.Builder, n *node, path, section string, depth int) {
	indent := strings.Repeat("  ", depth)
	for _, key := range n.order {
		next := n.children[key]
		for _, name := range sampleNames(n.path, key) {
			full := join(path, name)
			if depth == 0 {
				b.WriteString("\n")
			}
			if next.entry == nil {
				b.WriteString("# " + indent + quoted(name) + ":\n")
				writeSample(b, next, full, n.path, depth+1)
				continue
			}
			if firstName(path, section) {
				for line := range strings.Lines(next.entry.doc) {
					b.WriteString("# " + indent + "# " + strings.TrimRight(line, "\n") + "\n")
				}
			}
			b.WriteString("# " + indent + name + ": " + sampleValue(next.entry, path, section, key) + "\n")
		}
	}
}

// sampleNames returns the key itself, or names for "*".
func sampleNames(section, key string) []string {
	if key != "*" {
		return []string{key}
	}
	var out []string
	for full := range shipped {
		if name, ok := strings.CutPrefix(full, section+"."); ok {
			out = append(out, name)
		}
	}
	if ex, ok := examples[section]; ok {
		out = append(out, ex.name)
	}
	slices.Sort(out)
	return out
}

// firstName reports whether path is the first name of its section, which alone
// gets the comments.
func firstName(path, section string) bool {
	name, below := strings.CutPrefix(path, section+".")
	if names := sampleNames(section, "*"); below && len(names) > 1 {
		return name == names[0]
	}
	return true
}

func sampleValue(e *entry, path, section, key string) string {
	if v, ok := shipped[path][key]; ok {
		return quoted(v)
	}
	if ex, ok := examples[section]; ok && path == join(section, ex.name) {
		if v, ok := ex.values[key]; ok {
			return v
		}
	}
	return e.def.String()
}
