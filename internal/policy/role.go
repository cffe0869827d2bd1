package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// RoleSpec is a role as configured. `{workspace}` in a scope stands for the
// workspace directory. A role with a parent that lists neither allow nor ask has
// all its parent has, less what it denies.
type RoleSpec struct {
	Name    string   `yaml:"name"`
	Parent  string   `yaml:"parent"`   // default: none
	MaxTier string   `yaml:"max_tier"` // default: its parent's, else trusted
	Allow   []string `yaml:"allow"`
	Ask     []string `yaml:"ask"`
	Deny    []string `yaml:"deny"`
}

// Role is a loaded role: what a subject in it can do at most.
type Role struct {
	name    string
	parent  *Role
	layers  []*Layer // its own first, then those of its ancestors
	maxTier Tier
}

// Name returns the name of the role.
func (r *Role) Name() string { return r.name }

// Parent returns the role it narrows, nil if none.
func (r *Role) Parent() *Role { return r.parent }

// MaxTier is the highest tier a subject in the role acts with.
func (r *Role) MaxTier() Tier { return r.maxTier }

// Layers returns its own rules first, then those of its ancestors.
func (r *Role) Layers() []*Layer { return slices.Clone(r.layers) }

// Grants returns what putting subject into the role gives it where the operator
// wrote no grants of its own: all the role can do. The role still asks and denies.
func (r *Role) Grants(subject string) *Layer {
	rules := slices.DeleteFunc(r.layers[0].Rules(), func(x Rule) bool { return x.Effect == Deny })
	for i := range rules {
		rules[i].Effect = Allow
	}
	return NewLayer("grants of "+subject+" by role "+r.name, rules)
}

// Roles is the loaded set of roles.
type Roles struct{ byName map[string]*Role }

// Get returns the role called name.
func (r *Roles) Get(name string) (*Role, error) {
	if role, ok := r.byName[name]; ok {
		return role, nil
	}
	return nil, fault.New(fault.NotFound, "no role %q", name).WithHint("the roles are %s", strings.Join(r.Names(), ", "))
}

// Names returns the names in order.
func (r *Roles) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// The shipped roles.
const (
	RoleAssistant  = "assistant"   // an agent on a fresh install
	RoleFirstParty = "first-party" // loops compiled into ombud
	RoleRecipe     = "recipe"      // recipes, beside the grants in their files
	RoleSigned     = "signed"      // loops of others, beside what was approved when they were installed
)

// ShippedRoles returns the roles that exist without configuration.
func ShippedRoles() []RoleSpec {
	var all []string
	for _, b := range scope.Bases() {
		if !authority[b] {
			all = append(all, b.String())
		}
	}
	return []RoleSpec{
		{
			Name: RoleAssistant,
			Allow: []string{"memory.read", "memory.write", "memory.forget", "time.read", "remind.read", "remind.write",
				"schedule.list", "fs.read:{workspace}/**", "fs.list:{workspace}/**", "fs.metadata:{workspace}/**"},
			Ask: []string{"fs.write:{workspace}/**", "fs.delete:{workspace}/**", "shell.exec", "net.fetch",
				"schedule.create", "schedule.update", "schedule.delete", "channel.send", "harness"},
		},
		{Name: RoleFirstParty, Allow: all},
		{
			Name: RoleRecipe,
			Allow: []string{"memory.read", "memory.write", "time.read", "remind.read", "remind.write", "notify.send", "schedule.list",
				"llm.call", "tool:agent.ask", "tool:propose", "channel.send:operator", "channel.send:local:*"},
			Ask: []string{"harness"},
		},
		{Name: RoleSigned, Allow: []string{"time.read"}},
	}
}

// LoadRoles builds the shipped roles and own, one of which may replace a shipped
// one of its name. Everything that is wrong is in the one error: an unknown scope
// or parent, a cycle, a repeated name, a child wider than its parent, a rule that
// can have no effect.
func LoadRoles(workspace string, own []RoleSpec) (*Roles, error) {
	place, err := scope.Of("fs.read", workspace)
	if err != nil {
		return nil, fault.New(fault.Config, "workspace %q: %w", workspace, err)
	}
	_, dir, _ := strings.Cut(place.String(), ":")
	l := &roleLoader{workspace: strings.TrimSuffix(dir, "/"), specs: map[string]RoleSpec{}, loaded: map[string]*Role{}}
	l.collect(own)
	for _, name := range slices.Sorted(maps.Keys(l.specs)) {
		l.load(name, nil)
	}
	if len(l.errs) > 0 {
		return nil, fault.New(fault.Config, "roles: %w", errors.Join(l.errs...))
	}
	return &Roles{byName: l.loaded}, nil
}

type roleLoader struct {
	workspace string
	specs     map[string]RoleSpec
	loaded    map[string]*Role // nil: being loaded, or broken
	errs      []error
}

func (l *roleLoader) fail(format string, args ...any) {
	l.errs = append(l.errs, fault.New(fault.Config, format, args...))
}

func (l *roleLoader) collect(own []RoleSpec) {
	seen := map[string]bool{}
	for _, s := range own {
		switch {
		case !validName(s.Name):
			l.fail("role %q: a name has 1 to 32 letters a-z, digits and dashes", s.Name)
			continue
		case seen[s.Name]:
			l.fail("role %s is defined twice", s.Name)
		}
		seen[s.Name] = true
		l.specs[s.Name] = s
	}
	for _, s := range ShippedRoles() {
		if !seen[s.Name] {
			l.specs[s.Name] = s
		}
	}
}

func validName(name string) bool {
	return len(name) > 0 && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// load builds one role after its parent. Path is the chain of children that led
// here. It returns nil, with the reason noted, for a role that cannot be built.
func (l *roleLoader) load(name string, path []string) *Role {
	if slices.Contains(path, name) {
		l.fail("roles form a cycle: %s", strings.Join(append(path, name), " → "))
		return nil
	}
	if r, done := l.loaded[name]; done {
		return r
	}
	spec := l.specs[name]
	var parent *Role
	if spec.Parent != "" {
		if _, ok := l.specs[spec.Parent]; !ok {
			l.fail("role %s: no parent role %q", name, spec.Parent)
		} else {
			parent = l.load(spec.Parent, append(path, name))
		}
	}
	if _, done := l.loaded[name]; done { // settled while its cycle was reported
		return nil
	}
	l.loaded[name] = nil
	if spec.Parent != "" && parent == nil {
		return nil
	}
	role := l.build(spec, parent)
	l.loaded[name] = role
	return role
}

func (l *roleLoader) build(spec RoleSpec, parent *Role) *Role {
	rules := l.rules(spec)
	l.checkUseful(spec.Name, rules)
	role := &Role{name: spec.Name, parent: parent, maxTier: Trusted}
	if parent != nil {
		role.maxTier = parent.maxTier
		l.checkWithin(spec.Name, rules, parent)
		if len(spec.Allow) == 0 && len(spec.Ask) == 0 {
			inherited := slices.DeleteFunc(parent.layers[0].Rules(), func(r Rule) bool { return r.Effect == Deny })
			rules = append(rules, inherited...)
		}
	}
	if spec.MaxTier != "" {
		if err := role.maxTier.UnmarshalText([]byte(spec.MaxTier)); err != nil {
			l.fail("role %s: %w", spec.Name, err)
		} else if parent != nil && role.maxTier > parent.maxTier {
			l.fail("role %s: max_tier %s is above %s of its parent %s", spec.Name, role.maxTier, parent.maxTier, parent.name)
		}
	}
	role.layers = []*Layer{NewLayer("role "+spec.Name, rules)}
	if parent != nil {
		role.layers = append(role.layers, parent.layers...)
	}
	return role
}

func (l *roleLoader) rules(spec RoleSpec) []Rule {
	var rules []Rule
	add := func(effect Effect, texts []string) {
		for _, text := range texts {
			s, err := scope.ParseRule(strings.ReplaceAll(text, "{workspace}", l.workspace))
			if err != nil {
				l.errs = append(l.errs, fault.New(fault.Config, "role %s: %s: %w", spec.Name, effect, err).WithHint("%s", fault.HintOf(err)))
				continue
			}
			rules = append(rules, Rule{s, effect})
		}
	}
	add(Allow, spec.Allow)
	add(Ask, spec.Ask)
	add(Deny, spec.Deny)
	return rules
}

// checkWithin holds every allow and ask of a child against its parent. Where the
// parent takes away only a part, the decision does so too: it asks both layers.
func (l *roleLoader) checkWithin(name string, rules []Rule, parent *Role) {
	for _, r := range rules {
		if r.Effect == Deny {
			continue
		}
		if most := parent.holds(r.Scope); most < r.Effect {
			l.fail("role %s: %q is wider than its parent %s, which has %s for it", name, r, parent.name, most)
		}
	}
}

// holds returns the effect the role has on all of s.
func (r *Role) holds(s scope.Scope) Effect {
	most := Allow
	for _, layer := range r.layers {
		most = min(most, layer.holds(s))
	}
	return most
}

// checkUseful finds an allow or ask that a deny of the same role takes away whole.
func (l *roleLoader) checkUseful(name string, rules []Rule) {
	for _, r := range rules {
		for _, d := range rules {
			if r.Effect != Deny && d.Effect == Deny && d.Scope.Covers(r.Scope) {
				l.fail("role %s: %q grants nothing, because of %q", name, r, d)
			}
		}
	}
}
