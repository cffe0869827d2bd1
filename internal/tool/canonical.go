package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	maxDepth  = 100 // nesting of arrays and objects
	maxNumber = 100 // characters of one number
)

// Canonical returns the one form of a JSON text that approvals, digests and
// repeat detection compare: no white space, object keys in byte order, strings
// escaped one way, numbers exactly as they were written (1, 1.0 and 1e0 stay
// different). It refuses, with class Invalid and a sentence a model can act on:
// text that is not JSON or not UTF-8, anything after the value, a repeated key,
// nesting over 100 and numbers no float64 can hold. A lone surrogate escape
// becomes U+FFFD, as it does for every Go reader.
func Canonical(raw json.RawMessage) ([]byte, error) {
	if err := wellFormed(raw); err != nil {
		return nil, err
	}
	c := canonizer{dec: json.NewDecoder(bytes.NewReader(raw))}
	c.dec.UseNumber()
	if err := c.value(0); err != nil {
		return nil, err
	}
	return c.out.Bytes(), nil
}

func wellFormed(raw []byte) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fault.New(fault.Invalid, "the JSON is empty; an object without values is {}")
	}
	if !utf8.Valid(raw) {
		return fault.New(fault.Invalid, "the JSON is not UTF-8 at byte %d", firstInvalid(raw))
	}
	var whole json.RawMessage
	err := json.Unmarshal(raw, &whole)
	if err == nil {
		return nil
	}
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return fault.New(fault.Invalid, "the JSON cannot be read: %w", err)
	}
	return fault.New(fault.Invalid, "not valid JSON at byte %d: %w%s", syntax.Offset, err, around(raw, syntax.Offset))
}

// around quotes the few bytes before an error, so that a model sees the place.
func around(raw []byte, offset int64) string {
	end := min(max(int(offset), 0), len(raw))
	start := max(0, end-24)
	if start == end {
		return ""
	}
	return fmt.Sprintf(", after %q", strings.ToValidUTF8(string(raw[start:end]), ""))
}

func firstInvalid(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(raw)
}

type canonizer struct {
	dec *json.Decoder
	out bytes.Buffer
}

func (c *canonizer) value(depth int) error {
	tok, err := c.dec.Token()
	if err != nil {
		return fault.New(fault.Invalid, "the JSON cannot be read: %w", err)
	}
	if depth > maxDepth {
		return fault.New(fault.Invalid, "the JSON is nested more than %d deep", maxDepth)
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return c.object(depth)
		}
		return c.array(depth)
	case json.Number:
		return c.number(v)
	case string:
		c.text(v)
	case bool:
		c.out.WriteString(strconv.FormatBool(v))
	case nil:
		c.out.WriteString("null")
	}
	return nil
}

func (c *canonizer) array(depth int) error {
	c.out.WriteByte('[')
	for i := 0; c.dec.More(); i++ {
		if i > 0 {
			c.out.WriteByte(',')
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
	}
	c.out.WriteByte(']')
	return c.end()
}

// object writes each value where it stands and then sorts the pieces, so that
// nothing is decoded twice.
func (c *canonizer) object(depth int) error {
	type member struct {
		key   string
		bytes []byte
	}
	var members []member
	outer := c.out
	seen := map[string]bool{}
	for c.dec.More() {
		tok, err := c.dec.Token()
		if err != nil {
			return fault.New(fault.Invalid, "the JSON cannot be read: %w", err)
		}
		key, _ := tok.(string)
		if seen[key] {
			return fault.New(fault.Invalid, "the JSON has the key %q twice in one object", cut(key, 80))
		}
		seen[key] = true
		c.out = bytes.Buffer{}
		c.text(key)
		c.out.WriteByte(':')
		if err := c.value(depth + 1); err != nil {
			return err
		}
		members = append(members, member{key, c.out.Bytes()})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	c.out = outer
	c.out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			c.out.WriteByte(',')
		}
		c.out.Write(m.bytes)
	}
	c.out.WriteByte('}')
	return c.end()
}

// end takes the closing delimiter.
func (c *canonizer) end() error {
	if _, err := c.dec.Token(); err != nil {
		return fault.New(fault.Invalid, "the JSON cannot be read: %w", err)
	}
	return nil
}

func (c *canonizer) number(n json.Number) error {
	if _, err := n.Float64(); err != nil || len(n) > maxNumber || tiny(n) {
		return fault.New(fault.Invalid, "the JSON has a number out of range: %s", cut(string(n), 40))
	}
	c.out.WriteString(string(n))
	return nil
}

// tiny reports an exponent below what a float64 can hold. Such a number reads as
// zero, but exact arithmetic on it would take gigabytes.
func tiny(n json.Number) bool {
	i := strings.IndexAny(string(n), "eE")
	if i < 0 {
		return false
	}
	exp, err := strconv.Atoi(string(n[i+1:]))
	return err != nil || exp < -400
}

func (c *canonizer) text(s string) {
	enc := json.NewEncoder(&c.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("tool: a string does not marshal: " + err.Error())
	}
	c.out.Truncate(c.out.Len() - 1) // the encoder's newline
}

// Decode reads an input into T. It knows no field the type lacks, so that a
// schema and its type cannot drift apart unseen.
func Decode[T any](input json.RawMessage) (T, error) {
	var out T
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return out, fault.New(fault.Invalid, "read the input: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return out, fault.New(fault.Invalid, "read the input: there is more after the object")
	}
	return out, nil
}

// cut shortens s to about n bytes on a rune border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
