package redact

import (
	"errors"
	"io"
)

// Stream takes values out of a text that comes in pieces. It keeps back what may be
// the beginning of a value until it can tell. It is not for concurrent use.
type Stream struct {
	r    *Redactor
	held []byte
}

// NewStream returns a stream that knows what r knows, also what r learns later.
func (r *Redactor) NewStream() *Stream { return &Stream{r: r} }

// Push adds a piece and returns what is settled by it.
func (s *Stream) Push(piece []byte) []byte {
	m := s.r.matcher()
	if m == nil && len(s.held) == 0 {
		return piece
	}
	s.held = append(s.held, piece...)
	if m == nil {
		return s.Flush()
	}
	spans, settled := m.find(s.held, false)
	for len(spans) > 0 && spans[len(spans)-1].end > settled {
		spans = spans[:len(spans)-1]
	}
	out := appendWithout(make([]byte, 0, settled), s.held[:settled], spans)
	s.held = append(s.held[:0:0], s.held[settled:]...)
	return out
}

// Flush ends the text and returns the rest of it.
func (s *Stream) Flush() []byte {
	rest := s.r.Bytes(s.held)
	s.held = nil
	return rest
}

// Reset forgets what was kept back: a new text begins.
func (s *Stream) Reset() { s.held = nil }

// Reader reads from src without the values. Closing it closes src.
func (r *Redactor) Reader(src io.ReadCloser) io.ReadCloser {
	if r == nil {
		return src
	}
	return &reader{s: r.NewStream(), src: src}
}

type reader struct {
	s     *Stream
	src   io.ReadCloser
	buf   []byte
	ready []byte
	err   error
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.ready) == 0 && r.err == nil {
		if r.buf == nil {
			r.buf = make([]byte, 32<<10)
		}
		n, err := r.src.Read(r.buf)
		r.ready = r.s.Push(r.buf[:n])
		if err != nil {
			r.err = err
			if errors.Is(err, io.EOF) {
				r.ready = append(r.ready, r.s.Flush()...)
			}
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	if n == 0 {
		return 0, r.err
	}
	return n, nil
}

func (r *reader) Close() error { return r.src.Close() }
