package form

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/ombud-run/ombud/internal/guard"
)

// wants says what would do, as the end of a sentence about the field.
func (f Field) wants() string { return "has to be " + f.What() }

// What says what the field holds, such as "a whole number, 1 to 5".
func (f Field) What() string {
	switch f.Type {
	case YesNo:
		return "yes or no"
	case Number:
		return "a number" + f.bounds()
	case Whole:
		return "a whole number" + f.bounds()
	case Choices:
		return f.howMany() + " of " + f.choices("and")
	}
	if len(f.Choices) > 0 {
		return "one of " + f.choices("or") + f.length()
	}
	return formats[f.Format] + f.length() + said(", matching ", guard.OneLine(f.Pattern, maxPattern))
}

var formats = map[string]string{
	"":          "text",
	"email":     "an email address, such as ada@example.org",
	"uri":       "an address, such as https://example.org/a",
	"date":      "a date, such as 2026-01-31",
	"date-time": "a date and time, such as 2026-01-31T09:00:00Z",
}

func (f Field) bounds() string {
	text := said(", at least ", f.Least) + said(", at most ", f.Most)
	if f.Least != "" && f.Most != "" {
		text = ", " + f.Least + " to " + f.Most
	}
	return text + said(", over ", f.Over) + said(", under ", f.Under) + said(", a multiple of ", f.Step)
}

// said is s after a word, or nothing.
func said(word, s string) string {
	if s == "" {
		return ""
	}
	return word + s
}

func (f Field) length() string {
	switch least, most := f.Fewest > 0, f.Longest < maxText; {
	case least && most:
		return fmt.Sprintf(", %d to %d characters", f.Fewest, f.Longest)
	case least:
		return fmt.Sprintf(", at least %d %s", f.Fewest, characters(f.Fewest))
	case most:
		return fmt.Sprintf(", at most %d %s", f.Longest, characters(f.Longest))
	}
	return ""
}

func characters(n int) string {
	if n == 1 {
		return "character"
	}
	return "characters"
}

func (f Field) howMany() string {
	switch least, most := f.Fewest > 0, f.Longest < len(f.Choices); {
	case least && f.Fewest == f.Longest:
		return fmt.Sprintf("%d", f.Fewest)
	case least && most:
		return fmt.Sprintf("%d to %d", f.Fewest, f.Longest)
	case least:
		return fmt.Sprintf("at least %d", f.Fewest)
	case most:
		return fmt.Sprintf("at most %d", f.Longest)
	}
	return "any"
}

func (f Field) choices(word string) string {
	var out []string
	for _, c := range f.Choices {
		s := c.Value
		if s == "" {
			s = `""`
		}
		if c.Title != "" {
			s += " (" + c.Title + ")"
		}
		out = append(out, s)
	}
	return listed(out, word)
}

func listed(list []string, word string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " " + word + " " + list[last]
}

// Line tells all of a field in one line.
func (f Field) Line() string {
	var b strings.Builder
	b.WriteString(f.Name + ": " + f.What())
	switch {
	case f.Default != nil:
		b.WriteString(", else " + f.Preset())
	case f.Required:
		b.WriteString(", required")
	}
	for _, s := range []string{f.Title, f.Description} {
		if s != "" && s != f.Name {
			b.WriteString(" — " + s)
		}
	}
	return b.String()
}

// Preset is the default as a person would write it; empty if there is none.
func (f Field) Preset() string {
	var text string
	var list []string
	switch {
	case f.Default == nil:
		return ""
	case f.Type == YesNo && string(f.Default) == "true":
		return "yes"
	case f.Type == YesNo:
		return "no"
	case f.Type == Text && json.Unmarshal(f.Default, &text) == nil:
		if text == "" {
			return "nothing"
		}
		return guard.OneLine(text, maxShown)
	case f.Type == Choices && json.Unmarshal(f.Default, &list) == nil:
		if len(list) == 0 {
			return "none"
		}
		return guard.OneLine(strings.Join(list, ","), maxShown)
	}
	return string(f.Default)
}

// Lines tells what there is to fill in, a line for each field.
func (f Form) Lines() (out []string) {
	for _, x := range f.Fields {
		out = append(out, x.Line())
	}
	return out
}

// Example are the words of an answer, with a word in capitals for each value. Fields
// that can be left out are not in it, unless there are no others.
func (f Form) Example() (out []string) {
	list := f.Missing()
	if len(list) == 0 {
		list = f.Fields
	}
	for _, x := range list {
		out = append(out, shownWord(x.Name)+"="+x.sample())
	}
	return out
}

func (f Field) sample() string {
	switch f.Type {
	case Number, Whole:
		return "NUMBER"
	case YesNo:
		return "yes"
	case Choices:
		return "CHOICE,CHOICE"
	}
	switch {
	case len(f.Choices) > 0:
		return "CHOICE"
	case f.Format == "email":
		return "ADDRESS"
	case f.Format == "uri":
		return "URI"
	case f.Format == "date":
		return "YYYY-MM-DD"
	case f.Format == "date-time":
		return "YYYY-MM-DDTHH:MM:SSZ"
	}
	return "TEXT"
}

var plain = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// shownWord is a text as one word of a shell and of Split. A name has no quotes in it.
func shownWord(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(guard.OneLine(s, maxShown), "'", `'\''`) + "'"
}
