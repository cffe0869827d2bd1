package model

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"

	"github.com/ombud-run/ombud/internal/fault"
)

// Price is what a million tokens cost in US dollars, which is also what one token
// costs in millionths of a dollar.
type Price struct {
	Input, Output, CacheRead, CacheWrite float64
}

// Info is what we know about a model without asking anybody.
type Info struct {
	Price         Price
	ContextWindow int64 // tokens; 0 is unknown
	MaxTokens     int64 // longest answer a provider suggests; 0 is unknown
}

// Override sets or replaces the price of one model.
type Override struct {
	Provider, Model string
	Price           Price
}

// Catalog knows prices and sizes of models: an embedded table, filled in by what
// the operator configured. It is safe for concurrent use.
//
// The table is as old as the release. A model that is not in it, or that it lists
// as free although somebody bills it in another way, is unknown, and the caller
// must say so rather than book nothing.
type Catalog struct {
	overrides map[string]Price
	table     func() map[string]Info
}

// local providers bill nobody.
var local = map[string]bool{"builtin": true, "scripted": true, "ollama": true}

// NewCatalog returns the catalog with overrides on top. The embedded table is
// read at the first look-up, not before.
func NewCatalog(overrides ...Override) (*Catalog, error) {
	c := &Catalog{overrides: map[string]Price{}, table: sync.OnceValue(embeddedTable)}
	for _, o := range overrides {
		if o.Provider == "" || o.Model == "" {
			return nil, fault.New(fault.Config, "a price needs a provider and a model")
		}
		for _, v := range []float64{o.Price.Input, o.Price.Output, o.Price.CacheRead, o.Price.CacheWrite} {
			if !(v >= 0 && v <= maxPrice) {
				return nil, fault.New(fault.Config, "price of %s/%s: %v is not between 0 and %d dollars a million tokens", o.Provider, o.Model, v, int64(maxPrice))
			}
		}
		c.overrides[key(o.Provider, o.Model)] = o.Price
	}
	return c, nil
}

// Lookup returns what is known about a model, and whether its price is. The date
// at the end of a model's name may be missing on either side.
func (c *Catalog) Lookup(provider, model string) (Info, bool) {
	info, known := c.find(provider, model)
	for _, name := range []string{model, undated(model)} {
		if p, ok := c.overrides[key(provider, name)]; ok {
			info.Price = p
			return info, true
		}
	}
	if local[provider] && !strings.HasSuffix(model, "-cloud") { // Ollama forwards those and bills them
		info.Price = Price{}
		return info, true
	}
	return info, known
}

func (c *Catalog) find(provider, model string) (Info, bool) {
	for _, name := range []string{model, undated(model)} {
		if info, ok := c.table()[key(provider, name)]; ok {
			return info, info.Price.Input > 0 || info.Price.Output > 0
		}
	}
	return Info{}, false
}

// Cost returns the price of one answer in millionths of a dollar, rounded up, and
// whether it is known.
func (c *Catalog) Cost(provider, model string, u Usage) (microUSD int64, known bool) {
	info, known := c.Lookup(provider, model)
	if !known {
		return 0, false
	}
	return info.Price.Cost(u), true
}

const (
	maxPrice  = 1e5
	maxTokens = 1e10
)

// Cost returns what u costs in millionths of a dollar, rounded up. Numbers of
// tokens no model can reach are cut: a provider's slip must not overflow a budget.
func (p Price) Cost(u Usage) int64 {
	nano := int64(0)
	for _, part := range []struct {
		tokens int64
		price  float64
	}{{u.Input, p.Input}, {u.Output, p.Output}, {u.CacheRead, p.CacheRead}, {u.CacheWrite, p.CacheWrite}} {
		nano += min(max(part.tokens, 0), maxTokens) * int64(math.Round(part.price*1000))
	}
	return (nano + 999) / 1000
}

func key(provider, model string) string { return provider + "\x00" + model }

var dated = regexp.MustCompile(`[-@](\d{8}|\d{4}-\d{2}-\d{2})$`)

func undated(model string) string { return dated.ReplaceAllString(model, "") }

// embeddedTable indexes catwalk's models by provider and name, with and without
// date. Two dated models with one name keep the dearer price.
func embeddedTable() map[string]Info {
	table := map[string]Info{}
	for _, p := range embedded.GetAll() {
		for _, m := range p.Models {
			info := Info{Price: priceOf(m), ContextWindow: m.ContextWindow, MaxTokens: m.DefaultMaxTokens}
			table[key(string(p.ID), m.ID)] = info
			if short := key(string(p.ID), undated(m.ID)); table[short].Price.Output <= info.Price.Output {
				table[short] = info
			}
		}
	}
	return table
}

// priceOf reads a row of the table. For some models it lists the price of writing
// to the cache and then of reading from it, for others of reading only. What is
// missing costs as much as other input: too much rather than nothing.
func priceOf(m catwalk.Model) Price {
	p := Price{Input: m.CostPer1MIn, Output: m.CostPer1MOut, CacheRead: m.CostPer1MIn, CacheWrite: m.CostPer1MIn}
	if m.CostPer1MInCached > p.CacheWrite {
		p.CacheWrite = m.CostPer1MInCached
	}
	switch {
	case m.CostPer1MOutCached > 0:
		p.CacheRead = m.CostPer1MOutCached
	case m.CostPer1MInCached > 0 && m.CostPer1MInCached < m.CostPer1MIn:
		p.CacheRead = m.CostPer1MInCached
	}
	return p
}

// Estimate returns how many tokens req may use at most, for a reservation: its
// input rated high, its output as long as it allows. defaultMax stands in for a
// MaxTokens of 0.
func Estimate(req Request, defaultMax int) Usage {
	tokens := int64(16) + EstimateText(req.System)
	for _, m := range req.Messages {
		tokens += 8
		for _, p := range m.Parts {
			tokens += 4 + EstimateText(p.Text)
			if p.Call != nil {
				tokens += 16 + EstimateText(p.Call.Name) + EstimateText(string(p.Call.Input))
			}
			if p.Result != nil {
				tokens += 16 + EstimateText(p.Result.Text)
			}
			if p.Opaque != nil {
				tokens += EstimateText(string(p.Opaque.Data))
			}
		}
	}
	for _, t := range req.Tools {
		tokens += 32 + EstimateText(t.Name) + EstimateText(t.Description) + EstimateText(string(t.Schema))
	}
	out := req.MaxTokens
	if out <= 0 {
		out = defaultMax
	}
	return Usage{Input: tokens, Output: int64(out), Estimated: true}
}

// EstimateText returns about how many tokens a text is, rather too many: English
// and code have about four bytes a token, we count three; other scripts have up
// to two tokens a character.
func EstimateText(s string) int64 {
	thirds := int64(0)
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			thirds++
		case r < 0x10000:
			thirds += 4
		default:
			thirds += 6
		}
	}
	return (thirds + 2) / 3
}
