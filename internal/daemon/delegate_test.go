//go:build unix

package daemon

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/config"
)

// TestTheKeyOfACodingAgentIsHidden: a program that is given it can print it.
func TestTheKeyOfACodingAgentIsHidden(t *testing.T) {
	t.Parallel()
	const key = "AIza-of-a-coding-agent-1234567"
	o := options(t, "")
	o.Environment = config.ReadEnvironment(func(name string) string {
		if name == "GEMINI_API_KEY" {
			return key
		}
		return ""
	})
	d := within(t, o, nil)
	if shown := d.hide.String("it says " + key); strings.Contains(shown, key) {
		t.Errorf("shown is %q", shown)
	}
	h, err := d.delegations.Harness("gemini")
	if err != nil || h.Key != key || h.KeyFrom() != "the variable GEMINI_API_KEY" {
		t.Errorf("its key is from %q, %v", h.KeyFrom(), err)
	}
}
