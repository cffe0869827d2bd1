package form

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/tool"
)

// fieldSchemas are pieces of which schemas are made.
var fieldSchemas = []string{
	`{"type":"string"}`, `{"type":"string","minLength":2,"maxLength":3}`, `{"type":"string","default":"d"}`,
	`{"type":"string","enum":["a","b"],"enumNames":["A","Be"]}`, `{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}],"default":"b"}`,
	`{"type":"string","format":"date","default":null}`, `{"type":"integer","minimum":-1,"maximum":3}`, `{"type":"integer","default":7}`,
	`{"type":"string","pattern":"^[a-c]+$"}`, `{"type":"number","exclusiveMinimum":-1,"exclusiveMaximum":100}`, `{"type":"number","multipleOf":0.5}`,
	`{"type":"number","minimum":0.5}`, `{"type":"boolean"}`, `{"type":"boolean","default":false}`,
	`{"type":"array","items":{"type":"string","enum":["a","b","c"]},"minItems":1,"maxItems":2}`,
	`{"type":"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]},"default":["a"],"uniqueItems":true}`,
}

var values = []string{
	`"a"`, `"b"`, `"abc"`, `"abcd"`, `""`, `"2026-01-31"`, `0`, `3`, `3.0`, `-1`, `2.5`, `1e2`, `true`, `false`, `null`,
	`[]`, `["a"]`, `["a","b"]`, `["b","b"]`, `["a","b","c"]`, `[1]`, `{}`,
}

// TestWhatPassesCheckPassesTheSchema compares with a validator of JSON Schema.
func TestWhatPassesCheckPassesTheSchema(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID).Draw(t, "names")
		required := []string{}
		props := []byte{'{'}
		for i, n := range names {
			if i > 0 {
				props = append(props, ',')
			}
			props = append(props, `"`+n+`":`+rapid.SampledFrom(fieldSchemas).Draw(t, n)...)
			if rapid.Bool().Draw(t, "required "+n) {
				required = append(required, n)
			}
		}
		list, err := json.Marshal(required)
		if err != nil {
			t.Fatal(err)
		}
		schema := `{"type":"object","properties":` + string(props) + `},"required":` + string(list) + `,"additionalProperties":false}`
		f, err := Parse(json.RawMessage(schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		answer := map[string]json.RawMessage{}
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 5, rapid.ID).Draw(t, "filled in") {
			answer[n] = json.RawMessage(rapid.SampledFrom(values).Draw(t, "value of "+n))
		}
		raw, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Check(raw)
		if err != nil {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("form.json", doc); err != nil {
			t.Fatal(err)
		}
		compiled, err := c.Compile("form.json")
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(value); err != nil {
			t.Fatalf("%s passes the form %s and not the schema: %v", got, schema, err)
		}
		if again, err := f.Check(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s checked again is %s, %v", got, again, err)
		}
	})
}

// TestWordsSayWhatTheyWereMadeOf writes texts in quotes and reads them back.
func TestWordsSayWhatTheyWereMadeOf(t *testing.T) {
	t.Parallel()
	f, err := Parse(json.RawMessage(`{"properties":{"a b":{"type":"string"},"c":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z= '\t,“é]{0,12}`)
		one, two := text.Draw(t, "a b"), text.Draw(t, "c")
		got, err := f.Words(Split(`"a b"="` + one + `" c="` + two + `"`))
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			One string `json:"a b"`
			Two string `json:"c"`
		}
		if err := json.Unmarshal(got, &back); err != nil || back.One != one || back.Two != two {
			t.Fatalf("%q and %q came back as %s, %v", one, two, got, err)
		}
	})
}

func FuzzForm(f *testing.F) {
	f.Add(all, `{"name":"Ada","tags":["a"]}`, `name=Ada tags=a`)
	for _, s := range fieldSchemas {
		f.Add(`{"properties":{"f":`+s+`},"required":["f"]}`, `{"f":"a"}`, `f=a`)
	}
	f.Add(`{"properties":{"f":{"type":"integer","minimum":1e-400}}}`, `{"f":1e999}`, `f=1e99`)
	f.Add(`{}`, `{}`, `"`)
	f.Fuzz(func(t *testing.T, schema, answer, line string) {
		form, err := Parse(json.RawMessage(schema))
		if err != nil {
			return
		}
		if len(form.Fields) > MaxFields {
			t.Fatal(len(form.Fields))
		}
		for _, l := range form.Lines() {
			if strings.ContainsAny(l, "\n\r\x1b\x00\u202e") {
				t.Fatalf("shown as %q", l)
			}
		}
		for _, try := range []func() (json.RawMessage, error){
			func() (json.RawMessage, error) { return form.Check(json.RawMessage(answer)) },
			func() (json.RawMessage, error) { return form.Words(Split(line)) },
		} {
			got, err := try()
			if err != nil {
				continue
			}
			if canonical, err := tool.Canonical(got); err != nil || !bytes.Equal(canonical, got) {
				t.Fatalf("%s is not canonical: %s, %v", got, canonical, err)
			}
			if again, err := form.Check(got); err != nil || !bytes.Equal(again, got) {
				t.Fatalf("%s checked again is %s, %v", got, again, err)
			}
		}
	})
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{`a="b c" d`, `"full name"='x'`, `“x y”=`, `a='`, "\xff\"\xff\"", `==`, `"a"b" c`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		total := 0
		for _, w := range Split(line) {
			total += len(w)
		}
		if total > len(line) {
			t.Fatalf("%q came to %d bytes", line, total)
		}
	})
}
