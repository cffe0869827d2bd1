package markup

import "strings"

const plainLimit = 1 << 20 // UTF-16 units

// Plain makes text without marks of Markdown, for networks that show text as it is. A
// piece has at most limit UTF-16 units; 1 MiB if limit is 0 or less, and never less than
// 256 are taken for a limit.
func Plain(md string, limit int) []Piece {
	if limit <= 0 {
		limit = plainLimit
	}
	limit = max(limit, minLimit)
	d := dialect{bullets: dots, schemes: []string{"https", "http", "mailto"}, maxURL: min(limit/4, 2048), columns: screen}
	return render(md, &d, plainPen{}, nil, utf16s, limit)
}

// plainPen writes text as people write it by hand.
type plainPen struct{}

func (plainPen) add(s *sheet, prev, l *line) {
	quote := strings.Repeat("> ", min(l.quote, 8))
	if prev != nil {
		s.put("\n")
		if l.gap && l.quote > 0 && prev.in == l.in {
			s.put(strings.TrimSpace(strings.Repeat("> ", min(l.quote, prev.quote, 8))))
		}
		if l.gap {
			s.put("\n")
		}
	}
	s.put(quote)
	if l.fence == 0 {
		s.put(l.lead)
	}
	for _, r := range l.runs {
		s.put(shown(r))
	}
}

func (plainPen) end(*sheet, *line) {}
