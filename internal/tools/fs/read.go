package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	defaultRead = 48 << 10 // fits what a model is given of one result
	maxRead     = 256 << 10
)

const readSchema = `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096,"description":"file, relative to the working directory"},
"offset":{"type":"integer","minimum":0,"description":"first byte to read, default 0"},
"limit":{"type":"integer","minimum":4,"maximum":262144,"description":"most bytes to read, default 49152"}}}`

type readInput struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`
}

func (t *Tools) readDefinition() tool.Definition {
	return tool.Definition{
		Name: "fs.read",
		Description: "Read a text file of the working directory. A long file comes in pages: the last line of a page says " +
			"at which offset to go on. Bytes that are not text are shown as U+FFFD.",
		Input: json.RawMessage(readSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 4 * maxRead, Source: t.source,
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[readInput](input)
			if err != nil {
				return nil, err
			}
			path, err := t.root.Readable(in.Path)
			return need("fs.read", path, err)
		},
		Summary: func(input json.RawMessage) string {
			in, _ := tool.Decode[readInput](input) // validated; an empty path is shown as ""
			return "read " + tool.Show(in.Path)
		},
	}
}

func (t *Tools) read(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[readInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if in.Limit == 0 {
		in.Limit = defaultRead
	}
	f, err := t.root.Open(in.Path)
	if err != nil {
		return tool.Output{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return tool.Output{}, unreadable(in.Path, err)
	}
	if err := ctx.Err(); err != nil {
		return tool.Output{}, err
	}
	from, content, err := t.labelled(ctx, in.Path, f, info.Size())
	if err != nil {
		return tool.Output{}, err
	}
	text, err := page(content, info.Size(), in.Offset, min(in.Limit, maxRead))
	if err != nil {
		return tool.Output{}, unreadable(in.Path, err)
	}
	return tool.Output{Text: text, Label: &from}, nil
}

func unreadable(path string, err error) error {
	return fault.New(fault.Unavailable, "read %s: %w", tool.Show(path), err)
}

// page reads one page. A whole file of text comes back as it is; anything less
// ends with a line in brackets that says what is missing.
func page(r io.ReaderAt, size, offset, limit int64) (string, error) {
	buf := make([]byte, limit)
	n, err := r.ReadAt(buf, offset)
	if err != nil && err != io.EOF {
		return "", err
	}
	ended := err == io.EOF
	buf = buf[:n]
	if !ended {
		buf = wholeRunes(buf)
	}
	next := offset + int64(len(buf))
	text, bad := markInvalid(buf)
	var notes []string
	if offset > 0 || !ended && next < size {
		notes = append(notes, fmt.Sprintf("bytes %d to %d of %d", offset, next, max(size, next)))
	}
	if !ended && next < size {
		notes = append(notes, fmt.Sprintf("go on with offset %d", next))
	}
	if bad > 0 {
		notes = append(notes, fmt.Sprintf("%d bytes are not text and shown as %c", bad, utf8.RuneError))
	}
	if len(notes) > 0 {
		text += "\n[" + strings.Join(notes, "; ") + "]"
	}
	return text, nil
}

// wholeRunes drops a rune that the end of the page cut in two.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		tail := b[len(b)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// markInvalid replaces each byte that is not text, NUL included, by U+FFFD and
// counts them.
func markInvalid(b []byte) (string, int) {
	var out strings.Builder
	out.Grow(len(b))
	bad := 0
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == 0 || r == utf8.RuneError && size == 1 {
			r = utf8.RuneError
			bad++
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String(), bad
}
