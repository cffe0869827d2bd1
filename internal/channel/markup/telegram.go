package markup

import (
	"slices"
	"strings"
)

const telegramLimit = 4096 // UTF-16 units of a message

// Telegram makes messages of Markdown: text, and its formatting beside it as entities of
// the types bold, italic, strikethrough, code, pre, text_link and blockquote. A message has
// at most 4096 UTF-16 units and 100 entities, which come in their order and lie in each
// other or apart. There is no parse mode, so nothing in a text is taken for a mark.
func Telegram(md string) []Piece {
	d := dialect{bullets: dots, schemes: []string{"https", "http", "mailto", "tg"}, maxURL: 2048, columns: phone}
	return render(md, &d, entityPen{}, nil, utf16s, telegramLimit)
}

// dots are the bullets of lists in lists.
var dots = []string{"•", "◦", "▪"}

// entityPen writes text, and entities beside it.
type entityPen struct{}

func (entityPen) add(s *sheet, prev, l *line) {
	goesOn := prev != nil && (l.fence != 0 && l.fence == prev.fence || l.fence == 0 && prev.fence == 0 && quoted(l) && l.in == prev.in)
	if prev != nil {
		s.put("\n")
		if l.gap {
			s.put("\n")
		}
	}
	if !goesOn {
		s.block = 0
		switch {
		case l.fence != 0:
			s.entities = append(s.entities, Entity{Type: "pre", Offset: s.size, Language: l.lang})
			s.block = len(s.entities)
		case quoted(l):
			s.entities = append(s.entities, Entity{Type: "blockquote", Offset: s.size})
			s.block = len(s.entities)
		}
	}
	if l.fence != 0 {
		s.put(l.text())
	} else {
		s.put(deeper(l) + l.lead)
		spans(s, l.runs)
	}
	if s.block > 0 {
		e := &s.entities[s.block-1]
		e.Length = s.size - e.Offset
	}
}

func (entityPen) end(*sheet, *line) {}

func quoted(l *line) bool { return l.quote > 0 }

// deeper shows that a line is in a quote of a quote: no network has these.
func deeper(l *line) string {
	if l.quote < 2 {
		return ""
	}
	return strings.Repeat("› ", min(l.quote-1, 8))
}

// spans writes the runs of a line. An entity goes on over all the runs it can, and ends
// where one that it lies in ends.
func spans(s *sheet, runs []run) {
	var stack, want []Entity
	var at []int // where those of the stack are among the entities
	for _, r := range runs {
		want = wanted(want[:0], r)
		keep := 0
		for keep < len(stack) && slices.Contains(want, stack[keep]) {
			keep++
		}
		stack, at = stack[:keep], at[:keep]
		for _, e := range want {
			if slices.Contains(stack, e) {
				continue
			}
			stack, at = append(stack, e), append(at, len(s.entities))
			e.Offset = s.size
			s.entities = append(s.entities, e)
		}
		s.put(r.text)
		for _, i := range at {
			s.entities[i].Length = s.size - s.entities[i].Offset
		}
	}
}

// wanted are the entities of a run, the outer ones first.
func wanted(to []Entity, r run) []Entity {
	if r.style == code {
		return append(to, Entity{Type: "code"})
	}
	if r.style&bold != 0 {
		to = append(to, Entity{Type: "bold"})
	}
	if r.style&italic != 0 {
		to = append(to, Entity{Type: "italic"})
	}
	if r.style&strike != 0 {
		to = append(to, Entity{Type: "strikethrough"})
	}
	if r.url != "" {
		to = append(to, Entity{Type: "text_link", URL: r.url})
	}
	return to
}
