package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
)

// maxProblems is how many problems of an answer are told at once.
const maxProblems = 5

// Check returns an answer in its canonical form, with the defaults of what it does not
// have. No answer is the empty one. The error, of class Invalid, names each field that
// does not fit and what would; it quotes nothing of what was filled in.
func (f Form) Check(answer json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(answer)) == 0 {
		answer = json.RawMessage("{}")
	}
	if len(answer) > MaxAnswer {
		return nil, fault.New(fault.Invalid, "the answer has %d bytes, and may have %d", len(answer), MaxAnswer)
	}
	canonical, err := tool.Canonical(answer)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the answer: %w", err)
	}
	given, err := membersOf(canonical)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the answer has to be a JSON object of the fields")
	}
	var problems []string
	for i, m := range given {
		field, known := f.field(m.key)
		if !known {
			problems = append(problems, f.unknown(m.key))
			continue
		}
		if given[i].value, err = field.check(m.value); err != nil {
			problems = append(problems, field.Name+" "+err.Error())
		}
	}
	for _, field := range f.Fields {
		if slices.ContainsFunc(given, func(m member) bool { return m.key == field.Name }) {
			continue
		}
		switch {
		case field.Default != nil:
			given = append(given, member{field.Name, field.Default})
		case field.Required:
			problems = append(problems, field.Name+" is missing; it "+field.wants())
		}
	}
	if len(problems) > 0 {
		return nil, wrong(problems)
	}
	return joined(given), nil
}

// joined is the canonical object of members with canonical values.
func joined(list []member) json.RawMessage {
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.key, b.key) })
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, textJSON(m.key)...), ':'), m.value...)
	}
	return append(out, '}')
}

// textJSON is a text as canonical JSON has it.
func textJSON(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("form: a text does not marshal: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func wrong(problems []string) error {
	more := ""
	if n := len(problems) - maxProblems; n > 0 {
		problems, more = problems[:maxProblems], fmt.Sprintf("; and %d more", n)
	}
	return fault.New(fault.Invalid, "the answer does not fit: %s%s", strings.Join(problems, "; "), more)
}

func (f Form) field(name string) (Field, bool) {
	i := slices.IndexFunc(f.Fields, func(x Field) bool { return x.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return f.Fields[i], true
}

// unknown says that there is no such field, and which there are.
func (f Form) unknown(name string) string {
	if len(f.Fields) == 0 {
		return "there is nothing to fill in, and no field " + shownKey(name)
	}
	return fmt.Sprintf("there is no field %s, but %s", shownKey(name), listed(f.names(), "and"))
}

func (f Form) names() (out []string) {
	for _, x := range f.Fields {
		out = append(out, x.Name)
	}
	return out
}

// Missing are the fields that somebody has to fill in, because nothing stands for them.
func (f Form) Missing() (out []Field) {
	for _, x := range f.Fields {
		if x.Required && x.Default == nil {
			out = append(out, x)
		}
	}
	return out
}

// check returns a value in its canonical form. raw is canonical but for numbers that a
// whole number can be written as. The error goes on with a sentence about the field.
func (f Field) check(raw json.RawMessage) (json.RawMessage, error) {
	switch f.Type {
	case Text:
		var s string
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
			return nil, errors.New(f.wants())
		}
		return raw, f.checkText(s)
	case Number, Whole:
		return f.checkNumber(raw)
	case YesNo:
		if s := string(raw); s != "true" && s != "false" {
			return nil, errors.New(f.wants())
		}
		return raw, nil
	}
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil || len(items) < f.Fewest || len(items) > f.Longest {
		return nil, errors.New(f.wants())
	}
	var list []string
	for _, item := range items {
		var s string
		if item[0] != '"' || json.Unmarshal(item, &s) != nil || !f.has(s) || slices.Contains(list, s) {
			return nil, errors.New(f.wants() + ", each once")
		}
		list = append(list, s)
	}
	return raw, nil
}

func (f Field) has(value string) bool {
	return slices.ContainsFunc(f.Choices, func(c Choice) bool { return c.Value == value })
}

func (f Field) checkText(s string) error {
	n := utf8.RuneCountInString(s)
	switch {
	case strings.ContainsRune(s, 0):
		return errors.New("has a NUL, which no text may have")
	case n < f.Fewest || n > f.Longest:
		return fmt.Errorf("has %d characters and %s", n, f.wants())
	case len(f.Choices) > 0 && !f.has(s), !fits(f.Format, s), f.Pattern != "" && !regexp.MustCompile(f.Pattern).MatchString(s):
		return errors.New(f.wants())
	}
	return nil
}

func (f Field) checkNumber(raw json.RawMessage) (json.RawMessage, error) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return nil, errors.New(f.wants())
	}
	r := rat(string(raw))
	if f.Type == Whole {
		whole := r.Num().String()
		if !r.IsInt() || len(whole) > maxDigits {
			return nil, errors.New(f.wants())
		}
		raw = json.RawMessage(whole) // 3.0 and 3e0 are whole too, and not every reader knows
	}
	switch {
	case f.Least != "" && r.Cmp(rat(f.Least)) < 0, f.Most != "" && r.Cmp(rat(f.Most)) > 0,
		f.Over != "" && r.Cmp(rat(f.Over)) <= 0, f.Under != "" && r.Cmp(rat(f.Under)) >= 0,
		f.Step != "" && !new(big.Rat).Quo(r, rat(f.Step)).IsInt():
		return nil, errors.New(f.wants())
	}
	return raw, nil
}

// fits reports whether a text has a format.
func fits(format, s string) bool {
	var err error
	switch format {
	case "email":
		var a *mail.Address
		a, err = mail.ParseAddress(s)
		return err == nil && a.Address == s && a.Name == ""
	case "uri":
		var u *url.URL
		u, err = url.Parse(s)
		return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "" || u.Path != "") && guard.OneLine(s, len(s)) == s
	case "date":
		_, err = time.Parse(time.DateOnly, s)
	case "date-time":
		_, err = time.Parse(time.RFC3339, s)
	}
	return err == nil
}
