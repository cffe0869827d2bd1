package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
)

func genScope() *rapid.Generator[scope.Scope] {
	return rapid.Custom(func(t *rapid.T) scope.Scope {
		return scope.Must(rapid.SampledFrom([]string{
			"fs.read", "fs.read:/**", "fs.read:/a/**", "fs.read:/a/*", "fs.read:/a/b", "fs.read:/a/b/**", "fs.read:/*/b", "fs.read:/a/b*",
			"shell.exec", "shell.exec:ls", "shell.exec:ls,cat", "shell.exec:cat,rm", "memory.write", "memory.write:x*", "memory.write:*y", "memory.write:xy",
		}).Draw(t, "scope"))
	})
}

func genLayer(name string) *rapid.Generator[*Layer] {
	return rapid.Custom(func(t *rapid.T) *Layer {
		n := rapid.IntRange(0, 6).Draw(t, "rules")
		var list []Rule
		for range n {
			list = append(list, Rule{genScope().Draw(t, "scope"), rapid.SampledFrom([]Effect{Allow, Allow, Allow, Ask, Deny}).Draw(t, "effect")})
		}
		return NewLayer(name, list)
	})
}

func genInput() *rapid.Generator[*Input] {
	return rapid.Custom(func(t *rapid.T) *Input {
		level := rapid.SampledFrom([]Level{Manual, Assisted, Supervised, Autonomous}).Draw(t, "level")
		autonomy, err := NewAutonomy(level, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := &Input{
			Subject: "s", Autonomy: autonomy,
			Scopes:     rapid.SliceOfN(genScope(), 1, 3).Draw(t, "needs"),
			Grants:     genLayer("grants").Draw(t, "grants"),
			Bounds:     rapid.SliceOfN(genLayer("bound"), 0, 2).Draw(t, "bounds"),
			Tier:       rapid.SampledFrom([]Tier{SemiTrusted, Paired, Trusted, Kernel}).Draw(t, "tier"),
			Standing:   rapid.SliceOfN(genScope(), 0, 2).Draw(t, "standing"),
			Unattended: rapid.Bool().Draw(t, "unattended"),
		}
		if rapid.Bool().Draw(t, "tainted") {
			in.Label = label.Of(stranger, label.OperatorOnly)
		}
		return in
	})
}

func TestMoreBoundsNeverGiveMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := genInput().Draw(t, "in")
		before := Decide(in)
		if full := Explain(in); full.Effect != before.Effect || full.Park != before.Park {
			t.Fatalf("decide says %s, explain %s", before, full)
		}
		if before.Effect != Allow && len(before.Reasons) == 0 {
			t.Fatalf("%s without a reason", before)
		}
		narrowed := *in
		narrowed.Bounds = append(slices.Clone(in.Bounds), genLayer("more").Draw(t, "more"))
		if after := Decide(&narrowed); after.Effect > before.Effect {
			t.Fatalf("one bound more turned %s into %s", before, after)
		}
		narrowed = *in
		narrowed.Grants = NewLayer("grants", append(in.Grants.Rules(), Rule{genScope().Draw(t, "denied"), Deny}))
		if after := Decide(&narrowed); after.Effect > before.Effect {
			t.Fatalf("one deny more turned %s into %s", before, after)
		}
	})
}

func TestAChildHoldsAtMostWhatItsParentHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parent := genInput().Draw(t, "parent")
		child := *parent
		child.Subject, child.Bounds = "child", parent.Inherit()
		child.Grants = genLayer("grants").Draw(t, "grants of the child")
		if c, p := Decide(&child), Decide(parent); c.Effect > p.Effect {
			t.Fatalf("the child has %s, its parent %s", c, p)
		}
	})
}

// What is allowed for a whole is allowed for each part of it.
func TestANarrowerNeedIsNotJudgedHarder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		layer := genLayer("l").Draw(t, "layer")
		wide, narrow := genScope().Draw(t, "wide"), genScope().Draw(t, "narrow")
		if !wide.Covers(narrow) {
			return
		}
		w, _ := layer.judge(wide)
		n, _ := layer.judge(narrow)
		if n < w {
			t.Fatalf("%v: %s for %s but %s for %s", layer.Rules(), w, wide, n, narrow)
		}
	})
}
