package signed

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

// lookWith is the input of the guest's tool that does the lines.
func lookWith(lines ...line) string {
	raw, err := json.Marshal(map[string]any{"Steps": lines})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// borrows is an agent that uses the loop's own tool once for each question, and answers with
// what that came to.
func borrows(input string) func(model.Request) (model.Response, error) {
	return func(req model.Request) (model.Response, error) {
		if !slices.ContainsFunc(req.Tools, func(s model.ToolSpec) bool { return s.Name == "loop.guest.look" }) {
			return saysText("there is no such tool")
		}
		for _, m := range slices.Backward(req.Messages) {
			switch m.Role {
			case model.Tool:
				return saysText("it said " + m.Parts[0].Result.Text)
			case model.User:
				return callsTool("loop.guest.look", input), nil
			}
		}
		return saysText("nothing was asked")
	}
}

// An ask whose agent calls the loop's own tool does not wait for itself, also where the tool
// asks an agent, waits for a person, and the daemon is started anew meanwhile.
func TestAnAskMayUseTheLoopsOwnTool(t *testing.T) {
	t.Parallel()
	deep := lookWith(put("in the tool"), call("tool", `{"name":"shell.exec","input":{}}`), put("behind it"))
	onSites(t, choice{brain: borrows(deep)}, func(t *testing.T, s *site) {
		id := s.start(t, put("before"), call("ask", `{"prompt":"use it"}`), put("after"))
		var tools []run.Record
		for len(tools) == 0 {
			var err error
			if tools, err = s.runs.List(t.Context(), run.Filter{Kind: ToolKind, Limit: 10}); err != nil {
				t.Fatal(err)
			}
			if rec, _, err := s.runs.Get(t.Context(), id); err != nil || rec.State.Ended() {
				t.Fatalf("%s %s %v %q", rec.State, rec.Error, err, s.said(t, id))
			}
		}
		s.question(t, tools[0].ID)
		s.stop()
		s = openSite(t.Context(), s.db, choice{brain: borrows(deep)}, func(args ...any) { t.Helper(); t.Fatal(args...) })
		t.Cleanup(s.stop)
		s.approve(t, tools[0].ID, "shell.exec")
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		if said := s.said(t, id); !has(said, "it said look: tool 27") || !has(said, `granted`) {
			t.Errorf("it said %q", said)
		}
		if tools[0].Name != "loop:guest" || tools[0].Parent == "" || s.did(`t.put{"text":"behind it"}`) != 1 {
			t.Errorf("%+v; done %q", tools[0], s.done)
		}
	})
}

// A tool that asks an agent that uses the tool goes down as far as it is let, and ends.
func TestAToolMayAskAnAgentToo(t *testing.T) {
	t.Parallel()
	var depth atomic.Int32
	brain := func(req model.Request) (model.Response, error) {
		input := lookWith(call("ask", `{"prompt":"deeper"}`))
		if slices.ContainsFunc(req.Messages, func(m model.Message) bool { return m.Role == model.Tool }) || depth.Add(1) > 1 {
			return borrows("")(model.Request{})
		}
		return borrows(input)(req)
	}
	onSites(t, choice{brain: brain}, func(t *testing.T, s *site) {
		depth.Store(0)
		if said := s.do(t, call("ask", `{"prompt":"use it"}`)); !has(said, "ask ") {
			t.Errorf("it said %q", said)
		}
	})
}

// What a lent tool answers is held to what holds any tool's answer.
func TestTheAnswerOfALentToolIsBoundedAndClean(t *testing.T) {
	t.Parallel()
	said := make(chan string, 2)
	use := borrows(lookWith(call(strings.Repeat("x", 2*act.MaxText)+"\x1b[2J", "")))
	brain := func(req model.Request) (model.Response, error) {
		resp, err := use(req)
		if text, is := strings.CutPrefix(resp.Text, "it said "); is {
			said <- text
		}
		return resp, err
	}
	onSites(t, choice{brain: brain}, func(t *testing.T, s *site) {
		s.do(t, call("ask", `{"prompt":"use it"}`))
		text := <-said
		if !strings.Contains(text, "look: xxx") || len(text) > act.MaxText+1<<10 || strings.Contains(text, "\x1b") {
			t.Errorf("%d bytes: %.100q", len(text), text)
		}
	})
}

// What a lent tool says as it fails can be a stranger's words.
func TestAFailedLentToolTaintsWhoUsesIt(t *testing.T) {
	t.Parallel()
	far := call("tool", `{"name":"t.far","input":{}}`).must("no such words")
	onSites(t, choice{brain: borrows(lookWith(far))}, func(t *testing.T, s *site) {
		id := s.start(t, call("ask", `{"prompt":"use it"}`), call("tool", `{"name":"t.tell","input":{}}`))
		if a := s.question(t, id); a.Tool != "t.tell" || !a.Label.Tainted() {
			t.Errorf("%+v", a)
		}
	})
}

// Nobody else is told of a lent tool or can call it: no agent in another turn, no loop, not
// its own, whatever it was granted.
func TestALentToolIsForTheTurnsItIsLentTo(t *testing.T) {
	t.Parallel()
	onSites(t, choice{brain: borrows(lookWith(put("lent")))}, func(t *testing.T, s *site) {
		all := policy.Rule{Scope: scope.Must("tool"), Effect: policy.Allow}
		s.held["loop:guest"], s.held["agent:main"] = policy.Held{Rules: []policy.Rule{all}}, policy.Held{Rules: []policy.Rule{all}}
		x := s.shelf["guest"]
		x.Manifest.Tools = append(slices.Clone(x.Manifest.Tools), "loop.guest.look")
		s.shelf["guest"] = x
		said := s.do(t, ours("tool", `{"name":"loop.guest.look","input":{}}`), call("ask", `{"prompt":"p"}`))
		if !has(said, "can be called only by an agent that works for the loop") || !has(said, "it said look: tool") {
			t.Errorf("it said %q", said)
		}
		if _, err := s.tools.Get("loop.guest.look"); err != nil {
			t.Error(err)
		}
		x.Manifest.Provides = nil
		s.shelf["guest"] = x
		if _, err := s.work.Lend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.tools.Get("loop.guest.look"); err == nil {
			t.Error("a tool that is no longer provided is still known")
		}
		if s.did("t.put") != 1 || strings.Contains(strings.Join(s.done, ""), "never") {
			t.Errorf("done %q", s.done)
		}
	})
}
