package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestDecodeStrictNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"txet":"a"}`:                          `unknown field "txet" | did you mean text?`,
		`{"Text":"a"}`:                          `unknown field "Text" | did you mean text?`,
		`{}`:                                    `field text is missing | `,
		``:                                      `field text is missing | `,
		`null`:                                  `field text is missing | `,
		`{"text":null}`:                         `field text is missing | `,
		`{"text":"a","text":"b"}`:               `field "text" is given twice | `,
		`{"text":7}`:                            `field text: want a string, got number | `,
		`{"text":"a","wait":"yes"}`:             `field wait: want true or false, got string | `,
		`["a"]`:                                 `want an object, got array | `,
		`{"text":"\ud800"}`:                     `half a character (lone surrogate \ud800) at byte 9 | send whole characters: both halves of the pair, or U+FFFD in their place`,
		`{"text":"\ud800\u0041"}`:               `half a character (lone surrogate \ud800) at byte 9 | send whole characters: both halves of the pair, or U+FFFD in their place`,
		`{"text":"\udbff\udfff\udbff"}`:         `half a character (lone surrogate \udbff) at byte 21 | send whole characters: both halves of the pair, or U+FFFD in their place`,
		`{"text":"a","conversation":{"a":[1]}}`: `field conversation: want a string, got object | `,
	} {
		var req MessageSendRequest
		err := DecodeStrict([]byte(in), &req)
		if got := strings.Join([]string{message(err), fault.HintOf(err)}, " | "); got != want || !fault.Is(err, fault.Invalid) {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDecodeStrictLooksInside(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int             `json:"a,omitempty"`
		B json.RawMessage `json:"b,omitempty"`
	}
	type outer struct {
		List []inner          `json:"list,omitempty"`
		Map  map[string]inner `json:"map,omitempty"`
		Ptr  *inner           `json:"ptr,omitempty"`
	}
	for in, want := range map[string]string{
		`{"list":[{"a":1},{"c":1}]}`:          `unknown field "list[1].c"`,
		`{"map":{"k":{"aa":1}}}`:              `unknown field "map.k.aa"`,
		`{"ptr":{"x":1}}`:                     `unknown field "ptr.x"`,
		`{"ptr":{"a":1.5}}`:                   `field ptr.a: want an integer, got number 1.5`,
		`{"ptr":{"b":{"any":[{"t":1}]}}}`:     "",
		`{"ptr":null,"list":null,"map":null}`: "",
	} {
		var v outer
		if got := message(DecodeStrict([]byte(in), &v)); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestDecodeStrictTakesWhatTheClientSends(t *testing.T) {
	t.Parallel()
	for _, m := range Methods() {
		v := reflect.New(m.Params)
		fill(v.Elem())
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(m.Params)
		if err := DecodeStrict(raw, got.Interface()); err != nil || !reflect.DeepEqual(got.Interface(), v.Interface()) {
			t.Errorf("%s: %s: %v", m.Name, raw, err)
		}
	}
}

// fill gives every field of a struct a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("ü\x00\"")
	case reflect.Int, reflect.Int64:
		v.SetInt(1 << 50)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":[1,null]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	}
}

func TestNearestMethods(t *testing.T) {
	t.Parallel()
	var known []string
	for _, m := range Methods() {
		known = append(known, m.Name)
	}
	for name, want := range map[string]string{
		"system.statsu": "system.status", "run.list": "runs.list", "events.follow": "events.tail", "explian": "explain",
	} {
		if got := nearest(name, known); !slices.Contains(got, want) {
			t.Errorf("%s: %v, want %s among them", name, got, want)
		}
	}
	if got := nearest("zzzzzzzzzzzz", known); len(got) != 0 {
		t.Errorf("nothing is near, got %v", got)
	}
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{`{"text":"a"}`, `{"text":"\ud800"}`, `{"text":"a","key":"b","wait":true}`, `{"a":{"b":[`, `{"text":"a"}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var req MessageSendRequest
		if DecodeStrict(in, &req) != nil {
			return
		}
		var plain MessageSendRequest
		if err := json.Unmarshal(in, &plain); err != nil || plain != req {
			t.Fatalf("accepted %q as %+v, a plain decoder says %+v, %v", in, req, plain, err)
		}
	})
}
