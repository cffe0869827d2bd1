// Package result is the tool result.read, which reads a result that was too long
// to be shown, piece by piece.
package result

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	usualLimit = 32 << 10
	maxLimit   = 60 << 10 // fits, with the note, what a model is shown of one result
	timeout    = 30 * time.Second
)

// Lookup returns the label of the result that is kept under a handle, if it is one
// of a call made in a run of this conversation, and NotFound otherwise. A handle
// by itself opens nothing: it can be read in texts, and guessed or passed on.
type Lookup func(ctx context.Context, conversation, handle string) (label.Label, error)

// Blobs is where results are kept.
type Blobs interface {
	Stat(ctx context.Context, handle string) (blob.Ref, error)
	Open(ctx context.Context, handle string) (io.ReadCloser, error)
}

var _ Blobs = (*blob.Store)(nil)

// Tool is the tool.
type Tool struct {
	blobs  Blobs
	lookup Lookup
}

// New returns the tool.
func New(b Blobs, l Lookup) *Tool { return &Tool{blobs: b, lookup: l} }

// Register makes the tool known to r.
func (t *Tool) Register(r *tool.Registry) error { return r.Add(t.definition(), t.read) }

const schema = `{"type":"object","additionalProperties":false,"required":["handle"],"properties":{
"handle":{"type":"string","minLength":1,"maxLength":64,"description":"blob_…, as the shortened result names it"},
"offset":{"type":"integer","minimum":0,"description":"first byte to read, default 0"},
"limit":{"type":"integer","minimum":4,"maximum":61440,"description":"most bytes to read, default 32768"}}}`

type input struct {
	Handle string `json:"handle"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`
}

func (t *Tool) definition() tool.Definition {
	need := []scope.Scope{scope.Must("memory.read")}
	return tool.Definition{
		Name: "result.read",
		Description: "Read a piece of a long result of an earlier call in this conversation. " +
			"The last line says at which offset to go on.",
		Input: json.RawMessage(schema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 2 * maxLimit, Source: label.Memory,
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return need, nil },
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[input](raw) // validated
			return fmt.Sprintf("read the result %s from byte %d", tool.Show(in.Handle), in.Offset)
		},
	}
}

func (t *Tool) read(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[input](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if in.Limit == 0 {
		in.Limit = usualLimit
	}
	l, err := t.allowed(ctx, inv.Conversation, in.Handle)
	if err != nil {
		return tool.Output{}, err
	}
	ref, err := t.blobs.Stat(ctx, in.Handle)
	if err != nil {
		return tool.Output{}, err
	}
	if in.Offset >= ref.Size {
		return tool.Output{}, fault.New(fault.Invalid, "offset %d is behind the end: the result has %d bytes", in.Offset, ref.Size)
	}
	raw, err := t.piece(ctx, in)
	if err != nil {
		return tool.Output{}, fmt.Errorf("read the result: %w", err)
	}
	return tool.Output{Text: show(raw, in.Offset, ref), Label: &l}, nil
}

// allowed says no in one way, whether there is such a result or not.
func (t *Tool) allowed(ctx context.Context, conversation, handle string) (label.Label, error) {
	none := fault.New(fault.NotFound, "this conversation has no result %s", tool.Show(handle))
	if conversation == "" {
		return label.Label{}, none
	}
	l, err := t.lookup(ctx, conversation, handle)
	if fault.Is(err, fault.NotFound) {
		return l, none
	}
	return l, err
}

// piece reads the bytes asked for. A blob is read from its start: it is sealed in
// pieces of 256 KiB, and the 64 MiB one can have take about a tenth of a second.
func (t *Tool) piece(ctx context.Context, in input) (_ []byte, err error) {
	r, err := t.blobs.Open(ctx, in.Handle)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.CopyN(io.Discard, r, in.Offset); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, min(in.Limit, maxLimit)))
}

// show is a piece as text, ending between two characters, with a line in brackets
// that says where it stands. Bytes that are no text can take more room when they
// are made visible; then the piece is shorter.
func show(raw []byte, offset int64, ref blob.Ref) string {
	if offset+int64(len(raw)) < ref.Size {
		raw = wholeRunes(raw)
	}
	text := guard.CleanText(string(raw))
	for len(text) > maxLimit {
		raw = wholeRunes(raw[:len(raw)/2])
		text = guard.CleanText(string(raw))
	}
	next := offset + int64(len(raw))
	note := fmt.Sprintf("bytes %d to %d of %d", offset, next, ref.Size)
	switch {
	case next < ref.Size:
		note += fmt.Sprintf("; go on with offset %d", next)
	case ref.Cut:
		note += "; the tool was stopped here, at its limit"
	default:
		note += "; this is the end"
	}
	return text + "\n[" + note + "]"
}

// wholeRunes drops a rune that the end of the piece cut in two.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i < len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}
