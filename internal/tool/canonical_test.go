package tool

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestCanonicalGivesOneFormToOneMeaning(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , null , "x" ] } `: `{"a":[true,null,"x"],"b":1}`,
		`{"a":1.0,"b":1e0,"c":12345678901234567890}`:  `{"a":1.0,"b":1e0,"c":12345678901234567890}`,
		`{"aa":1,"a":{"z":1,"y":{}},"B":[]}`:          `{"B":[],"a":{"y":{},"z":1},"aa":1}`,
		`"\u0061\u003c\/\u0000"`:                      `"a</\u0000"`,
		`"\ud83d"`:                                    `"` + "\uFFFD" + `"`,
		`[]`:                                          `[]`,
	} {
		got, err := Canonical(json.RawMessage(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v, want %s", in, got, err, want)
		}
	}
}

func TestCanonicalRefusesWithASentenceAModelCanActOn(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                      "an object without values is {}",
		"  \n":                  "an object without values is {}",
		`{"path": "a.txt"`:      "unexpected end of JSON input",
		`{"path": a.txt}`:       `invalid character 'a' looking for beginning of value, after "{\"path\": a"`,
		`{"a":1}{"b":2}`:        "after top-level value",
		`{"a":1} trailing`:      "after top-level value",
		`{"a":1,"a":1}`:         `the key "a" twice`,
		`{"a":1,"\u0061":2}`:    `the key "a" twice`,
		`[{"x":{"k":1,"k":2}}]`: `the key "k" twice`,
		"{\"a\":\"\xff\"}":      "not UTF-8 at byte 6",
		`1e400`:                 "number out of range",
		`1e-999999999`:          "number out of range",
		strings.Repeat("[", 102) + strings.Repeat("]", 102): "nested more than 100",
	} {
		got, err := Canonical(json.RawMessage(in))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Canonical(%.40q) = %s, %v, want an error with %q", in, got, err, want)
		}
	}
}

// value draws any JSON value with unique keys.
func value(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny[bool]), rapid.Map(rapid.String(), toAny[string]),
		rapid.Map(rapid.Int64(), toAny[int64]), rapid.Map(rapid.Float64Range(-1e300, 1e300), toAny[float64]),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), toAny[[]any]),
		rapid.Map(rapid.MapOfN(rapid.String(), value(depth-1), 0, 5), toAny[map[string]any]))
}

func toAny[T any](v T) any { return v }

func TestCanonicalIgnoresTheOrderOfKeysAndKeepsTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		rnd := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		one, two := canonical(t, shuffled(t, rnd, v)), canonical(t, shuffled(t, rnd, v))
		if !bytes.Equal(one, two) {
			t.Fatalf("two orders of one value differ:\n%s\n%s", one, two)
		}
	})
}

func canonical(t *rapid.T, raw []byte) []byte {
	out, err := Canonical(raw)
	if err != nil {
		t.Fatalf("Canonical(%s): %v", raw, err)
	}
	return out
}

// shuffled writes v with the keys of every object in a random order.
func shuffled(t *rapid.T, rnd *rand.Rand, v any) []byte {
	var b bytes.Buffer
	switch v := v.(type) {
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(" ,\n")
			}
			b.Write(shuffled(t, rnd, e))
		}
		b.WriteByte(']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteString(", ")
			}
			b.Write(shuffled(t, rnd, k))
			b.WriteString(": ")
			b.Write(shuffled(t, rnd, v[k]))
		}
		b.WriteByte('}')
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	return b.Bytes()
}

// FuzzCanonical: whatever is accepted keeps its meaning, is its own canonical
// form and is JSON that passes any reader; whatever is refused is an Invalid.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":[1.50,"\ud83d\ude00"]}`, `{"a":1,"a":2}`, `[1e-999999999]`, `"\ud83d"`, "{\"\xff\":1}", `{"a":{}}x`,
		`[[[[]]],{}]`, ``, `-0`, `{"\u2028<>&":"\u007f"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := Canonical(raw)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || !utf8.ValidString(err.Error()) {
				t.Fatalf("refused with %q of class %s", err, fault.ClassOf(err))
			}
			return
		}
		again, err := Canonical(out)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("not its own canonical form: %q, then %q, %v", out, again, err)
		}
		if before, after := decode(t, raw), decode(t, out); !reflect.DeepEqual(before, after) {
			t.Fatalf("the meaning changed: %v, then %v", before, after)
		}
	})
}

func decode(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDecodeRefusesAFieldTheTypeLacks(t *testing.T) {
	t.Parallel()
	type input struct {
		Path string `json:"path"`
	}
	if got, err := Decode[input](json.RawMessage(`{"path":"a"}`)); err != nil || got.Path != "a" {
		t.Fatalf("Decode = %+v, %v", got, err)
	}
	for _, bad := range []string{`{"path":"a","mode":1}`, `{"path":1}`, `{} {}`, ``} {
		if _, err := Decode[input](json.RawMessage(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("Decode(%s) = %v, want invalid", bad, err)
		}
	}
}
