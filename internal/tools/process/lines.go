package process

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of what a process may say to the log.
const (
	lineLength = 400             // bytes shown of one line
	lineBurst  = 50              // lines at once
	lineEvery  = 2 * time.Second // then one each
)

// lines carries what a process says to its standard error, and in Log events, to the
// log: so many lines at a time, the others counted. It never makes the process wait,
// and nothing is decided by what it says.
type lines struct {
	log    *slog.Logger
	redact func(string) string

	mu      sync.Mutex
	rest    []byte // of a line that has not ended
	cut     bool   // the rest of the line is passed over
	last    string // line that was said
	budget  float64
	at      time.Time
	dropped int64
}

func newLines(log *slog.Logger, redact func(string) string) *lines {
	return &lines{log: log, redact: redact, budget: lineBurst}
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
		l.emit("stderr", string(l.rest))
		l.rest, l.cut, p = l.rest[:0], false, p[end+1:]
	}
	return n, nil
}

// say takes a Log event.
func (l *lines) say(level, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit(shown(level, 10), text[:min(len(text), 4*lineLength)])
}

// flush says what is left when the process is gone.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.emit("stderr", string(l.rest))
		l.rest = l.rest[:0]
	}
	if l.dropped > 0 {
		l.log.Info("a tool process said more than is kept", "lines", l.dropped)
		l.dropped = 0
	}
}

// lastWord is the last line, as the end of a sentence about the end of a process.
func (l *lines) lastWord() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.last
	if len(l.rest) > 0 {
		said = shown(l.redact(string(l.rest)), lineLength)
	}
	if said == "" {
		return ""
	}
	return "; the last it said: " + shown(said, 200)
}

// emit is called with the lock.
func (l *lines) emit(from, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	// What was a secret is taken out before the line is cut, or a part would stay.
	text = shown(l.redact(text), lineLength)
	l.last = text
	now := time.Now()
	if !l.at.IsZero() {
		l.budget = min(lineBurst, l.budget+now.Sub(l.at).Seconds()/lineEvery.Seconds())
	}
	l.at = now
	if l.budget < 1 {
		l.dropped++
		return
	}
	l.budget--
	if l.dropped > 0 {
		l.log.Info("a tool process said more than is kept", "lines", l.dropped)
		l.dropped = 0
	}
	l.log.Info("a tool process says", "from", from, "text", text)
}
