package wasmloop

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Bounds of a manifest of format v2.
const (
	maxEvents     = 32
	maxCapability = 256
	maxText       = 256
)

// What the parts of a manifest of format v2 look like. A part that is shown to a person,
// or that is a scope, has no room for anything else.
var (
	loopName  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	lentName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	toolNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)
	eventKind = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*(\.\*)?$`)
	hookPath  = regexp.MustCompile(`^/?[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)

	capabilityForms = map[string]*regexp.Regexp{
		"http":    regexp.MustCompile(`^(\*|((\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)$`),
		"memory":  regexp.MustCompile(`^(\*|[a-z0-9_-]+(:write)?)$`),
		"tool":    regexp.MustCompile(`^(\*|(\*\.)?[A-Za-z0-9][A-Za-z0-9._:/-]*(\.\*)?)$`),
		"channel": regexp.MustCompile(`^[A-Za-z0-9*@+_-][A-Za-z0-9*@+_.:/=-]*$`),
		"spend":   regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[A-Z]{0,3}$`),
		"secret":  regexp.MustCompile(`^[a-z][a-z0-9]*([._-][a-z0-9]+)*$`),
	}
)

// Problems says, a line each, what a manifest of format v2 may not say: whoever builds one
// is told by it, and whoever installs one refuses by it. Whether its schedule is one and
// whether its host functions are there is for the host to tell. Of format v1 nothing here
// holds.
func Problems(m Manifest) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !loopName.MatchString(m.Name) {
		bad("name: %q cannot be one: use 1 to 64 lower-case letters, digits and -, and begin with a letter or digit", m.Name)
	}
	for _, t := range []struct{ key, text string }{{"version", m.Version}, {"source_url", m.SourceURL}} {
		if len(t.text) > maxText || strings.ContainsFunc(t.text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			bad("%s: %q is not one line of at most %d bytes", t.key, t.text, maxText)
		}
	}
	if m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB {
		bad("memory_mb: %d is not 1 to %d", m.MemoryMB, maxMemoryMB)
	}
	if len(m.Events) > maxEvents {
		bad("events: there are %d; the most is %d", len(m.Events), maxEvents)
	}
	for _, e := range m.Events {
		switch {
		case e == "*":
			bad(`events: "*" is every event there is, also those of the loop's own runs, so it would start itself: name the kinds`)
		case !eventKind.MatchString(e) || len(e) > maxText:
			bad("events: %q is no kind of event, as comms.message or tool.*", e)
		case strings.HasPrefix(e, "trigger."):
			bad("events: nothing can be started by %s: those events tell of the starting itself", e)
		}
	}
	if m.Webhook != "" && (!hookPath.MatchString(m.Webhook) || len(m.Webhook) > maxText) {
		bad("webhook: %q is no path: letters, digits and . _ ~ - between slashes, at most %d", m.Webhook, maxText)
	}
	for _, t := range m.Tools {
		if !toolNames.MatchString(t) {
			bad("tools: %q is no name of a tool", t)
		}
	}
	for _, c := range m.Capabilities {
		class, value, _ := strings.Cut(c, ":")
		form := capabilityForms[class]
		switch {
		case form == nil || value == "":
			bad("capabilities: %q is not CLASS:VALUE with one of %s", c, strings.Join(slices.Sorted(maps.Keys(capabilityForms)), ", "))
		case !form.MatchString(value) || len(c) > maxCapability:
			bad("capabilities: %q has no value that one of class %s can have", c, class)
		}
	}
	provided(m, bad)
	return problems
}

// provided looks at the tools that a loop lends. None has a dot in its name, since the
// agent knows it as loop.NAME.TOOL.
func provided(m Manifest, bad func(string, ...any)) {
	seen := map[string]bool{}
	for _, t := range m.Provides {
		switch {
		case !lentName.MatchString(t.Name):
			bad("provides: %q is no name of a tool: use 1 to 64 letters, digits, _ and -", t.Name)
		case seen[t.Name]:
			bad("provides: %s is there twice", t.Name)
		case strings.TrimSpace(t.Description) == "":
			bad("provides: %s has no description, by which the agent knows what it is for", t.Name)
		}
		seen[t.Name] = true
		var schema struct {
			Type string `json:"type"`
		}
		if len(t.Parameters) > 0 && (json.Unmarshal(t.Parameters, &schema) != nil || schema.Type != "object") {
			bad("provides: the parameters of %s are not a JSON Schema of type object", t.Name)
		}
	}
}
