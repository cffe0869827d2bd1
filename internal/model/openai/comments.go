package openai

import (
	"io"
	"net/http"
	"strings"
)

// commentless takes the comments out of event streams. Servers send them to keep
// a slow stream alive; the client would glue them to the text of an error that
// comes later and then not be able to read it.
type commentless struct{ next http.RoundTripper }

func (t commentless) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err == nil && strings.HasPrefix(res.Header.Get("content-type"), "text/event-stream") {
		res.Body = &stripper{ReadCloser: res.Body, lineStart: true}
	}
	return res, err
}

// stripper drops every line that begins with a colon.
type stripper struct {
	io.ReadCloser
	lineStart, comment bool
}

func (s *stripper) Read(p []byte) (int, error) {
	for {
		n, err := s.ReadCloser.Read(p)
		kept := 0
		for _, b := range p[:n] {
			s.comment = s.comment || s.lineStart && b == ':'
			s.lineStart = b == '\n'
			if !s.comment {
				p[kept] = b
				kept++
			}
			s.comment = s.comment && !s.lineStart
		}
		if kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
	}
}
