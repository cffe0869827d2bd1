package guard

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestCleanJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"b":1.0, "a":"x"}`:        `{"b":1.0, "a":"x"}`,
		`"\ud83d\ude00 \u00e9"`:     `"\ud83d\ude00 \u00e9"`,
		`"\ud83d"`:                  `"\ufffd"`,
		`"\ude00\ud83d"`:            `"\ufffd\ufffd"`,
		`"\ud83d\ud83d\ude00"`:      `"\ufffd\ud83d\ude00"`,
		`"\ud83d\u0041"`:            `"\ufffd\u0041"`,
		`"\uD83Dx\u0000"`:           `"\ufffdx\ufffd"`,
		`"\\ud83d"`:                 `"\\ud83d"`,
		`"\\\ud83d"`:                `"\\\ufffd"`,
		`{"\ud83d":["\u0000",1e5]}`: `{"\ufffd":["\ufffd",1e5]}`,
		"\"\xff\"":                  "\"\uFFFD\"",
	} {
		got, err := CleanJSON([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("CleanJSON(%s) = %s, %v, want %s", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "{", `"\ud8"`, "1 2", "\"\x00\""} {
		if got, err := CleanJSON([]byte(bad)); !fault.Is(err, fault.Invalid) || got != nil {
			t.Errorf("CleanJSON(%q) = %s, %v", bad, got, err)
		}
	}
}

func FuzzCleanJSON(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00\ud83d\\u0000\u0000"}`))
	f.Add([]byte("[\"\xff\", 1.50]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := CleanJSON(raw)
		if err != nil {
			return
		}
		var before, after any
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%s is no JSON: %v", got, err)
		}
		if err := json.Unmarshal(raw, &before); err != nil {
			return // a number too large for the check
		}
		again, err := CleanJSON(got)
		if err != nil || string(again) != string(got) || !utf8.Valid(got) {
			t.Fatalf("%s is not clean: %s, %v", got, again, err)
		}
		if utf8.Valid(raw) && !strings.Contains(string(raw), `\u0000`) && !reflect.DeepEqual(before, after) {
			t.Fatalf("%s and %s differ", raw, got)
		}
	})
}
