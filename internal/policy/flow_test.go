package policy

import (
	"testing"

	"github.com/ombud-run/ombud/internal/label"
)

var (
	stranger = label.Untrusted("telegram:7")
	chatX    = label.Conversation("x")
	chatY    = label.Conversation("y")
)

// The truth table of information flow. Rows are the audiences in the context,
// columns the readers of the destination; `.` goes without asking, `?` asks. It
// holds while something untrusted is in the context and the call can be undone.
func TestFlowTruthTable(t *testing.T) {
	t.Parallel()
	columns := []Destination{
		{},
		{Emits: true, Readers: label.OperatorOnly},
		{Emits: true, Readers: chatX},
		{Emits: true, Readers: chatY},
		{Emits: true, Readers: label.Anyone},
		{Emits: true}, // readers unknown
	}
	rows := []struct {
		audiences []label.Audience
		want      string
	}{
		{nil, "......"},
		{[]label.Audience{label.Anyone}, "......"},
		{[]label.Audience{chatX}, "...???"},
		{[]label.Audience{label.Anyone, chatX}, "...???"},
		{[]label.Audience{label.OperatorOnly}, "..????"},
		{[]label.Audience{chatX, chatY}, "..????"},
		{[]label.Audience{label.OperatorOnly, chatX}, "..????"},
		{[]label.Audience{""}, "..????"},
	}
	sources := map[bool][][]label.Source{
		false: {nil, {label.Operator}, {label.Own, label.Memory, label.Operator}},
		true:  {{stranger}, {label.Operator, stranger}, {"forged"}, {""}},
	}
	for _, row := range rows {
		for i, d := range columns {
			for tainted, lists := range sources {
				for _, s := range lists {
					l := label.Label{Sources: s, Audiences: row.audiences}
					want := map[bool]Effect{false: Allow, true: map[byte]Effect{'.': Allow, '?': Ask}[row.want[i]]}[tainted]
					if got, _ := flow(l, d, false); got != want {
						t.Errorf("context (%s) to %+v: %s, want %s", l, d, got, want)
					}
					wantFinal := map[bool]Effect{false: Allow, true: Ask}[tainted]
					if got, _ := flow(l, d, true); got != wantFinal {
						t.Errorf("irreversible, context (%s) to %+v: %s, want %s", l, d, got, wantFinal)
					}
				}
			}
		}
	}
}
