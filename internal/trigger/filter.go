package trigger

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// EventFilter chooses events.
type EventFilter struct {
	Kinds []string         `json:"kinds"`           // any of these: comms.message, tool.*, or * for all but our own
	Where map[string]Match `json:"where,omitempty"` // by key of the payload, a.b for b within a; all must match
}

// Match is a condition on one value, which is compared as text: a number as it was
// written, true, false, null. Exactly one field is set.
type Match struct {
	Equal  *string  `json:"equal,omitempty"`
	OneOf  []string `json:"one_of,omitempty"`
	Prefix *string  `json:"prefix,omitempty"`
	Exists *bool    `json:"exists,omitempty"`
}

func (f *EventFilter) check() error {
	if len(f.Kinds) == 0 || len(f.Kinds) > maxKinds || len(f.Where) > maxWhere {
		return fault.New(fault.Invalid, "an event trigger has 1 to %d kinds and at most %d conditions", maxKinds, maxWhere)
	}
	for _, k := range f.Kinds {
		if !kinds.MatchString(k) || len(k) > 128 {
			return fault.New(fault.Invalid, "%q is no kind of event", k).WithHint("comms.message, tool.* or *")
		}
		if strings.HasPrefix(k, kindPrefix) {
			return fault.New(fault.Invalid, "nothing can be started by %s: those events tell of the starting itself", k)
		}
	}
	for key, m := range f.Where {
		if err := m.check(); err != nil {
			return fault.New(fault.Invalid, "condition on %q: %w", key, err)
		}
	}
	return nil
}

func (m Match) check() error {
	set := 0
	for _, is := range []bool{m.Equal != nil, m.OneOf != nil, m.Prefix != nil, m.Exists != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fault.New(fault.Invalid, "it is exactly one of equal, one_of, prefix and exists")
	}
	return nil
}

// matches reports whether an event of a kind with a payload is chosen.
func (f *EventFilter) matches(kind string, payload map[string]json.RawMessage) bool {
	if !slices.ContainsFunc(f.Kinds, func(pattern string) bool { return covers(pattern, kind) }) {
		return false
	}
	for key, m := range f.Where {
		if text, there := lookUp(payload, key); !m.matches(text, there) {
			return false
		}
	}
	return true
}

func (m Match) matches(text string, there bool) bool {
	switch {
	case m.Exists != nil:
		return there == *m.Exists
	case !there:
		return false
	case m.Equal != nil:
		return text == *m.Equal
	case m.Prefix != nil:
		return strings.HasPrefix(text, *m.Prefix)
	}
	return slices.Contains(m.OneOf, text)
}

// covers reports whether a pattern of kinds covers a kind.
func covers(pattern, kind string) bool {
	if strings.HasPrefix(kind, kindPrefix) {
		return false
	}
	if begin, all := strings.CutSuffix(pattern, "*"); all {
		return strings.HasPrefix(kind, begin)
	}
	return pattern == kind
}

// patterns are all that cover a kind.
func patterns(kind string) []string {
	out := []string{"*", kind}
	for i, c := range kind {
		if c == '.' {
			out = append(out, kind[:i+1]+"*")
		}
	}
	return out
}

// lookUp finds a key of an object, a.b for b within a, and its value as text.
func lookUp(object map[string]json.RawMessage, key string) (string, bool) {
	for {
		if raw, ok := object[key]; ok {
			return text(raw), true
		}
		first, rest, nested := strings.Cut(key, ".")
		if !nested {
			return "", false
		}
		var within map[string]json.RawMessage
		if json.Unmarshal(object[first], &within) != nil {
			return "", false
		}
		object, key = within, rest
	}
}

// text is a JSON value as a condition sees it.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s
	}
	return string(raw)
}
