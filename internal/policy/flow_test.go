package policy

import (
	"testing"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
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

// The same table in the words of people: what a turn holds, where something of it
// is to go, and what the labels say.
func TestFlowInWords(t *testing.T) {
	t.Parallel()
	page := label.Of(label.Untrusted("evil.example"), label.Anyone)
	asked := label.Of(label.Operator, label.OperatorOnly)
	calendar := label.Of(label.Own, label.OperatorOnly)
	strangerAsks, groupTalk := label.Of(stranger, chatX), label.Of(label.Untrusted("group"), chatY)
	inGroup := label.Of(label.Operator, chatY)
	to := func(a label.Audience) Destination { return Destination{Emits: true, Readers: a, Name: "there"} }
	for _, c := range []struct {
		what  string
		holds []label.Label
		to    Destination
		final bool
		want  Effect
		code  Code
	}{
		{"a stranger is answered in his own chat", []label.Label{strangerAsks}, to(chatX), false, Allow, CodeLabel},
		{"a stranger asks for the calendar in his own chat", []label.Label{strangerAsks, calendar}, to(chatX), false, Ask, CodeLeak},
		{"a stranger asks for what another chat said", []label.Label{strangerAsks, groupTalk}, to(chatX), false, Ask, CodeLeak},
		{"the operator asks for the calendar", []label.Label{asked, calendar}, to(label.OperatorOnly), false, Allow, CodeLabel},
		{"the operator sends the calendar to somebody", []label.Label{asked, calendar}, to(chatX), false, Allow, CodeLabel},
		{"… and it cannot be taken back", []label.Label{asked, calendar}, to(chatX), true, Allow, CodeLabel},
		{"a page says: mail X", []label.Label{asked, page}, to(label.Anyone), false, Ask, CodeLeak},
		{"… and it cannot be taken back", []label.Label{asked, page}, to(label.Anyone), true, Ask, CodeUntrusted},
		{"the operator is told of a page", []label.Label{asked, page}, to(label.OperatorOnly), false, Allow, CodeLabel},
		{"a page is deleted over", []label.Label{asked, page}, Destination{}, true, Ask, CodeUntrusted},
		{"a page is noted", []label.Label{asked, page}, Destination{}, false, Allow, CodeLabel},
		{"a group is answered", []label.Label{groupTalk, inGroup}, to(chatY), false, Allow, CodeLabel},
		{"a group is told what is the operator's", []label.Label{groupTalk, inGroup, calendar}, to(chatY), false, Ask, CodeLeak},
		{"a group is told a public page", []label.Label{groupTalk, inGroup, page}, to(chatY), false, Allow, CodeLabel},
		{"a summary of others' messages goes to the operator", []label.Label{groupTalk, strangerAsks}, to(label.OperatorOnly), false, Allow, CodeLabel},
		{"a summary of others' messages goes to one of them", []label.Label{groupTalk, strangerAsks}, to(chatX), false, Ask, CodeLeak},
	} {
		l := label.Join(c.holds...)
		if got, code := flow(l, c.to, c.final); got != c.want || code != c.code {
			t.Errorf("%s (%s): %s by %s, want %s by %s", c.what, l, got, code, c.want, c.code)
		}
		told := Tell(l, c.to)
		if !c.final && told.Effect != c.want {
			t.Errorf("%s: telling is %s", c.what, told)
		}
		if !c.final && told.Effect == Ask && (len(told.Reasons) != 1 || told.Reasons[0].Code != CodeLeak || told.Reasons[0].Text == "") {
			t.Errorf("%s: reasons %+v", c.what, told.Reasons)
		}
	}
}

// What the labels ask is parked like what a rule asks, where nobody is there.
func TestWhatLabelsAskIsParked(t *testing.T) {
	t.Parallel()
	level, err := NewAutonomy(Supervised, nil)
	if err != nil {
		t.Fatal(err)
	}
	need := scope.Must("email.send:ann@example.org")
	in := Input{
		Subject: "agent:main", Scopes: []scope.Scope{need}, Grants: NewLayer("g", []Rule{{need, Allow}}), Tier: Trusted, Autonomy: level,
		Standing: []scope.Scope{need}, Unattended: true, Label: label.Of(stranger, chatX), Destination: Destination{Emits: true},
	}
	if d := Decide(&in); d.Effect != Ask || !d.Park {
		t.Errorf("%+v", d)
	}
	in.Unattended = false
	if d := Decide(&in); d.Effect != Ask || d.Park {
		t.Errorf("with somebody there: %+v", d)
	}
}
