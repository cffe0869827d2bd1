package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rivo/uniseg"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// style colours text, or leaves it as it is.
type style struct{ colour bool }

func styleFor(getenv func(string) string, stdout io.Writer) style {
	return style{colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && isTerminal(stdout)}
}

func (s style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) strong(text string) string { return s.paint("1", text) }
func (s style) faint(text string) string  { return s.paint("2", text) }
func (s style) bad(text string) string    { return s.paint("31", text) }
func (s style) good(text string) string   { return s.paint("32", text) }
func (s style) warn(text string) string   { return s.paint("33", text) }

// isTerminal reports whether a person is at the other end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// page collects what a command shows, so that nothing half is written when
// something goes wrong. Text of others is cleaned on the way in.
type page struct {
	style
	now time.Time
	buf bytes.Buffer
}

func (p *page) line(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = p.clean(s)
		}
	}
	fmt.Fprintf(&p.buf, format+"\n", args...)
}

// clean makes others' text harmless and leaves our own colours alone.
func (p *page) clean(s string) string {
	if p.colour && strings.Contains(s, "\x1b[") {
		return s // painted: its text was cleaned by whoever painted it
	}
	return guard.CleanText(s)
}

// field writes a name and its value; an empty value writes nothing.
func (p *page) field(name, value string) {
	if value != "" {
		p.line("%s%s", p.faint(pad(name, fieldWidth)), value)
	}
}

const fieldWidth = 14

// pad fills s with spaces to a width in columns.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(1, width-uniseg.StringWidth(s)))
}

// table aligns rows under a heading. A cell has no line ends in it.
type table struct {
	head []string
	rows [][]string
	tint func(row int, col int, cell string) string // colours a padded cell, may be nil
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = oneLine(c)
	}
	t.rows = append(t.rows, cells)
}

func (p *page) table(t table) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], uniseg.StringWidth(c))
		}
	}
	for n, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, c := range row {
			cell := c
			if i < len(row)-1 {
				cell = pad(c, widths[i]+2)
			}
			switch {
			case n == 0:
				cell = p.faint(cell)
			case t.tint != nil:
				cell = t.tint(n-1, i, cell)
			}
			line.WriteString(cell)
		}
		p.buf.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// oneLine cleans a text of others and puts it on one line.
func oneLine(s string) string {
	return strings.Join(strings.Fields(guard.CleanText(s)), " ")
}

// short cuts a text to a width that leaves a table readable.
func short(s string, width int) string {
	s = oneLine(s)
	if uniseg.StringWidth(s) <= width {
		return s
	}
	var b strings.Builder
	used := 0
	for g := uniseg.NewGraphemes(s); g.Next() && used+g.Width() < width; used += g.Width() {
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}

// show writes the result of a command, as JSON or as a page.
func (a *app) show(schema string, v any, human func(*page)) error {
	if a.json {
		return a.writeJSON(schema, v)
	}
	p := &page{style: a.style, now: a.now()}
	human(p)
	_, err := a.stdout.Write(p.buf.Bytes())
	return outputFault(err)
}

// writeJSON writes v, which encodes as an object, with its schema in front.
func (a *app) writeJSON(schema string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	head := `{"schema":"ombud.` + schema + `"`
	if !bytes.HasPrefix(body, []byte("{}")) {
		head += ","
	}
	_, err = a.stdout.Write(append([]byte(head), body[1:]...))
	return outputFault(err)
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.New(fault.Internal, "encode result: %w", err)
	}
	return buf.Bytes(), nil
}

func outputFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "write result: %w", err)
}

// Units, for people.

// clock writes a moment in the local zone: the time of day for today, with the
// date otherwise, "-" for none.
func (p *page) clock(us int64) string {
	if us == 0 {
		return "-"
	}
	t := time.UnixMicro(us).In(p.now.Location())
	if y, m, d := t.Date(); sameDay(p.now, y, m, d) {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

func sameDay(now time.Time, y int, m time.Month, d int) bool {
	ny, nm, nd := now.Date()
	return ny == y && nm == m && nd == d
}

// money writes millionths of a dollar; an unknown part is said to be there.
func money(micro int64, known bool) string {
	s := fmt.Sprintf("$%d.%04d", micro/1e6, micro%1e6/100)
	if micro%100 != 0 && micro < 10_000 {
		s = fmt.Sprintf("$%d.%06d", micro/1e6, micro%1e6)
	}
	switch {
	case known:
		return s
	case micro == 0:
		return "unknown"
	}
	return "at least " + s
}

// span writes a duration with as many digits as matter.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute && d%time.Second == 0:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// size writes a number of bytes.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < len("KMGTP")-1 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// plural writes a count with its noun.
func plural(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
