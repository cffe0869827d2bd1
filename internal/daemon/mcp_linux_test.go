package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// pythonServer is the command of a server with the tools say and wait, which notes each
// call and its process id in its own directory.
func pythonServer(t *testing.T, dir string) []string {
	t.Helper()
	script := filepath.Join(dir, "server.py")
	text := `import json, os, sys, time
def write(m): print(json.dumps(m), flush=True)
print("a banner that is no message")
names = json.load(open("names.json")) if os.path.exists("names.json") else ["say", "wait"]
while True:
    line = sys.stdin.readline()
    if not line: sys.exit(0)
    m = json.loads(line)
    def answer(r): write({"jsonrpc": "2.0", "id": m["id"], "result": r})
    if m["method"] == "initialize":
        answer({"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "py", "version": "1"}})
    elif m["method"] == "tools/list":
        answer({"tools": [{"name": n, "description": "For a test.", "inputSchema": {"type": "object"}} for n in names]})
    elif m["method"] == "tools/call":
        with open("calls", "a") as f: f.write(m["params"]["name"] + " " + str(os.getpid()) + "\n")
        if m["params"]["name"] == "wait": continue
        answer({"content": [{"type": "text", "text": "said " + os.environ.get("KEY", "")}]})
    elif "id" in m:
        write({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "what?"}})
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{systemPython(t), script}
}

// accepted adds a server and accepts what it offers.
func accepted(ctx context.Context, t *testing.T, c *wire.Client, req wire.MCPServerAddRequest) wire.MCPServer {
	t.Helper()
	if _, err := c.MCPServerAdd(ctx, req); err != nil {
		t.Fatal(err)
	}
	got, err := c.MCPServerTest(ctx, wire.MCPServerRequest{Name: req.Name})
	if err != nil || got.Problem != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	diff, err := c.MCPServerDiff(ctx, wire.MCPServerRequest{Name: req.Name})
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.MCPServerAccept(ctx, wire.MCPServerAcceptRequest{Name: req.Name, Seen: diff.Seen})
	if err != nil {
		t.Fatal(err)
	}
	return res.Server
}

const callsServer = "roles: {helper: {allow: [\"mcp.call:py/*\"]}}\nagents: {main: {role: helper}}\n"

// TestAServerOfMCPFromAddToCall: added, nothing of it is used; accepted, it can be called
// by nobody without leave; with leave an agent calls it, and what it says is labelled.
func TestAServerOfMCPFromAddToCall(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.say, input: {a: 1}}"))
	c, stop := up(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	if _, err := c.MCPServerAdd(ctx, wire.MCPServerAddRequest{Name: "py", Command: pythonServer(t, o.Instance.DataDir), Env: []string{"KEY={{secret:a-key}}"}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a secret that is not there: %v", err)
	}
	if _, err := c.SecretSet(ctx, wire.SecretSetRequest{Name: "a-key", Value: []byte("open sesame")}); err != nil {
		t.Fatal(err)
	}
	s := accepted(ctx, t, c, wire.MCPServerAddRequest{
		Name: "py", Command: pythonServer(t, o.Instance.DataDir), Network: "none", Env: []string{"KEY={{secret:a-key}}"}, Reads: []string{"say"},
	})
	if s.Tools[0].Access != "allow" || s.Tools[1].Access != "ask" || s.Noise != 1 || s.Protocol != "2025-06-18" || !slices.Equal(s.Env, []string{"KEY={{secret:a-key}}"}) {
		t.Errorf("%+v", s)
	}
	ask(t, c, "say it")
	e, err := c.Explain(ctx, wire.ExplainRequest{ID: "last"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Call != nil })
	if i < 0 || e.Steps[i].Call.Outcome != "ok" || !strings.Contains(e.Steps[i].Call.Label, "untrusted:mcp:py") {
		t.Fatalf("%+v", e.Steps)
	}
	if call := e.Steps[i].Call; !slices.Equal(call.Scopes, []string{"mcp.call:py/say"}) {
		t.Errorf("%+v", call)
	}
	// Offered otherwise after a restart: told once, in the conversation main.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Instance.MCPDir("py"), "names.json"), []byte(`["say", "more"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	got, err := c.MCPServerTest(ctx, wire.MCPServerRequest{Name: "py"})
	if err != nil || got.Server.ChangedAt == 0 {
		t.Errorf("%+v, %v", got.Server, err)
	}
	inbox, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{})
	if err != nil || !slices.ContainsFunc(inbox.Notices, func(n string) bool { return strings.Contains(n, "ombud mcp diff py") }) {
		t.Errorf("the inbox says %q, %v", inbox.Notices, err)
	}
	health, err := c.IntegrationsList(ctx, wire.IntegrationsRequest{Check: true})
	if err != nil || !slices.ContainsFunc(health.Integrations, func(i wire.Integration) bool {
		return i.Name == "MCP server py" && strings.Contains(i.Reason, "offers other tools")
	}) {
		t.Errorf("integrations: %+v, %v", health.Integrations, err)
	}
	doctor, err := c.DoctorRun(ctx)
	if err != nil || !slices.ContainsFunc(doctor.Checks, func(c wire.Check) bool { return c.ID == "mcp.servers" && c.Status == "warn" }) {
		t.Errorf("doctor says %+v, %v", doctor.Checks, err)
	}
	if _, err := c.MCPServerRemove(ctx, wire.MCPServerRequest{Name: "py"}); err != nil {
		t.Fatal(err)
	}
	if v, err := c.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil || v.Entries == 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestServerDaemonRole is not a test of its own: it is a daemon that can be killed, with
// the configuration that is there.
func TestServerDaemonRole(t *testing.T) {
	home := os.Getenv("SERVER_TEST_HOME")
	if home == "" {
		t.Skip("plays the daemon of TestAKilledDaemonLeavesNoServerAndNoSecondCall")
	}
	in, err := instance.New("", func(name string) string { return map[string]string{"OMBUD_HOME": home}[name] }, home)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Input{File: in.ConfigFile(), Flags: unheard("")})
	if err != nil {
		t.Fatal(err)
	}
	err = Run(context.Background(), Options{
		Instance: in, Config: loaded, Environment: config.ReadEnvironment(func(string) string { return "" }),
		Logger: slog.New(slog.DiscardHandler), Version: "test", Ready: func() { _, _ = os.Stdout.WriteString("\nready\n") },
	})
	if err != nil {
		t.Fatal(err)
	}
	os.Exit(0)
}

func TestAKilledDaemonLeavesNoServerAndNoSecondCall(t *testing.T) {
	t.Parallel()
	o := options(t, "confine:\n  enforce: best\n"+callsServer+obeys(t, "{tool: mcp.py.wait}"))
	cmd := killable(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	c := wire.NewClient(o.Instance.Socket())
	accepted(ctx, t, c, wire.MCPServerAddRequest{Name: "py", Command: pythonServer(t, o.Instance.DataDir), Network: "none"})
	if _, err := c.MessageSend(ctx, wire.MessageSendRequest{Text: "wait"}); err != nil {
		t.Fatal(err)
	}
	question := eventually(t, "a question", func() string {
		list, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{})
		if err != nil || len(list.Approvals) == 0 {
			return ""
		}
		return list.Approvals[0].ID
	})
	if _, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: question, Decision: wire.Approve}); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(o.Instance.MCPDir("py"), "calls")
	made := eventually(t, "a call", func() string {
		raw, err := os.ReadFile(calls)
		if err != nil {
			return ""
		}
		return string(raw)
	})
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(made, "wait ")))
	if err != nil {
		t.Fatal(err)
	}
	kill(cmd)
	c, _ = up(t, o)
	eventually(t, "that the call is unknown", func() string {
		e, err := c.Explain(ctx, wire.ExplainRequest{ID: "last"})
		if err != nil {
			return ""
		}
		i := slices.IndexFunc(e.Steps, func(s wire.RunStep) bool { return s.Call != nil })
		if i < 0 || e.Steps[i].State != "unknown" {
			return ""
		}
		return "it is"
	})
	if again, err := os.ReadFile(calls); err != nil || string(again) != made {
		t.Errorf("it was called again: %q, %v", again, err)
	}
	// The id is that of a namespace of its own where there is one: then nobody else sees it.
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err == nil && strings.Contains(string(raw), o.Instance.DataDir) && syscall.Kill(pid, 0) == nil {
		t.Errorf("the server of the killed daemon lives on: %q", raw)
	}
	if n := alive(t, filepath.Join(o.Instance.DataDir, "server.py")); n > 1 {
		t.Errorf("%d servers are alive", n)
	}
}

// killable is a daemon as a process of its own, ready.
func killable(t *testing.T, o Options) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestServerDaemonRole$")
	cmd.Env = []string{"SERVER_TEST_HOME=" + filepath.Dir(o.Instance.DataDir)}
	ready := make(chan struct{})
	cmd.Stdout = &waiter{word: "ready", found: ready}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the daemon does not become ready")
	}
	return cmd
}

// alive counts the processes that have a word in their command line.
func alive(t *testing.T, word string) (n int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		raw, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(raw), "/usr") && strings.Contains(string(raw), word) {
			n++
		}
	}
	return n
}

// eventually waits for something to be said.
func eventually(t *testing.T, what string, look func() string) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		if got := look(); got != "" {
			return got
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}
