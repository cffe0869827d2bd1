package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

func decideAs(t *testing.T, role *Role, need string) Effect {
	t.Helper()
	s, err := scope.Parse(need)
	if err != nil {
		t.Fatal(err)
	}
	return Decide(&Input{Subject: "agent:main", Scopes: []scope.Scope{s}, Grants: role.Grants("agent:main"), Role: role,
		Tier: Kernel, Autonomy: assisted(t)}).Effect
}

func TestAssistantAsShipped(t *testing.T) {
	t.Parallel()
	roles, err := LoadRoles("/home/ana/work [1]", nil)
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get(RoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	at := func(base, path string) string {
		s, err := scope.Of(base, path)
		if err != nil {
			t.Fatal(err)
		}
		return s.String()
	}
	want := map[string]Effect{
		"memory.read": Allow, "memory.write": Allow, "memory.forget": Allow, "time.read": Allow, "remind.read": Allow, "remind.write": Allow,
		at("fs.read", "/home/ana/work [1]/a"): Allow, at("fs.list", "/home/ana/work [1]"): Allow, at("fs.metadata", "/home/ana/work [1]/a"): Allow,
		at("fs.write", "/home/ana/work [1]/a"): Ask, at("fs.delete", "/home/ana/work [1]/a"): Ask,
		"schedule.list": Allow, "schedule.create:x": Ask, "schedule.update:x": Ask, "schedule.delete:x": Ask,
		"shell.exec:ls": Ask, "net.fetch:https://x.io": Ask, "harness:claude": Ask,
		at("fs.read", "/home/ana/work 1/a"): Deny, "fs.read:/etc/passwd": Deny, "fs.write:/etc/passwd": Deny,
	}
	for need, effect := range want {
		if got := decideAs(t, role, need); got != effect {
			t.Errorf("%s: %s, want %s", need, got, effect)
		}
	}
	mentioned := map[scope.Base]bool{}
	for _, r := range role.Layers()[0].Rules() {
		mentioned[r.Scope.Base()] = true
	}
	for _, b := range scope.Bases() {
		if !mentioned[b] && decideAs(t, role, b.String()) != Deny {
			t.Errorf("%s is not denied", b)
		}
	}
	if n := len(mentioned); n != 19 {
		t.Errorf("the role speaks of %d bases, want 19", n)
	}
}

func TestFirstPartyHoldsNoAuthority(t *testing.T) {
	t.Parallel()
	roles, err := LoadRoles("/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get(RoleFirstParty)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range scope.Bases() {
		if got := role.holds(scope.Unqualified(b)); (got == Allow) == authority[b] {
			t.Errorf("first-party has %s for %s", got, b)
		}
	}
}

func TestRolesThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own  []RoleSpec
		want string
	}{
		"unknown scope":   {[]RoleSpec{{Name: "a", Allow: []string{"fs.raed"}}}, `role a: allow: unknown scope base "fs.raed"`},
		"program by name": {[]RoleSpec{{Name: "a", Deny: []string{"shell.exec:rm"}}}, `role a: deny: scope shell.exec: malformed set "rm": a program is named by its whole path`},
		"bad name":        {[]RoleSpec{{Name: "A b"}}, "a name has 1 to 32"},
		"no name":         {[]RoleSpec{{}}, "a name has 1 to 32"},
		"twice":           {[]RoleSpec{{Name: "a"}, {Name: "a"}}, "role a is defined twice"},
		"no parent":       {[]RoleSpec{{Name: "a", Parent: "b"}}, `role a: no parent role "b"`},
		"own parent":      {[]RoleSpec{{Name: "a", Parent: "a"}}, "cycle: a → a"},
		"cycle":           {[]RoleSpec{{Name: "a", Parent: "b"}, {Name: "b", Parent: "c"}, {Name: "c", Parent: "a"}}, "cycle: a → b → c → a"},
		"wider":           {[]RoleSpec{{Name: "a", Parent: RoleAssistant, Allow: []string{"fs.read:/"}}}, `"allow fs.read:/" is wider than its parent assistant, which has deny`},
		"allow over ask":  {[]RoleSpec{{Name: "a", Parent: RoleAssistant, Allow: []string{"shell.exec:/bin/ls"}}}, "is wider than its parent assistant, which has ask"},
		"ask over deny":   {[]RoleSpec{{Name: "a", Parent: RoleAssistant, Ask: []string{"web.search"}}}, "is wider than its parent assistant, which has deny"},
		"ask over a denied part": {[]RoleSpec{{Name: "a", Allow: []string{"fs.read"}, Deny: []string{"fs.read:/etc/**"}},
			{Name: "b", Parent: "a", Allow: []string{"fs.read:/etc/ssl/**"}}}, "is wider than its parent a, which has deny"},
		"wider than a grandparent": {[]RoleSpec{{Name: "a", Allow: []string{"fs.read:/x/**"}}, {Name: "b", Parent: "a"},
			{Name: "c", Parent: "b", Allow: []string{"fs.read:/**"}}}, "is wider than its parent b"},
		"higher tier":    {[]RoleSpec{{Name: "a", MaxTier: "semitrusted"}, {Name: "b", Parent: "a", MaxTier: "trusted"}}, "max_tier trusted is above semitrusted"},
		"unknown tier":   {[]RoleSpec{{Name: "a", MaxTier: "root"}}, `unknown tier "root"`},
		"grants nothing": {[]RoleSpec{{Name: "a", Allow: []string{"fs.read:/x"}, Deny: []string{"fs.read"}}}, `"allow fs.read:/x" grants nothing, because of "deny fs.read"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			roles, err := LoadRoles("/ws", c.own)
			if err == nil || roles != nil || !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if n := strings.Count(err.Error(), "\n"); n != 0 {
				t.Errorf("one fault is reported %d times: %v", n+1, err)
			}
		})
	}
	if _, err := LoadRoles("relative", nil); !fault.Is(err, fault.Config) {
		t.Errorf("a relative workspace: %v", err)
	}
}

func TestEveryFaultOfTheRolesIsReported(t *testing.T) {
	t.Parallel()
	_, err := LoadRoles("/ws", []RoleSpec{{Name: "a", Allow: []string{"nope.x", "fs.read:rel"}}, {Name: "b", Parent: "z"}})
	for _, want := range []string{"nope.x", `"rel"`, `parent role "z"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not tell of %s", err, want)
		}
	}
}

func TestAChildNarrowsItsParent(t *testing.T) {
	t.Parallel()
	roles, err := LoadRoles("/ws", []RoleSpec{
		{Name: "quiet", Parent: RoleAssistant, Deny: []string{"net.fetch", "fs.read:{workspace}/private/**"}, MaxTier: "paired"},
		{Name: "reader", Parent: "quiet", Allow: []string{"fs.read:{workspace}/**"}},
		{Name: RoleFirstParty, Allow: []string{"time.read"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]Effect{
		"quiet":        {"net.fetch:https://x.io": Deny, "fs.read:/ws/private/a": Deny, "fs.read:/ws/a": Allow, "fs.write:/ws/a": Ask, "memory.write": Ask},
		"reader":       {"fs.read:/ws/a": Allow, "fs.read:/ws/private/a": Deny, "memory.read": Deny, "fs.write:/ws/a": Deny},
		RoleFirstParty: {"time.read": Allow, "fs.read:/ws/a": Deny},
	}
	for name, needs := range want {
		role, err := roles.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for need, effect := range needs {
			if got := decideAs(t, role, need); got != effect {
				t.Errorf("role %s on %s: %s, want %s", name, need, got, effect)
			}
		}
	}
	if got := roles.Names(); !slices.Equal(got, []string{RoleAssistant, RoleFirstParty, "quiet", "reader", RoleRecipe, RoleSigned}) {
		t.Errorf("names %v", got)
	}
	if _, err := roles.Get("nobody"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown role: %v", err)
	}
}
