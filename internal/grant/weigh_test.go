package grant

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// fold is what is held when these grants are stored.
func fold(t testing.TB, g *Grants, list ...Grant) policy.Held {
	t.Helper()
	h, err := g.held(stored{grants: list}, subject, "")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func made(effect Effect, text string) Grant {
	return Grant{New: New{Subject: subject, Scope: scope.Must(text), Effect: effect}, ID: "grt_" + string(effect) + text}
}

func TestAGrantThatCanMatchNothingSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite)
	role := assistant(t)
	for _, c := range []struct {
		effect Effect
		scope  string
		weight Weight
		why    string
	}{
		{Allow, "email.send", Nothing, "role assistant: nothing within email.send"},
		{Allow, "fs.read:/etc/**", Nothing, "role assistant: nothing within"},
		{Allow, "fs.write:/ws/**", Nothing, "only a standing approval answers that"},
		{Allow, "memory.read", Nothing, "has what its role gives of it already"},
		{Allow, "config.write", Nothing, "role assistant"},
		{Standing, "fs.write:/ws/notes/**", All, ""},
		{Standing, "fs.write", Part, "the rest is settled elsewhere"},
		{Standing, "fs.write:/etc/**", Nothing, "role assistant"},
		{Standing, "memory.read", Nothing, "the answer is allow already"},
		{Standing, "shell.exec:git", All, ""},
		{Deny, "fs.write:/ws/secret/**", All, ""},
		{Deny, "fs.write:/*/secret/**", Part, ""},
		{Deny, "fs.write", Part, ""},
		{Deny, "email.send", Nothing, "it is denied already"},
		{Ask, "fs.read:/ws/private/**", All, ""},
		{Ask, "fs.write:/ws/a", Nothing, "the answer is ask already"},
		{Ask, "email.read", Nothing, "it is denied already"},
		{Limit, "fs.read:/ws/public/**", All, ""},
		{Limit, "fs.read:/elsewhere/**", All, ""},
		{Limit, "fs.read:/ws/**", Nothing, "has no more than this anyway"},
		{Limit, "git.read:/ws/**", Nothing, "denied already"},
	} {
		x := made(c.effect, c.scope)
		weight, why := Weigh(x, input(t, role, policy.Held{}), input(t, role, fold(t, b.Grants, x)))
		if weight != c.weight || !strings.Contains(why, c.why) || weight == Nothing && why == "" {
			t.Errorf("%s %s grants %s (%s), want %s (%s)", c.effect, c.scope, weight, why, c.weight, c.why)
		}
	}
	if weight, why := Weigh(Grant{New: New{Effect: Allow}}, policy.Input{}, policy.Input{}); weight != Nothing || why == "" {
		t.Errorf("a scope nobody knows grants %s (%s)", weight, why)
	}
	x := made(Allow, "email.send")
	if weight, why := Weigh(x, input(t, nil, policy.Held{}), input(t, nil, fold(t, b.Grants, x))); weight != All {
		t.Errorf("without a role it grants %s (%s)", weight, why)
	}
}

func genScope() *rapid.Generator[scope.Scope] {
	return rapid.Custom(func(t *rapid.T) scope.Scope {
		return scope.Must(rapid.SampledFrom([]string{
			"fs.read", "fs.read:/ws/**", "fs.read:/ws/a", "fs.read:/ws/*/b", "fs.read:/**", "fs.read:/etc/**", "fs.read:/ws/a/**",
			"fs.write", "fs.write:/ws/**", "fs.write:/ws/a", "fs.write:/*/a", "shell.exec", "shell.exec:git", "shell.exec:git,ls", "email.send",
			"memory.read", "memory.write:agent*", "net.fetch", "net.fetch:https://example.com/", "config.write", "caps.write",
		}).Draw(t, "scope"))
	})
}

func genGrants() *rapid.Generator[[]Grant] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Grant {
		effect := rapid.SampledFrom([]Effect{Allow, Allow, Standing, Standing, Ask, Deny, Limit}).Draw(t, "effect")
		return made(effect, genScope().Draw(t, "scope").String())
	}), 0, 6)
}

// TestGrantsNeverWidenRoleAndTier holds the law: whatever is stored, a call the
// role or the tier denies stays denied, one with strangers' words that cannot be
// taken back asks, and a grant that grants nothing changes no decision.
func TestGrantsNeverWidenRoleAndTier(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite)
	role := assistant(t)
	rapid.Check(t, func(r *rapid.T) {
		list := genGrants().Draw(r, "grants")
		need := genScope().Draw(r, "need")
		tier := rapid.SampledFrom([]policy.Tier{policy.Untrusted, policy.SemiTrusted, policy.Paired, policy.Trusted}).Draw(r, "tier")
		with := input(t, role, fold(t, b.Grants, list...))
		with.Scopes, with.Tier, with.Tool = []scope.Scope{need}, tier, policy.ToolFacts{Name: "t", Irreversible: !need.Base().ReadOnly()}
		without := input(t, role, policy.Held{})
		without.Scopes, without.Tier, without.Tool = with.Scopes, tier, with.Tool
		is, was := policy.Decide(&with).Effect, policy.Decide(&without).Effect
		if was == policy.Deny && is != policy.Deny {
			r.Fatalf("%s was denied to the role at tier %s and is %s with %v", need, tier, is, list)
		}
		if is > was && len(with.Standing) == 0 {
			r.Fatalf("%s was %s and is %s without a standing approval", need, was, is)
		}
		with.Label = label.Of(label.Untrusted("web"), label.OperatorOnly)
		if with.Tool.Irreversible && policy.Decide(&with).Effect == policy.Allow {
			r.Fatalf("%s goes without asking though a stranger wrote in the context, with %v", need, list)
		}
		if len(list) == 0 {
			return
		}
		last := list[len(list)-1]
		before := input(t, role, fold(t, b.Grants, list[:len(list)-1]...))
		after := input(t, role, fold(t, b.Grants, list...))
		weight, why := Weigh(last, before, after)
		if weight == Nothing && why == "" {
			r.Fatalf("%s %s grants nothing for no reason", last.Effect, last.Scope)
		}
		if d, e := decide(before, need), decide(after, need); weight == Nothing && (last.Effect == Limit || last.Scope.Covers(need)) && d.Effect != e.Effect {
			r.Fatalf("%s %s grants nothing (%s), yet %s went from %s to %s", last.Effect, last.Scope, why, need, d.Effect, e.Effect)
		}
	})
}

func TestAccessLevelsOnlyTakeAwayAndEachWiderOneLess(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite)
	roles, err := policy.LoadRoles("/home/ana/ws", []policy.RoleSpec{{Name: "wide", Allow: []string{"fs.read", "fs.write", "shell.exec", "git.read", "memory.read"}}})
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get("wide")
	if err != nil {
		t.Fatal(err)
	}
	answers := func(list ...Grant) (out []policy.Effect) {
		in := input(t, role, fold(t, b.Grants, list...))
		for _, text := range []string{"shell.exec:ls", "fs.read:/home/ana/ws/a", "git.read:/home/ana/ws", "fs.write:/home/ana/b", "fs.read:/etc/hosts", "memory.read"} {
			out = append(out, decide(in, scope.Must(text)).Effect)
		}
		return out
	}
	free := answers()
	before := make([]policy.Effect, len(free))
	for i, name := range Presets() {
		p, err := NewPreset(name, "/home/ana/ws", "/home/ana")
		if err != nil {
			t.Fatal(err)
		}
		var list []Grant
		for _, r := range p.rows {
			list = append(list, Grant{New: New{Subject: subject, Scope: r.scope, Effect: r.effect}})
		}
		got := answers(list...)
		wider := false
		for k := range got {
			wider = wider || got[k] > before[k]
			if got[k] > free[k] || got[k] < before[k] {
				t.Errorf("%s answers %v; the role alone %v, the level below %v", name, got, free, before)
			}
		}
		if !wider && i > 0 {
			t.Errorf("%s is no wider than the level below: %v", name, got)
		}
		before = got
	}
	for _, c := range [][3]string{{"huge", "/ws", "/home"}, {"home", "/ws", ""}, {"workspace", "ws", "/home"}} {
		if _, err := NewPreset(c[0], c[1], c[2]); err == nil {
			t.Errorf("a preset of %v", c)
		}
	}
}
