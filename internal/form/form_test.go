package form

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// all is a form with a field of each kind.
const all = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","title":"x","properties":{
	"name":{"type":"string","title":"Full name","description":"as it\nis written","minLength":2,"maxLength":20},
	"mail":{"type":"string","format":"email"},
	"page":{"type":"string","format":"uri"},
	"day":{"type":"string","format":"date","default":"2026-01-31"},
	"at":{"type":"string","format":"date-time"},
	"size":{"type":"integer","minimum":1,"maximum":5,"default":3},
	"share":{"type":"number","minimum":-0.5,"format":"float"},
	"sure":{"type":"boolean","default":true},
	"color":{"type":"string","enum":["r","g"],"enumNames":["Red","Green"]},
	"shape":{"oneOf":[{"const":"o","title":"Round"},{"const":"x","title":"x"}]},
	"tags":{"type":"array","items":{"type":"string","enum":["a","b","c, d"]},"minItems":1,"maxItems":2},
	"more":{"type":"array","items":{"anyOf":[{"const":"p","title":"Pea"},{"const":"q","title":"Queue"}]},"default":["q"],"uniqueItems":true}},
	"required":["name","size","tags"],"additionalProperties":false}`

func parse(t *testing.T, schema string) Form {
	t.Helper()
	f, err := Parse(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return f
}

func TestAFormIsAskedInTheOrderItWasWritten(t *testing.T) {
	t.Parallel()
	want := []string{
		"name: text, 2 to 20 characters, required — Full name — as it is written",
		"mail: an email address, such as ada@example.org",
		"page: an address, such as https://example.org/a",
		"day: a date, such as 2026-01-31, else 2026-01-31",
		"at: a date and time, such as 2026-01-31T09:00:00Z",
		"size: a whole number, 1 to 5, else 3",
		"share: a number, at least -0.5",
		"sure: yes or no, else yes",
		"color: one of r (Red) or g (Green)",
		"shape: one of o (Round) or x",
		"tags: 1 to 2 of a, b and c, d, required",
		"more: any of p (Pea) and q (Queue), else q",
	}
	f := parse(t, all)
	if got := f.Lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it reads\n%s", strings.Join(got, "\n"))
	}
	if got := fmt.Sprint(f.Example()); got != "[name=TEXT tags=CHOICE,CHOICE]" {
		t.Error(got)
	}
}

func TestWhatIsNoFormIsRefusedByName(t *testing.T) {
	t.Parallel()
	field := func(s string) string { return `{"type":"object","properties":{"f":` + s + `}}` }
	many := func(n int, one string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(one, i))
		}
		return strings.Join(list, ",")
	}
	for schema, want := range map[string]string{
		``:                               "empty",
		`[]`:                             "no object",
		`{"type":"array"}`:               `type is "array"`,
		`{"type":"object","anyOf":[]}`:   `"anyOf"`,
		`{"properties":[]}`:              "properties are no object",
		`{"required":["a"]}`:             `requires "a"`,
		`{"required":3}`:                 "required is no list",
		`{"a":1,"a":2}`:                  "twice",
		`{"additionalProperties":{}}`:    "additionalProperties",
		`{"properties":{"a=b":{}}}`:      `named "a=b"`,
		`{"properties":{"a\u202eb":{}}}`: "cannot be named",
		`{"properties":{"-a":{}}}`:       "cannot be named",
		`{"properties":{"":{}}}`:         "cannot be named",
		`{"properties":{"` + strings.Repeat("n", 65) + `":{}}}`:         "cannot be named",
		`{"properties":{` + many(33, `"f%d":{"type":"boolean"}`) + `}}`: "33 fields",
		`{"title":"` + strings.Repeat("t", MaxSchema) + `"}`:            "bytes",
		field(`3`):  "field f",
		field(`{}`): "has type",
		field(`{"type":"object","properties":{}}`):                           `type "object"`,
		field(`{"type":["string","null"]}`):                                  "has type",
		field(`{"type":"string","pattern":"(?=a)"}`):                         "cannot be matched here",
		field(`{"type":"string","pattern":"[a-c]","default":"d"}`):           "matching [a-c]",
		field(`{"type":"string","contentEncoding":"base64"}`):                `"contentEncoding"`,
		field(`{"type":"string","format":"uuid"}`):                           `format "uuid"`,
		field(`{"type":"string","minLength":3,"maxLength":2}`):               "at least 3",
		field(`{"type":"string","minLength":5000}`):                          "at least 5000",
		field(`{"type":"string","minLength":-1}`):                            "no count",
		field(`{"type":"string","minLength":"1"}`):                           "no number",
		field(`{"type":"string","default":3}`):                               "default",
		field(`{"type":"string","enum":[]}`):                                 "no list of choices",
		field(`{"type":"string","enum":[1]}`):                                "no text",
		field(`{"type":"string","enum":[null]}`):                             "no text",
		field(`{"type":"string","enum":["a","a"]}`):                          "twice",
		field(`{"type":"string","enum":["a\nb"]}`):                           "shown as it is",
		field(`{"type":"string","enum":["a"],"default":"b"}`):                "default",
		field(`{"type":"string","enum":["a"],"enumNames":[]}`):               "0 enumNames",
		field(`{"type":"string","enum":["a"],"oneOf":[{"const":"b"}]}`):      "says twice",
		field(`{"type":"string","enum":[` + many(65, `"%d"`) + `]}`):         "65 choices",
		field(`{"oneOf":[{"title":"a"}]}`):                                   "no text with a title",
		field(`{"oneOf":[{"const":null}]}`):                                  "no text with a title",
		field(`{"oneOf":[{"const":"a","minLength":2}]}`):                     "no text with a title",
		field(`{"type":"integer","minimum":3,"maximum":2}`):                  "at least 3",
		field(`{"type":"integer","minimum":"3"}`):                            "no number",
		field(`{"type":"integer","default":1.5}`):                            "default",
		field(`{"type":"number","multipleOf":0}`):                            "not over 0",
		field(`{"type":"number","exclusiveMinimum":2,"exclusiveMaximum":2}`): "over 2 and under 2",
		field(`{"type":"number","exclusiveMinimum":2,"default":2}`):          "over 2",
		field(`{"type":"number","multipleOf":2,"default":3}`):                "a multiple of 2",
		field(`{"type":"boolean","enum":[true]}`):                            `"enum"`,
		field(`{"type":"boolean","default":"yes"}`):                          "default",
		field(`{"type":"array"}`):                                            "list of anything",
		field(`{"type":"array","items":{"type":"string"}}`):                  "list of anything",
		field(`{"type":"array","items":{"type":"number"}}`):                  "items of type",
		field(`{"type":"array","items":{"enum":["a"],"pattern":"a"}}`):       `"pattern"`,
		field(`{"type":"array","items":{"enum":["a"]},"minItems":2}`):        "wants 2 of 1",
		field(`{"type":"array","items":{"enum":["a"]},"uniqueItems":1}`):     "uniqueItems",
		field(`{"type":"array","items":{"enum":["a"]},"default":["a","a"]}`): "default",
	} {
		_, err := Parse(json.RawMessage(schema))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("%.100s: %v, want %q", schema, err, want)
		}
	}
}

func TestWhatAStrangerWroteIsCleanAndShort(t *testing.T) {
	t.Parallel()
	f := parse(t, `{"properties":{"f":{"type":"string","title":"a\u001b[31m\nb\u202e","description":"`+strings.Repeat("d ", 2000)+`",
		"oneOf":[{"const":"a","title":"x\ny\u200b"}],"default":"a"}}}`)
	line := f.Fields[0].Line()
	if strings.ContainsAny(line, "\x1b\n\u202e\u200b") || len(line) > 1000 {
		t.Errorf("%d bytes: %q", len(line), line)
	}
}

func TestAnAnswerIsCheckedByTheForm(t *testing.T) {
	t.Parallel()
	f := parse(t, all)
	rest := `,"name":"Ada","tags":["a"]}`
	for answer, want := range map[string]string{
		`{"name":"Ada","tags":["c, d","a"]}`:                                                                                           `{"day":"2026-01-31","more":["q"],"name":"Ada","size":3,"sure":true,"tags":["c, d","a"]}`,
		`{"size":1e0,"share":1.50,"sure":false,"day":"2025-02-01","more":[]` + rest:                                                    `{"day":"2025-02-01","more":[],"name":"Ada","share":1.50,"size":1,"sure":false,"tags":["a"]}`,
		` {"mail":"ada@example.org","page":"https://example.org/?a=b","at":"2026-01-31T09:00:00+01:00","color":"g","shape":"x"` + rest: `{"at":"2026-01-31T09:00:00+01:00","color":"g","day":"2026-01-31","mail":"ada@example.org","more":["q"],"name":"Ada","page":"https://example.org/?a=b","shape":"x","size":3,"sure":true,"tags":["a"]}`,
	} {
		got, err := f.Check(json.RawMessage(answer))
		if err != nil || string(got) != want {
			t.Errorf("%s is %s, %v", answer, got, err)
		}
	}
	for answer, want := range map[string]string{
		``:                                 "name is missing; it has to be text, 2 to 20 characters; tags is missing",
		`[]`:                               "JSON object",
		`{`:                                "not valid JSON",
		`{"size":1,"size":2}`:              "twice",
		`{"nmae":"Ada"` + rest:             `no field "nmae", but name, mail`,
		`{"size":6` + rest:                 "size has to be a whole number, 1 to 5",
		`{"size":1.5` + rest:               "size has",
		`{"size":"2"` + rest:               "size has",
		`{"size":1e200` + rest:             "size has",
		`{"share":-1` + rest:               "share has to be a number, at least -0.5",
		`{"sure":1` + rest:                 "sure has to be yes or no",
		`{"color":"Red"` + rest:            "color has to be one of r (Red) or g (Green)",
		`{"mail":"Ada <a@b.c>"` + rest:     "mail has to be an email address",
		`{"page":"example.org"` + rest:     "page has to be",
		`{"day":"31.1.2026"` + rest:        "day has to be",
		`{"at":"2026-01-31"` + rest:        "at has to be",
		`{"mail":null` + rest:              "mail has to be",
		`{"more":["q","q"]` + rest:         "more has to be any of p (Pea) and q (Queue), each once",
		`{"more":[null]` + rest:            "more has to be",
		`{"more":"q"` + rest:               "more has to be",
		`{"name":"A","tags":["a"]}`:        "name has 1 characters and has to be text, 2 to 20",
		`{"name":"A\u0000b","tags":["a"]}`: "NUL",
		`{"name":"Ada","tags":[]}`:         "tags has to be 1 to 2 of",
		`{"name":"` + strings.Repeat("s", MaxAnswer) + `"}`: "bytes",
	} {
		got, err := f.Check(json.RawMessage(answer))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%.60s: %s, %v, want %q", answer, got, err, want)
		}
	}
	if got, err := parse(t, `{"type":"object","properties":{}}`).Check(nil); err != nil || string(got) != "{}" {
		t.Errorf("a plain question is answered with %s, %v", got, err)
	}
}

func TestAProblemQuotesNothingThatWasFilledIn(t *testing.T) {
	t.Parallel()
	f := parse(t, `{"properties":{"n":{"type":"integer"},"m":{"type":"string","format":"email"},"c":{"type":"string","enum":["a"]}}}`)
	for _, word := range []string{"n=private", "m=private", "c=private"} {
		if _, err := f.Words([]string{word}); err == nil || strings.Contains(err.Error()+fault.HintOf(err), "private") {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestAnAnswerIsWrittenInWords(t *testing.T) {
	t.Parallel()
	f := parse(t, all)
	for line, want := range map[string]string{
		`name="Ada Lovelace" tags=a`:                             `{"day":"2026-01-31","more":["q"],"name":"Ada Lovelace","size":3,"sure":true,"tags":["a"]}`,
		`name=a=b tags=A tags=b size=4 sure=No more=pea,queue`:   `{"day":"2026-01-31","more":["p","q"],"name":"a=b","size":4,"sure":false,"tags":["a","b"]}`,
		`name=“Ada L” tags="c, d" color=green share=-0.25 more=`: `{"color":"g","day":"2026-01-31","more":[],"name":"Ada L","share":-0.25,"size":3,"sure":true,"tags":["c, d"]}`,
	} {
		got, err := f.Words(Split(line))
		if err != nil || string(got) != want {
			t.Errorf("%s is %s, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		`Ada`:                        `"Ada" does not say which field`,
		`nmae=Ada`:                   `no field "nmae"`,
		`name=Ada name=Eva tags=a`:   "name is said twice",
		`name=Ada tags=a size=many`:  "size has to be a whole number",
		`name=Ada tags=a size="3 4"`: "size has",
		`name=Ada tags=z`:            "tags has to be",
		`name=Ada tags=a sure=maybe`: "sure has to be yes or no",
		`tags=a`:                     "name is missing",
	} {
		if _, err := f.Words(Split(line)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestOneFieldNeedsNoName(t *testing.T) {
	t.Parallel()
	text := parse(t, `{"properties":{"full name":{"type":"string"}},"required":["full name"]}`)
	list := parse(t, `{"properties":{"tags":{"type":"array","items":{"enum":["a","b"]}}}}`)
	for line, want := range map[string]string{
		`Ada Lovelace`:             `{"full name":"Ada Lovelace"}`,
		`"full name"="Ada L"`:      `{"full name":"Ada L"}`,
		`https://example.org/?a=b`: `{"full name":"https://example.org/?a=b"}`,
		`"full name"=x=y`:          `{"full name":"x=y"}`,
		`O'Brien is "here`:         `{"full name":"O'Brien is \"here"}`,
		`'full name=it''s'`:        `{"full name":"it''s"}`,
	} {
		got, err := text.Words(Split(line))
		if err != nil || string(got) != want {
			t.Errorf("%s is %s, %v", line, got, err)
		}
	}
	if got, err := list.Words([]string{"a", "B"}); err != nil || string(got) != `{"tags":["a","b"]}` {
		t.Errorf("%s, %v", got, err)
	}
	for line, hint := range map[string]string{
		"nmae=Ada":               "write 'full name'= before",
		`"full name"=Ada Lovely`: "", // a value that fell apart is not put together by guessing
	} {
		_, err := text.Words(Split(line))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), hint) {
			t.Errorf("%s: %v (%s)", line, err, fault.HintOf(err))
		}
	}
	if _, err := parse(t, `{}`).Words([]string{"a"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a plain question takes words: %v", err)
	}
}

func TestTryIsWhatWordsSay(t *testing.T) {
	t.Parallel()
	f := parse(t, all)
	for text, ok := range map[string]bool{"3": true, "9": false, "x": false, "": false} {
		size, _ := f.field("size")
		if err := size.Try(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	name, _ := f.field("name")
	if err := name.Try("A"); err == nil || !strings.Contains(err.Error(), "name") {
		t.Error(err)
	}
}

func TestAnAnswerIsCanonicalAsCallsAre(t *testing.T) {
	t.Parallel()
	f := parse(t, `{"properties":{"b":{"type":"string"},"a":{"type":"string"},"é":{"type":"number"}}}`)
	got, err := f.Words([]string{"b=<&>\u2028\t", "a=\"", "é=1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if want, err := tool.Canonical(got); err != nil || string(want) != string(got) {
		t.Errorf("%s, not %s, %v", got, want, err)
	}
}
