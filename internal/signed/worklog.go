package signed

import (
	"context"
	"log/slog"
	"strings"

	"github.com/ombud-run/ombud/internal/loops"
)

// lines is a log handler that puts what a module says, and why its calls fail, into the log
// of the loop. It has no lock: all of it comes from the goroutine that runs the module.
type lines struct {
	k     *kit
	attrs []slog.Attr
}

var _ slog.Handler = lines{}

func (lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithGroup(string) slog.Handler          { return l }

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.k, append(append([]slog.Attr{}, l.attrs...), attrs...)}
}

func (l lines) Handle(ctx context.Context, r slog.Record) error {
	fields := map[string]string{}
	note := func(a slog.Attr) bool { fields[a.Key] = a.Value.String(); return true }
	for _, a := range l.attrs {
		note(a)
	}
	r.Attrs(note)
	delete(fields, "loop")
	text, says := fields["text"]
	if !says {
		level := loops.Info
		if r.Level >= slog.LevelWarn {
			level = loops.Warn
		}
		l.k.Log(ctx, level, r.Message, fields)
		return nil
	}
	level := loops.Info
	if fields["by"] == "stderr" {
		level = loops.Warn
		if last := strings.TrimSpace(text); last != "" && !died(l.k.said) {
			l.k.said = last // and not the trace behind why it died
		}
	}
	l.k.Log(ctx, level, text, nil)
	return nil
}

// died reports whether a line is the one by which a Go module says why it ends.
func died(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}
