package scaffold

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/wasmloop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

var (
	installable = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	eventKind   = regexp.MustCompile(`^(\*|[a-z][a-z0-9_]*(\.[a-z0-9_]+)*(\.\*)?)$`)
	toolName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	classes     = []string{"http", "memory", "tool", "channel", "spend", "secret"}
)

const (
	maxMemoryMB = 4096
	maxEvents   = 32
)

// Check says, a line each, what is wrong with a manifest: what a host would refuse, and
// what would be refused to the loop whenever it asks.
func Check(m wasmloop.Manifest) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !installable.MatchString(m.Name) {
		bad("name: %q cannot be one: use 1 to 64 letters, digits and . _ -, and begin with a letter or digit", m.Name)
	}
	if m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB {
		bad("memory_mb: %d is not 1 to %d", m.MemoryMB, maxMemoryMB)
	}
	if m.Schedule != "" {
		if _, err := cron.Parse(m.Schedule, time.UTC); err != nil {
			bad("schedule: %v", err)
		}
	}
	if len(m.Events) > maxEvents {
		bad("events: there are %d; the most is %d", len(m.Events), maxEvents)
	}
	for _, e := range m.Events {
		if !eventKind.MatchString(e) {
			bad("events: %q is no kind of event, as comms.message, tool.* or *", e)
		}
	}
	for _, c := range m.Capabilities {
		if class, value, ok := strings.Cut(c, ":"); !ok || value == "" || !slices.Contains(classes, class) {
			bad("capabilities: %q is not CLASS:VALUE with one of %s", c, strings.Join(classes, ", "))
		}
	}
	checkHost(m, bad)
	checkProvides(m, bad)
	return problems
}

// checkHost looks for host functions that are not there, and for those that could never be
// called with these capabilities.
func checkHost(m wasmloop.Manifest, bad func(string, ...any)) {
	for _, name := range m.Host {
		fn, known := abi.Functions[name]
		switch {
		case !known:
			bad("host: there is no function %q%s", name, near(name))
		case fn.Class == "memory" && !slices.ContainsFunc(m.Capabilities, func(c string) bool {
			space, ok := strings.CutPrefix(c, "memory:")
			return ok && (space == "*" || strings.HasSuffix(space, ":write") == (fn.Value == ":write"))
		}):
			bad("capabilities: %s needs memory:main%s", name, fn.Value)
		case fn.Class == "tool" && !capable(m, "tool", fn.Value):
			bad("capabilities: %s needs tool:%s", name, fn.Value)
		}
	}
	declared := func(name string) bool { return slices.Contains(m.Host, name) }
	if declared(wasmloop.FnHTTP) && !capable(m, "http", "") {
		bad("capabilities: http needs http:HOST for each host it calls")
	}
	if declared(wasmloop.FnTool) && len(m.Tools) == 0 {
		bad("tools: the host function tool is there and no tool is named")
	}
	if !declared(wasmloop.FnTool) && len(m.Tools) > 0 {
		bad("host: tools are named, and the function %q to call them is not", wasmloop.FnTool)
	}
	if declared(wasmloop.FnStepBegin) != declared(wasmloop.FnStepEnd) {
		bad("host: %s and %s are needed together", wasmloop.FnStepBegin, wasmloop.FnStepEnd)
	}
}

// capable says whether the manifest has a capability of a class for a value, or with "" for
// any.
func capable(m wasmloop.Manifest, class, value string) bool {
	return slices.ContainsFunc(m.Capabilities, func(c string) bool {
		got, ok := strings.CutPrefix(c, class+":")
		return ok && (value == "" || got == value || got == "*")
	})
}

func checkProvides(m wasmloop.Manifest, bad func(string, ...any)) {
	seen := map[string]bool{}
	for _, t := range m.Provides {
		switch {
		case !toolName.MatchString(t.Name):
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

// near is the host function that was probably meant.
func near(name string) string {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "") }
	for _, known := range slices.Sorted(maps.Keys(abi.Functions)) {
		if a, b := plain(known), plain(name); a == b || len(b) > 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			return fmt.Sprintf(": is it %q?", known)
		}
	}
	return ""
}
