package wasmloop

import (
	"fmt"
	"slices"
	"strings"
)

// Describe renders a manifest in the plain English an operator approves. It takes the
// whole manifest rather than the fields it happens to use today, so a new kind of reach
// cannot be added to the format and quietly stay out of the list.
func Describe(m Manifest) (lines []string) {
	add := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, fn := range m.Host {
		does, known := reach[fn]
		switch {
		case !known:
			add("call %q, a host function that this version does not have", fn)
		case does != "" && fn != FnHTTP && fn != FnTool:
			add("%s", does)
		}
	}
	if slices.Contains(m.Host, FnHTTP) && !slices.ContainsFunc(m.Capabilities, func(c string) bool { return strings.HasPrefix(c, "http:") }) {
		add("make web requests, but to no host: it names none")
	}
	for _, c := range m.Capabilities {
		for _, line := range describeCapability(c) {
			add("%s", line)
		}
	}
	for _, t := range m.Tools {
		add("call the tool %s with inputs of its choice", t)
	}
	if len(m.Tools) > 0 && !slices.Contains(m.Host, FnTool) {
		add("…but it does not declare the host function %q, so it can call no tool", FnTool)
	}
	for _, p := range m.Provides {
		add("lend your agent the tool %s while the agent works for it", p.Name)
	}
	if m.Schedule != "" {
		add("run by itself at %s", m.Schedule)
	}
	for _, e := range m.Events {
		switch {
		case e == "*":
			add("run at every event there is, of you, your agent and your other loops, also of its own runs, and read what is in it")
		case strings.HasPrefix(e, "run."): // one run of it starts the next, until that is cut off
			add("run at each event %s, also of its own runs, and read what is in it", e)
		default:
			add("run at each event %s, and read what is in it", e)
		}
	}
	if m.Webhook != "" {
		add("run whenever somebody calls the webhook %s", m.Webhook)
	}
	add("use up to %d MiB of memory while it runs", m.memoryMB())
	return lines
}

const defaultMemoryMB = 64

func (m *Manifest) memoryMB() int {
	if m.MemoryMB == 0 {
		return defaultMemoryMB
	}
	return m.MemoryMB
}

// describeCapability says what a capability gives, a line each.
func describeCapability(c string) []string {
	class, value, _ := strings.Cut(c, ":")
	if value == "" && class != "http" && class != "tool" {
		return []string{fmt.Sprintf("be granted %q", c)}
	}
	every := value == "" || value == "*"
	switch class {
	case "http":
		if every {
			return []string{"make web requests to any host"}
		}
		return []string{"make web requests to " + strings.Replace(value, "*.", "every host under ", 1)}
	case "memory": // whatever its namespace is called, it is the one of the operator's agent
		switch {
		case value == "*":
			return []string{reach[FnRecall], reach[FnRemember]}
		case strings.HasSuffix(value, writes):
			return []string{reach[FnRemember]}
		}
		return []string{reach[FnRecall]}
	case "tool":
		if every {
			return []string{"use every tool there is"}
		}
		if doing := reach[toolCapability[value]]; doing != "" {
			return []string{doing}
		}
		return []string{"use the tool " + value}
	case "channel":
		return []string{"send to the channel " + value}
	case "spend":
		return []string{"spend up to " + value + " a day"}
	case "secret":
		return []string{"have the secret " + value + " sent to the hosts it is bound to; it never sees its value"}
	}
	return []string{fmt.Sprintf("be granted %q", c)}
}

// writes ends a capability of class memory that is one to write.
const writes = ":write"

// toolCapability is the host function for which a capability of class tool stands.
var toolCapability = map[string]string{
	"app.push": FnNotify, "agent.ask": FnAsk, "harness": FnHarness, "gateway": FnGateway, "summarize": FnSummarize,
	"propose": FnPropose, "reminder.add": FnRemind, "loop.run": FnRunLoop,
}

// CapabilityDiff describes how an upgrade changes what a loop may do. A loop that gained
// "http:*" between versions must be shown to the operator, not inherit its old approval.
type CapabilityDiff struct {
	Added   []string
	Removed []string
	Same    bool
}

// DiffCapabilities compares an installed entry with an incoming manifest: capabilities,
// and under "host:", "tool:" and "provides:" what else it may reach.
func DiffCapabilities(old Entry, next Manifest) CapabilityDiff {
	var provides []string
	for _, p := range next.Provides {
		provides = append(provides, p.Name)
	}
	was := reaches(old.Capabilities, old.Host, old.Tools, old.Provides)
	is := reaches(next.Capabilities, next.Host, next.Tools, provides)
	d := CapabilityDiff{Added: without(is, was), Removed: without(was, is)}
	d.Same = len(d.Added) == 0 && len(d.Removed) == 0
	return d
}

func reaches(capabilities, host, tools, provides []string) []string {
	out := slices.Clone(capabilities)
	for _, part := range []struct {
		prefix string
		names  []string
	}{{"host:", host}, {"tool:", tools}, {"provides:", provides}} {
		for _, n := range part.names {
			out = append(out, part.prefix+n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// without are those of a that b does not cover.
func without(a, b []string) (out []string) {
	var have []string
	for _, s := range b {
		have = append(have, meant(s)...)
	}
	for _, s := range a {
		if slices.ContainsFunc(meant(s), func(m string) bool { return !slices.Contains(have, m) }) {
			out = append(out, s)
		}
	}
	return out
}

// meant is what a part of a manifest comes to: every namespace is the one memory there is.
func meant(s string) []string {
	value, memory := strings.CutPrefix(s, "memory:")
	switch {
	case !memory:
		return []string{s}
	case value == "*":
		return []string{"memory", "memory" + writes}
	case strings.HasSuffix(value, writes):
		return []string{"memory" + writes}
	}
	return []string{"memory"}
}

// says is what an agent is told of a provided tool: in full if it is short, else by its
// digest.
func (t ToolSpec) says() string {
	const most = 400
	part := func(text string) string {
		if len(text) > most {
			return fmt.Sprintf("%.100q … (%d bytes, sha256 %s)", text, len(text), digest([]byte(text)))
		}
		return fmt.Sprintf("%q", text)
	}
	return "which is told of it " + part(t.Description) + " and its input " + part(string(t.Parameters))
}

// Retold says, a line each, of which provided tools an agent would be told other things
// than it was until now.
func Retold(was, is Manifest) (lines []string) {
	for _, next := range is.Provides {
		i := slices.IndexFunc(was.Provides, func(t ToolSpec) bool { return t.Name == next.Name })
		if i >= 0 && was.Provides[i].says() != next.says() {
			lines = append(lines, "lend your agent the tool "+next.Name+" otherwise than before: "+next.says())
		}
	}
	return lines
}
