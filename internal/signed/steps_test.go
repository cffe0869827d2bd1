package signed

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/wasmloop"
)

// has reports whether a line of a log holds a text.
func has(said []string, text string) bool {
	return slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, text) })
}

// A run that is parked, for a turn, a person, a time and a signal, is done again from its
// beginning each time, and does nothing twice.
func TestAParkedRunRepeatsNothing(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t,
			put("one"), call("log", "a line"), call("ask", `{"prompt":"p"}`), put("two"),
			call("tool", `{"name":"shell.exec","input":{}}`), put("three"), ours("sleep", `{"ms":30}`), put("four"),
			ours("wait_signal", `{"name":"go","timeout_ms":0}`), put("five"),
			line{Do: "call", Name: "tool", Req: `{"name":"t.long","input":{}}`, Cap: 1 << 20},
		)
		s.approve(t, id, "shell.exec")
		s.waits(t, id, run.ForSignal)
		if err := s.runs.Signal(t.Context(), id, "go", json.RawMessage(`{"x":1}`), "operator"); err != nil {
			t.Fatal(err)
		}
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		want := `t.put{"text":"one"} t.put{"text":"two"} shell.exec{} t.put{"text":"three"} t.put{"text":"four"} t.put{"text":"five"} t.long{}`
		if got := strings.Join(s.done, " "); got != want {
			t.Errorf("done: %s", got)
		}
		if len(s.asked) != 1 {
			t.Errorf("the model was asked %q", s.asked)
		}
		said := s.said(t, id)
		lines := len(slices.DeleteFunc(slices.Clone(said), func(l string) bool { return l != "a line" }))
		if lines != 1 || !has(said, `wait_signal 0 {"payload":{"x":1}}`) || !has(said, `{"answer":"re: p"}`) || !has(said, "long long") {
			t.Errorf("it said %q", said)
		}
	})
}

// Calls that were made before the run was put away stay as they were made, whatever its request says now: a
// module whose prompts have the time in them would ask again for ever.
func TestAnOpenCallGoesOnAsItWasBegun(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t,
			put("%RANDOM%"), call("ask", `{"prompt":"what of %RANDOM%"}`), call("tool", `{"name":"shell.exec","input":{"text":"%RANDOM%"}}`),
			ours("sleep", `{"ms":30}`), put("end"),
		)
		s.approve(t, id, "shell.exec")
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s; %q", rec.State, rec.Error, s.said(t, id))
		}
		if len(s.asked) != 1 || s.did("shell.exec") != 1 || s.did("t.put") != 2 {
			t.Errorf("asked %q, done %q", s.asked, s.done)
		}
		list, err := s.apr.List(t.Context(), approval.Filter{Run: id, Limit: 10})
		if err != nil || len(list) != 1 || list[0].State != approval.Used {
			t.Errorf("%d questions, %v", len(list), err)
		}
	})
}

// Another request at the place of a recorded call is a call of its own.
func TestAnotherRequestIsAnotherCall(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t, put("%RANDOM%"), call("tool", `{"name":"t.flaky","input":{}}`).must("at last"), put("end"))
		if rec := s.end(t, id); rec.State != run.Completed || rec.Attempt != 1 {
			t.Fatalf("%s after %d attempts: %s", rec.State, rec.Attempt, rec.Error)
		}
		if s.did("t.put") != 3 || s.did("t.flaky") != 2 {
			t.Errorf("done %q", s.done)
		}
	})
}

// A failed run is tried again with its trigger, and repeats only what failed.
func TestARetriedRunRepeatsOnlyWhatFailed(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t,
			put("one"), line{Do: "step", Name: "token"}, call("tool", `{"name":"t.flaky","input":{}}`).must("at last"),
			line{Do: "step", Name: "token"}, call("trigger", "").must(`"kind":"manual"`), put("two"),
		)
		rec := s.end(t, id)
		if rec.State != run.Completed || rec.Attempt != 1 {
			t.Fatalf("%s after %d: %s", rec.State, rec.Attempt, rec.Error)
		}
		if got := strings.Join(s.done, " "); got != `t.put{"text":"one"} t.flaky{} t.flaky{} t.put{"text":"two"}` {
			t.Error(got)
		}
		if said := s.said(t, id); !has(said, `no "at last" in`) || !has(said, "step token had") {
			t.Errorf("it said %q", said)
		}
	})
}

// An answer that is longer than the module's buffer is kept for the next call: the call is
// never made twice, in the same execution or after a restart.
func TestALongAnswerNeverRepeatsItsCall(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		long := `{"name":"t.long","input":{}}`
		short := call("tool", long)
		short.Cap = 100
		id := s.start(t, short, line{Do: "call", Name: "tool", Req: long, Cap: 1 << 20}, ours("sleep", `{"ms":30}`),
			call("tool", `{"name":"t.flaky","input":{}}`).must("at last"), ours("tool", long))
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		said := s.said(t, id)
		if s.did("t.long") != 2 || !has(said, "tool -4") || !has(said, "long long") { // two calls of the module, each made once
			t.Errorf("done %q; it said %q", s.done, said)
		}
	})
}

// While calls are answered from the record, the clock says when they were made.
func TestTheClockOfARunThatIsDoneAgain(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t, line{Do: "clock"}, put("one"), ours("sleep", `{"ms":2500}`), line{Do: "clock"}, put("two"))
		begun := time.Now()
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		var at []time.Time
		for _, l := range s.said(t, id) {
			if text, is := strings.CutPrefix(l, "clock "); is {
				when, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				at = append(at, when)
			}
		}
		if len(at) != 2 || at[1].Sub(at[0]) < 2*time.Second || at[0].Sub(begun).Abs() > time.Minute {
			t.Errorf("the clock said %v", at)
		}
	})
}

// Steps of the module's own are done once, and what they called is not called again. Of one
// that must not be done twice the module is told that nobody knows, if the daemon died in it.
func TestStepsOfTheModulesOwn(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t,
			line{Do: "step", Name: "a", Steps: []line{put("in a"), call("recall", `{"query":"q"}`)}},
			line{Do: "step", Name: "b", Once: true, Steps: []line{call("ask", `{"prompt":"p"}`)}},
			put("behind"), ours("sleep", `{"ms":30}`), put("end"), line{Do: "step", Name: "a"},
		)
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		if got := strings.Join(s.done, " "); got != `t.put{"text":"in a"} t.put{"text":"behind"} t.put{"text":"end"}` {
			t.Error(got)
		}
		if said := s.said(t, id); !has(said, "step a had") || !has(said, "step b had") {
			t.Errorf("it said %q", said)
		}
		again := s.start(t, line{Do: "step", Name: "c", Once: true, Steps: []line{{Do: "spin"}}}, put("never"))
		for begun := false; !begun; {
			_, steps, err := s.runs.Get(t.Context(), again)
			if err != nil {
				t.Fatal(err)
			}
			begun = slices.ContainsFunc(steps, func(x *run.Step) bool { return x.Name == "s/c/begun0" })
		}
		if err := s.runs.Stop(context.Background()); err != nil { // it dies in it
			t.Fatal(err)
		}
		s.stop()
		next := openSite(t.Context(), s.db, choice{}, func(args ...any) { t.Helper(); t.Fatal(args...) })
		t.Cleanup(next.stop)
		next.end(t, again)
		if said := next.said(t, again); !has(said, "step c 6 outcome unknown") {
			t.Errorf("it said %q", said)
		}
	})
}

// What a run has read of others is on the whole run: it cannot tell others of it unasked.
func TestARunThatReadAStrangerIsLabelled(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		tell := call("tool", `{"name":"t.tell","input":{}}`)
		s.do(t, tell)
		id := s.start(t, line{Do: "step", Name: "in", Steps: []line{call("tool", `{"name":"t.far","input":{}}`)}}, ours("sleep", `{"ms":30}`), tell)
		if a := s.question(t, id); a.Tool != "t.tell" || !a.Label.Tainted() {
			t.Errorf("asked of %s, %s", a.Tool, a.Label)
		}
	})
}

// A run can say so much, and call so often.
func TestARunIsBounded(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		many := line{Do: "call", Name: "tool", Req: `{"name":"t.put","input":{}}`, N: maxCalls + 1}
		id := s.start(t, many)
		if rec := s.end(t, id); rec.State != run.Failed || rec.Attempt != 0 || !strings.Contains(rec.Error, "1000 host calls") {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
		if s.did("t.put") != maxCalls {
			t.Errorf("%d calls", s.did("t.put"))
		}
		id = s.start(t, line{Do: "call", Name: "log", Req: strings.Repeat("l", 1500), N: maxLines + 100})
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
		size := 0
		said := s.said(t, id)
		for _, l := range said {
			size += len(l)
		}
		if size > maxLog || len(said) > maxLines || !has(said, "is full") {
			t.Errorf("%d lines with %d bytes", len(said), size)
		}
	})
}

// A mapped namespace is the agent's memory, whatever the manifest calls it, and the summary
// of a chat is there for every loop.
func TestANamespaceIsTheAgents(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		s.do(t, call("remember", `{"fact":"the cat is called Tom"}`))
		var agentOf string
		err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT agent FROM memories LIMIT 1").Scan(&agentOf)
		})
		if err != nil || agentOf != "main" {
			t.Errorf("it is remembered by %q, %v", agentOf, err)
		}
	})
}

func TestRulesOfAManifest(t *testing.T) {
	t.Parallel()
	rules, idle := Rules(wasmloop.Manifest{
		Tools: []string{"fs.read", "shell.exec", "wacli", "web.fetch", "bad name"},
		Capabilities: []string{
			"http:*.example.com", "http:api.*", "memory:nexus:write:write", "memory:nexus", "tool:gateway", "tool:loop.run", "spend:5", "nonsense", "tool:unheard",
			"channel:operator", "secret:token",
		},
	})
	var got []string
	for _, r := range rules {
		got = append(got, r.Effect.String()+" "+r.Scope.String())
	}
	want := []string{
		"allow net.fetch:https://*.example.com", "allow net.post:https://*.example.com", "allow net.fetch:http://*.example.com",
		"allow net.post:http://*.example.com", "allow memory.write", "allow memory.read", "allow llm.call:main", "allow llm.call:summary", "allow loop",
		"allow channel.send:operator", "allow secret:token", "allow fs.read", "ask shell.exec", "allow tool:wacli", "allow mcp.call:wacli",
		"allow tool:bad name", "allow mcp.call:bad name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules\n%q, want\n%q", got, want)
	}
	if !slices.Equal(idle, []string{"http:api.*", "spend:5", "nonsense", "tool:unheard"}) {
		t.Errorf("idle %q", idle)
	}
}

func TestAGateCoversWhatItSays(t *testing.T) {
	t.Parallel()
	g := gate{wasmloop.Manifest{Tools: []string{"t.put"}, Capabilities: []string{"http:*.example.com", "http:127.0.0.1:80", "memory:nexus", "tool:agent.*"}}}
	for what, want := range map[string]bool{
		"http a.example.com": true, "http example.com": false, "http 127.0.0.1": true, "memory nexus": true, "memory nexus:write": false,
		"tool t.put": true, "tool agent.ask": true, "tool harness": false, "spend 1": false,
	} {
		class, value, _ := strings.Cut(what, " ")
		if err := g.Allow(t.Context(), class, value); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
}
