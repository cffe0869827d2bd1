package markup

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// marks is the pen of a network that has its formatting within the text.
type marks struct {
	plain  bool      // without formatting, and otherwise as safe
	styles [3]string // the marks of bold, italic and strike
	tight  string    // the marks that are none beside a part of a word
	langs  bool      // a block of code has its language
	link   func(label, url string) string
	code   func(text string) (string, bool) // false: it cannot be shown as code
	escape func(e *edge, text string) string
	raw    func(text string) string // escapes what is in code
}

// edge is what an escape has to know of what is around a text.
type edge struct {
	prev   rune // 0 at the start of a line
	next   rune // 0 at its end
	lead   bool // the line has something before its text
	inside string
	loud   func(mark byte) bool // there are at least two such marks on the line
}

func (m *marks) add(s *sheet, prev, l *line) {
	if prev != nil {
		m.between(s, prev, l)
	}
	if l.fence != 0 && !m.plain {
		if prev == nil || prev.fence != l.fence {
			m.open(s, l)
		}
		s.put(m.raw(l.text()))
		return
	}
	if l.quote > 0 && l.fence == 0 {
		s.put("> " + deeper(l))
	}
	if l.fence != 0 {
		s.put(m.raw(l.text()))
		return
	}
	s.put(l.lead)
	s.put(m.spans(l))
}

// between writes what stands between two lines.
func (m *marks) between(s *sheet, prev, l *line) {
	if prev.fence != 0 && prev.fence != l.fence {
		m.end(s, prev)
	}
	s.put("\n")
	if !l.gap {
		return
	}
	if l.quote > 0 && l.in == prev.in && l.fence == 0 && prev.fence == 0 {
		s.put("> ")
	}
	s.put("\n")
}

func (m *marks) open(s *sheet, l *line) {
	s.put("```")
	if m.langs {
		s.put(l.lang)
	}
	s.put("\n")
}

func (m *marks) end(s *sheet, last *line) {
	if last.fence != 0 && !m.plain {
		s.put("\n```")
	}
}

// spans writes the runs of a line. A mark spans all the runs it can; spaces stay outside,
// where networks want them.
func (m *marks) spans(l *line) string {
	w := weaver{m: m, l: l}
	for i, r := range l.runs {
		next := rune(0)
		if i+1 < len(l.runs) {
			next, _ = utf8.DecodeRuneInString(l.runs[i+1].text)
		}
		w.run(r, next)
	}
	w.close(0)
	return string(w.out)
}

// weaver writes one line.
type weaver struct {
	m    *marks
	l    *line
	out  []byte
	open []style
	shut bool // a mark was closed last: it is none beside a part of a word
	prev rune // what was written last as a text has it

	count map[byte]int // of the marks on the line; see loud
}

var allStyles = [3]style{bold, italic, strike}

func (w *weaver) run(r run, next rune) {
	if w.m.plain {
		w.bare(r, next)
		return
	}
	want := r.style
	blank := strings.TrimSpace(r.text) == ""
	keep := 0
	for keep < len(w.open) && want&w.open[keep] != 0 {
		keep++
	}
	w.close(keep)
	if blank || r.text == "" { // nothing to begin a mark at
		w.text(r.text, next)
		return
	}
	lead := len(r.text) - len(strings.TrimLeftFunc(r.text, unicode.IsSpace))
	if lead > 0 && r.style != code {
		w.text(r.text[:lead], 0)
		r.text = r.text[lead:]
	}
	for i, st := range allStyles {
		if want&st != 0 && !w.has(st) {
			w.mark(w.m.styles[i])
			w.open = append(w.open, st)
		}
	}
	switch {
	case r.style == code:
		w.code(r.text, next)
	case r.url != "":
		w.shut = false
		w.out = append(w.out, w.m.link(w.escape(r.text, next), r.url)...)
		w.prev = ')'
	default:
		w.text(r.text, next)
	}
}

// bare writes a run without marks. It takes no more room than with them.
func (w *weaver) bare(r run, next rune) {
	var shown string
	isCode := false
	if r.style == code {
		_, isCode = w.m.code(r.text)
	}
	switch {
	case isCode:
		shown = w.m.raw(r.text)
	case r.url != "":
		shown = w.m.link(w.escape(r.text, next), r.url)
	default:
		shown = w.escape(r.text, next)
	}
	w.out = append(w.out, shown...)
	w.prev, _ = utf8.DecodeLastRuneInString(shown)
}

func (w *weaver) has(st style) bool {
	return slices.Contains(w.open, st)
}

// mark opens a mark.
func (w *weaver) mark(mark string) {
	if strings.Contains(w.m.tight, mark) && (word(w.prev) || w.shut) {
		w.out = append(w.out, zwsp...)
	}
	w.out = append(w.out, mark...)
	w.shut = false
}

// close closes all marks but the first ones.
func (w *weaver) close(keep int) {
	if len(w.open) <= keep {
		return
	}
	end := len(strings.TrimRightFunc(string(w.out), unicode.IsSpace))
	spaces := string(w.out[end:])
	w.out = w.out[:end]
	for i := len(w.open) - 1; i >= keep; i-- {
		mark := w.m.styles[index(w.open[i])]
		w.out = append(w.out, mark...)
		w.shut = strings.Contains(w.m.tight, mark)
	}
	w.open = w.open[:keep]
	if spaces != "" {
		w.out = append(w.out, spaces...)
		w.shut = false
	}
}

func index(st style) int {
	for i, s := range allStyles {
		if s == st {
			return i
		}
	}
	return 0
}

func (w *weaver) text(text string, next rune) {
	if text == "" {
		return
	}
	if first, _ := utf8.DecodeRuneInString(text); w.shut && word(first) {
		w.out = append(w.out, zwsp...)
	}
	w.shut = false
	w.out = append(w.out, w.escape(text, next)...)
	w.prev, _ = utf8.DecodeLastRuneInString(text)
}

// code writes code within a line, or its text if the network cannot show it.
func (w *weaver) code(text string, next rune) {
	shown, ok := w.m.code(text)
	if !ok {
		w.text(text, next)
		return
	}
	if strings.Contains(w.m.tight, "`") && (word(w.prev) || w.shut) {
		w.out = append(w.out, zwsp...)
	}
	w.out = append(w.out, shown...)
	w.prev = '`'
	w.shut = strings.Contains(w.m.tight, "`")
}

func (w *weaver) escape(text string, next rune) string {
	e := edge{prev: w.prev, next: next, lead: w.l.lead != "" || w.l.quote > 0, loud: w.loud}
	for _, st := range w.open {
		e.inside += w.m.styles[index(st)]
	}
	return w.m.escape(&e, text)
}

// loud reports whether a mark is on the line so often that two may be taken for a pair.
func (w *weaver) loud(mark byte) bool {
	if w.count == nil {
		w.count = w.tally()
	}
	return w.count[mark] > 1
}

// tally counts what is on the line of each mark, those that formatting will write too.
func (w *weaver) tally() map[byte]int {
	n := map[byte]int{}
	for _, r := range w.l.runs {
		for i := range len(r.text) {
			if c := r.text[i]; strings.IndexByte("*_~`", c) >= 0 {
				n[c]++
			}
		}
		for i, st := range allStyles {
			if r.style&st != 0 {
				n[w.m.styles[i][0]] += 2
			}
		}
		if r.style == code {
			n['`'] += 2
		}
	}
	return n
}

// muffle puts characters that nobody sees beside marks that would be taken for formatting,
// for networks that have no other way to write them. An address stays as it is: it would
// lead elsewhere.
func muffle(e *edge, text, hot string) string {
	if !strings.ContainsAny(text, hot) {
		return text
	}
	var b strings.Builder
	prev := e.prev
	for i := 0; i < len(text); {
		if n := address(text[i:]); n > 0 && !word(prev) {
			b.WriteString(text[i : i+n])
			i += n
			prev, _ = utf8.DecodeLastRuneInString(text[:i])
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		if r >= 0x80 || !strings.ContainsRune(hot, r) {
			b.WriteRune(r)
			prev = r
			continue
		}
		next := e.next
		if i < len(text) {
			next, _ = utf8.DecodeRuneInString(text[i:])
		}
		within := strings.ContainsRune(e.inside, r)
		if within && prev != 0 {
			b.WriteString(zwsp)
		}
		b.WriteRune(r)
		if within || !word(prev) && next != 0 && !unicode.IsSpace(next) && e.loud(byte(r)) {
			b.WriteString(zwsp)
		}
		prev = r
	}
	return b.String()
}

// unfence keeps what is in a block of code from ending it.
func unfence(text string) string {
	return strings.ReplaceAll(text, "```", "`"+zwsp+"`"+zwsp+"`")
}
