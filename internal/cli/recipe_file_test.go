package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/scope"
)

func TestADryRunDecidesAsPolicyDoes(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{
		{Scope: scope.Must("net.fetch:https://a.example/"), Effect: policy.Deny}, {Scope: scope.Must("harness"), Effect: policy.Ask},
		{Scope: scope.Must("time.read"), Effect: policy.Allow},
	}
	for _, c := range []struct {
		need   string
		grants []string
		want   policy.Effect
	}{
		{"net.fetch:https://a.example/x", []string{"net.fetch"}, policy.Deny},
		{"net.fetch:https://b.example/x", []string{"net.fetch"}, policy.Allow},
		{"net.fetch:https://b.example/x", nil, policy.Deny},
		{"harness", []string{"harness"}, policy.Allow},
		{"harness", nil, policy.Ask},
		{"time.read", nil, policy.Allow},
	} {
		if got := verdict(rules, c.grants, scope.Must(c.need)); got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.need, c.grants, got, c.want)
		}
	}
}

func TestNoMoreOfAFileIsReadThanShowsThatItIsTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	if text, err := readText(path); err != nil || len(text) != recipe.MaxFile+1 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}
