package form

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// Words reads an answer from words like name=Ada, and checks it as Check does. A list
// is written with commas or by saying its name again; yes or no as yes, no, true or
// false; a choice by its value or its title. Where there is one field, its value can
// be said without its name: several such words are one text, or the items of a list.
func (f Form) Words(words []string) (json.RawMessage, error) {
	if len(words) > 0 && len(f.Fields) == 0 {
		return nil, fault.New(fault.Invalid, "there is nothing to fill in; the answer is yes or no")
	}
	said, err := f.sort(words)
	if err != nil {
		return nil, err
	}
	var given []member
	var problems []string
	for _, field := range f.Fields {
		texts := said[field.Name]
		if len(texts) == 0 {
			continue
		}
		value, why := field.valueOf(texts)
		if why != "" {
			problems = append(problems, field.Name+" "+why)
		}
		given = append(given, member{field.Name, value})
	}
	if len(problems) > 0 {
		return nil, wrong(problems)
	}
	return f.Check(joined(given))
}

// sort gives each field the texts that are said of it.
func (f Form) sort(words []string) (map[string][]string, error) {
	said := map[string][]string{}
	alone := len(f.Fields) == 1
	var bare []string
	for _, w := range words {
		name, value, named := strings.Cut(w, "=")
		_, known := f.field(name)
		switch {
		case named && known:
			said[name] = append(said[name], value)
		case alone && (!named || !looksNamed.MatchString(name)):
			bare = append(bare, w)
		case named:
			return nil, f.noField(name, alone)
		default:
			return nil, fault.New(fault.Invalid, "%s does not say which field it is of: %s", shownKey(w), listed(f.names(), "or")).
				WithHint("write it as name=value")
		}
	}
	if len(bare) == 0 {
		return said, nil
	}
	only := f.Fields[0]
	if len(said) > 0 {
		return nil, fault.New(fault.Invalid, "%s is said with its name and without; a value with spaces needs quotes", only.Name)
	}
	if only.Type != Choices {
		bare = []string{strings.Join(bare, " ")}
	}
	said[only.Name] = bare
	return said, nil
}

// looksNamed is what somebody meant as the name of a field.
var looksNamed = regexp.MustCompile(`^[\pL_][\pL\pN_.-]*$`)

func (f Form) noField(name string, alone bool) error {
	err := fault.New(fault.Invalid, "%s", f.unknown(name))
	if alone {
		return err.WithHint("if it is the value itself, write %s= before it", shownWord(f.Fields[0].Name))
	}
	return err
}

// valueOf is what the texts said of a field come to, or what is wrong with them.
func (f Field) valueOf(texts []string) (value json.RawMessage, why string) {
	if f.Type == Choices {
		return f.listOf(texts)
	}
	if len(texts) > 1 {
		return nil, "is said twice"
	}
	text := texts[0]
	switch f.Type {
	case Number, Whole:
		text = strings.TrimSpace(text)
		var n json.Number
		if json.Unmarshal([]byte(text), &n) != nil || n == "" || text[0] == '"' || len(text) > maxDigits {
			return nil, f.wants()
		}
		return json.RawMessage(text), ""
	case YesNo:
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "yes", "y", "true":
			return json.RawMessage("true"), ""
		case "no", "n", "false":
			return json.RawMessage("false"), ""
		}
		return nil, f.wants()
	}
	if !utf8.ValidString(text) {
		return nil, "is not UTF-8 text"
	}
	if len(f.Choices) > 0 {
		if c, found := f.chosen(text); found {
			text = c
		}
	}
	return textJSON(text), ""
}

// listOf reads the items of a list. A comma that is part of a choice does not part.
func (f Field) listOf(texts []string) (json.RawMessage, string) {
	out := []byte{'['}
	add := func(value string) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, textJSON(value)...)
	}
	for _, text := range texts {
		if c, found := f.chosen(text); found {
			add(c)
			continue
		}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			c, found := f.chosen(part)
			if !found {
				return nil, f.wants()
			}
			add(c)
		}
	}
	return append(out, ']'), ""
}

// chosen is the choice that a text means: by its value, or else by a value or a title
// that is the same but for capitals, if there is one such.
func (f Field) chosen(text string) (value string, found bool) {
	if f.has(text) {
		return text, true
	}
	text = strings.TrimSpace(text)
	var alike []string
	for _, c := range f.Choices {
		if strings.EqualFold(c.Value, text) || c.Title != "" && strings.EqualFold(c.Title, text) {
			alike = append(alike, c.Value)
		}
	}
	if len(alike) != 1 {
		return "", false
	}
	return alike[0], true
}

// Try reports what is wrong with one text as the value of the field, as Words would.
func (f Field) Try(text string) error {
	value, why := f.valueOf([]string{text})
	if why == "" {
		canonical, err := Form{Fields: []Field{f}}.Check(joined([]member{{f.Name, value}}))
		if err == nil && canonical != nil {
			return nil
		}
		return err
	}
	return wrong([]string{f.Name + " " + why})
}

// quotes are what can stand around a value with spaces. A phone writes the curled ones.
const quotes = "\"'`“”„‘’"

var closing = map[rune]string{'"': `"`, '\'': `'`, '“': "”", '„': "“”", '‘': "’"}

// Split parts a line of a message into words. A word, or what stands behind its first
// "=", can be put in quotes. A quote that does not close, or that stands within a
// word, is a character like others.
func Split(line string) (out []string) {
	for {
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line == "" {
			return out
		}
		word, rest := piece(line, "=")
		if strings.HasPrefix(rest, "=") {
			value, after := piece(rest[1:], "")
			word, rest = word+"="+value, after
		}
		out = append(out, word)
		line = rest
	}
}

// piece takes a quoted or a bare piece off a line; a bare one ends at a space or at
// one of stop.
func piece(line, stop string) (text, rest string) {
	first, size := utf8.DecodeRuneInString(line)
	if ends := closing[first]; ends != "" {
		inner := line[size:]
		for i, r := range inner {
			if r == utf8.RuneError || !strings.ContainsRune(ends, r) {
				continue // and such a rune may be shorter than it looks
			}
			after := inner[i+utf8.RuneLen(r):]
			next, _ := utf8.DecodeRuneInString(after)
			if after == "" || unicode.IsSpace(next) || strings.ContainsRune(stop, next) {
				return inner[:i], after
			}
		}
	}
	end := strings.IndexFunc(line, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(stop, r) })
	if end < 0 {
		end = len(line)
	}
	return line[:end], line[end:]
}

// Names reports whether a word begins with the name of a field and "=".
func (f Form) Names(word string) bool {
	name, _, named := strings.Cut(word, "=")
	return named && slices.Contains(f.names(), name)
}
