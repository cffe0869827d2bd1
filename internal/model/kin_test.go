package model

import "testing"

func TestAModelNobodyPricedIsTakenForTheDearestOfItsKin(t *testing.T) {
	t.Parallel()
	c := catalog(t)
	p, known := c.Kin("anthropic", "claude-opus-99-1")
	if !known || p.Output < 25 || p.Input < 5 {
		t.Errorf("a new opus: %+v, %v", p, known)
	}
	small, known := c.Kin("anthropic", "claude-haiku-99")
	if !known || small.Output >= p.Output {
		t.Errorf("a new haiku: %+v, %v", small, known)
	}
	for provider, model := range map[string]string{"anthropic": "gpt-5", "openai": "gpt", "nobody": "claude-opus-4-6", "": ""} {
		if p, known := c.Kin(provider, model); known {
			t.Errorf("%s/%s is taken for %+v", provider, model, p)
		}
	}
}
