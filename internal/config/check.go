package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// check judges what no single value shows. It runs after problems too, so that
// one load reports everything, but trusts only values that were understood.
func (l *loader) check() {
	l.checkModels()
	l.checkRoles()
	l.checkAgents()
	l.checkListen()
	l.checkRoutes()
	c := l.out.Config
	if c.Approvals.Expires != 0 && c.Approvals.Hold > c.Approvals.Expires {
		at := l.where("approvals.hold")
		if at.Kind == FromDefault {
			at = l.where("approvals.expires") // one of the two was written
		}
		l.problem(at, "approvals.hold", "", "%s is longer than approvals.expires, %s", c.Approvals.Hold, c.Approvals.Expires)
	}
}

func (l *loader) where(path string) Source { return l.out.settings[path].value.at }

// harnessName is what can be the name of a harness: it stands in scopes.
var harnessName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// checkHarness judges a harness by its name: one is a known program or has a command.
func (l *loader) checkHarness(n chosen, command bool) {
	path := join(n.section, n.name)
	program := slices.Contains(KnownHarnesses(), n.name)
	switch {
	case !harnessName.MatchString(n.name):
		l.problem(n.at, path, "", "%q is no name of a harness: at most 32 small letters, digits and hyphens", n.name)
	case program && command:
		l.problem(n.at, path+".acp", "", "%s is a known program; set program instead, or take another name", n.name)
	case !program && !command:
		l.problem(n.at, path, nearest(n.name, KnownHarnesses()), "%s is no known program, so it needs acp, the command of an ACP agent", n.name)
	}
}

// checkRoutes judges whether the harnesses that routes name are there.
func (l *loader) checkRoutes() {
	known := slices.Concat(KnownHarnesses(), l.names["harnesses"])
	of := func(path string, routes ...string) {
		for _, route := range routes {
			if name, _, _ := strings.Cut(route, "/"); name != "" && !slices.Contains(known, name) {
				l.problem(l.where(path), path, nearest(name, known), "no harness is called %q", name)
			}
		}
	}
	of("delegate.default", l.out.Config.Delegate.Default)
	of("delegate.admit", l.out.Config.Delegate.Admit...)
}

func (l *loader) checkModels() {
	l.checkKeys()
	known := slices.Concat(l.names["models.providers"], builtinProviders)
	m := l.out.Config.Models
	for _, c := range []struct {
		path string
		ref  ModelRef
	}{{"models.main", m.Main}, {"models.summary", m.Summary}} {
		path, ref := c.path, c.ref
		if !ref.Auto() && !slices.Contains(known, ref.Provider) {
			l.problem(l.where(path), path, nearest(ref.Provider, known), "no provider is called %q", ref.Provider)
		}
	}
}

func (l *loader) checkRoles() {
	known := slices.Concat(l.names["roles"], shippedRoles)
	for _, name := range l.names["roles"] {
		role, path := l.out.Config.Roles[name], "roles."+name
		if role.Parent != "" {
			if !slices.Contains(known, role.Parent) {
				l.problem(l.where(path+".parent"), path+".parent", nearest(role.Parent, known), "no role is called %q", role.Parent)
			} else if loop := l.ancestry(name); loop != "" {
				l.problem(l.where(path+".parent"), path+".parent", "", "the role is its own ancestor: %s", loop)
			}
		}
		lists := map[string]string{} // scope → list it is in
		for _, key := range []string{path + ".allow", path + ".ask", path + ".deny"} {
			l.checkScopes(key, lists)
		}
	}
}

func (l *loader) checkScopes(key string, lists map[string]string) {
	for _, it := range l.out.settings[key].value.items {
		if other := lists[it.text]; other != "" && other != key {
			l.problem(it.at, key, "", "%q is in %s too", it.text, other)
		}
		lists[it.text] = key
		if l.in.Scope == nil {
			continue
		}
		if err := l.in.Scope(it.text); err != nil {
			l.problem(it.at, key, "", "%s", withHint(err))
		}
	}
}

// ancestry returns the loop a role is on, "" if it is on none.
func (l *loader) ancestry(name string) string {
	chain := []string{name}
	for at := l.out.Config.Roles[name].Parent; at != "" && !slices.Contains(chain[1:], at); {
		chain = append(chain, at)
		if at == name {
			return strings.Join(chain, " → ")
		}
		at = l.out.Config.Roles[at].Parent
	}
	return ""
}

func (l *loader) checkAgents() {
	known := slices.Concat(l.names["roles"], shippedRoles)
	for _, name := range l.names["agents"] {
		role, path := l.out.Config.Agents[name].Role, "agents."+name
		if role != "" && !slices.Contains(known, role) {
			l.problem(l.where(path+".role"), path+".role", nearest(role, known), "no role is called %q", role)
		}
		for _, it := range l.out.settings[path+".tools"].value.items {
			if l.in.Tool == nil {
				break
			}
			if err := l.in.Tool(it.text); err != nil {
				l.problem(it.at, path+".tools", "", "%s", withHint(err))
			}
		}
	}
}

// withHint is what an error says, with the nearest names it may know.
func withHint(err error) string {
	if hint := fault.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

// finish fills in what depends on other values, once all are known to be good.
func (l *loader) finish() {
	for name, p := range l.out.Config.Models.Prices {
		if p.CacheRead == sameAsInput {
			p.CacheRead = p.Input
		}
		if p.CacheWrite == sameAsInput {
			p.CacheWrite = p.Input
		}
		l.out.Config.Models.Prices[name] = p
	}
	l.out.order = l.keys()
}
