package modeltest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// checkText refuses what the real servers' JSON readers refuse: invalid UTF-8,
// NUL, and surrogates that stand alone.
func checkText(body []byte) *refusal {
	if !utf8.Valid(body) {
		return invalid("the body is not valid UTF-8")
	}
	if bytes.IndexByte(body, 0) >= 0 {
		return invalid("the body holds a NUL byte")
	}
	if !json.Valid(body) {
		return invalid("the body is not JSON")
	}
	units := 0 // a high surrogate that waits for its other half
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			if units != 0 {
				return invalid("no low surrogate in string")
			}
			continue
		}
		i++
		if body[i] != 'u' {
			if units != 0 {
				return invalid("no low surrogate in string")
			}
			continue
		}
		n, _ := strconv.ParseUint(string(body[i+1:i+5]), 16, 32)
		i += 4
		switch low := n >= 0xDC00 && n <= 0xDFFF; {
		case n == 0:
			return invalid("the body holds an escaped NUL")
		case units != 0 && !low, units == 0 && low:
			return invalid("no low surrogate in string")
		case n >= 0xD800 && n < 0xDC00:
			units = int(n)
		default:
			units = 0
		}
	}
	return nil
}

var (
	callID        = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	openaiName    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// checkSchema refuses a tool input that is no object or no JSON Schema at all.
func checkSchema(where string, raw json.RawMessage) *refusal {
	var head struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return invalid("%s: not a valid JSON Schema: %v", where, err)
	}
	if head.Type != "object" {
		return invalid("%s.type: Input should be 'object'", where)
	}
	return nil
}

// answers tracks calls that wait for their results.
type answers struct {
	open []string
	used map[string]bool
}

func (a *answers) call(id string) *refusal {
	if !callID.MatchString(id) {
		return invalid("tool call id %q does not match the pattern '^[a-zA-Z0-9_-]+$'", id)
	}
	if a.used[id] {
		return invalid("tool call ids must be unique: %s", id)
	}
	if a.used == nil {
		a.used = map[string]bool{}
	}
	a.used[id] = true
	a.open = append(a.open, id)
	return nil
}

func (a *answers) result(id string) *refusal {
	for i, o := range a.open {
		if o == id {
			a.open = append(a.open[:i:i], a.open[i+1:]...)
			return nil
		}
	}
	return invalid("unexpected tool result %q: each must have a corresponding call in the previous message", id)
}

func (a *answers) settled() *refusal {
	if len(a.open) > 0 {
		return invalid("tool calls without results immediately after: %s", strings.Join(a.open, ", "))
	}
	return nil
}
