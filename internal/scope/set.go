package scope

import (
	"cmp"
	"slices"
)

// Set is a list of scopes without repeats, sorted by text. The zero Set is empty
// and covers nothing.
type Set struct{ list []Scope }

// NewSet returns the set of scopes; zero scopes are left out.
func NewSet(scopes ...Scope) Set {
	list := slices.DeleteFunc(slices.Clone(scopes), Scope.IsZero)
	slices.SortFunc(list, func(a, b Scope) int { return cmp.Compare(a.String(), b.String()) })
	list = slices.CompactFunc(list, func(a, b Scope) bool { return a.String() == b.String() })
	return Set{list}
}

// Scopes returns the members in order, in a fresh slice.
func (s Set) Scopes() []Scope { return slices.Clone(s.list) }

// Len returns the number of members.
func (s Set) Len() int { return len(s.list) }

// Covers reports whether one member covers need.
func (s Set) Covers(need Scope) bool {
	for i := range s.list {
		if s.list[i].Covers(need) {
			return true
		}
	}
	return false
}

// Intersect returns the members of either side that the other covers. It never
// covers more than both sides do; where two patterns only overlap it covers less.
func (s Set) Intersect(o Set) Set {
	var both []Scope
	for _, x := range s.list {
		if o.Covers(x) {
			both = append(both, x)
		}
	}
	for _, x := range o.list {
		if s.Covers(x) {
			both = append(both, x)
		}
	}
	return NewSet(both...)
}

// Strings returns the canonical texts in order.
func (s Set) Strings() []string {
	out := make([]string, len(s.list))
	for i, x := range s.list {
		out[i] = x.String()
	}
	return out
}
