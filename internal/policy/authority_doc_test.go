package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/scope"
)

var update = flag.Bool("update", false, "write the tables of docs/authority.md from the code")

const authorityFile = "../../docs/authority.md"

// TestTheTablesOfTheDocumentAreTheCodes holds docs/authority.md to the tables it is
// about.
func TestTheTablesOfTheDocumentAreTheCodes(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(authorityFile)
	if err != nil {
		t.Fatal(err)
	}
	was := string(raw)
	want := was
	for name, text := range map[string]string{"scopes": scopeTable(), "levels": levelTable(), "roles": roleTable()} {
		want = replaced(t, want, name, text)
	}
	if *update {
		if err := os.WriteFile(authorityFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if was != want {
		t.Error("docs/authority.md is not what the code says; run: go test ./internal/policy -run TestTheTables -update")
	}
}

// replaced puts text between the marks of name.
func replaced(t *testing.T, doc, name, text string) string {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	head, rest, ok := strings.Cut(doc, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("docs/authority.md has no place for %s", name)
	}
	return head + begin + "\n" + text + "\n" + end + tail
}

func scopeTable() string {
	var b strings.Builder
	b.WriteString("| base | qualifier | effect | semitrusted | paired |\n|---|---|---|---|---|\n")
	for _, base := range scope.Bases() {
		effect := ""
		switch {
		case base.ReadOnly():
			effect = "reads"
		case base.Irreversible():
			effect = "final"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", base, base.Kind(), effect, SemiTrusted.ceiling(base), Paired.ceiling(base))
	}
	return b.String()
}

func levelTable() string {
	var b strings.Builder
	b.WriteString("| level | |\n|---|---|\n")
	for _, l := range Levels() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", l, l.Doc())
	}
	return b.String()
}

func roleTable() string {
	var b strings.Builder
	for _, r := range ShippedRoles() {
		if r.Name == RoleFirstParty {
			fmt.Fprintf(&b, "`%s` (loops compiled into ombud) may do everything but change authority.\n", r.Name)
			continue
		}
		if r.Name == RoleSigned {
			fmt.Fprintf(&b, "`%s`, what a loop of somebody else may do from the start, beside what its manifest names and was approved: %s\n", r.Name, code(r.Allow))
			continue
		}
		what := "the role of a fresh install"
		if r.Name == RoleRecipe {
			what = "what a recipe may do from the start, beside the grants in its file"
		}
		fmt.Fprintf(&b, "`%s`, %s:\n\n| effect | scopes |\n|---|---|\n| allow | %s |\n| ask | %s |\n\n",
			r.Name, what, code(r.Allow), code(r.Ask))
	}
	return b.String()
}

func code(list []string) string { return "`" + strings.Join(list, "` `") + "`" }
