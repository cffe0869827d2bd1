package recipe

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a file holds, it is a recipe that can be tried, or it is told what is wrong, in
// a line that the file has.
func FuzzRead(f *testing.F) {
	every, err := os.ReadFile("testdata/every.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(every)
	for _, name := range Examples() {
		text, _ := Example(name)
		f.Add(text)
	}
	for _, text := range []string{"", "a", "[", "ombud: recipe/v1", of("  - log: {{ .x }}"), "? a\n: b", "- - - a", "a: !!x b", "<<: *a", "%YAML 1.1\n---\na"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, problems := Read("x.yaml", data, testNow, nil)
		if (r == nil) != (len(problems) > 0) {
			t.Fatalf("recipe %v, problems %v", r != nil, problems)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range problems {
			if p.Line < 0 || p.Line > lines+1 || p.Msg == "" || !utf8.ValidString(p.Msg) && utf8.Valid(data) {
				t.Fatalf("of %d lines: %+v", lines, p)
			}
		}
		if r == nil {
			return
		}
		if !ValidName(r.Name) || len(r.On) == 0 || len(r.Steps) == 0 {
			t.Fatalf("taken: %+v", r)
		}
		r.Describe()
		r.Try(t.Context(), "manual", nil, nil)
	})
}

// A template renders, or says what is wrong with it; it does not fill memory, and what
// others wrote does not leave its fence.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{{ .payload.a }}", "{{ range .payload.l }}{{ . }}{{ end }}", "{{ with $x := .payload }}{{ $x }}{{ end }}", "{{ printf \"%9d\" 1 }}",
		"{{ if .now }}{{ .payload.a | urlquery }}{{ end }}", "{{ (index .payload.l 0) }}", "{{ json $ }}", "{{/* */}}", "{{ slice .now 1 2 }}", "{{ break }}"} {
		f.Add(s, "evil")
	}
	f.Fuzz(func(t *testing.T, text, evil string) {
		if strings.ContainsAny(evil+text, "«»") || strings.Contains(text, "Zq9!") || !utf8.ValidString(evil) {
			return
		}
		evil = "Zq9!" + evil
		for _, foreign := range []bool{true, false} {
			for _, u := range []use{asText, asPrompt, asURL, asHeader} {
				notes := &Notes{File: "x.yaml"}
				tmpl := newTemplate(&Node{Kind: TextNode, Text: text}, u, foreign, nil, notes)
				if (tmpl == nil) != (len(notes.Problems) > 0) {
					t.Fatalf("template %v, problems %v", tmpl != nil, notes.Problems)
				}
				if tmpl == nil {
					continue
				}
				v := newValues(func(text, from string) string { return "«" + text + "»" })
				v.set("payload", map[string]any{"a": evil, "l": []any{evil}}, "others")
				v.set("now", "now", "")
				out, err := tmpl.render(v)
				if err != nil {
					continue
				}
				if len(out) > maxText {
					t.Fatalf("%d bytes", len(out))
				}
				if u == asPrompt && strings.Contains(text, "{{") && outside(out, evil) {
					t.Fatalf("%q renders %q", text, out)
				}
			}
		}
	})
}

// outside reports whether a text stands outside of the marks.
func outside(text, what string) bool {
	for text != "" {
		before, rest, found := strings.Cut(text, "«")
		if strings.Contains(before, what) {
			return true
		}
		if !found {
			return false
		}
		_, text, _ = strings.Cut(rest, "»")
	}
	return false
}
