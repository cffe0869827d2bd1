package signed

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

// Every host function does what it says, as the loop, and what reaches something passes the
// one door and is in the audit log.
func TestEveryHostFunctionPassesTheOneDoor(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, r.Method+" "+r.Header.Get("X-Key")+" "+string(body)) // a client that is gone is not waited for
	}))
	t.Cleanup(web.Close)
	port := web.URL[strings.LastIndex(web.URL, ":"):]
	onSites(t, choice{
		settings: Settings{Values: map[string]string{"color": "red", "hosttool.gws": "/opt/gws"}},
		more:     []string{"http:127.0.0.1" + port},
	}, func(t *testing.T, s *site) {
		id := s.start(t,
			call("config", "color"), call("hosttool", "gws"), call("hosttool", "wacli"), call("operator_chats", ""),
			call("remember", `{"fact":"the boiler is in the cellar"}`), call("recall", `{"query":"boiler"}`),
			call("notify", `{"title":"hello","body":"there"}`), call("ask", `{"prompt":"one?"}`),
			call("gateway", `{"prompt":"three?","lend":["wacli"]}`), call("summarize", `{"prompt":"four?"}`),
			call("propose", `{"Title":"paint","Summary":"it","Action":"paint it"}`),
			call("remind", `{"Title":"sign","Due":"`+time.Now().Add(48*time.Hour).Format(time.RFC3339)+`","Notes":"now"}`),
			call("http", `{"method":"POST","url":"`+web.URL+`/x","headers":{"X-Key":"{{secret:token}}"},"body":"b"}`),
			put("one"), call("tool", `{"name":"t.flaky","input":{}}`),
			call("short_set", `{"Group":"g","Key":"k","Value":"v"}`), call("short_get", `{"Group":"g","Key":"k"}`), call("short_all", `{"Group":"g"}`),
			call("short_forget", `{"Group":"g","Key":"k"}`), call("short_get", `{"Group":"g","Key":"k"}`),
			call("chat_summary_save", `{"jid":"j@s","name":"J","summary":"they talk","message_count":3,"status":"hot"}`),
			call("chat_summary_get", `{"JID":"j@s"}`), call("chat_summary_get", `{"JID":"other"}`),
			call("run_loop", "other"),
			ours("after", `{"id":"a","ms":3600000,"payload":{"n":1}}`), ours("cancel_after", `{"id":"a"}`), ours("fence", `{"text":"x","from":"y"}`),
			ours("progress", `{"text":"half","done":1,"total":2}`), ours("write_log", `{"level":"warn","text":"careful","fields":{"b":"2","a":"1"}}`),
			call("harness", `{"prompt":"two?"}`), ours("sleep", `{"ms":1}`), ours("step_begin", `{"name":""}`),
		)
		s.approve(t, id, "kit.harness") // the run has read what the web said, and a coding agent may tell anybody
		rec := s.end(t, id)
		said := s.said(t, id)
		if rec.State != run.Completed {
			t.Fatalf("the run is %s: %s; it said %q", rec.State, rec.Error, said)
		}
		for _, want := range []string{
			`config 15 {"value":"red"}`, `hosttool 20 {"value":"/opt/gws"}`, `{"value":"wacli"}`, `{"chats":["me@chat"]}`,
			"remember 0 ", `{"hits":["the boiler is in the cellar"]}`, "notify 0 ", `{"answer":"re: one?"}`, `{"answer":"coded: two?"}`,
			`{"answer":"re: three?"}`, `{"answer":"re: four?"}`, "propose 0 ", "remind 0 ", `{"status":202,"body":"POST `, ` b"}`,
			`{"output":"put","error":""}`, `{"output":"","error":"t.flaky: not today"}`, "short_set 0 ", `{"value":"v","found":true}`,
			`{"entries":[{"key":"k","value":"v"}]}`, "short_forget 0 ", `{"value":"","found":false}`, "chat_summary_save 0 ",
			`"summary":"they talk","message_count":3`, `{"found":false,"summary":null}`, "run_loop 0 ", "after 0 ", "cancel_after 0 ", "fence 0 {\"text\":\"«data",
			"progress 0 ", "careful a=1 b=2", "sleep 0 ", "step_begin 5 ",
		} {
			if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, want) }) {
				t.Errorf("it never said %q", want)
			}
		}
		if t.Failed() {
			t.Logf("it said\n%s", strings.Join(said, "\n"))
		}
		for _, line := range said {
			if strings.Contains(line, "s3cr3t") {
				t.Errorf("the module got a secret: %s", line)
			}
		}
		want := []string{
			"memory.remember ok", "memory.recall ok", "notify.send ok", "kit.ask ok", "kit.harness ok", "kit.model ok", "kit.model ok",
			"remind.set ok", "web.request ok", "t.put ok", "t.flaky failed", "kit.note ok", "kit.notes ok", "kit.notes ok", "kit.note ok",
			"kit.notes ok", "kit.note ok", "kit.notes ok", "kit.notes ok", "kit.run ok",
		}
		got := slices.DeleteFunc(s.calls(t, id), func(c string) bool { return strings.HasPrefix(c, "kit.propose") })
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("audited\n%q, want\n%q", got, want)
		}
	})
}

// What a manifest does not name is undeclared, and what nobody granted is refused: both
// before anything is done.
func TestACallIsRefusedBeforeItIsMade(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		x := s.shelf["guest"]
		x.Manifest.Host = slices.DeleteFunc(slices.Clone(x.Manifest.Host), func(fn string) bool { return fn == "notify" })
		x.Manifest.Capabilities = []string{"memory:nexus", "tool:propose"}
		x.Manifest.Tools = []string{"t.put", "shell.exec"}
		s.shelf["guest"] = x
		deny := policy.Rule{Scope: scope.Must("tool:t.put"), Effect: policy.Deny}
		s.held["loop:guest"] = policy.Held{Rules: []policy.Rule{deny}}
		said := s.do(t,
			call("notify", `{"title":"t"}`), call("unheard_of", `{}`), call("tool", `{"name":"t.far","input":{}}`), // undeclared
			call("remember", `{"fact":"f"}`), call("ask", `{"prompt":"p"}`), call("short_set", `{"Group":"g","Key":"k","Value":"v"}`), // not granted
			put("denied"), ours("tool", `{"name":"t.put","input":{}}`), // denied by policy
			call("recall", `{"query":"q"}`), ours("ask", `{"prompt":"p"}`),
			call("http", `{"url":"http://127.0.0.1/"}`), // no capability of its host
		)
		codes := []string{"notify -2", "unheard_of -2", "tool -2", "remember -3", "ask -3", "short_set -3", "tool -3", "tool 3 ", "recall ", "ask 3 ", "http -1"}
		heard := slices.DeleteFunc(slices.Clone(said), func(line string) bool { return strings.HasPrefix(line, "a host call failed") })
		for i, want := range codes {
			if i >= len(heard) || !strings.HasPrefix(heard[i], want) {
				t.Errorf("line %d is not %q: %q", i, want, heard)
				break
			}
		}
		if !slices.ContainsFunc(said, func(l string) bool {
			return strings.Contains(l, "ombud caps grant loop:guest tool:t.put") || strings.Contains(l, "t.put")
		}) {
			t.Errorf("the log does not say why: %q", said)
		}
		if s.did("t.") != 0 {
			t.Errorf("done all the same: %q", s.done)
		}
	})
}

// An event that comes while the loop runs is handled after it.
func TestAnEventWhileTheLoopRunsIsQueued(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		first := s.start(t, ours("wait_signal", `{"name":"go","timeout_ms":0}`), put("first"))
		s.waits(t, first, run.ForSignal)
		second := s.start(t, put("second"))
		if rec, _, err := s.runs.Get(t.Context(), second); err != nil || rec.State != run.Queued {
			t.Fatalf("the second is %s, %v", rec.State, err)
		}
		if err := s.runs.Signal(t.Context(), first, "go", json.RawMessage(`{"x":1}`), "operator"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{first, second} {
			if rec := s.end(t, id); rec.State != run.Completed {
				t.Fatalf("%s: %s", rec.State, rec.Error)
			}
		}
		if got := strings.Join(s.done, " "); got != `t.put{"text":"first"} t.put{"text":"second"}` {
			t.Error(got)
		}
	})
}

// A module that is stopped with the daemon goes on at the next start, also from the midst of
// a computation that would never end.
func TestADaemonDoesNotWaitForAModuleThatComputes(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id := s.start(t, put("once"), line{Do: "spin"})
		for s.did("t.put") == 0 {
			if rec, _, err := s.runs.Get(t.Context(), id); err != nil || rec.State.Ended() {
				t.Fatalf("%s %s %v", rec.State, rec.Error, err)
			}
		}
		if err := s.runs.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		rec, steps, err := s.runs.Get(t.Context(), id)
		if err != nil || rec.State != run.Queued || len(steps) != 2 {
			t.Errorf("it is %s with %d steps, %v", rec.State, len(steps), err)
		}
	})
}
