package client

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of what a program may say to the log.
const (
	lineLength = 400             // bytes shown of one line
	lineBurst  = 20              // lines at once
	lineEvery  = 5 * time.Second // then one each
	lineKept   = 200             // of the last, for ombud mcp logs
)

// Line is something a server wrote to its standard error.
type Line struct {
	At   time.Time
	Text string
}

// lines keeps the last lines of the standard error of a server, over all its lives, and
// carries some to the log. It never makes the program wait, and nothing is decided by
// what it says.
type lines struct {
	log    *slog.Logger
	redact func(string) string
	now    func() time.Time

	mu     sync.Mutex
	rest   []byte // of a line that has not ended
	cut    bool   // the rest of the line is passed over
	kept   []Line
	budget float64
	at     time.Time
}

func newLines(log *slog.Logger, redact func(string) string, now func() time.Time) *lines {
	return &lines{log: log, redact: redact, now: now, budget: lineBurst}
}

// Write takes a piece of standard error.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		piece := p
		if end >= 0 {
			piece = p[:end]
		}
		if room := 4*lineLength - len(l.rest); !l.cut && room > 0 {
			l.rest = append(l.rest, piece[:min(room, len(piece))]...)
		}
		l.cut = len(l.rest) >= 4*lineLength
		if end < 0 {
			break
		}
		l.emit(string(l.rest))
		l.rest, l.cut, p = l.rest[:0], false, p[end+1:]
	}
	return n, nil
}

// flush says what is left when the program is gone.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.emit(string(l.rest))
		l.rest = l.rest[:0]
	}
}

// last are the last lines.
func (l *lines) last(n int) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Line(nil), l.kept[max(0, len(l.kept)-n):]...)
}

// lastWord is the last line, as the end of a sentence about the end of a program.
func (l *lines) lastWord() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := ""
	if len(l.kept) > 0 {
		said = l.kept[len(l.kept)-1].Text
	}
	if len(l.rest) > 0 {
		said = shown(l.redact(string(l.rest)), lineLength)
	}
	if said == "" {
		return ""
	}
	return "; the last it said: " + shown(said, 200)
}

// emit is called with the lock.
func (l *lines) emit(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	// What was a secret is taken out before the line is cut, or a part would stay.
	text = shown(l.redact(text), lineLength)
	now := l.now()
	if len(l.kept) == lineKept {
		l.kept = append(l.kept[:0], l.kept[1:]...)
	}
	l.kept = append(l.kept, Line{now, text})
	if !l.at.IsZero() {
		l.budget = min(lineBurst, l.budget+now.Sub(l.at).Seconds()/lineEvery.Seconds())
	}
	l.at = now
	if l.budget < 1 {
		return
	}
	l.budget--
	l.log.Info("a server says", "text", text)
}
