//go:build linux

package client

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
)

// real is a reference server, confined like any other. It runs where OMBUD_TEST_MCP names
// the node_modules that scripts/install-mcp.sh prints.
func real(t *testing.T, program string, args ...string) Spec {
	t.Helper()
	modules := os.Getenv("OMBUD_TEST_MCP")
	if modules == "" {
		t.Skip("OMBUD_TEST_MCP names no node_modules: see scripts/install-mcp.sh")
	}
	modules, err := filepath.EvalSymlinks(modules)
	if err != nil {
		t.Fatal(err)
	}
	node, err := filepath.EvalSymlinks(filepath.Join(modules, ".bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(modules, "@modelcontextprotocol", "server-"+program, "dist", "index.js")
	return Spec{Name: "act", Command: append([]string{node, script}, args...), Network: "none", Read: []string{modules}}
}

func TestTheReferenceServerEverything(t *testing.T) {
	t.Parallel()
	sp := real(t, "everything", "stdio")
	s := setup(t, dbtest.SQLite(t), quick())
	info := s.with(sp)
	for _, x := range info.Tools {
		if x.State != StateOffered {
			t.Errorf("%s is %s: %s", x.Tool, x.State, x.Reason)
		}
	}
	if got := s.says("mcp.act.echo", `{"message":"hello"}`); !strings.Contains(got, "hello") {
		t.Errorf("echo: %q", got)
	}
	if got := s.says("mcp.act.get-sum", `{"a":2,"b":40}`); !strings.Contains(got, "42") {
		t.Errorf("sum: %q", got)
	}
	out, err := s.call(t.Context(), "mcp.act.get-tiny-image", `{}`)
	if err != nil || len(out.Kept) != 1 || !strings.Contains(out.Text, "[image image/png, ") || !strings.HasPrefix(string(s.kept[0]), "\x89PNG") {
		t.Errorf("an image: %v, %q", err, out.Text)
	}
	if got := s.says("mcp.act.get-structured-content", `{"location":"New York"}`); !strings.Contains(got, "temperature") || strings.Contains(got, "[structured]") {
		t.Errorf("structured: %q", got)
	}
	if got := s.says("mcp.act.trigger-long-running-operation", `{"duration":1,"steps":3}`); !strings.Contains(got, "ompleted") {
		t.Errorf("progress: %q", got)
	}
	if got := s.says("mcp.act.resources.list", `{}`); !strings.Contains(got, `"uri"`) {
		t.Errorf("resources: %q", got)
	}
	if got := s.says("mcp.act.prompts.list", `{}`); !strings.Contains(got, `"name"`) {
		t.Errorf("prompts: %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, "mcp.act.trigger-long-running-operation", `{"duration":30,"steps":3}`); !fault.Is(err, fault.Unknown) {
		t.Errorf("cancelled: %v", err)
	}
	if got := s.says("mcp.act.echo", `{"message":"still here"}`); !strings.Contains(got, "still here") {
		t.Errorf("after a cancelled call: %q", got)
	}
}

// TestTheReferenceServerEverythingAsks: it offers the tools that ask only to a client that
// says it can be asked.
func TestTheReferenceServerEverythingAsks(t *testing.T) {
	t.Parallel()
	sp := real(t, "everything", "stdio")
	sp.Sampling = true
	s, p := attended(t, quick())
	s.with(sp)
	s.until("all tools", func(i Info) bool {
		return s.tool(i, "trigger-elicitation-request").Tool != "" && s.tool(i, "trigger-url-elicitation").Tool != ""
	})
	s.accept()
	p.says(Answer{Action: Accept, Content: []byte(`{"name":"Ada","check":true,"integer":42}`)})
	expects(t, s.says("mcp.act.trigger-elicitation-request", `{}`), "Ada", "42")
	if q := p.heard(); len(q) != 1 || q[0].Kind != AskForm || !strings.Contains(string(q[0].Schema), "titledMultipleSelectEnum") {
		t.Errorf("%+v", q)
	}
	p.says(Answer{Action: Decline, Why: "the operator said no"})
	expects(t, s.says("mcp.act.trigger-elicitation-request", `{}`), "declined", "the operator said no")
	p.says(Answer{Action: Accept})
	expects(t, s.says("mcp.act.trigger-url-elicitation", `{"url":"https://example.com/auth","message":"please"}`), "accept")
	if q := p.heard(); len(q) != 2 || q[1].Kind != AskURL || q[1].URL != "https://example.com/auth" {
		t.Errorf("%+v", q)
	}
	p.says(Answer{Action: Accept, Text: "the answer is 42", Model: "m", Stop: "endTurn"})
	expects(t, s.says("mcp.act.trigger-sampling-request", `{"prompt":"what is it?","maxTokens":20}`), "the answer is 42")
	if q := p.heard(); len(q) != 1 || q[0].Kind != AskSample || q[0].Sample.MaxTokens != 20 {
		t.Errorf("%+v", q)
	}
}

func TestTheReferenceServerFilesystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sp := real(t, "filesystem", dir)
	sp.Write = []string{dir}
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(sp)
	s.says("mcp.act.write_file", `{"path":"`+dir+`/a.txt","content":"written"}`)
	if raw, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(raw) != "written" {
		t.Errorf("%q, %v", raw, err)
	}
	if got := s.says("mcp.act.list_directory", `{"path":"`+dir+`"}`); !strings.Contains(got, "a.txt") {
		t.Error(got)
	}
	_, err := s.call(t.Context(), "mcp.act.read_text_file", `{"path":"/etc/passwd"}`)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "act says") {
		t.Errorf("outside: %v", err)
	}
}

func TestTheReferenceServerMemory(t *testing.T) {
	t.Parallel()
	sp := real(t, "memory")
	sp.Env = map[string]string{"MEMORY_FILE_PATH": "/tmp/memory.json"}
	s := setup(t, dbtest.SQLite(t), quick())
	sp.Env["MEMORY_FILE_PATH"] = filepath.Join(s.dir, "act", "memory.json")
	s.with(sp)
	s.says("mcp.act.create_entities", `{"entities":[{"name":"boiler","entityType":"thing","observations":["its code is 4711"]}]}`)
	if got := s.says("mcp.act.search_nodes", `{"query":"4711"}`); !strings.Contains(got, "boiler") {
		t.Error(got)
	}
	if raw, err := os.ReadFile(filepath.Join(s.dir, "act", "memory.json")); err != nil || !strings.Contains(string(raw), "boiler") {
		t.Errorf("%q, %v", raw, err)
	}
}

// TestTheSuiteJudgesOurClient has the protocol's own suite ask a form of ours, through a
// process of this test.
func TestTheSuiteJudgesOurClient(t *testing.T) {
	t.Parallel()
	node := real(t, "everything").Command[0]
	suite, err := filepath.EvalSymlinks(filepath.Join(os.Getenv("OMBUD_TEST_MCP"), "@modelcontextprotocol", "conformance", "dist", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"tools_call", "elicitation-sep1034-client-defaults"} {
		cmd := exec.Command(node, suite, "client", "--scenario", scenario, "--command", exe+" -test.run=^TestPlayedForTheSuite$ --")
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "OVERALL: PASSED") {
			t.Errorf("%s: %v\n%s", scenario, err, out)
		}
	}
}

// TestPlayedForTheSuite is not a test of its own: it is a client of the server whose
// address stands behind its flags, that calls each of its tools.
func TestPlayedForTheSuite(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("plays the client of TestTheSuiteJudgesOurClient")
	}
	s, p := attended(t, quick())
	p.does(func(_ context.Context, q Asked) (Answer, error) {
		f, err := form.Parse(q.Schema)
		if err != nil {
			return Answer{}, err
		}
		content, err := f.Check([]byte("{}")) // what has a default gets that
		return Answer{Action: Accept, Content: content}, err
	})
	info := s.with(Spec{Name: "act", URL: flag.Arg(flag.NArg() - 1), Private: true})
	for _, x := range info.Tools {
		s.says(x.Name, `{"a":2,"b":40}`)
	}
}
