package checkpoint

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// quote writes a path as git reads it in a line: in quotes, every byte that could be
// misread as an octal escape.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// show writes a path for people and for JSON: as it is if it is plain text, else
// quoted as git does. unshow reads both.
func show(path string) string {
	if path == "" || path[0] == '"' || !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(path)
	}
	return path
}

func unshow(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	bad := fault.New(fault.Invalid, "the name %s is badly quoted", s)
	body, ok := strings.CutSuffix(s[1:], `"`)
	if !ok || len(s) < 2 {
		return "", bad
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] == '"' {
			return "", bad
		}
		if body[i] != '\\' {
			b.WriteByte(body[i])
			continue
		}
		rest := body[i+1:]
		switch {
		case strings.HasPrefix(rest, `"`), strings.HasPrefix(rest, `\`):
			b.WriteByte(rest[0])
			i++
		case len(rest) >= 3 && strings.Trim(rest[:3], "01234567") == "" && rest[0] <= '3':
			b.WriteByte((rest[0]-'0')<<6 | (rest[1]-'0')<<3 | (rest[2] - '0'))
			i += 3
		default:
			return "", bad
		}
	}
	return b.String(), nil
}
