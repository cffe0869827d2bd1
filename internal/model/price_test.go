package model

import (
	"math"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"pgregory.net/rapid"
)

func catalog(t testing.TB, overrides ...Override) *Catalog {
	t.Helper()
	c, err := NewCatalog(overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPricesOfKnownModels(t *testing.T) {
	t.Parallel()
	c := catalog(t)
	for _, m := range []struct {
		provider, model string
		want            Price
	}{
		{"anthropic", "claude-sonnet-4-5-20250929", Price{3, 15, 0.3, 3.75}},
		{"anthropic", "claude-sonnet-4-5", Price{3, 15, 0.3, 3.75}},
		{"anthropic", "claude-opus-4-6-20990101", Price{5, 25, 0.5, 6.25}},
		{"openai", "gpt-4o-2024-08-06", Price{2.5, 10, 1.25, 2.5}}, // read listed as the second
		{"openai", "gpt-5.4", Price{2.5, 15, 0.25, 2.5}},           // read listed as the first
		{"openai", "gpt-5.6-sol", Price{5, 30, 0.5, 6.25}},         // both listed
		{"openai", "gpt-5.4-pro", Price{30, 180, 30, 30}},          // none listed
		{"ollama", "llama3.2", Price{}},
		{"builtin", "", Price{}},
	} {
		info, known := c.Lookup(m.provider, m.model)
		if !known || info.Price != m.want {
			t.Errorf("%s/%s: %+v known %v, want %+v", m.provider, m.model, info.Price, known, m.want)
		}
	}
	if info, _ := c.Lookup("anthropic", "claude-sonnet-4-5"); info.ContextWindow < 100_000 || info.MaxTokens < 1000 {
		t.Errorf("sizes %+v", info)
	}
}

func TestWhatNobodyPricedIsUnknownNotFree(t *testing.T) {
	t.Parallel()
	c := catalog(t)
	for _, m := range [][2]string{{"openai", "gpt-99"}, {"nobody", "gpt-4o"}, {"copilot", "gpt-4o"}, {"ollama", "gpt-oss:120b-cloud"}, {"anthropic", ""}} {
		if cost, known := c.Cost(m[0], m[1], Usage{Input: 1000}); known || cost != 0 {
			t.Errorf("%v costs %d, known %v", m, cost, known)
		}
	}
}

func TestOverridesWin(t *testing.T) {
	t.Parallel()
	c := catalog(t, Override{"openai", "gpt-99", Price{Input: 1, Output: 2}}, Override{"anthropic", "claude-sonnet-4-5", Price{}}, Override{"ollama", "big", Price{Input: 4}})
	if cost, known := c.Cost("openai", "gpt-99-2027-01-01", Usage{Input: 10, Output: 10}); !known || cost != 30 {
		t.Errorf("cost %d, known %v", cost, known)
	}
	if cost, known := c.Cost("anthropic", "claude-sonnet-4-5-20250929", Usage{Input: 10}); !known || cost != 0 {
		t.Errorf("a price set to nothing: %d, known %v", cost, known)
	}
	if cost, _ := c.Cost("ollama", "big", Usage{Input: 10}); cost != 40 {
		t.Errorf("a local model with a price costs %d", cost)
	}
	for _, bad := range []Override{{"", "m", Price{}}, {"p", "", Price{}}, {"p", "m", Price{Input: -1}}, {"p", "m", Price{Output: math.NaN()}}, {"p", "m", Price{CacheRead: math.Inf(1)}}} {
		if _, err := NewCatalog(bad); !fault.Is(err, fault.Config) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestCostRoundsUpAndNeverOverflows(t *testing.T) {
	t.Parallel()
	if got := (Price{CacheRead: 0.3}).Cost(Usage{CacheRead: 1}); got != 1 {
		t.Errorf("a third of a millionth costs %d, want 1", got)
	}
	if got := (Price{3, 15, 0.3, 3.75}).Cost(Usage{Input: 100, Output: 10, CacheRead: 1000, CacheWrite: 4}); got != 300+150+300+15 {
		t.Errorf("cost %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		f, n := rapid.Float64Range(0, maxPrice), rapid.Int64()
		p := Price{f.Draw(t, "in"), f.Draw(t, "out"), f.Draw(t, "read"), f.Draw(t, "write")}
		u := Usage{Input: n.Draw(t, "input"), Output: n.Draw(t, "output"), CacheRead: n.Draw(t, "reads"), CacheWrite: n.Draw(t, "writes")}
		more := u
		more.Input = max(u.Input, 0)/2 + 1<<40
		if p.Cost(u) < 0 || p.Cost(more) < 0 {
			t.Fatalf("%+v of %+v costs %d", u, p, p.Cost(u))
		}
	})
}

func TestEstimateIsHigh(t *testing.T) {
	t.Parallel()
	english := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100) // 10 tokens a sentence
	if got := EstimateText(english); got < 1000 || got > 2000 {
		t.Errorf("1000 tokens of English are estimated as %d", got)
	}
	if got := EstimateText(strings.Repeat("東京", 100)); got < 200 {
		t.Errorf("200 characters of Japanese are estimated as %d", got)
	}
	small := Request{Messages: []Message{Text(User, "hi")}, MaxTokens: 50}
	big := Request{System: english, Messages: []Message{Text(User, "hi"), Results(ToolResult{Text: english})}, Tools: []ToolSpec{{Name: "x", Schema: []byte(english)}}}
	a, b := Estimate(small, 1000), Estimate(big, 1000)
	if a.Output != 50 || b.Output != 1000 || b.Input < a.Input+3000 || !b.Estimated {
		t.Errorf("%+v, %+v", a, b)
	}
}

func BenchmarkCatalogFirstLookup(b *testing.B) {
	for b.Loop() {
		catalog(b).Lookup("anthropic", "claude-sonnet-4-5")
	}
}
