package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ombud-run/ombud/internal/fault"
)

// MaxFrame is the most bytes of JSON one frame holds.
const MaxFrame = 16 << 20

// maxSkip is the longest over-long frame whose bytes are still read past. A
// larger length is no frame at all: "GET " read as a length is 1.2 GB.
const maxSkip = 16 * MaxFrame

const headerLen = 4

// TooLong is a frame over MaxFrame. Nothing of its body was read or allocated.
type TooLong struct{ Size int64 }

func (e *TooLong) Error() string {
	return fmt.Sprintf("frame of %d bytes is over the limit of %d", e.Size, MaxFrame)
}

// Skippable reports whether Skip can bring the reader to the next frame.
func (e *TooLong) Skippable() bool { return e.Size <= maxSkip }

// Skip reads past the body of the over-long frame that r has just refused.
func (e *TooLong) Skip(r io.Reader) error {
	if _, err := io.CopyN(io.Discard, r, e.Size); err != nil {
		return fmt.Errorf("skip frame of %d bytes: %w", e.Size, err)
	}
	return nil
}

// ReadFrame reads one frame and returns its body, not yet looked at. The error
// is io.EOF at a clean end, io.ErrUnexpectedEOF within a frame, *TooLong before
// the body of one over MaxFrame. Memory grows with the bytes that arrived, not
// with the length that was claimed.
func ReadFrame(r io.Reader) ([]byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(header[:]))
	if size > MaxFrame {
		return nil, &TooLong{Size: size}
	}
	var body bytes.Buffer
	body.Grow(int(min(size, 4096)) + bytes.MinRead)
	if _, err := io.CopyN(&body, r, size); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return body.Bytes(), nil
}

// EncodeFrame returns v as one whole frame, header included, ready for a single
// write. It fails with fault.Invalid over MaxFrame and with fault.Internal when
// v has no JSON form. Invalid UTF-8 in a Go string becomes U+FFFD.
func EncodeFrame(v any) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, headerLen))
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.New(fault.Internal, "encode %T: %w", v, err)
	}
	return sealFrame(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// sealFrame writes the header of a frame.
func sealFrame(frame []byte) ([]byte, error) {
	size := len(frame) - headerLen
	if size > MaxFrame {
		return nil, fault.New(fault.Invalid, "%w", &TooLong{Size: int64(size)}).
			WithHint("ask for less at a time, or send it as a file")
	}
	binary.BigEndian.PutUint32(frame, uint32(size))
	return frame, nil
}

// ChangeFrame returns a frame with its body changed by fn, which returns JSON too,
// and the body itself if nothing is to be changed.
func ChangeFrame(frame []byte, fn func(body []byte) []byte) ([]byte, error) {
	body := frame[headerLen:]
	changed := fn(body)
	if len(changed) == len(body) && (len(body) == 0 || &changed[0] == &body[0]) {
		return frame, nil
	}
	return sealFrame(append(make([]byte, headerLen, headerLen+len(changed)), changed...))
}
