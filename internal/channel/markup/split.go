package markup

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

const (
	maxPieces   = 20
	maxEntities = 100 // of a piece: the least a network takes
	minLimit    = 256 // of a piece; below, what stands around a text has no room
	markRoom    = 96  // for the line that tells what was left out, in bytes, with what is before it
)

// unit is what a network counts.
type unit int

const (
	utf16s unit = iota
	octets
)

func (u unit) of(s string) int {
	if u == octets {
		return len(s)
	}
	n := 0
	for _, r := range s {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n
}

// sheet is what a pen writes on.
type sheet struct {
	unit     unit
	text     []byte
	size     int // in units
	entities []Entity
	block    int // which of the entities is the quote or the code that goes on, plus one
}

func (s *sheet) put(text string) {
	s.text = append(s.text, text...)
	s.size += s.unit.of(text)
}

// pen writes lines as one network shows them.
type pen interface {
	// add writes a line and what stands between it and the one before it; prev is nil if
	// the piece begins with it. What it writes depends on these two lines alone.
	add(s *sheet, prev, l *line)
	// end closes what is open after the last line.
	end(s *sheet, last *line)
}

// splitter makes pieces of lines.
type splitter struct {
	pen   pen
	unit  unit
	limit int
	lines []line // that are in no piece yet
	draft sheet  // on which lines are written to see what they cost
}

// render makes the pieces of Markdown for a network. plain, if set, writes what is sent
// when the network cannot read what p writes.
func render(md string, d *dialect, p, plain pen, u unit, limit int) []Piece {
	lines, rest := read(md, d)
	if rest > 0 {
		lines = append(lines, leftOut(rest))
	}
	s := splitter{pen: p, unit: u, limit: limit, lines: lines}
	var out []Piece
	for len(s.lines) > 0 {
		part := s.take(len(out) == maxPieces-1, rest)
		if !seen(part) {
			continue
		}
		text := s.write(p, part)
		piece := Piece{Text: string(text.text), Entities: text.entities}
		if plain != nil {
			if t := string(s.write(plain, part).text); t != piece.Text {
				piece.Plain = t
			}
		}
		out = append(out, piece)
	}
	return out
}

// leftOut is the line that tells that there is more.
func leftOut(n int) line {
	text := fmt.Sprintf("… cut here: the whole is in ombud (%d characters left out)", n)
	return line{runs: []run{{text: text}}, first: true, gap: true}
}

// take takes the lines of the next piece. If it is the last there may be, what does not
// fit is left out, and a line tells how much that is with the rest that was never read.
func (s *splitter) take(last bool, rest int) []line {
	if !last {
		return s.next()
	}
	all := s.lines
	if part := s.next(); len(s.lines) == 0 {
		return part
	}
	s.lines = all
	s.limit -= markRoom
	part := s.next()
	s.limit += markRoom
	left := s.lines
	if rest > 0 { // its last line tells of the rest, but not of what is left out here
		left = left[:len(left)-1]
	}
	for i := range left {
		for _, r := range left[i].runs {
			rest += utf8.RuneCountInString(r.text)
		}
	}
	s.lines = nil
	return append(slices.Clip(part), leftOut(rest))
}

// next takes as many lines as fit and leaves the rest.
func (s *splitter) next() []line {
	for s.lines[0].fence != 0 && len(s.lines[0].runs) == 0 && len(s.lines) > 1 {
		s.lines = s.lines[1:] // a piece does not begin with nothing
	}
	s.lines[0].gap = false
	if s.lines[0].lead = strings.TrimLeft(s.lines[0].lead, " "); s.lines[0].lead == "" && s.lines[0].fence == 0 {
		trim(&s.lines[0])
	}
	var prev *line
	ends := []int{0} // how large the piece is that ends before a line
	used, marks, n := 0, 0, 0
	for ; n < len(s.lines); n++ {
		size, entities := s.cost(prev, &s.lines[n])
		closing := s.closing(&s.lines[n])
		if used+size+closing > s.limit || marks+entities > maxEntities {
			break
		}
		used, marks, prev = used+size, marks+entities, &s.lines[n]
		ends = append(ends, used+closing)
	}
	if n == len(s.lines) {
		return s.cut(n)
	}
	if at := s.better(ends); at > 0 {
		return s.cut(at)
	}
	// The first line that does not fit is larger than a piece, or so large that this one
	// would be nearly empty.
	head, tail, ok := s.halve(prev, &s.lines[n], used, marks)
	if !ok {
		return s.cut(n)
	}
	part := append(s.lines[:n:n], head)
	s.lines = append([]line{tail}, s.lines[n+1:]...)
	return part
}

func (s *splitter) cut(n int) []line {
	part := s.lines[:n:n]
	s.lines = s.lines[n:]
	return part
}

// better returns before which of the lines a piece ends best; ends says how large it is
// before each that it may end at. 0 if it should end within a line.
func (s *splitter) better(ends []int) int {
	n := len(ends) - 1
	for at := n; at > 0 && ends[at] >= s.limit/2; at-- {
		if s.lines[at].first && !s.lines[at-1].head {
			return at
		}
	}
	for at := n; at > 0 && ends[at] >= s.limit/4; at-- {
		if !s.lines[at-1].head {
			return at
		}
	}
	return 0
}

// cost is how many units and entities a line takes behind another.
func (s *splitter) cost(prev, l *line) (int, int) {
	s.blank()
	s.pen.add(&s.draft, prev, l)
	return s.draft.size, len(s.draft.entities)
}

func (s *splitter) closing(l *line) int {
	s.blank()
	s.pen.end(&s.draft, l)
	return s.draft.size
}

func (s *splitter) blank() {
	s.draft = sheet{unit: s.unit, text: s.draft.text[:0], entities: s.draft.entities[:0]}
}

// halve cuts a line so that its head fits behind what a piece has. false if not even a
// little of it does and the piece has something without it.
func (s *splitter) halve(prev, l *line, used, marks int) (head, tail line, ok bool) {
	text := l.text()
	room := s.limit - used - s.closing(l)
	fits := func(at int) bool {
		for at < len(text) && !utf8.RuneStart(text[at]) {
			at--
		}
		h := l.until(at)
		size, entities := s.cost(prev, &h)
		return size <= room && marks+entities <= maxEntities
	}
	// A byte of text takes at least a third of a unit.
	most := min(len(text), 4*max(room, 0))
	at := sort.Search(most, func(i int) bool { return !fits(i + 1) })
	if at = wordBorder(text, at); at == 0 || !fits(at) {
		for at = border(text, at); at > 0 && !fits(at); {
			at = border(text, at-1)
		}
	}
	if at == 0 {
		if prev != nil {
			return head, tail, false
		}
		at = s.force(text, fits)
	}
	head, tail = l.until(at), l.from(at)
	if l.fence == 0 {
		trim(&head)
		trim(&tail)
	}
	return head, tail, true
}

// force finds a place within the first character as people see it: it is larger than a
// piece.
func (s *splitter) force(text string, fits func(int) bool) int {
	at := 0
	for i := range text {
		if i > 0 && !fits(i) {
			break
		}
		at = i
	}
	if at == 0 {
		_, at = utf8.DecodeRuneInString(text)
	}
	return at
}

// wordBorder returns the best place to cut a text at or before at.
func wordBorder(text string, at int) int {
	if at >= len(text) {
		return len(text)
	}
	for i := at; i > at/2; i-- {
		if c := text[i-1]; (c == ' ' || c == '\t') && !joined(text, i) {
			return i
		}
	}
	return border(text, at)
}

// until is the start of a line, of at bytes of text.
func (l *line) until(at int) line {
	h := *l
	h.runs = nil
	for _, r := range l.runs {
		if len(r.text) >= at {
			r.text = r.text[:at]
			h.runs = append(h.runs, r)
			break
		}
		at -= len(r.text)
		h.runs = append(h.runs, r)
	}
	return h
}

// from is what until left.
func (l *line) from(at int) line {
	t := *l
	t.runs = nil
	t.lead = strings.Repeat(" ", columns(l.lead))
	t.first, t.gap = false, false
	for _, r := range l.runs {
		if at >= len(r.text) {
			at -= len(r.text)
			continue
		}
		r.text, at = r.text[at:], 0
		t.runs = append(t.runs, r)
	}
	return t
}

// write writes the lines of a piece.
func (s *splitter) write(p pen, part []line) *sheet {
	out := sheet{unit: s.unit}
	var prev *line
	for i := range part {
		p.add(&out, prev, &part[i])
		prev = &part[i]
	}
	p.end(&out, prev)
	entities := out.entities[:0]
	for _, e := range out.entities {
		if e.Length > 0 {
			entities = append(entities, e)
		}
	}
	out.entities = entities
	return &out
}
