package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// DecodeStrict decodes a JSON object into the struct that into points to and
// refuses, as fault.Invalid naming the place: a field the struct does not have
// (names are compared exactly, the nearest is the hint), a field given twice, a
// required field (no omitempty) that is missing or null, a value of another
// type, and half a character (a lone surrogate). Empty input is an empty object.
func DecodeStrict(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		raw = []byte("{}")
	}
	if at := loneSurrogate(raw); at >= 0 {
		return fault.New(fault.Invalid, "half a character (lone surrogate %s) at byte %d", raw[at:at+6], at).
			WithHint("send whole characters: both halves of the pair, or U+FFFD in their place")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if _, err := walk(dec, reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "more than one JSON value")
	}
	return typeError(json.Unmarshal(raw, into))
}

// typeError turns what encoding/json says into words about the field.
func typeError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fault.New(fault.Invalid, "want an object, got %s", e.Value)
		}
		return fault.New(fault.Invalid, "field %s: want %s, got %s", e.Field, kindName(e.Type), e.Value)
	}
	return fault.New(fault.Invalid, "decode: %w", err)
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer of 0 or more"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "a " + t.Kind().String()
}

// walk reads one value and compares its fields with t. A nil t, and a type that
// decodes itself, takes anything. It reports whether the value was null.
func walk(dec *json.Decoder, t reflect.Type, path string) (null bool, err error) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface || reflect.PointerTo(t).Implements(unmarshalerType) {
		var opaque json.RawMessage
		if err := dec.Decode(&opaque); err != nil {
			return false, fault.New(fault.Invalid, "decode: %w", err)
		}
		return string(opaque) == "null", nil
	}
	tok, err := dec.Token()
	if err != nil {
		return false, fault.New(fault.Invalid, "decode: %w", err)
	}
	switch tok {
	case json.Delim('{'):
		return false, walkObject(dec, t, path)
	case json.Delim('['):
		return false, walkArray(dec, t, path)
	}
	return tok == nil, nil
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

func walkArray(dec *json.Decoder, t reflect.Type, path string) error {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	for i := 0; dec.More(); i++ {
		if _, err := walk(dec, elem, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return closing(dec)
}

func walkObject(dec *json.Decoder, t reflect.Type, path string) error {
	var known []field
	var elem reflect.Type
	isStruct := t != nil && t.Kind() == reflect.Struct
	switch {
	case isStruct:
		known = fieldsOf(t)
	case t != nil && t.Kind() == reflect.Map:
		elem = t.Elem()
	}
	var seen []string
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return fault.New(fault.Invalid, "decode: %w", err)
		}
		name := tok.(string) // the decoder gives keys as strings only
		at, inner := joinPath(path, name), elem
		if isStruct {
			i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
			if i < 0 {
				return fault.New(fault.Invalid, "unknown field %s", quoteShort(at)).WithHint("%s", didYouMean(name, fieldNames(known)))
			}
			if slices.Contains(seen, name) {
				return fault.New(fault.Invalid, "field %s is given twice", quoteShort(at))
			}
			inner = known[i].typ
		}
		null, err := walk(dec, inner, at)
		if err != nil {
			return err
		}
		if isStruct && !null {
			seen = append(seen, name)
		}
	}
	for _, f := range known {
		if f.required && !slices.Contains(seen, f.name) {
			return fault.New(fault.Invalid, "field %s is missing", joinPath(path, f.name))
		}
	}
	return closing(dec)
}

// closing reads the end of the array or object dec is in.
func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fault.New(fault.Invalid, "decode: %w", err)
	}
	return nil
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// field is one JSON field of a message struct.
type field struct {
	name     string
	goName   string
	typ      reflect.Type
	required bool
}

// fieldsOf lists the JSON fields of a struct in their order; embedded structs
// are flattened, as encoding/json does.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(f.Type)...)
		default:
			if name == "" {
				name = f.Name
			}
			optional := strings.Contains(opts, "omitempty") || strings.Contains(opts, "omitzero")
			out = append(out, field{name: name, goName: f.Name, typ: f.Type, required: !optional})
		}
	}
	return out
}

func fieldNames(fields []field) []string {
	out := make([]string, 0, len(fields))
	for _, f := range fields {
		out = append(out, f.name)
	}
	return out
}

// loneSurrogate returns the offset of the first \u escape in valid JSON that is
// half of a pair, or -1.
func loneSurrogate(raw []byte) int {
	for i := 0; ; {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			return -1
		}
		i += next
		unit, ok := escapedUnit(raw[i:])
		switch {
		case !ok:
			i = min(i+2, len(raw))
		case unit < 0xd800 || unit > 0xdfff:
			i += 6
		default:
			low, ok := escapedUnit(raw[i+6:])
			if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
				return i
			}
			i += 12
		}
	}
}

// escapedUnit reads a \uXXXX escape at the start of b.
func escapedUnit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return unit, err == nil
}

// syntax reports why raw is not one JSON value, or nil.
func syntax(raw []byte) error {
	if json.Valid(raw) {
		return nil
	}
	var v json.RawMessage
	err := json.Unmarshal(raw, &v)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w (byte %d)", e, e.Offset)
	}
	return err
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// didYouMean is the hint that names the candidates nearest to a wrong name, or
// "" if none is near.
func didYouMean(name string, known []string) string {
	near := nearest(name, known)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, ", ") + "?"
}

// nearest returns up to three of known, best first, that are a few edits away
// from name or share its noun or verb.
func nearest(name string, known []string) []string {
	type scored struct {
		name string
		dist int
	}
	name = strings.ToLower(shorten(name, 64))
	noun, verb, _ := strings.Cut(name, ".")
	var hits []scored
	for _, k := range known {
		d := distance(name, k)
		kNoun, kVerb, _ := strings.Cut(k, ".")
		related := (noun != "" && noun == kNoun) || (verb != "" && verb == kVerb)
		if d <= max(2, len(k)/3) || related {
			hits = append(hits, scored{k, d})
		}
	}
	slices.SortStableFunc(hits, func(a, b scored) int { return a.dist - b.dist })
	var out []string
	for _, h := range hits[:min(3, len(hits))] {
		out = append(out, h.name)
	}
	return out
}

// distance is the number of single-byte edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
