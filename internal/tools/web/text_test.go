package web

import (
	"net/http"
	"net/url"
	"testing"
)

// FuzzReadable: no page, in whatever charset, makes the reader panic or grow past
// what was read by more than its bounds.
func FuzzReadable(f *testing.F) {
	for _, seed := range []string{
		`<p>a<b>c</b></p><a href="x">y</a>`, `<table><td>1<td>2<pre><li>`, `<svg><p>x</svg>`, `<meta charset=utf-16>x`,
		`<a href="//h/%zz">`, `<div style="display:none;;:">x`, "\x00\xff<title>", `<h1><h1><br><hr>`,
	} {
		f.Add("text/html", []byte(seed))
	}
	f.Add("text/plain; charset=shift_jis", []byte("\x83\x8c"))
	f.Add("text/html; charset=\"", []byte("<p>x"))
	base, err := url.Parse("https://example.org/dir/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		resp := &http.Response{Header: http.Header{"Content-Type": {kind}}, Request: &http.Request{URL: base}}
		const limit = 1000
		text, ok := readable(resp, body, limit)
		if !ok && text != "" {
			t.Fatalf("%q is no text and shown as %q", body, text)
		}
		if most := limit + 8*len(body) + 2*maxLink; len(text) > most {
			t.Fatalf("%d bytes grew to %d", len(body), len(text))
		}
	})
}
