package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// maxWireName is the longest tool name that every provider takes.
const maxWireName = 64

// Names maps canonical tool names (fs.read) to the ones models see (fs_read) and
// back. Providers take only letters, digits, underscore and hyphen.
type Names struct {
	toWire, toCanonical map[string]string
}

// NewNames returns the mapping for tools. Two tools whose names would look alike
// to the model get different ones; the result does not depend on their order.
func NewNames(tools []ToolSpec) Names {
	n := Names{toWire: map[string]string{}, toCanonical: map[string]string{}}
	sorted := slices.SortedFunc(slices.Values(tools), func(a, b ToolSpec) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range sorted {
		if _, ok := n.toWire[t.Name]; ok {
			continue
		}
		wire := wireName(t.Name)
		for i := 2; n.toCanonical[wire] != ""; i++ {
			suffix := "_" + strconv.Itoa(i)
			wire = wireName(t.Name)
			wire = wire[:min(len(wire), maxWireName-len(suffix))] + suffix
		}
		n.toWire[t.Name], n.toCanonical[wire] = wire, t.Name
	}
	return n
}

// Wire returns the name the model sees for a canonical one. A tool that is not
// offered any more but stands in the history gets a name of the right form.
func (n Names) Wire(canonical string) string {
	if wire, ok := n.toWire[canonical]; ok {
		return wire
	}
	return wireName(canonical)
}

// Canonical returns the canonical name of what the model called. A name nobody
// offered is returned as it is: to say that it is unknown is the caller's job.
func (n Names) Canonical(wire string) string {
	if canonical, ok := n.toCanonical[wire]; ok {
		return canonical
	}
	return wire
}

func wireName(canonical string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, canonical)
	if name == "" {
		return "_"
	}
	return name[:min(len(name), maxWireName)]
}
