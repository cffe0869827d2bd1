package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// askingServer is the command of a server whose tools ask: a person's name (ask), for a
// page to be opened (visit) or a model (think). What it was answered is their result.
func askingServer(t *testing.T, dir string) []string {
	t.Helper()
	script := filepath.Join(dir, "asking.py")
	text := `import json, sys
def write(m): print(json.dumps(m), flush=True)
def read():
    line = sys.stdin.readline()
    if not line: sys.exit(0)
    return json.loads(line)
asks = {
    "ask": ("elicitation/create", {"message": "Who are you? Your api key, too.", "requestedSchema": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "title": "Your name", "maxLength": 20}, "api_key": {"type": "string"}, "size": {"type": "integer", "minimum": 1, "default": 3}}}}),
    "visit": ("elicitation/create", {"mode": "url", "message": "log in there", "url": "https://b\u00fccher.example/login?s=1", "elicitationId": "e"}),
    "think": ("sampling/createMessage", {"systemPrompt": "be short", "maxTokens": 50, "messages": [{"role": "user", "content": {"type": "text", "text": "think of a number"}}]}),
}
n = 0
while True:
    m = read()
    def answer(r): write({"jsonrpc": "2.0", "id": m["id"], "result": r})
    if m["method"] == "initialize":
        answer({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "py", "version": "1"}})
    elif m["method"] == "tools/list":
        answer({"tools": [{"name": n, "description": "For a test.", "inputSchema": {"type": "object"}} for n in asks]})
    elif m["method"] == "tools/call":
        n += 1
        method, params = asks[m["params"]["name"]]
        write({"jsonrpc": "2.0", "id": "q%d" % n, "method": method, "params": params})
        while True:
            r = read()
            if r.get("id") == "q%d" % n: break
        answer({"content": [{"type": "text", "text": "got " + json.dumps(r.get("result") or r.get("error"))}]})
    elif "id" in m:
        write({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "what?"}})
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{systemPython(t), script}
}

// answer is a call and what it came to.
type answer struct {
	wire.Call
	Text string
}

// called is the one call of a tool in the run of a turn, when the turn has ended.
func called(t *testing.T, c *wire.Client, runID string) (wire.Explanation, answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: runID}, func(wire.TurnNote) error { return nil }); err != nil {
		open, _ := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
		runs, _ := c.RunsList(t.Context(), wire.RunsListRequest{State: "live"})
		t.Fatalf("%v; questions %+v; at work %+v", err, open, runs)
	}
	e, err := c.Explain(t.Context(), wire.ExplainRequest{ID: runID})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Call != nil })
	if i < 0 {
		t.Fatalf("no call in %+v", e.Steps)
	}
	var said struct{ Text string }
	if err := json.Unmarshal(e.Steps[i].Result, &said); err != nil {
		t.Fatal(err)
	}
	return e, answer{*e.Steps[i].Call, said.Text}
}

func sends(t *testing.T, c *wire.Client, text string) string {
	t.Helper()
	got, err := c.MessageSend(t.Context(), wire.MessageSendRequest{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return got.RunID
}

// TestAServerAsksTheOperator: the call waits, the operator fills in what is asked, and the
// server gets that.
func TestAServerAsksTheOperator(t *testing.T) {
	t.Parallel()
	o := options(t, "turn: {timeout: 3s}\nconfine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.ask, input: {}}"))
	c, _ := up(t, o)
	s := accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none", Reads: []string{"ask"}})
	if s.NoElicit || s.Sampling {
		t.Errorf("%+v", s)
	}
	runID := sends(t, c, "ask me")
	q := waiting(t, c, runID)
	if q.Tool != "mcp.elicit" || q.Subject != "mcp_server:py" || q.Form == nil || len(q.Form.Fields) != 3 || !slices.Equal(q.Scopes, []string{"mcp.call:py/ask"}) {
		t.Fatalf("%+v", q)
	}
	for _, part := range []string{"the MCP server py asks, in its own words: Who are you?", "looks secret: api_key", "sent to py"} {
		if !strings.Contains(q.Summary, part) {
			t.Errorf("%q does not say %q", q.Summary, part)
		}
	}
	// The turn's three seconds do not run while it is asked.
	timer := time.NewTimer(4 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve, Answer: json.RawMessage(`{"size":0}`)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("what does not fit: %v", err)
	}
	if _, err := c.SecretSet(t.Context(), wire.SecretSetRequest{Name: "ours", Value: []byte("open sesame please")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve, Answer: json.RawMessage(`{"name":"open sesame please"}`)}); err == nil {
		t.Error("the value of a secret was taken for an answer")
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve, Answer: json.RawMessage(`{"name":"Ada"}`)}); err != nil {
		t.Fatal(err)
	}
	if last, err := c.Explain(t.Context(), wire.ExplainRequest{ID: "last"}); err != nil || last.Run == nil || last.Run.ID != runID {
		t.Errorf("the last that was said is %+v, %v", last.Run, err)
	}
	e, call := called(t, c, runID)
	if call.Outcome != "ok" || !strings.Contains(call.Text, `"action": "accept"`) || !strings.Contains(call.Text, `"name": "Ada"`) || !strings.Contains(call.Text, `"size": 3`) {
		t.Errorf("%+v", call)
	}
	if len(e.Approvals) != 1 || e.Approvals[0].ID != q.ID || len(e.Left) != 0 {
		t.Errorf("explain knows %+v, %q", e.Approvals, e.Left)
	}
}

func TestTheOperatorSaysNoToAServer(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.visit, input: {}}"))
	c, _ := up(t, o)
	accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none", Reads: []string{"visit"}})
	runID := sends(t, c, "visit")
	q := waiting(t, c, runID)
	for _, part := range []string{"wants you to open a page of xn--bcher-kva.example (shown as bücher.example", "https://bücher.example/login?s=1", "ombud opens nothing"} {
		if !strings.Contains(q.Summary, part) {
			t.Errorf("%q does not say %q", q.Summary, part)
		}
	}
	if q.Form == nil || len(q.Form.Fields) != 0 {
		t.Errorf("%+v", q.Form)
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Deny}); err != nil {
		t.Fatal(err)
	}
	if _, call := called(t, c, runID); call.Outcome != "ok" || !strings.Contains(call.Text, `"action": "decline"`) || !strings.Contains(call.Text, "operator refused this call") {
		t.Errorf("%+v", call)
	}
}

// TestARuleKeepsAServerFromAsking: leave for a call is leave to ask, and a deny takes it.
func TestARuleKeepsAServerFromAsking(t *testing.T) {
	t.Parallel()
	role := "roles: {helper: {allow: [\"mcp.call:py/*\"], deny: [\"mcp.ask:py/elicit\"]}}\nagents: {main: {role: helper}}\n"
	o := options(t, "confine:\n  enforce: best\n"+role+obeys(t, "{tool: mcp.py.ask, input: {}}"))
	c, _ := up(t, o)
	accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none", Reads: []string{"ask"}})
	if _, call := called(t, c, sends(t, c, "ask me")); !strings.Contains(call.Text, `"action": "decline"`) || !strings.Contains(call.Text, "mcp.ask:py/elicit") {
		t.Errorf("%+v", call)
	}
	list, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
	if err != nil || len(list.Approvals) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAServerAsksAModel: only if the operator said so of the server and to whoever calls.
func TestAServerAsksAModel(t *testing.T) {
	t.Parallel()
	script := "turns:\n  - {regexp: '(?s)think of a number', steps: [{text: seven}]}\n  - regexp: '(?s).'\n    steps:\n      - calls: [{tool: mcp.py.think, input: {}}]\n      - text: done\n"
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for role, want := range map[string]string{
		"mcp.call:py/*": "mcp.ask:py/sample", "mcp.call:py/*\", \"mcp.ask:py/sample": "llm.call:main", "mcp.call:py/*\", \"mcp.ask:py/sample\", \"llm.call": "",
	} {
		o := options(t, "confine:\n  enforce: best\nroles: {helper: {allow: [\""+role+"\"]}}\nagents: {main: {role: helper}}\nmodels:\n  main: scripted/"+path+"\n")
		c, _ := up(t, o)
		accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none", Reads: []string{"think"}, Sampling: true, NoElicit: true})
		_, call := called(t, c, sends(t, c, "go"))
		list, err := c.RunsList(t.Context(), wire.RunsListRequest{Kind: "mcpsample"})
		if err != nil {
			t.Fatal(err)
		}
		if want != "" {
			if !strings.Contains(call.Text, `"code": -1`) || !strings.Contains(call.Text, want) || len(list.Runs) != 0 {
				t.Errorf("without leave for %s: %+v", want, call)
			}
			continue
		}
		if call.Outcome != "ok" || !strings.Contains(call.Text, `"text": "seven"`) || !strings.Contains(call.Text, `"stopReason": "endTurn"`) || !strings.Contains(call.Text, `"model": "scripted"`) {
			t.Errorf("%+v", call)
		}
		if len(list.Runs) != 1 || list.Runs[0].State != "completed" {
			t.Errorf("%+v", list)
		}
	}
}

func TestTheQuestionOfAServerGoesWithTheTurn(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.ask, input: {}}"))
	c, stop := up(t, o)
	accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none", Repeatable: []string{"ask"}})
	runID := sends(t, c, "ask me")
	q := waiting(t, c, runID)
	if q.Tool != "mcp.elicit" {
		if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve}); err != nil {
			t.Fatal(err)
		}
		waiting(t, c, runID)
	}
	if _, err := c.TurnCancel(t.Context(), wire.TurnCancelRequest{RunID: runID}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.TurnWatch(t.Context(), wire.TurnWatchRequest{RunID: runID}, func(wire.TurnNote) error { return nil }); err != nil {
		t.Fatal(err)
	}
	gone := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			list, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{})
			if err != nil {
				t.Fatal(what, err)
			}
			if len(list.Approvals) == 0 {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	gone("cancelled")
	// A daemon that stops waits for nobody.
	runID = sends(t, c, "ask me again")
	q = waiting(t, c, runID)
	if q.Tool != "mcp.elicit" {
		if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve}); err != nil {
			t.Fatal(err)
		}
		waiting(t, c, runID)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	gone("stopped")
}

// TestAKilledDaemonLeavesNoQuestionOfAServer: nobody waits for its answer any more, so it
// is withdrawn, and the call that asked it is unknown.
func TestAKilledDaemonLeavesNoQuestionOfAServer(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.ask, input: {}}"))
	cmd := killable(t, o)
	c := wire.NewClient(o.Instance.Socket())
	accepted(t.Context(), t, c, wire.MCPServerAddRequest{Name: "py", Command: askingServer(t, o.Instance.DataDir), Network: "none"})
	sends(t, c, "ask me")
	open := func(c *wire.Client, tool string) string {
		return eventually(t, "a question of "+tool, func() string {
			list, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
			if err != nil || len(list.Approvals) != 1 || list.Approvals[0].Tool != tool {
				return ""
			}
			return list.Approvals[0].ID
		})
	}
	if _, err := c.ApprovalsResolve(t.Context(), wire.ApprovalsResolveRequest{ID: open(c, "mcp.py.ask"), Decision: wire.Approve}); err != nil {
		t.Fatal(err)
	}
	open(c, "mcp.elicit")
	kill(cmd)
	c, _ = up(t, o)
	eventually(t, "that the question is withdrawn", func() string {
		list, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
		if err != nil || len(list.Approvals) != 0 {
			return ""
		}
		return "it is"
	})
	eventually(t, "that the call is unknown", func() string {
		e, err := c.Explain(t.Context(), wire.ExplainRequest{ID: "last"})
		i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Call != nil })
		if err != nil || i < 0 || e.Steps[i].State != "unknown" {
			return ""
		}
		return "it is"
	})
}
