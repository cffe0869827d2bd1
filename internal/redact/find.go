package redact

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// span is a part of a text that has to go.
type span struct {
	start, end int
	name       string
	length     int // of the longest match in it, whose name it has
}

// depth is how many layers of escapes are undone.
const depth = 2

// search is one look at one text.
type search struct {
	m     *matcher
	final bool // there is no more text to come
	views []view
	spans []span
	open  int // where what is not decided yet begins
}

// find returns what has to go out of text, in order and not overlapping, and how much
// of text is settled whatever follows; with final that is all of it.
func (m *matcher) find(text []byte, final bool) ([]span, int) {
	s := search{m: m, final: final, open: len(text)}
	s.look(view{text: text}, 0)
	spans := merged(s.spans)
	if final {
		return spans, len(text)
	}
	return spans, s.settled(text, spans)
}

func (s *search) look(v view, level int) {
	for _, a := range []*automaton{s.m.plain, s.m.base64, s.m.hex} {
		open := a.run(v.text, func(start, end int, name string) {
			s.spans = append(s.spans, span{v.from(start), v.to(end), name, end - start})
		})
		s.open = min(s.open, v.from(open))
	}
	if level == depth {
		return
	}
	for kind, e := range escapes() {
		form := kind == formEscape
		if form && !s.m.spaces {
			continue
		}
		next, rest, ok := v.unescape(e, form, s.final)
		if !ok {
			continue
		}
		if rest >= 0 {
			s.open = min(s.open, rest)
		}
		if !s.final {
			s.views = append(s.views, next)
		}
		s.look(next, level+1)
	}
}

// merged joins what overlaps, so that the result does not depend on which was found
// first.
func merged(spans []span) []span {
	if len(spans) < 2 {
		return spans
	}
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(a.start-b.start, b.length-a.length, cmp.Compare(a.name, b.name))
	})
	out := spans[:1]
	for _, sp := range spans[1:] {
		last := &out[len(out)-1]
		if sp.start >= last.end {
			out = append(out, sp)
			continue
		}
		last.end = max(last.end, sp.end)
		if sp.length > last.length {
			last.name, last.length = sp.name, sp.length
		}
	}
	return out
}

// settled is the place up to which nothing can change: no match that is under way
// begins before it, and cutting there splits no match, no escape and no character,
// so that looking at the rest alone finds what looking at everything would.
func (s *search) settled(text []byte, spans []span) int {
	at := s.open
	for {
		before := at
		at = wholeRune(text, at)
		for i := range s.views {
			at = s.views[i].border(at)
		}
		for i := len(spans) - 1; i >= 0 && spans[i].end > at; i-- {
			at = min(at, spans[i].start)
		}
		if at == before {
			return at
		}
	}
}

// border is the last place not behind at where no escape of v is split.
func (v *view) border(at int) int {
	i, _ := slices.BinarySearchFunc(v.end, at, func(end int32, at int) int { return cmp.Compare(int(end), at) })
	// i is the first byte whose source ends at or behind at.
	if i < len(v.end) && int(v.start[i]) < at && at < int(v.end[i]) {
		return int(v.start[i])
	}
	return at
}

// wholeRune moves at back to where a character begins, if it is within one.
func wholeRune(text []byte, at int) int {
	for back := at - 1; back >= 0 && back > at-utf8.UTFMax; back-- {
		if !utf8.RuneStart(text[back]) {
			continue
		}
		if text[back] >= utf8.RuneSelf && back+runeLength(text[back]) > at {
			return back
		}
		return at
	}
	return at
}

func runeLength(first byte) int {
	switch {
	case first >= 0xf0:
		return 4
	case first >= 0xe0:
		return 3
	case first >= 0xc0:
		return 2
	}
	return 1
}
