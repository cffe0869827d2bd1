package policy

import "github.com/ombud-run/ombud/internal/label"

// Destination says where a call sends what it is given. The zero Destination is
// that of a call which tells nobody anything.
type Destination struct {
	Emits   bool           `json:"emits"`
	Readers label.Audience `json:"readers,omitempty"` // who can read what is sent; anybody when empty
	Name    string         `json:"name,omitempty"`    // for people: an address, a host, a chat
}

// flow is the rule of information flow. Nothing is asked while nothing untrusted
// is in the context. With something untrusted in it, what cannot be taken back
// asks, and so does sending to readers outside any audience in the context.
func flow(l label.Label, d Destination, irreversible bool) (Effect, Code) {
	switch {
	case !l.Tainted():
		return Allow, CodeLabel
	case irreversible:
		return Ask, CodeUntrusted
	case d.Emits && !withinAll(d.Readers, l.Audiences):
		return Ask, CodeLeak
	}
	return Allow, CodeLabel
}

// Tell decides by the labels alone whether what was made from a context may be
// told to the readers of d: a reply, or the result of a call somebody approved. It
// is Allow or Ask.
func Tell(l label.Label, d Destination) Decision {
	in := Input{Label: l, Destination: d}
	var out Decision
	out.Effect = judgeFlow(&in, false, &out.Reasons)
	return out
}

// Admits reports whether everybody among readers may read what carries l.
func Admits(l label.Label, readers label.Audience) bool { return withinAll(readers, l.Audiences) }

func withinAll(readers label.Audience, audiences []label.Audience) bool {
	for _, a := range audiences {
		if !within(readers, a) {
			return false
		}
	}
	return true
}

// within reports whether everybody among readers belongs to a. The operator
// belongs to every audience: whatever ombud holds, it holds for the operator.
func within(readers, a label.Audience) bool {
	return a == label.Anyone || readers == label.OperatorOnly || readers == a && readers != ""
}
