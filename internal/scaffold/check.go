package scaffold

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/wasmloop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Check says, a line each, what is wrong with a manifest: what a host would refuse, and
// what would be refused to the loop whenever it asks.
func Check(m wasmloop.Manifest) (problems []string) {
	problems = wasmloop.Problems(m)
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if m.Schedule != "" {
		switch s, err := cron.Parse(m.Schedule, time.UTC); {
		case err != nil:
			bad("schedule: %v", err)
		case s.Often(time.Minute):
			bad("schedule: %s is more than once a minute", m.Schedule)
		}
	}
	checkHost(m, bad)
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
		case fn.Declared(m.Capabilities):
		case fn.Class == "memory":
			bad("capabilities: %s needs memory:main%s", name, fn.Value)
		default:
			bad("capabilities: %s needs %s:%s", name, fn.Class, fn.Value)
		}
	}
	declared := func(name string) bool { return slices.Contains(m.Host, name) }
	if declared(wasmloop.FnHTTP) && !slices.ContainsFunc(m.Capabilities, func(c string) bool { return strings.HasPrefix(c, "http:") }) {
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
