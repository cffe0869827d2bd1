package loop

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// What is written by hand is read by encoding/json as what was meant.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\t\x00\x1f", "ü€😀\u2028", "\xff\xc3", "\ufffd", "<&>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		raw := appendString([]byte(nil), s)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if want := string(bytes.ToValidUTF8([]byte(s), nil)); utf8.ValidString(s) && got != want || !utf8.ValidString(got) {
			t.Errorf("%q is read as %q", s, got)
		}
		sc := scanner{b: raw}
		if back := sc.text(); back != got || sc.bad || sc.i != len(raw) {
			t.Errorf("%q is read back as %q", s, back)
		}
	})
}

// What encoding/json writes is read by hand as by itself; on anything else nothing breaks.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, ``, `{"a":"b","c":["d",{"e":[]}],"f":-1.5e3,"g":true}`, ` { "a" : "\u00fc\ud83d\ude00\ud83d\n\/" , "b" : null } `, `{"a":{"b":"}]\""}}`, `{"a"`, `{"a":}`, `["a"]`, `{"a":1 "b":2}`, `{"a":"\`, `{"a":"\u12`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]any{}
		err := read(text, func(s *scanner, name string) {
			switch s.peek() {
			case '"':
				got[name] = s.text()
			case '[':
				list := []string{}
				s.items(func() { list = append(list, string(bytes.TrimSpace(s.skip()))) })
				got[name] = list
			default:
				got[name] = string(bytes.TrimSpace(s.skip()))
			}
		})
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil {
			return // not for us to judge
		}
		if err != nil {
			t.Fatalf("%q is JSON: %v", text, err)
		}
		want := map[string]any{}
		for name, raw := range fields {
			var text string
			var items []json.RawMessage
			switch {
			case raw[0] == '"' && json.Unmarshal(raw, &text) == nil:
				want[name] = text
			case raw[0] == '[' && json.Unmarshal(raw, &items) == nil:
				list := []string{}
				for _, i := range items {
					list = append(list, string(i))
				}
				want[name] = list
			default:
				want[name] = string(raw)
			}
		}
		if utf8.Valid(text) && !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	})
}
