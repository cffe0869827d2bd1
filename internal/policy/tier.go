package policy

import (
	"github.com/ombud-run/ombud/internal/scope"
)

// Tier says how a caller is connected, which is all it says: never what the
// caller claims to be. The zero Tier is Untrusted.
type Tier uint8

// The tiers, lowest first.
const (
	Untrusted   Tier = iota // strangers, webhooks
	SemiTrusted             // a remote adapter with a credential of its own
	Paired                  // the operator's verified identity on a remote channel: reading is free, the rest asks
	Trusted                 // the operator's socket, by the operator's uid
	Kernel                  // ombud itself; never given to a connection
)

var tierNames = []string{"untrusted", "semitrusted", "paired", "trusted", "kernel"}

func (t Tier) String() string { return tierNames[t] }

// MarshalText writes the name of the tier.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the name of a tier.
func (t *Tier) UnmarshalText(text []byte) error {
	i, err := indexOf("tier", tierNames, string(text))
	if err == nil {
		*t = Tier(i)
	}
	return err
}

// semiTrusted is what a remote adapter can hold at most.
var semiTrusted = basesOf("fs.metadata", "net.fetch", "net.dns", "llm.call", "llm.embed", "memory.read", "memory.write",
	"calc.eval", "convert.units", "date.compute", "time.read")

// authority is what changes authority itself. It never comes from a chat, and no
// shipped role holds it.
var authority = basesOf("config.write", "caps.write", "role.switch", "role.update", "secret.write")

// basesOf returns a set as an array indexed by base: a look-up costs no hash.
func basesOf(names ...string) []bool {
	set := make([]bool, scope.NumBases())
	for _, n := range names {
		set[scope.Must(n).Base()] = true
	}
	return set
}

// ceiling returns the most a tier can hold of a base.
func (t Tier) ceiling(b scope.Base) Effect {
	switch {
	case t >= Trusted:
		return Allow
	case t == Paired && !authority[b]:
		if b.ReadOnly() {
			return Allow
		}
		return Ask
	case t == SemiTrusted && semiTrusted[b]:
		return Allow
	}
	return Deny
}
