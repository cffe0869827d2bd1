package policy

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/scope"
)

func TestHoldsSaysWhatAChildCanBeGiven(t *testing.T) {
	t.Parallel()
	roles, err := LoadRoles("/w", []RoleSpec{{Name: "reader", MaxTier: "semitrusted", Allow: []string{"memory.read", "fs.metadata:/w/**"}}})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := roles.Get("reader")
	if err != nil {
		t.Fatal(err)
	}
	rule := func(text string, e Effect) Rule { return Rule{scope.Must(text), e} }
	parent := &Input{
		Subject: "agent:main", Tier: Trusted,
		Grants: NewLayer("grants of agent:main", []Rule{
			rule("fs.read:/w/**", Allow), rule("fs.read:/w/secret/**", Deny), rule("shell.exec:ls,cat", Ask), rule("memory.write", Allow),
		}),
		Bounds: []*Layer{NewLayer("bound of its run", []Rule{
			rule("fs.read", Allow), rule("shell.exec", Allow), rule("memory.write", Ask),
		})},
	}
	for need, want := range map[string]Effect{
		"fs.read:/w/**":        Allow, // the part that is denied stays denied in the child's own decisions
		"fs.read:/w/secret/**": Deny,
		"fs.read:/w/secret/k":  Deny,
		"fs.read:/**":          Deny,
		"fs.read":              Deny,
		"shell.exec:ls":        Ask,
		"shell.exec:rm":        Deny,
		"memory.write":         Ask,
		"net.fetch":            Deny,
	} {
		if got, why := parent.Holds(scope.Must(need)); got != want || why.Effect != want || why.Text == "" {
			t.Errorf("the parent holds %s on %s (%s), want %s", got, need, why.Text, want)
		}
	}
	if got, _ := parent.Holds(scope.Scope{}); got != Deny {
		t.Errorf("nothing is held as %s", got)
	}
	if parent.ChildTier() != Trusted {
		t.Errorf("the child has tier %s", parent.ChildTier())
	}
	parent.Role = reader
	if parent.ChildTier() != SemiTrusted {
		t.Errorf("the child of a reader has tier %s", parent.ChildTier())
	}
	if got, why := parent.Holds(scope.Must("fs.read:/w/a")); got != Deny {
		t.Errorf("the reader holds %s: %s", got, why.Text)
	}
}

// What a child asks for and its parent holds is never judged above what the
// parent would have got, whatever the child is granted on top.
func TestAChildByHoldsIsNeverAboveItsParent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parent := genInput().Draw(t, "parent")
		var given []Rule
		for _, s := range rapid.SliceOfN(genScope(), 0, 5).Draw(t, "wanted") {
			if most, _ := parent.Holds(s); most != Deny {
				given = append(given, Rule{s, most})
			}
		}
		child := *parent
		child.Subject, child.Grants, child.Bounds = "child", NewLayer("grants of child", given), parent.Inherit()
		child.Role, child.Tier, child.Standing = nil, parent.ChildTier(), nil
		if c, p := Decide(&child), Decide(parent); c.Effect > p.Effect {
			t.Fatalf("the child has %s, its parent %s", c, p)
		}
	})
}
