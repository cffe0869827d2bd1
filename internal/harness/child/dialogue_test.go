//go:build unix

package child

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
)

// TestRecordedDialogues plays the program's side of dialogues that were recorded with
// the real programs; ours has to say what moves them on, and in the same words.
func TestRecordedDialogues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cli          harness.Name
		name         string
		allow, cut   bool // cut: interrupted once it says something
		outcome      harness.Outcome
		text         string
		kind         string
		path, file   string
		decision     harness.Decision
		said         []string // by us
		session      string
		resume, read bool
	}{
		{cli: harness.Claude, name: "bidi-permission-allow", allow: true, outcome: harness.Completed, text: "The answer is 42.", kind: KindEdit, path: "<CWD>/new2.txt", file: "<CWD>/new2.txt",
			decision: harness.Allowed, said: []string{`"behavior":"allow","updatedInput":{"file_path":"<CWD>/new2.txt","content":"x"}}}}`}},
		{cli: harness.Claude, name: "bidi-permission-deny", outcome: harness.Completed, text: "The answer is 42. Tool said: LAB says no", kind: KindEdit, path: "<CWD>/new2.txt",
			decision: harness.Refusal, said: []string{`"response":{"behavior":"deny","message":"not today","interrupt":false}}}`}},
		{cli: harness.Claude, name: "bidi-interrupt", cut: true, outcome: harness.Killed, text: "tick 0",
			said: []string{`{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}`}},
		{cli: harness.Codex, name: "app-server-accept", allow: true, outcome: harness.Completed, text: "The answer is 42.", kind: KindCommand,
			decision: harness.Allowed, said: []string{`{"id":0,"result":{"decision":"accept"}}`, `"approvalPolicy":"untrusted"`}},
		{cli: harness.Codex, name: "app-server-decline", outcome: harness.Completed, text: "The answer is 42.", kind: KindCommand,
			decision: harness.Refusal, said: []string{`{"id":0,"result":{"decision":"decline"}}`}},
		{cli: harness.Codex, name: "app-server-interrupt", cut: true, outcome: harness.Killed, text: "tick 0",
			said: []string{`"method":"turn/interrupt","params":{"threadId":"01a22815-d2ee-7161-87ae-ad3b0c4f8d8d","turnId":"01a22815-d303-73a3-9059-10093aa6d5fc"}`}},
		{cli: harness.Gemini, name: "acp-plain", outcome: harness.Completed, text: "The answer is 42."},
		{cli: harness.Gemini, name: "acp-cancel", cut: true, outcome: harness.Killed, text: "tick 0", said: []string{`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"518a52e0-f2d6-478d-996d-da18a013e018"}}`}},
		{cli: harness.Gemini, name: "acp-write-allow", allow: true, outcome: harness.Completed, text: "The answer is 42.", kind: KindEdit, path: "<CWD>/acp.txt", file: "<CWD>/acp.txt",
			decision: harness.Allowed, said: []string{`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"proceed_once"}}}`}},
		{cli: harness.OpenCode, name: "acp-plain", outcome: harness.Completed, text: "The answer is 42."},
		{cli: harness.OpenCode, name: "acp-write-allow", allow: true, outcome: harness.Completed, text: "The answer is 42.", kind: KindEdit, path: "<CWD>/acp.txt", file: "<CWD>/acp.txt",
			decision: harness.Allowed, said: []string{`"optionId":"once"`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601`}},
		{cli: harness.OpenCode, name: "acp-write-reject", outcome: harness.Denied, text: "Let me look.", kind: KindEdit, path: "<CWD>/acp.txt",
			decision: harness.Refusal, said: []string{`"optionId":"reject"`}},
		{cli: harness.ACP, name: "acp-write-reject", outcome: harness.Denied, text: "Let me look.", read: true, decision: harness.Refusal, said: []string{`"optionId":"reject"`}},
		{cli: harness.Gemini, name: "acp-plain", resume: true, outcome: harness.Completed, text: "The answer is 42.", said: []string{`"method":"session/load","params":{"sessionId":"bf2d7287-2d48-4d07-a7da-d818970d47b7","cwd":`}},
	} {
		t.Run(string(c.cli)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			l := setup(t)
			log := filepath.Join(l.state, map[harness.Name]string{harness.ACP: "home", harness.OpenCode: "data"}[c.cli], "log")
			if filepath.Dir(log) == l.state {
				log = filepath.Join(l.state, string(c.cli), "log")
			}
			from := c.cli
			if from == harness.ACP {
				from = harness.OpenCode
			}
			task := l.task(t, "replay", fixture(t, string(from), c.name), log)
			task.CLI, task.Write = c.cli, !c.read
			if c.resume {
				task.Session = "bf2d7287-2d48-4d07-a7da-d818970d47b7"
			}
			var asked []Ask
			task.Permit = func(_ context.Context, a Ask) Answer { asked = append(asked, a); return Answer{c.allow, "not today"} }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cut && c.cli == harness.Claude {
				task.Started = func(string) { cancel() }
			} else if c.cut {
				task.Tell = func(Note) { cancel() }
			}
			r, err := l.Run(ctx, task)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != c.outcome || !strings.HasPrefix(r.Text, c.text) || r.Session == "" {
				t.Errorf("%+v\nwe said %s", r, raw)
			}
			for _, want := range c.said {
				if !bytes.Contains(raw, []byte(want)) {
					t.Errorf("we did not say %s:\n%s", want, raw)
				}
			}
			if c.kind != "" && (len(asked) != 1 || asked[0].Kind != c.kind || len(asked[0].Input) == 0 || c.path != "" && strings.Join(asked[0].Paths, " ") != c.path) {
				t.Errorf("asked %+v", asked)
			}
			if c.kind == KindCommand && asked[0].Command != "/bin/bash -lc 'touch escalated'" {
				t.Errorf("asked for the command %q", asked[0].Command)
			}
			if c.kind == "" && len(asked) != 0 {
				t.Errorf("asked %+v, which is not to be asked", asked)
			}
			if c.decision != "" && (len(r.Permissions) != 1 || r.Permissions[0].Decision != c.decision) {
				t.Errorf("booked %+v", r.Permissions)
			}
			if c.file != "" && (len(r.Files) != 1 || r.Files[0].Path != c.file) || c.file == "" && len(r.Files) != 0 {
				t.Errorf("files %+v", r.Files)
			}
		})
	}
}
