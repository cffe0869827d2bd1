// Package scope names what a subject may touch. A scope is `base` or
// `base:qualifier`, for example `fs.read:/home/ana/notes/**`.
//
// The table of bases is fixed: a base that is not in it does not parse, and the
// error names the nearest one. The base alone decides how its qualifier is read
// (a path, a URL, a host, a set, an amount or a name); nothing is guessed from
// the characters in it. What does not parse is the zero Scope, which covers
// nothing and is covered by nothing.
//
// Both a grant and a need are scopes. Covers compares them as the sets of things
// they stand for, is reflexive and transitive, and may say no where a deeper
// comparison of two patterns would say yes. Overlaps is its counterpart for rules
// that take away: it may say yes where the two patterns in truth never meet.
package scope
