//go:build unix

package crashtest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ombud-run/ombud/internal/wire"
)

// log reads the whole log of some kinds, page by page.
func (p *pair) log(kinds ...string) (out []wire.Event) {
	p.t.Helper()
	for after := int64(0); ; {
		got, err := p.nodes[0].client.EventsList(p.t.Context(), wire.EventsListRequest{After: after, Kinds: kinds, Limit: 1000})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(got.Events) == 0 {
			return out
		}
		out, after = append(out, got.Events...), got.Next
	}
}

// judge holds what is there against what was promised.
func (p *pair) judge() {
	p.t.Helper()
	p.linear()
	p.keys()
	p.clock()
	p.effects()
	ctx, c := p.t.Context(), p.nodes[0].client
	if _, err := c.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		p.t.Errorf("audit verify: %v", err)
	}
	if v, err := c.RunsVerify(ctx); err != nil || len(v.Mismatches) > 0 {
		p.t.Errorf("runs verify: %v %v", v.Mismatches, err)
	}
	if dead, err := c.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) > 0 {
		p.t.Errorf("dead letters: %v %v", dead, err)
	}
}

// linear checks the history of the log as one register that grows: an append is at its
// place in the order of the log, a read sees all appends before it and none after.
func (p *pair) linear() {
	p.t.Helper()
	place := map[string]int{}
	var order []string
	for _, e := range p.log("comms.message") {
		text := p.text(e)
		if !strings.HasPrefix(text, "say ") {
			continue
		}
		if _, twice := place[text]; twice {
			p.t.Errorf("%q is in the log twice", text)
		}
		place[text] = len(order)
		order = append(order, text)
	}
	appends := 0
	for _, op := range p.history {
		switch in := op.Input.(type) {
		case appended:
			appends++
			if _, there := place[in.text]; !there {
				p.t.Errorf("%q was acknowledged and is lost", in.text)
			}
		case readAll:
			if !slices.Equal(in.texts, order[:min(len(in.texts), len(order))]) {
				p.t.Errorf("a read is not a beginning of the log: %q", in.texts)
			}
		}
	}
	if appends != len(order) {
		p.t.Errorf("%d messages were acknowledged, %d are in the log", appends, len(order))
	}
	model := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			n := state.(int)
			if in, is := input.(appended); is {
				return place[in.text] == n, n + 1
			}
			return len(input.(readAll).texts) == n, n
		},
	}
	if got := porcupine.CheckOperationsTimeout(model, p.history, time.Minute); got != porcupine.Ok {
		p.t.Errorf("the history of %d operations on the log is %s", len(p.history), got)
	}
	p.t.Logf("%d appends, %d reads", appends, len(p.history)-appends)
}

// keys checks that the turns of a conversation went in the order of its messages, one
// at a time.
func (p *pair) keys() {
	p.t.Helper()
	runs, err := p.nodes[0].client.RunsList(p.t.Context(), wire.RunsListRequest{Kind: "turn", Limit: 1000})
	if err != nil {
		p.t.Fatal(err)
	}
	type span struct{ first, last int64 }
	spans := map[string]*span{}
	for _, e := range p.log("run.started", "run.completed", "run.failed", "run.uncertain", "run.cancelled") {
		s := spans[e.Stream]
		if s == nil {
			s = &span{first: e.Position}
			spans[e.Stream] = s
		}
		s.last = e.Position
	}
	end := map[string]int64{}
	for _, r := range slices.Backward(runs.Runs) { // the oldest first
		s := spans["run:"+r.ID]
		if s == nil || r.State != "completed" {
			p.t.Errorf("turn %s of %s is %s: %v", r.ID, r.Conversation, r.State, r.Error)
			continue
		}
		if s.first < end[r.Key] {
			p.t.Errorf("turn %s of %s began before the one before it had ended", r.ID, r.Conversation)
		}
		end[r.Key] = s.last
	}
	if n := len(p.log("comms.message")); n != len(runs.Runs) {
		p.t.Errorf("%d turns for %d messages", len(runs.Runs), n)
	}
}

// clock checks that every instant of the schedule came once, none left out.
func (p *pair) clock() {
	p.t.Helper()
	var last time.Time
	n := 0
	for _, e := range p.log("scheduler.*") {
		var d struct {
			At time.Time `json:"at"`
		}
		if err := json.Unmarshal(e.Data, &d); err != nil || d.At.IsZero() {
			p.t.Fatalf("%s: %v", e.Data, err)
		}
		if !last.IsZero() && d.At.Sub(last) != 2*time.Second {
			p.t.Errorf("instant %s after %s: %s", d.At, last, e.Kind)
		}
		last = d.At
		n++
	}
	if n < 10 {
		p.t.Errorf("the schedule fired %d times", n)
	}
}

// effects looks at the world outside: what is never repeated is there once at most, and
// missing only where that is said; what is asked for is there exactly once.
func (p *pair) effects() {
	p.t.Helper()
	times, of := map[string]int{}, map[string]int{}
	for _, line := range p.nodes[0].linesOf(p.world) {
		text, key, _ := strings.Cut(line, "\t")
		times[text+" "+key]++
		if times[text+" "+key] == 1 {
			of[text]++
		} else if text != "repeat" {
			p.t.Errorf("%s was done twice", line)
		}
	}
	said, unknown := map[string]int{}, 0
	for _, e := range p.log("comms.message") {
		if f := strings.Fields(p.text(e)); len(f) > 1 {
			said[f[1]]++
		}
	}
	runs, err := p.nodes[0].client.RunsList(p.t.Context(), wire.RunsListRequest{Kind: "turn", Limit: 1000})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range runs.Runs {
		got, err := p.nodes[0].client.RunsGet(p.t.Context(), wire.RunsGetRequest{ID: r.ID})
		if err != nil {
			p.t.Fatal(err)
		}
		unknown += got.Run.Unknown
	}
	if of["probed"] != said["probed"] || of["repeat"] != said["repeat"] || of["once"] > said["once"] || of["once"] < said["once"]-unknown {
		p.t.Errorf("said %v, done %v, %d unknown", said, of, unknown)
	}
	p.t.Logf("effects %v, %d unknown", of, unknown)
}
