package signed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/wasmloop"
)

// ofCapability are the scopes behind the capabilities of class tool that stand for a host
// function and not for a tool.
var ofCapability = map[string][]string{
	"app.push":     {"notify.send:operator"},
	"agent.ask":    {"tool:agent.ask"},
	"harness":      {"harness:default"},
	"gateway":      {"llm.call:summary", "llm.call:main"},
	"summarize":    {"llm.call:summary"},
	"propose":      {"tool:propose"},
	"reminder.add": {"remind.write"},
	"loop.run":     {"loop"},
}

// ofTool are the scopes of ombud's own tools, each as a whole: a manifest names a tool and
// not what may be done with it. One that is not here needs a scope of its own name.
var ofTool = map[string][]string{
	"fs.read": {"fs.read"}, "fs.list": {"fs.list"}, "fs.write": {"fs.write"}, "fs.delete": {"fs.delete"},
	"shell.exec": {"shell.exec"}, "web.fetch": {"net.fetch"}, "time.now": {"time.read"}, "result.read": {"memory.read"},
	"memory.recall": {"memory.read"}, "memory.list": {"memory.read"}, "memory.remember": {"memory.write"}, "memory.forget": {"memory.forget"},
	"notify.send": {"notify.send:operator"},
	"remind.set":  {"remind.write"}, "remind.cancel": {"remind.write"}, "remind.list": {"remind.read"},
	"schedule.add": {"schedule.create"}, "schedule.list": {"schedule.list"}, "schedule.pause": {"schedule.update"},
	"schedule.resume": {"schedule.update"}, "schedule.remove": {"schedule.delete"},
}

// Rules are what a manifest gives its loop once it is approved, and the parts of it that
// stand for nothing here. A tool that does what cannot be taken back is asked about, each
// time, unless a capability names what it may be used for.
func Rules(m wasmloop.Manifest) (rules []policy.Rule, idle []string) {
	add := func(effect policy.Effect, text string) bool {
		s, err := scope.ParseRule(text)
		if err != nil {
			return false
		}
		r := policy.Rule{Scope: s, Effect: effect}
		if !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
		return true
	}
	for _, c := range m.Capabilities {
		good := false
		for _, text := range scopesOf(m, c) {
			good = add(policy.Allow, text) || good
		}
		if !good {
			idle = append(idle, c)
		}
	}
	for _, name := range m.Tools {
		texts, ours := ofTool[name]
		if !ours {
			texts = []string{"tool:" + name, "mcp.call:" + name}
		}
		for _, text := range texts {
			s, err := scope.Parse(text)
			if err != nil {
				idle = append(idle, "tool "+name)
				continue
			}
			named := slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Scope.Base() == s.Base() && r.Scope.Qualified() && !s.Qualified() })
			switch {
			case named: // and no more than that
			case s.Base().Irreversible() && !s.Qualified():
				add(policy.Ask, text)
			default:
				add(policy.Allow, text)
			}
		}
	}
	return rules, idle
}

// scopesOf are the scopes a capability stands for, none if it stands for nothing.
func scopesOf(m wasmloop.Manifest, capability string) (out []string) {
	class, value, ok := strings.Cut(capability, ":")
	if !ok || value == "" {
		return nil
	}
	switch class {
	case "http":
		if value == "*" {
			return []string{"net.fetch", "net.post"}
		}
		for _, scheme := range []string{"https://", "http://"} {
			out = append(out, "net.fetch:"+scheme+value, "net.post:"+scheme+value)
		}
		return out
	case "memory": // whatever its namespace is called, it is that of the agent
		switch {
		case value == "*":
			return []string{"memory.read", "memory.write"}
		case strings.HasSuffix(value, ":write"):
			return []string{"memory.write"}
		}
		return []string{"memory.read"}
	case "tool":
		return toolScopes(m, value)
	case "channel":
		return []string{"channel.send:" + value}
	case "secret":
		return []string{capability}
	}
	return nil // spend: what a loop may spend is a budget (ombud cost), not a grant
}

// toolScopes are those of a capability of class tool: of a host function, of a tool that the
// manifest names beside, or of several by a pattern.
func toolScopes(m wasmloop.Manifest, value string) (out []string) {
	for name, texts := range ofCapability {
		if matches(value, name) {
			out = append(out, texts...)
		}
	}
	if slices.ContainsFunc(m.Tools, func(t string) bool { return matches(value, t) }) {
		out = append(out, "tool:"+value)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matches reports whether a pattern of a capability covers a value: it is "*" or the same,
// ends in ".*" and is the beginning, or begins with "*." and is the end.
func matches(pattern, value string) bool {
	if pattern == "*" || pattern == value {
		return true
	}
	if begin, ok := strings.CutSuffix(pattern, ".*"); ok && strings.HasPrefix(value, begin+".") {
		return true
	}
	end, ok := strings.CutPrefix(pattern, "*.")
	return ok && strings.HasSuffix(value, "."+end)
}

// gate holds a call against the capabilities of a manifest. What the loop may do with what
// it has, policy decides when the call is made.
type gate struct{ m wasmloop.Manifest }

var _ wasmloop.Gate = gate{}

func (g gate) Allow(_ context.Context, class, value string) error {
	if class == "tool" && slices.Contains(g.m.Tools, value) {
		return nil
	}
	for _, c := range g.m.Capabilities {
		has, pattern, ok := strings.Cut(c, ":")
		if !ok || has != class {
			continue
		}
		switch class {
		case "memory": // every namespace is the one memory there is, as in Rules
			if pattern == "*" || pattern != "" && strings.HasSuffix(pattern, ":write") == strings.HasSuffix(value, ":write") {
				return nil
			}
			continue
		case "http":
			pattern, _, _ = strings.Cut(pattern, ":") // the host; policy knows the port
			pattern = strings.ToLower(pattern)
		}
		if matches(pattern, value) {
			return nil
		}
	}
	return fmt.Errorf("%w: no capability of the manifest covers %s:%s", wasmloop.ErrRefused, class, value)
}
