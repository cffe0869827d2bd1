package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
)

// object is a JSON object: a payload has the keys its sender gave it.
type object = map[string]any

// shape is what is known of a value before there is one.
type shape struct {
	fields map[string]*shape
	elem   *shape
	open   bool // it may have more fields
	text   bool // it has none

	later map[string]int // of the whole: names that come too late, with their lines
}

var (
	textShape = &shape{text: true}
	anyShape  = &shape{open: true}
)

func (s *shape) names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.fields))
}

// element is what is known of an item.
func (s *shape) element() *shape {
	if s == nil {
		return nil
	}
	return s.elem
}

// with is s and one name more.
func (s *shape) with(name string, of *shape) *shape {
	out := &shape{fields: maps.Clone(s.fields), open: s.open, later: s.later}
	if out.fields == nil {
		out.fields = map[string]*shape{}
	}
	out.fields[name] = of
	return out
}

// values are the names a run has, and whose words each is.
type values struct {
	names  object
	others map[string]string // name → whose words it holds; a name that is not here holds the recipe's own
	mark   func(text, from string) string
}

func newValues(mark func(text, from string) string) *values {
	return &values{names: object{}, others: map[string]string{}, mark: mark}
}

// inner is a copy that can be added to without the outer seeing it.
func (v *values) inner() *values {
	return &values{names: maps.Clone(v.names), others: maps.Clone(v.others), mark: v.mark}
}

// set binds a name. from says whose words its value is; "" for the recipe's own.
func (v *values) set(name string, x any, from string) {
	v.names[name] = x
	if from == "" {
		delete(v.others, name)
	} else {
		v.others[name] = from
	}
}

func (v *values) data() object { return v.names }

// fence marks a text that comes from others' words as data.
func (v *values) fence(roots, text string) string {
	if strings.TrimSpace(text) == "" || v.mark == nil {
		return text
	}
	if from := v.from(strings.Split(roots, ",")); from != "" {
		return v.mark(text, from)
	}
	return text
}

// from says whose words the values of names are, "" for the recipe's own.
func (v *values) from(names []string) string {
	if slices.Contains(names, everything) {
		names = slices.Sorted(maps.Keys(v.others))
	}
	for _, name := range names {
		if who := v.others[name]; who != "" {
			return who
		}
	}
	return ""
}

// decode reads one JSON value so that whole numbers stay whole.
func decode(raw json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something comes after the JSON value")
	}
	return whole(x), nil
}

func whole(x any) any {
	switch x := x.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		if f, err := x.Float64(); err == nil {
			return f
		}
		return x.String()
	case object:
		for k, v := range x {
			x[k] = whole(v)
		}
	case []any:
		for i, v := range x {
			x[i] = whole(v)
		}
	}
	return x
}

// Truthy reports whether the text of a when lets its step be done.
func Truthy(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "false", "0", "no", "off", "<no value>", "null", "nil", "[]", "{}":
		return false
	}
	return true
}
