package signed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/wasmloop"
)

// Worst says in plain English what a loop could do to its operator if it were made to do
// harm, by all its manifest names, the worst first. The rules of ombud still hold for each
// call; this is what is left when they let it.
func Worst(m wasmloop.Manifest, tool func(name string) (ToolFacts, bool)) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	calls := func(fn ...string) bool {
		return slices.ContainsFunc(fn, func(name string) bool { return slices.Contains(m.Host, name) })
	}
	if calls(wasmloop.FnHarness) {
		add("have a coding agent change or send anything that a delegation may reach")
	}
	if calls(wasmloop.FnAsk) {
		add("have your agent use every tool the agent itself may use, for purposes of its own")
	}
	hosts := sendsTo(m)
	reads := readsWhat(m)
	switch {
	case len(hosts) > 0 && len(reads) > 0:
		add("send %s to %s", strings.Join(reads, ", "), strings.Join(hosts, ", "))
	case len(hosts) > 0:
		add("send what starts it, and what it makes up, to %s", strings.Join(hosts, ", "))
	}
	var changes, final, unknown, others []string
	if calls(wasmloop.FnTool) {
		for _, name := range m.Tools {
			facts, there := tool(name)
			switch {
			case !there:
				unknown = append(unknown, name)
			case facts.Irreversible:
				final = append(final, name)
			case !facts.ReadOnly:
				changes = append(changes, name)
			case ofTool[name] == nil:
				others = append(others, name)
			}
		}
	}
	if len(final) > 0 {
		add("do what cannot be taken back, with %s", strings.Join(final, ", "))
	}
	if len(changes) > 0 {
		add("change what is yours, with %s", strings.Join(changes, ", "))
	}
	if len(others) > 0 { // a program that only reads may still hand on what it is asked
		add("tell %s to whoever is behind %s", strings.Join(reads, ", "), strings.Join(others, ", "))
	}
	if len(unknown) > 0 {
		add("whatever %s can do: ombud does not have them yet", strings.Join(unknown, ", "))
	}
	for _, c := range m.Capabilities {
		if name, is := strings.CutPrefix(c, "secret:"); is && calls(wasmloop.FnHTTP) {
			add("do with your secret %s all that it lets whoever has it do, at the hosts it is bound to", name)
		}
	}
	if calls(wasmloop.FnRemember) {
		add("put untrue things into your memory, which your agent believes later")
	}
	if len(m.Provides) > 0 {
		add("tell your agent untrue things as results of its own tools, while the agent works for it")
	}
	if calls(wasmloop.FnAsk, wasmloop.FnGateway, wasmloop.FnSummarize, wasmloop.FnHarness) {
		add("spend on models up to your budget, at each start")
	}
	if calls(wasmloop.FnRunLoop) {
		add("start your other loops and recipes, as often as it likes")
	}
	if calls(wasmloop.FnNotify, wasmloop.FnPropose, wasmloop.FnRemind) {
		add("mislead you by notices, proposals or reminders")
	}
	switch {
	case len(lines) == 0 && len(reads) > 0:
		add("read %s, and keep it in its log; it can send it nowhere", strings.Join(reads, ", "))
	case len(lines) == 0:
		add("use up its own time and memory: it reaches nothing else")
	}
	return lines
}

// sendsTo are where a loop can send something by itself: by web requests of its own, and by
// a tool that fetches, which reaches anybody unless a capability narrows it.
func sendsTo(m wasmloop.Manifest) (out []string) {
	fetches := slices.Contains(m.Host, wasmloop.FnTool) && slices.ContainsFunc(m.Tools, func(name string) bool {
		return slices.Contains(ofTool[name], "net.fetch")
	})
	rules, _ := Rules(m)
	if fetches && slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Scope.String() == "net.fetch" }) {
		return []string{"anybody"}
	}
	if !fetches && !slices.Contains(m.Host, wasmloop.FnHTTP) {
		return nil
	}
	for _, c := range m.Capabilities {
		host, is := strings.CutPrefix(c, "http:")
		switch {
		case is && host == "*":
			return []string{"anybody"}
		case is && !slices.Contains(out, host):
			out = append(out, host)
		}
	}
	return out
}

// readsWhat are the things of the operator's that a loop can read.
func readsWhat(m wasmloop.Manifest) (out []string) {
	for _, r := range []struct{ fn, what string }{
		{wasmloop.FnRecall, "what is in your memory"},
		{wasmloop.FnChatGet, "summaries of your chats"},
		{wasmloop.FnOperators, "which chats are yours"},
		{wasmloop.FnConfig, "the settings you give it"},
		{wasmloop.FnAsk, "what your agent answers"},
	} {
		if slices.Contains(m.Host, r.fn) {
			out = append(out, r.what)
		}
	}
	if slices.Contains(m.Host, wasmloop.FnTool) && len(m.Tools) > 0 {
		out = append(out, "what its tools return")
	}
	if len(m.Events) > 0 {
		out = append(out, "the events that start it")
	}
	return out
}
