// Package policy decides whether a subject may make a call. The decision is a
// pure function of its Input: no I/O, no clock, no state, and on allow no
// allocation.
//
// Every scope the call needs passes every layer: the grants of the subject, its
// role with all the role's ancestors, the ceiling of its tier, and the bounds
// handed down by its parent and its run. Authority only shrinks on that way.
// Within a layer and across them deny beats ask and ask beats allow, and what no
// rule covers is denied. Then the level, the labels, the budget and the rate have
// their say; none of them can widen what the layers gave.
//
// A standing approval answers an ask of a layer or of the level. It never answers
// a deny, and never an ask that comes from what is in the context (flow.go).
package policy
