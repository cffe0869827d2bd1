package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// MaxLine is the longest line that is read, in bytes. A tool result of 300 kB
// comes as one line, and nothing stops a longer one.
const MaxLine = 16 << 20

// parser reads the lines of one CLI into the book.
type parser interface {
	// line reads one JSON object. It may not keep raw.
	line(b *book, raw []byte)
	// settle sees the end of the process before the outcome is decided.
	settle(b *book, exit Exit)
}

// Exit is how the process ended.
type Exit struct {
	Code   int    // exit code; of no meaning if a signal ended it
	Signal int    // the signal that ended it, 0 if none
	Killed bool   // its owner ended it: a CLI may then exit 0 as if nothing was
	Stderr string // the end of stderr, for a person; it decides nothing
}

// Decoder reads one run. It is not safe for use by several goroutines at once.
type Decoder struct {
	adapter Adapter
	parser  parser
	book    *book
	half    []byte // a line whose end has not come
	skip    bool   // the line is too long, its rest is dropped
	closed  bool
}

// Write takes the next piece of stdout. It takes all of it and never fails, so
// a reader of the child's pipe is never held up by what the child prints.
func (d *Decoder) Write(p []byte) (int, error) {
	rest := p
	for len(rest) > 0 && !d.closed {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			d.keep(rest)
			break
		}
		d.endLine(rest[:at])
		rest = rest[at+1:]
	}
	return len(p), nil
}

// endLine reads a line whose end has come; tail is what is not yet kept of it.
func (d *Decoder) endLine(tail []byte) {
	switch {
	case d.skip:
	case len(d.half)+len(tail) > MaxLine:
		d.tooLong()
	case len(d.half) == 0:
		d.line(tail)
	default:
		d.half = append(d.half, tail...)
		d.line(d.half)
	}
	d.skip = false
	d.half = d.half[:0]
	if cap(d.half) > 1<<20 {
		d.half = nil // one long line does not hold its room for the whole run
	}
}

func (d *Decoder) keep(piece []byte) {
	if d.skip {
		return
	}
	if len(d.half)+len(piece) > MaxLine {
		d.tooLong()
		return
	}
	d.half = append(d.half, piece...)
}

func (d *Decoder) tooLong() {
	d.book.warn(WarnLongLine, "")
	d.half, d.skip = nil, true
}

func (d *Decoder) line(raw []byte) {
	raw = bytes.TrimSpace(raw) // also the \r of a Windows pipe
	if len(raw) == 0 {
		return
	}
	if raw[0] != '{' || !json.Valid(raw) {
		d.book.warn(WarnNotJSON, "")
		return
	}
	d.book.records++
	d.parser.line(d.book, raw)
}

// Close ends the stream and returns the record. Later calls of Write change
// nothing; a later Close returns the same.
func (d *Decoder) Close(exit Exit) Record {
	if d.closed {
		return d.book.rec
	}
	if half := bytes.TrimSpace(d.half); len(half) > 0 && !d.skip {
		// A process that ends well ends its last line too, but a whole record counts.
		d.book.warn(WarnHalfLine, "")
		if half[0] == '{' && json.Valid(half) {
			d.line(half)
		}
	}
	d.closed, d.half = true, nil
	d.parser.settle(d.book, exit)
	d.book.finish(exit)
	if w, is := d.adapter.Warning(d.book.rec.Version); is {
		d.book.warn(w.Kind, w.Detail)
	}
	return d.book.rec
}

// finish decides the outcome from what was closed and how the process ended.
func (b *book) finish(exit Exit) {
	b.rec.ExitCode, b.rec.Signal = exit.Code, exit.Signal
	v := b.verdict
	if !b.closed {
		v.outcome = b.unclosed(exit)
	}
	b.rec.Text = strings.ToValidUTF8(string(b.text), "\uFFFD")
	b.rec.Outcome, b.rec.Reason, b.rec.Status, b.rec.Error = v.outcome, v.reason, v.status, v.err
	if v.outcome == Completed {
		b.rec.Error = ""
		if exit.Code != 0 || exit.Signal != 0 {
			b.warn(WarnExit, fmt.Sprintf("code %d signal %d", exit.Code, exit.Signal))
		}
	} else if b.rec.Error == "" {
		b.rec.Error = cmp.Or(b.lastErr, explained(v.outcome, exit.Stderr))
	}
	b.partial()
	b.rec.Usage.Known = b.usageTold
	b.files()
	b.money()
}

// unclosed is the outcome of a run that told none.
func (b *book) unclosed(exit Exit) Outcome {
	switch {
	case exit.Signal != 0 || exit.Killed || signalled(exit.Code):
		return Killed
	case b.records == 0 && b.notJSON > 0 && exit.Code == 0:
		return Protocol
	case !b.begun && exit.Code != 0:
		return NotStarted
	}
	return Cut
}

// explained is the end of stderr if the program ended by itself and said
// nothing else. What was stopped from outside needs no explanation, and stderr
// has none.
func explained(o Outcome, stderr string) string {
	switch o {
	case Killed, Interrupted, Denied, Refused:
		return ""
	}
	return tail(stderr)
}

// signalled says whether a code is one a program ends with that handled SIGHUP,
// SIGINT, SIGKILL or SIGTERM itself.
func signalled(code int) bool {
	return code == 129 || code == 130 || code == 137 || code == 143
}
