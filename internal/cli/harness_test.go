package cli

import "testing"

func TestWhoHoldsTheKeyOfACodingAgentIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from string
		held bool
		want string
	}{
		{"", false, "its own login"},
		{"secret:anthropic", true, "secret:anthropic, held by ombud"},
		{"the variable SOME_API_KEY", false, "the variable SOME_API_KEY, in its environment"},
		{"secret:a\nb", true, "secret:a b, held by ombud"},
	} {
		if got := keyOf(c.from, c.held); got != c.want {
			t.Errorf("%q, %v: %q, want %q", c.from, c.held, got, c.want)
		}
	}
}
