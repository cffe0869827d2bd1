package supervise

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// LineLength is how much of one line is shown, in bytes.
const LineLength = 400

// Line is something a program wrote to its standard error.
type Line struct {
	At   time.Time
	Text string
}

// Config says how much of what a program says is carried on.
type Config struct {
	What   string              // the program, for the log: "a tool process"
	Redact func(string) string // takes out what is secret
	Now    func() time.Time
	Burst  int           // lines at once into the log
	Every  time.Duration // then one each; the others are counted
	Keep   int           // of the last lines, at least 1
}

// Output keeps the last lines of a program's standard error, and carries some to the log. It
// never makes the program wait, and nothing is decided by what it says.
type Output struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	rest    []byte // of a line that has not ended
	cut     bool   // the rest of the line is passed over
	kept    []Line
	budget  float64
	at      time.Time
	dropped int64
}

// NewOutput returns the output of a program that has said nothing.
func NewOutput(log *slog.Logger, cfg Config) *Output {
	return &Output{cfg: cfg, log: log, budget: float64(cfg.Burst)}
}

// Write takes a piece of standard error.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		piece := p
		if end >= 0 {
			piece = p[:end]
		}
		if room := 4*LineLength - len(o.rest); !o.cut && room > 0 {
			o.rest = append(o.rest, piece[:min(room, len(piece))]...)
		}
		if !o.cut && len(o.rest) == 4*LineLength {
			o.cut, o.rest = true, append(o.rest[:0], guard.Whole(string(o.rest))...)
		}
		if end < 0 {
			break
		}
		o.emit("stderr", string(o.rest))
		o.rest, o.cut, p = o.rest[:0], false, p[end+1:]
	}
	return n, nil
}

// Say takes a line that came in another way.
func (o *Output) Say(from, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.emit(guard.OneLine(from, 10), fault.Cut(text, 4*LineLength))
}

// Flush says what is left when the program is gone.
func (o *Output) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rest) > 0 {
		o.emit("stderr", string(o.rest))
		o.rest = o.rest[:0]
	}
	o.tellDropped()
}

// Redacted is a text without what is secret.
func (o *Output) Redacted(text string) string { return o.cfg.Redact(text) }

// Last are the last lines that are kept, at most n.
func (o *Output) Last(n int) []Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Line(nil), o.kept[max(0, len(o.kept)-n):]...)
}

// LastWord is the last line, as the end of a sentence about the end of a program.
func (o *Output) LastWord() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	said := ""
	if len(o.kept) > 0 {
		said = o.kept[len(o.kept)-1].Text
	}
	if len(o.rest) > 0 {
		said = guard.OneLine(o.cfg.Redact(string(o.rest)), LineLength)
	}
	if said == "" {
		return ""
	}
	return "; the last it said: " + guard.OneLine(said, 200)
}

// emit is called with the lock.
func (o *Output) emit(from, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	// What was a secret is taken out before the line is cut, or a part would stay.
	text = guard.OneLine(o.cfg.Redact(text), LineLength)
	now := o.cfg.Now()
	if len(o.kept) == o.cfg.Keep {
		o.kept = append(o.kept[:0], o.kept[1:]...)
	}
	o.kept = append(o.kept, Line{now, text})
	if !o.at.IsZero() {
		o.budget = min(float64(o.cfg.Burst), o.budget+now.Sub(o.at).Seconds()/o.cfg.Every.Seconds())
	}
	o.at = now
	if o.budget < 1 {
		o.dropped++
		return
	}
	o.budget--
	o.tellDropped()
	o.log.Info(o.cfg.What+" says", "from", from, "text", text)
}

func (o *Output) tellDropped() {
	if o.dropped > 0 {
		o.log.Info(o.cfg.What+" said more than is kept", "lines", o.dropped)
		o.dropped = 0
	}
}
