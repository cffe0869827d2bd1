package act

import (
	"slices"
	"strings"
	"unicode"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/tool"
)

// outward are the areas whose scopes let a call talk to somebody outside. llm is
// not among them: a model's provider is told everything anyhow.
var outward = []string{"net", "http", "web", "channel", "notify", "email", "calendar", "contacts", "task", "drive", "notion", "mcp", "hub", "harness", "shell", "git"}

// destination is whom the call tells what it is given.
func (k *call) destination() policy.Destination {
	if k.def.Destination == nil {
		silent := (k.def.Kind == tool.Local || k.def.ReadOnly) && !k.reachesOut()
		return policy.Destination{Emits: !silent, Name: k.Tool}
	}
	d := k.def.Destination(k.input)
	to := policy.Destination{Emits: !d.Nobody, Readers: d.Readers, Name: d.Name}
	if d.Here {
		to.Readers = k.Authority.Readers
	}
	if d.Sends != "" && wrote(k.Said, d.Sends) {
		to.Emits = false
	}
	return to
}

func (k *call) reachesOut() bool {
	for _, s := range k.scopes {
		if slices.Contains(outward, s.Base().Area()) {
			return true
		}
	}
	return false
}

// wrote reports whether the operator wrote what is to be sent: as a word of its
// own, with or without a scheme before it and a slash behind it. A part of a word
// does not count, or choosing where it ends would be a way to tell something.
func wrote(said []string, sends string) bool {
	sends = plainURL(sends)
	for _, text := range said {
		for _, word := range strings.FieldsFunc(text, apart) {
			bare := strings.TrimFunc(word, func(r rune) bool { return strings.ContainsRune(".,;:!?[]{}", r) })
			inner := strings.TrimSuffix(strings.TrimPrefix(bare, "("), ")")
			if sends != "" && (plainURL(bare) == sends || plainURL(inner) == sends) {
				return true
			}
		}
	}
	return false
}

// apart reports whether r ends a word; no URL has it.
func apart(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'<>`", r) }

// plainURL is a URL without what does not change where it leads.
func plainURL(s string) string {
	s, _, _ = strings.Cut(s, "#")
	lower := strings.ToLower(s)
	for _, scheme := range []string{"https://", "http://"} {
		if strings.HasPrefix(lower, scheme) {
			s = s[len(scheme):]
			break
		}
	}
	end := strings.IndexAny(s, "/?")
	if end < 0 {
		end = len(s)
	}
	return strings.TrimSuffix(strings.ToLower(s[:end])+s[end:], "/")
}
