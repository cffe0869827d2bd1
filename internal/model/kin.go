package model

import "strings"

// Kin returns what a model nobody priced may be expected to cost at most: in each part the
// price of the dearest of its provider's models whose names begin with the most of its
// words, and with two at least. False if there is none. What is booked as spent is never
// this.
func (c *Catalog) Kin(provider, model string) (Price, bool) {
	want := words(model)
	var dearest Price
	best := 1
	for name, info := range c.table() {
		rest, is := strings.CutPrefix(name, provider+"\x00")
		p := info.Price
		if !is || p.Input <= 0 && p.Output <= 0 {
			continue
		}
		n := shared(want, words(rest))
		switch {
		case n > best:
			best, dearest = n, p
		case n == best && best > 1:
			dearest = Price{
				Input: max(dearest.Input, p.Input), Output: max(dearest.Output, p.Output),
				CacheRead: max(dearest.CacheRead, p.CacheRead), CacheWrite: max(dearest.CacheWrite, p.CacheWrite),
			}
		}
	}
	return dearest, best > 1
}

func words(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '.' || r == '/' || r == ':' })
}

// shared is how many words two names begin with alike.
func shared(a, b []string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
