// Package logfile is the daemon's own log: JSON lines in one file, as slog
// writes them, and whatever a dying process printed between them.
//
// The file is never a source of truth. It is private, because attributes name
// things, and it is moved aside when a daemon starts and finds it long.
package logfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

const (
	maxSize   = 16 << 20               // a longer file is moved aside at the next start
	maxTail   = 8 << 20                // how far back Read looks
	pollEvery = 200 * time.Millisecond // how soon a follower sees a line
)

// Open opens the log for appending, mode 0600. A long one is first renamed to
// path.1, over the one that was there. Only the daemon's start calls it.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fileFault("move the old log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fileFault("open the log: %w", err)
	}
	return f, nil
}

// Handler writes records as the lines that Read understands.
func Handler(w io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
}

// Read hands the last lines of the log to fn, oldest first: at most req.Lines of
// req.Level or above. With req.Follow it goes on until ctx ends, which is no
// error. A file that is not there has no lines.
func Read(ctx context.Context, path string, req wire.LogsTailRequest, fn func(wire.LogLine) error) error {
	least, err := levelOf(req.Level)
	if err != nil {
		return err
	}
	count := req.Lines
	if count <= 0 {
		count = 100
	}
	r := &reader{path: path, least: least}
	lines, err := r.last(min(count, 10_000))
	if err != nil {
		return err
	}
	for _, l := range lines {
		if err := fn(l); err != nil {
			return err
		}
	}
	if !req.Follow {
		return nil
	}
	return r.follow(ctx, fn)
}

func levelOf(name string) (slog.Level, error) {
	var l slog.Level
	if name == "" {
		return slog.LevelInfo, nil
	}
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return l, fault.New(fault.Invalid, "log level %q is none of debug, info, warn, error", name)
	}
	return l, nil
}

// reader knows how far it has read.
type reader struct {
	path   string
	least  slog.Level
	offset int64       // behind the last whole line
	file   fs.FileInfo // the file that offset is in
	lastAt int64
}

// last returns the last n lines that count.
func (r *reader) last(n int) ([]wire.LogLine, error) {
	data, err := r.read(maxTail)
	if err != nil {
		return nil, err
	}
	lines := r.parse(data)
	return lines[max(0, len(lines)-n):], nil
}

func (r *reader) follow(ctx context.Context, fn func(wire.LogLine) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		data, err := r.read(maxTail)
		if err != nil {
			return err
		}
		for _, l := range r.parse(data) {
			if err := fn(l); err != nil {
				return err
			}
		}
	}
}

// read returns the whole lines behind offset, of the last limit bytes, and moves
// offset behind them. When another file took the name it begins anew.
func (r *reader) read(limit int64) ([]byte, error) {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileFault("open the log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fileFault("look at the log: %w", err)
	}
	if r.file == nil || !os.SameFile(r.file, info) || info.Size() < r.offset {
		r.offset = 0
	}
	r.file = info
	start := max(r.offset, info.Size()-limit)
	data := make([]byte, info.Size()-start)
	n, err := f.ReadAt(data, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fileFault("read the log: %w", err)
	}
	data = data[:n]
	if start > r.offset { // in the middle of a line, most likely
		skip := bytes.IndexByte(data, '\n') + 1
		data, start = data[skip:], start+int64(skip)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	r.offset = start + int64(len(data))
	return data, nil
}

func (r *reader) parse(data []byte) []wire.LogLine {
	var out []wire.LogLine
	for raw := range bytes.Lines(data) {
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			continue
		}
		line, level := Parse(raw)
		if line.At == 0 {
			line.At = r.lastAt
		}
		r.lastAt = line.At
		if level >= r.least {
			out = append(out, line)
		}
	}
	return out
}

// Parse reads one line. What slog did not write was printed by a process in
// trouble: it is an error whose message is the line, at no known time.
func Parse(raw []byte) (wire.LogLine, slog.Level) {
	var attrs map[string]json.RawMessage
	var at time.Time
	var level slog.Level
	var msg string
	if json.Unmarshal(raw, &attrs) != nil ||
		json.Unmarshal(attrs[slog.TimeKey], &at) != nil ||
		json.Unmarshal(attrs[slog.LevelKey], &level) != nil ||
		json.Unmarshal(attrs[slog.MessageKey], &msg) != nil {
		return wire.LogLine{Level: "error", Message: strings.ToValidUTF8(string(raw), "\uFFFD")}, slog.LevelError
	}
	line := wire.LogLine{At: at.UnixMicro(), Level: strings.ToLower(level.String()), Message: msg}
	for _, key := range []string{slog.TimeKey, slog.LevelKey, slog.MessageKey} {
		delete(attrs, key)
	}
	if len(attrs) > 0 {
		rest, err := json.Marshal(attrs)
		if err == nil { // always: it was just decoded
			line.Attrs = rest
		}
	}
	return line, level
}

func fileFault(format string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Permission, format, err)
	}
	return fault.New(fault.Unavailable, format, err)
}
