package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
)

// functions are what templates may call beside those of text/template. None has an
// effect.
var functions = template.FuncMap{
	"json":   toJSON,
	"has":    has,
	"get":    get,
	"lower":  strings.ToLower,
	"upper":  strings.ToUpper,
	"trim":   strings.TrimSpace,
	"lines":  func(s string) []any { return linesOf(s) },
	"join":   join,
	"printf": printf,
	"call":   func(...any) (any, error) { return nil, errors.New("nothing here can be called") },
}

func toJSON(v any) (string, error) {
	raw, err := json.Marshal(v)
	return string(raw), err
}

// has reports whether a mapping has a key.
func has(m object, key string) bool { _, ok := m[key]; return ok }

// get is a key of a mapping, or what stands for it where that is missing.
func get(m object, key string, instead any) any {
	if v, ok := m[key]; ok && v != nil {
		return v
	}
	return instead
}

func linesOf(s string) (out []any) {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func join(list []any, by string) string {
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = show(x, false)
	}
	return strings.Join(parts, by)
}

// wide is a width or a precision that only serves to fill memory.
var wide = regexp.MustCompile(`%[-+# 0]*(\*|\d{4,}|\d*\.(\*|\d{4,}))`)

// printf is fmt's, without widths that could fill memory.
func printf(format string, args ...any) (string, error) {
	if wide.MatchString(format) {
		return "", errors.New("printf: a width of more than 999")
	}
	return fmt.Sprintf(format, args...), nil
}
