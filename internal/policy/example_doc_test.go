package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheRolesOfTheDocumentsCanBeLoaded holds the roles that docs/mcp.md tells people to
// write to what is loaded.
func TestTheRolesOfTheDocumentsCanBeLoaded(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	role := regexp.MustCompile(`(?m)^ +([a-z]+): \{(?: parent: ([a-z]+),)? allow: \[([^]]*)\](?:, deny: \[([^]]*)\])? \}$`)
	found := role.FindAllStringSubmatch(string(text), -1)
	if len(found) < 2 {
		t.Fatalf("%d roles were found", len(found))
	}
	rules := func(list string) (out []string) {
		for r := range strings.SplitSeq(list, ",") {
			if r = strings.Trim(r, ` "`); r != "" {
				out = append(out, r)
			}
		}
		return out
	}
	for _, m := range found {
		if _, err := LoadRoles("/w", []RoleSpec{{Name: m[1], Parent: m[2], Allow: rules(m[3]), Deny: rules(m[4])}}); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(m[0]), err)
		}
	}
}
