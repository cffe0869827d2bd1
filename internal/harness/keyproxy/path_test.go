package keyproxy

import (
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestAPathIsReadInOneWay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"/v1":                             true,
		"/v1/":                            true,
		"/v1/messages":                    true,
		"/v1/models/gemini:stream":        true,
		"/v1/models/gemini%3Astream":      true,
		"/v1beta/models":                  false, // beside it
		"/v1x":                            false,
		"/":                               false,
		"":                                false,
		"*":                               false,
		"v1/messages":                     false,
		"/v1/../admin":                    false,
		"/v1/..":                          false,
		"/v1/./messages":                  false,
		"/v1/%2e%2e/admin":                false,
		"/v1/.%2E/admin":                  false,
		"/v1/%252e%252e/admin":            false,
		"/v1/..;/admin":                   false,
		"/v1/..%3b/admin":                 false,
		"/v1//admin":                      false,
		"//v1/messages":                   false,
		"/v1/a%2fb":                       false,
		"/v1/a%5C..%5cb":                  false,
		`/v1/a\b`:                         false,
		"/v1/a%00b":                       false,
		"/v1/a%0d%0aHost:%20b":            false,
		"/v1/%zz":                         false,
		"/%76%31/messages":                false, // the base is spelled as it is
		"/v1/...":                         true,
		"/v1/messages?x":                  false, // no query: a name with a question mark
		"/v1/messages%3fx":                false,
		"/v1/" + strings.Repeat("a/", 99): true,
	} {
		if got := below("/v1", text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if !below("", "/v1/messages") || below("", "/v1/../messages") {
		t.Error("with a base of no path")
	}
}

// FuzzBelow: what is let through leads nowhere else, whoever unescapes or cleans it.
func FuzzBelow(f *testing.F) {
	for _, text := range []string{"/v1/messages", "/v1/../x", "/v1/%2e%2e/x", "/v1/%25252e%25252e/x", "/v1/a;b/..", "/v1/%c0%ae"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !below("/v1", text) {
			return
		}
		for range 3 {
			for _, as := range []string{text, strings.ReplaceAll(text, `\`, "/")} {
				if got := path.Clean(as); got != "/v1" && !strings.HasPrefix(got, "/v1/") {
					t.Fatalf("%q leads to %q", text, got)
				}
			}
			plain, err := url.PathUnescape(text)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			text = plain
		}
	})
}
