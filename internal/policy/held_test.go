package policy

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/scope"
)

func TestReachNamesWhatHoldsAScopeBack(t *testing.T) {
	t.Parallel()
	in := allowed(t)
	in.Bounds = nil
	for text, want := range map[string]struct {
		effect Effect
		layer  string
	}{
		"fs.read:/ws/**":          {Allow, "tier trusted"},
		"fs.read":                 {Allow, "tier trusted"}, // a part of it
		"fs.write:/ws/a":          {Ask, "role assistant"},
		"fs.read:/home/ana/**":    {Deny, "role assistant"},
		"email.send":              {Deny, "role assistant"},
		"fs.read:/ws/../etc/x":    {Deny, "role assistant"},
		"shell.exec:rm":           {Ask, "role assistant"},
		"memory.read:agent:other": {Allow, "tier trusted"},
	} {
		s, err := scope.Parse(text)
		if err != nil {
			continue // what does not parse reaches nothing at all
		}
		if got, why := in.Reach(s); got != want.effect || why.Layer != want.layer {
			t.Errorf("%s reaches %s by %s (%s), want %s by %s", text, got, why.Layer, why.Text, want.effect, want.layer)
		}
	}
	in.Tier = SemiTrusted
	if got, why := in.Reach(scope.Must("fs.read:/ws/**")); got != Deny || why.Code != CodeTier {
		t.Errorf("a remote adapter reaches %s: %s", got, why.Text)
	}
}

func TestNothingGoesBeyondTheReach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := genInput().Draw(t, "in")
		in.Scopes = in.Scopes[:1]
		wide := genScope().Draw(t, "wide")
		if !wide.Covers(in.Scopes[0]) {
			t.Skip("the need is not within the scope")
		}
		reach, _ := in.Reach(wide)
		in.Standing = nil
		if got := Decide(in); got.Effect > reach {
			t.Fatalf("%s is %s, the reach of %s is %s", in.Scopes[0], got, wide, reach)
		}
	})
}

func TestALimitLeavesOtherBasesAlone(t *testing.T) {
	t.Parallel()
	if Limit("none", nil) != nil {
		t.Error("no limit is no layer")
	}
	l := Limit("access workspace", scopes("fs.read:/ws/**"))
	for text, want := range map[string]Effect{
		"fs.read:/ws/a": Allow, "fs.read:/etc/passwd": Deny, "fs.read": Deny, "fs.write:/etc/x": Allow, "memory.read": Allow,
	} {
		if got, _ := l.judge(scope.Must(text)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestTheDecidingReasonIsTheRuleThatDecided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Input)
		layer  string
		code   Code
	}{
		"allowed by the role": {func(*Input) {}, "role assistant", CodeRule},
		"denied by a grant":   {func(in *Input) { in.Grants = NewLayer("mine", rules("allow fs.read", "deny fs.read:/ws/notes.txt")) }, "mine", CodeRule},
		"not in the role":     {func(in *Input) { in.Scopes = scopes("email.send") }, "role assistant", CodeNoRule},
		"asked by the role":   {func(in *Input) { in.Scopes, in.Bounds = scopes("fs.write:/ws/a"), nil }, "role assistant", CodeRule},
		"standing": {func(in *Input) {
			in.Scopes, in.Bounds, in.Standing = scopes("fs.write:/ws/a"), nil, scopes("fs.write:/ws/a")
		}, "standing approval", CodeStanding},
		"over the rate": {func(in *Input) { in.OverRate = true }, "rate", CodeRate},
	} {
		in := allowed(t)
		c.change(in)
		d := Explain(in)
		got, ok := d.Deciding()
		if !ok || got.Layer != c.layer || got.Code != c.code {
			t.Errorf("%s: %s, decided by %q (%s), want %q (%s)", name, d.Effect, got.Layer, got.Code, c.layer, c.code)
		}
	}
}
