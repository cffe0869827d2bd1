//go:build linux

package daemon

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// systemPython is a Python that a confined program can run.
func systemPython(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("python3 is needed in CI: scripts/setup-tests.sh installs it")
	}
	t.Skip("there is no python3 of the system")
	return ""
}

func words(t *testing.T) []string {
	t.Helper()
	script, err := filepath.Abs("../../examples/tool-python/words.py")
	if err != nil {
		t.Fatal(err)
	}
	return []string{systemPython(t), script}
}

// pythonTool is the command of a tool process with one tool that does body, indented by
// eight, for every call.
func pythonTool(t *testing.T, dir, name, tool, body string) []string {
	t.Helper()
	script := filepath.Join(dir, name+".py")
	text := `import json, os, struct, sys
def write(m):
    b = json.dumps(m).encode(); sys.stdout.buffer.write(struct.pack(">I", len(b)) + b); sys.stdout.buffer.flush()
while True:
    h = sys.stdin.buffer.read(4)
    if len(h) < 4: sys.exit(0)
    m = json.loads(sys.stdin.buffer.read(struct.unpack(">I", h)[0]))
    if m["type"] == "ToolHello":
        write({"type": "ToolRegister", "tools": [{"name": "` + tool + `", "description": "For a test.", "input_schema": {"type": "object"}, "required_scope": "tool:` + name + `"}]})
    if m["type"] == "InvokeTool":` + body + `
        write({"type": "ToolResult", "call_id": m["call_id"], "verified": "Verified", "output": output})
    if m["type"] == "ToolShutdown": sys.exit(0)
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{systemPython(t), script}
}

// TestAToolOfAnotherProgramFromAddToCall: added, it can be called by nobody; tested by
// the operator, it works; granted, an agent calls it; what it says is labelled; after a
// restart it is known before it runs; removed, it is gone.
func TestAToolOfAnotherProgramFromAddToCall(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n")
	c, stop := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	added, err := c.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "words", Command: words(t), Scopes: []string{"tool:words.*"}, Reads: []string{"count"}})
	if err != nil || added.Process.Network != "none" || added.Process.TimeoutS != 60 {
		t.Fatalf("%+v, %v", added, err)
	}
	if _, err := c.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "words", Command: words(t), Scopes: []string{"tool:words.*"}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("added twice: %v", err)
	}
	got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "words"})
	if err != nil || got.Problem != nil || got.Call != nil || len(got.Process.Tools) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if tl := got.Process.Tools[0]; tl.Name != "words.count" || tl.Access != "deny" || !slices.Equal(tl.Needs, []string{"tool:words.count"}) || !tl.ReadOnly {
		t.Errorf("%+v", tl)
	}
	got, err = c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "words", Tool: "count", Input: json.RawMessage(`{"text":"one two"}`)})
	if err != nil || got.Call == nil || got.Call.Status != "ok" || got.Call.Text != `{"words": 2, "characters": 7}` || !strings.Contains(got.Call.Label, "untrusted:tool:words") {
		t.Fatalf("%+v, %v", got.Call, err)
	}
	if e, err := c.Explain(ctx, wire.ExplainRequest{ID: got.Call.RunID}); err != nil || e.Run == nil || e.Run.Kind != "tooltest" {
		t.Errorf("the operator's own call is not a run like others: %+v, %v", e, err)
	}
	if _, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "words", Tool: "count", Input: json.RawMessage(`{"txt":1}`)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an input that does not fit: %v", err)
	}
	why, err := c.CapsWhy(ctx, wire.CapsWhyRequest{Subject: "agent:main", Scope: "tool:words.count"})
	if err != nil || why.Decision != "deny" {
		t.Errorf("adding it gave somebody something: %+v, %v", why, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	c, _ = up(t, o)
	list, err := c.ToolsList(ctx)
	if err != nil || len(list.Processes) != 1 || !slices.ContainsFunc(list.Tools, func(tl wire.Tool) bool { return tl.Name == "words.count" }) {
		t.Fatalf("not known after a restart: %+v, %v", list.Processes, err)
	}
	got, err = c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "words", Tool: "words.count", Input: json.RawMessage(`{"text":"x"}`)})
	if err != nil || got.Call == nil || got.Call.Status != "ok" || got.Process.ChangedAt != 0 {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if _, err := c.ToolsRemove(ctx, wire.ToolsRemoveRequest{Name: "words"}); err != nil {
		t.Fatal(err)
	}
	list, err = c.ToolsList(ctx)
	if err != nil || len(list.Processes) != 0 || slices.ContainsFunc(list.Tools, func(tl wire.Tool) bool { return strings.HasPrefix(tl.Name, "words.") }) {
		t.Errorf("removed: %+v, %v", list, err)
	}
	if v, err := c.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil || v.Entries == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.RunsVerify(ctx); err != nil || len(v.Mismatches) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// What an agent may do with a tool of a process is what its role and its grants say,
// as everywhere: nothing on a fresh install.
func TestAnAgentCallsAToolProcessOnlyWithLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ role, deny, want, why string }{
		"a fresh install":         {"", "", "refused", "role assistant: nothing covers tool:words.count"},
		"a role that has it":      {"roles: {helper: {allow: [\"tool:words.*\"]}}\nagents: {main: {role: helper}}\n", "", "ok", ""},
		"a grant that takes it":   {"roles: {helper: {allow: [\"tool:words.*\"]}}\nagents: {main: {role: helper}}\n", "tool:words", "ok", ""},
		"a grant that takes this": {"roles: {helper: {allow: [\"tool:words.*\"]}}\nagents: {main: {role: helper}}\n", "tool:words.count", "refused", "tool:words.count"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, _ := up(t, options(t, "confine:\n  enforce: best\n"+c.role+obeys(t, "{tool: words.count, input: {text: one two}}")))
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			if _, err := cl.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "words", Command: words(t), Scopes: []string{"tool:words.*"}, Reads: []string{"count"}}); err != nil {
				t.Fatal(err)
			}
			if c.deny != "" {
				if _, err := cl.CapsGrant(ctx, wire.CapsGrantRequest{Subject: "agent:main", Scope: c.deny, Effect: "deny"}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := cl.ToolsTest(ctx, wire.ToolsTestRequest{Name: "words"})
			if err != nil || got.Problem != nil || len(got.Process.Tools) != 1 || !strings.Contains(got.Process.Tools[0].Why, c.why) {
				t.Fatalf("%+v, %v", got, err)
			}
			ask(t, cl, "count")
			e, err := cl.Explain(ctx, wire.ExplainRequest{ID: "last"})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Call != nil })
			if i < 0 || e.Steps[i].Call.Outcome != c.want {
				t.Fatalf("%+v", e.Steps)
			}
			if call := e.Steps[i].Call; c.want == "ok" && !strings.Contains(call.Label, "untrusted:tool:words") {
				t.Errorf("its result is %s", call.Label)
			}
		})
	}
}

// A notice is refused without a grant for the process, which is audited, and told in
// the conversation main with one.
func TestANoticeOfAToolProcessNeedsAGrant(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n")
	c, _ := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	command := pythonTool(t, o.Instance.DataDir, "bell", "ring", `
        write({"type": "DispatchNotification", "target": "operator", "message": "ding", "subject": "door"})
        output = "rung"`)
	_, err := c.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "bell", Command: command, Scopes: []string{"tool:bell", "notify.send:operator"}})
	if err != nil {
		t.Fatal(err)
	}
	ring := func() wire.Run {
		t.Helper()
		got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "bell", Tool: "ring"})
		if err != nil || got.Call == nil || got.Call.Text != "rung" {
			t.Fatalf("%+v, %v", got, err)
		}
		for {
			list, err := c.RunsList(ctx, wire.RunsListRequest{Kind: "toolnotice", Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Runs) == 1 && list.Runs[0].EndedAt > 0 && list.Runs[0].CreatedAt > got.Process.SinceAt {
				return list.Runs[0]
			}
			timer := time.NewTimer(20 * time.Millisecond)
			select {
			case <-timer.C:
			case <-ctx.Done():
				t.Fatal("no notice is sent")
			}
		}
	}
	outcome := func(r wire.Run) string {
		got, err := c.RunsGet(ctx, wire.RunsGetRequest{ID: r.ID})
		if err != nil || len(got.Steps) != 1 || got.Steps[0].Call == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Steps[0].Call.Subject + " " + got.Steps[0].Call.Outcome
	}
	first := ring()
	if got := outcome(first); got != "tool:bell refused" {
		t.Errorf("without a grant: %s", got)
	}
	if _, err := c.CapsGrant(ctx, wire.CapsGrantRequest{Subject: "tool:bell", Scope: "notify.send:operator"}); err != nil {
		t.Fatal(err)
	}
	second := ring()
	for second.ID == first.ID {
		second = ring()
	}
	if got := outcome(second); got != "tool:bell ok" {
		t.Errorf("with a grant: %s", got)
	}
	evs, err := c.EventsList(ctx, wire.EventsListRequest{Kinds: []string{"comms.sent"}, Limit: 100})
	if err != nil || !strings.Contains(string(mustJSON(t, evs)), "tool:bell: door") {
		t.Errorf("the operator was not told: %s, %v", mustJSON(t, evs), err)
	}
}

// A secret reaches the environment of the process that was given it, by name, and
// nothing that is shown afterwards.
func TestASecretReachesAToolProcessAndNothingElse(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n")
	c, _ := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	command := pythonTool(t, o.Instance.DataDir, "teller", "tell", `
        key = os.environ["API_KEY"]
        print("my key is " + key, file=sys.stderr, flush=True)
        output = "%d %s" % (len(key), key)`)
	req := wire.ToolsAddRequest{Name: "teller", Command: command, Scopes: []string{"tool:teller"}, Secrets: []string{"API_KEY=weather-key"}}
	if _, err := c.ToolsAdd(ctx, req); !fault.Is(err, fault.NotFound) {
		t.Errorf("a secret that is not there: %v", err)
	}
	const value = "c0rrect-h0rse-battery"
	if _, err := c.SecretSet(ctx, wire.SecretSetRequest{Name: "weather-key", Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SecretSet(ctx, wire.SecretSetRequest{Name: "bound-key", Value: []byte(value + "-2"), Hosts: []string{"a.example"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ToolsAdd(ctx, req); err != nil {
		t.Fatal(err)
	}
	got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "teller", Tool: "tell"})
	if err != nil || got.Call == nil || got.Call.Text != "21 [secret:weather-key]" {
		t.Fatalf("%+v, %+v, %v", got, got.Call, err)
	}
	req.Name, req.Secrets = "bound", []string{"API_KEY=secret:bound-key"}
	if _, err := c.ToolsAdd(ctx, req); err != nil {
		t.Fatal(err)
	}
	if got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "bound"}); err != nil || got.Problem == nil || !strings.Contains(got.Problem.Message, "bound to hosts") {
		t.Errorf("a secret that is bound: %+v, %v", got, err)
	}
}

// What a tool process changes in a work tree it was given can be taken back.
func TestTheOperatorTakesBackWhatAToolProcessWrote(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n")
	c, _ := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	notes := filepath.Join(o.Instance.DataDir, "notes")
	repository(t, notes)
	a := filepath.Join(notes, "a.txt")
	command := pythonTool(t, o.Instance.DataDir, "notes", "write", `
        open("`+a+`", "w").write("its\n")
        output = "written"`)
	if _, err := c.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "notes", Command: command, Scopes: []string{"tool:notes"}, Write: []string{notes}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "notes", Tool: "write"})
	if err != nil || got.Call == nil || got.Call.Status != "ok" {
		t.Fatalf("%+v, %+v, %v", got, got.Call, err)
	}
	list, err := c.UndoList(ctx, wire.UndoListRequest{All: true})
	if err != nil || len(list.Checkpoints) != 1 || list.Checkpoints[0].Tool != "notes.write" || list.Checkpoints[0].Files != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	did, err := c.UndoRestore(ctx, wire.UndoRestoreRequest{ID: list.Checkpoints[0].ID})
	if err != nil || did.Restored != 1 {
		t.Errorf("%+v, %v", did, err)
	}
	if raw, err := os.ReadFile(a); err != nil || string(raw) != "mine\n" {
		t.Errorf("undone is %q, %v", raw, err)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A crash loop never delays the start, and is shown where somebody looks.
func TestACrashLoopIsShownAndDelaysNothing(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n")
	c, stop := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ToolsAdd(ctx, wire.ToolsAddRequest{Name: "gone", Command: []string{sh, "-c", "echo no >&2; exit 3"}, Scopes: []string{"tool:gone"}}); err != nil {
		t.Fatal(err)
	}
	for range 5 { // each starts it at once
		if got, err := c.ToolsTest(ctx, wire.ToolsTestRequest{Name: "gone"}); err != nil || got.Problem == nil || !strings.Contains(got.Problem.Message, "exit code 3") {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	list, err := c.ToolsList(ctx)
	if err != nil || len(list.Processes) != 1 || !list.Processes[0].CrashLoop || !strings.Contains(list.Processes[0].Error, "exit code 3") {
		t.Errorf("%+v, %v", list.Processes, err)
	}
	inbox, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{})
	if err != nil || len(inbox.Notices) != 1 || !strings.Contains(inbox.Notices[0], "gone ended") {
		t.Errorf("%+v, %v", inbox, err)
	}
	doc, err := c.DoctorRun(ctx)
	if err != nil || !slices.ContainsFunc(doc.Checks, func(k wire.Check) bool { return k.ID == "tools.processes" && k.Status == "fail" }) {
		t.Errorf("%+v, %v", doc, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	if _, err := c.SystemPing(ctx); err != nil {
		t.Error(err)
	}
}
