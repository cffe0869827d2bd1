package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
)

// Bounds of a form and of an answer.
const (
	MaxSchema  = 32 << 10 // bytes of a schema
	MaxAnswer  = 32 << 10 // bytes of an answer
	MaxFields  = 32
	MaxChoices = 64 // of one field

	maxName        = 64   // bytes of a field's name
	maxText        = 4096 // characters of one text
	maxTitle       = 120  // bytes that are shown; the rest is cut
	maxDescription = 400
	maxChoice      = 200
	maxShown       = 200 // bytes of a default that are shown
	maxDigits      = 100 // of a number; no more is read as JSON
	maxPattern     = 500 // bytes
)

// Type says what a field holds.
type Type string

// The types. A Choices field holds any number of its choices.
const (
	Text    Type = "text"
	Number  Type = "number"
	Whole   Type = "whole"
	YesNo   Type = "yesno"
	Choices Type = "choices"
)

// Choice is one of the texts a field can have.
type Choice struct {
	Value string // as it is answered
	Title string // for people; empty if it is the value
}

// Field is one thing to fill in. What is text of others in it can be shown as it is.
type Field struct {
	Name        string
	Title       string
	Description string
	Type        Type
	Required    bool
	Default     json.RawMessage // what it has if nothing is said; nil: nothing
	Format      string          // of a text: email, uri, date, date-time
	Pattern     string          // a regular expression that finds something in a text; empty: any text
	Choices     []Choice        // what a text or the items of a list can be; empty: any text
	Least, Most string          // a number's bounds, as JSON; empty: none
	Over, Under string          // bounds that it cannot have itself
	Step        string          // what a number is a multiple of
	// Fewest and Longest bound the characters of a text or the items of a list;
	// Longest is never over what ombud takes.
	Fewest, Longest int
}

// Form is what a person fills in, in the order in which it was written.
type Form struct{ Fields []Field }

// Parse reads a schema. The error, of class Invalid, names the field and the keyword
// that cannot be had.
func Parse(schema json.RawMessage) (Form, error) {
	if len(schema) > MaxSchema {
		return Form{}, refused("it has %d bytes, and may have %d", len(schema), MaxSchema)
	}
	if _, err := tool.Canonical(schema); err != nil { // no key twice, no number that nothing can hold
		return Form{}, refused("%w", err)
	}
	root, err := membersOf(schema)
	if err != nil {
		return Form{}, refused("it is no object")
	}
	var f Form
	var required []string
	for _, m := range root {
		switch {
		case m.key == "type":
			if string(m.value) != `"object"` {
				return Form{}, refused("its type is %s and has to be \"object\"", shown(m.value))
			}
		case m.key == "properties":
			if f.Fields, err = fieldsOf(m.value); err != nil {
				return Form{}, err
			}
		case m.key == "required":
			if json.Unmarshal(m.value, &required) != nil {
				return Form{}, refused("required is no list of names")
			}
		case m.key == "additionalProperties": // an answer never has any
			if s := string(m.value); s != "true" && s != "false" {
				return Form{}, refused("additionalProperties is neither true nor false")
			}
		case !annotates(m.key):
			return Form{}, refused("it has %s, which a form cannot have", shownKey(m.key))
		}
	}
	for _, name := range required {
		i := slices.IndexFunc(f.Fields, func(x Field) bool { return x.Name == name })
		if i < 0 {
			return Form{}, refused("it requires %s, which is no field of it", shownKey(name))
		}
		f.Fields[i].Required = true
	}
	return f, nil
}

// refused is the error of a schema that is no form.
func refused(format string, args ...any) error {
	return fault.New(fault.Invalid, "the form cannot be asked: "+format, args...).
		WithHint("a form is one flat object of text, numbers, yes or no, and choices")
}

// annotates reports whether a keyword asks nothing of an answer.
func annotates(key string) bool {
	switch key {
	case "$schema", "$id", "$comment", "title", "description", "examples", "deprecated", "readOnly", "writeOnly":
		return true
	}
	return strings.HasPrefix(key, "x-")
}

// member is a key of an object and its value, where it stands.
type member struct {
	key   string
	value json.RawMessage
}

// membersOf keeps the order of an object, which is that in which people are asked.
func membersOf(raw json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil || open != json.Delim('{') {
		return nil, fault.New(fault.Invalid, "it is no JSON object")
	}
	var out []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fault.New(fault.Invalid, "read a key: %w", err)
		}
		m := member{}
		m.key, _ = key.(string) // an object has no other keys
		if err := dec.Decode(&m.value); err != nil {
			return nil, fault.New(fault.Invalid, "read a value: %w", err)
		}
		out = append(out, m)
	}
	return out, nil
}

func fieldsOf(raw json.RawMessage) ([]Field, error) {
	list, err := membersOf(raw)
	switch {
	case err != nil:
		return nil, refused("its properties are no object")
	case len(list) > MaxFields:
		return nil, refused("it has %d fields, and may have %d", len(list), MaxFields)
	}
	var out []Field
	for _, m := range list {
		if !goodName(m.key) {
			return nil, refused("a field cannot be named %s: a name is at most %d plain characters without =, quotes and commas",
				shownKey(m.key), maxName)
		}
		d := draft{Field: Field{Name: m.key}}
		if err := d.read(m.value); err != nil {
			return nil, refused("field %s %w", d.Name, err)
		}
		out = append(out, d.Field)
	}
	return out, nil
}

// goodName reports whether a name can be shown as it is and written before an "=".
func goodName(s string) bool {
	return s != "" && s == guard.OneLine(s, maxName) && !strings.ContainsAny(s, "=,"+quotes) && !strings.HasPrefix(s, "-")
}

// kinds are the types of a schema and the keywords that each may have.
var kinds = map[string]struct {
	of   Type
	keys []string
}{
	"string":  {Text, []string{"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"}},
	"number":  {Number, numberKeys},
	"integer": {Whole, numberKeys},
	"boolean": {YesNo, nil},
	"array":   {Choices, []string{"items", "minItems", "maxItems", "uniqueItems"}},
}

var numberKeys = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}

// draft is a field that is being read.
type draft struct {
	Field
	names []string // of its choices, as enumNames has them
}

func (f *draft) read(raw json.RawMessage) error {
	list, err := membersOf(raw)
	if err != nil {
		return err
	}
	kind := ""
	for _, m := range list {
		switch {
		case m.key == "type" && json.Unmarshal(m.value, &kind) != nil:
			return fmt.Errorf("has type %s, which is not one of string, number, integer, boolean, array", shown(m.value))
		case kind == "" && (m.key == "enum" || m.key == "oneOf"): // text, unless a type says otherwise
			kind = "string"
		}
	}
	k, known := kinds[kind]
	if !known {
		return fmt.Errorf("has type %s, which is not one of string, number, integer, boolean, array", shownKey(kind))
	}
	f.Type, f.Longest = k.of, maxText
	if f.Type == Choices {
		f.Longest = MaxChoices
	}
	for _, m := range list {
		if !slices.Contains(k.keys, m.key) && m.key != "type" && m.key != "default" && !annotates(m.key) {
			return fmt.Errorf("has %s, which %s field of a form cannot have", shownKey(m.key), article(kind))
		}
		if err := f.keyword(m); err != nil {
			return err
		}
	}
	return f.settle()
}

func article(kind string) string {
	if kind == "integer" || kind == "array" {
		return "an " + kind
	}
	return "a " + kind
}

// keyword takes over what one keyword says.
func (f *draft) keyword(m member) (err error) {
	switch m.key {
	case "title":
		f.Title, err = textOf(m, maxTitle)
	case "description":
		f.Description, err = textOf(m, maxDescription)
	case "default":
		if string(m.value) != "null" { // which libraries write where there is none
			f.Default = m.value
		}
	case "format":
		err = f.format(m)
	case "minimum":
		f.Least, err = numberOf(m)
	case "maximum":
		f.Most, err = numberOf(m)
	case "exclusiveMinimum":
		f.Over, err = numberOf(m)
	case "exclusiveMaximum":
		f.Under, err = numberOf(m)
	case "multipleOf":
		if f.Step, err = numberOf(m); err == nil && rat(f.Step).Sign() <= 0 {
			err = fmt.Errorf("has a multipleOf that is not over 0")
		}
	case "pattern":
		err = f.pattern(m)
	case "minLength", "minItems":
		f.Fewest, err = countOf(m)
	case "maxLength", "maxItems":
		var most int
		most, err = countOf(m)
		f.Longest = min(f.Longest, most)
	case "enum":
		err = f.choose(m, func(raw json.RawMessage) (c Choice, err error) { return c, json.Unmarshal(raw, &c.Value) })
	case "enumNames":
		if json.Unmarshal(m.value, &f.names) != nil {
			err = fmt.Errorf("has an enumNames that is no list of texts")
		}
	case "oneOf":
		err = f.choose(m, titled)
	case "items":
		err = f.items(m.value)
	case "uniqueItems": // a choice is never taken twice
		if s := string(m.value); s != "true" && s != "false" {
			err = fmt.Errorf("has a uniqueItems that is neither true nor false")
		}
	}
	return err
}

func (f *draft) format(m member) error {
	if f.Type != Text {
		return nil // how many bits a number has says nothing that its bounds do not
	}
	if json.Unmarshal(m.value, &f.Format) != nil || !slices.Contains([]string{"email", "uri", "date", "date-time"}, f.Format) {
		return fmt.Errorf("has format %s, which is not one of email, uri, date, date-time", shown(m.value))
	}
	return nil
}

// pattern takes the regular expressions that this program can match. A few that others
// have, such as one that looks ahead, it cannot, and then nobody would know what fits.
func (f *draft) pattern(m member) error {
	if json.Unmarshal(m.value, &f.Pattern) != nil {
		return fmt.Errorf("has a pattern that is no text")
	}
	if len(f.Pattern) > maxPattern {
		return fmt.Errorf("has a pattern of %d bytes, and may have %d", len(f.Pattern), maxPattern)
	}
	if _, err := regexp.Compile(f.Pattern); err != nil {
		return fmt.Errorf("has a pattern that cannot be matched here: %s", guard.OneLine(err.Error(), 120))
	}
	return nil
}

// items are the choices of a list.
func (f *draft) items(raw json.RawMessage) error {
	list, err := membersOf(raw)
	if err != nil {
		return fmt.Errorf("has items that are no object")
	}
	for _, m := range list {
		switch {
		case m.key == "type":
			if string(m.value) != `"string"` {
				return fmt.Errorf("has items of type %s, which have to be texts to choose from", shown(m.value))
			}
		case m.key == "enum":
			err = f.choose(m, func(raw json.RawMessage) (c Choice, err error) { return c, json.Unmarshal(raw, &c.Value) })
		case m.key == "anyOf":
			err = f.choose(m, titled)
		case !annotates(m.key):
			err = fmt.Errorf("has items with %s, which a form cannot have", shownKey(m.key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// titled is a choice of oneOf or anyOf.
func titled(raw json.RawMessage) (c Choice, err error) {
	list, err := membersOf(raw)
	if err != nil {
		return c, err
	}
	given := false
	for _, m := range list {
		switch {
		case m.key == "const":
			given = m.value[0] == '"'
			err = json.Unmarshal(m.value, &c.Value)
		case m.key == "title":
			err = json.Unmarshal(m.value, &c.Title)
		case m.key == "type":
			if string(m.value) != `"string"` {
				err = fmt.Errorf("a type that is not string")
			}
		case !annotates(m.key):
			err = fmt.Errorf("the keyword %s", shownKey(m.key))
		}
		if err != nil {
			return c, err
		}
	}
	if !given {
		return c, fmt.Errorf("no const that is a text")
	}
	return c, nil
}

func (f *draft) choose(m member, read func(json.RawMessage) (Choice, error)) error {
	var list []json.RawMessage
	switch {
	case json.Unmarshal(m.value, &list) != nil || len(list) == 0:
		return fmt.Errorf("has a %s that is no list of choices", m.key)
	case len(list) > MaxChoices:
		return fmt.Errorf("has %d choices, and may have %d", len(list), MaxChoices)
	case f.Choices != nil:
		return fmt.Errorf("says twice what can be chosen")
	}
	for i, raw := range list {
		c, err := read(raw)
		if err != nil || string(raw) == "null" {
			return fmt.Errorf("has a choice, the %d. of %s, that is no text with a title at most", i+1, m.key)
		}
		if c.Value != guard.OneLine(c.Value, maxChoice) {
			return fmt.Errorf("has a choice, the %d. of %s, that could not be shown as it is", i+1, m.key)
		}
		if slices.ContainsFunc(f.Choices, func(x Choice) bool { return x.Value == c.Value }) {
			return fmt.Errorf("has the choice %s twice", shownKey(c.Value))
		}
		if c.Title = guard.OneLine(c.Title, maxTitle); c.Title == c.Value {
			c.Title = ""
		}
		f.Choices = append(f.Choices, c)
	}
	return nil
}

// settle looks at a field as a whole: whether anything fits it, and its default does.
func (f *draft) settle() error {
	switch {
	case f.names != nil && len(f.names) != len(f.Choices):
		return fmt.Errorf("has %d enumNames for %d choices", len(f.names), len(f.Choices))
	case f.Type == Choices && len(f.Choices) == 0:
		return fmt.Errorf("is a list of anything; a form has lists of choices only")
	case f.Fewest > f.Longest:
		return fmt.Errorf("wants at least %d and at most %d", f.Fewest, f.Longest)
	case f.Type == Choices && f.Fewest > len(f.Choices):
		return fmt.Errorf("wants %d of %d choices", f.Fewest, len(f.Choices))
	case f.Least != "" && f.Most != "" && rat(f.Least).Cmp(rat(f.Most)) > 0:
		return fmt.Errorf("wants at least %s and at most %s", f.Least, f.Most)
	case f.Over != "" && f.Under != "" && rat(f.Over).Cmp(rat(f.Under)) >= 0:
		return fmt.Errorf("wants over %s and under %s", f.Over, f.Under)
	}
	for i, n := range f.names {
		if n = guard.OneLine(n, maxTitle); n != f.Choices[i].Value {
			f.Choices[i].Title = n
		}
	}
	if f.Default == nil {
		return nil
	}
	canonical, err := tool.Canonical(f.Default)
	if err != nil {
		return err
	}
	if f.Default, err = f.check(canonical); err != nil {
		return fmt.Errorf("has a default that does not fit: it %w", err)
	}
	return nil
}

func textOf(m member, most int) (s string, err error) {
	if json.Unmarshal(m.value, &s) != nil {
		return "", fmt.Errorf("has a %s that is no text", m.key)
	}
	return guard.OneLine(s, most), nil
}

func numberOf(m member) (string, error) {
	var n json.Number
	if len(m.value) == 0 || m.value[0] == '"' || json.Unmarshal(m.value, &n) != nil || n == "" {
		return "", fmt.Errorf("has a %s that is no number", m.key)
	}
	return string(n), nil
}

func countOf(m member) (int, error) {
	n, err := numberOf(m)
	if err != nil {
		return 0, err
	}
	r := rat(n)
	if !r.IsInt() || r.Sign() < 0 {
		return 0, fmt.Errorf("has a %s that is no count", m.key)
	}
	if !r.Num().IsInt64() || r.Num().Int64() > MaxSchema {
		return MaxSchema, nil // more than any answer has
	}
	return int(r.Num().Int64()), nil
}

// rat is the value of a JSON number; that its exponent is small has been seen to.
func rat(n string) *big.Rat {
	r, ok := new(big.Rat).SetString(n)
	if !ok {
		return new(big.Rat)
	}
	return r
}

// shown is a piece of a schema as an error quotes it.
func shown(raw json.RawMessage) string { return guard.OneLine(string(raw), 60) }

func shownKey(s string) string { return fmt.Sprintf("%q", guard.OneLine(s, 60)) }
