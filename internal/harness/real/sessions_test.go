//go:build harness

package real

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

// talk is what the model says in the two turns of a session.
func talk() fakeapi.Scenario {
	return fakeapi.Dialogue(
		fakeapi.Line{When: "what was my colour", Answer: fakeapi.Answer{Text: "It was vermilion."}},
		fakeapi.Line{When: "my colour is", Answer: fakeapi.Answer{Text: "I keep vermilion in mind."}},
	)
}

func TestASessionGoesOn(t *testing.T) {
	for name, writes := range map[string]bool{"reading": false, "writing": true} {
		t.Run(name, func(t *testing.T) {
			each(t, all, func(t *testing.T, cli harness.Name) {
				s := set(t, cli, talk())
				first := s.task("my colour is vermilion")
				first.Write, first.Permit = writes, (&permits{}).permit
				if child.TakesSession(first) {
					first.NewSession = "0f9c2f6e-5b1e-4d0a-9f6b-6c1f0a2b3c4d"
				}
				one := s.play(first)
				s.completed(one, "I keep vermilion in mind.")
				if first.NewSession != "" && one.Session != first.NewSession {
					t.Errorf("the session is %s, not the one that was given", one.Session)
				}
				asked := len(s.run.Turns())
				second := s.task("what was my colour?")
				second.Session, second.Write, second.Permit = one.Session, writes, first.Permit
				two := s.play(second)
				if cli == harness.Gemini && writes && strings.Contains(two.Error, "No previous sessions found") {
					return // by ACP gemini writes over a session it goes on with in the minute it began
				}
				s.completed(two, "It was vermilion.")
				if two.Session != one.Session || two.Text != "It was vermilion." {
					s.fail(two, "the first was session %s", one.Session)
				}
				if len(s.run.Turns()) <= asked {
					t.Fatal("it asked nothing")
				}
				turn := s.run.Turns()[asked]
				if !strings.Contains(turn.Said("user"), "my colour is vermilion") || !strings.Contains(turn.Said("assistant"), "I keep vermilion in mind.") {
					t.Errorf("the model is told %+v", turn.Messages)
				}
				want := used(cli)
				if cli == harness.Codex {
					want = times(want, 2) // over the session
				}
				if want.Cumulative = two.Usage.Cumulative; !writes && two.Usage != want {
					s.fail(two, "usage is to be %+v", want)
				}
			})
		})
	}
}

func TestASessionThatIsNotThere(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		task := s.task("what was my colour?")
		task.Session = "11111111-2222-4333-8444-555555555555"
		if cli == harness.OpenCode {
			task.Session = "ses_dd14a7e32ffehUsPs8hS93DDXI"
		}
		rec := s.play(task)
		if rec.Outcome != harness.NotStarted || rec.Error == "" || len(s.run.Turns()) > 0 {
			s.fail(rec, "it began")
		}
		t.Logf("%s: %q", cli, rec.Error)
	})
}

// echoing is the call of the tool of the MCP server that is given to the program.
func (s *stage) echoing() []fakeapi.Call {
	call := fakeapi.CallOf("^(mcp_)?_?_?ombud_?_?_echo$|^mcp__ombud__echo$", map[string]string{"text": "the boiler"})
	if s.cli != harness.Codex {
		return []fakeapi.Call{call}
	}
	call.Name = "mcp__ombud__echo" // found by a search first
	return []fakeapi.Call{fakeapi.CallOf("^tool_search$", map[string]string{"query": "echo says what it is told"}), call}
}

func TestAToolOfOurMCPServer(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, brain := range map[string]bool{"beside its own": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			each(t, all, func(t *testing.T, cli harness.Name) {
				s := set(t, cli, fakeapi.Plain())
				s.run = s.api.Run(fakeapi.UseTools(s.echoing()...))
				task := s.task("say it to the boiler")
				task.Brain = brain
				task.MCP = &child.MCP{Command: exe, Args: []string{mcpRole}, Env: []string{mcpSecret + "=" + strings.Repeat("s", 17)}, Tools: []string{"echo"}}
				rec := s.play(task)
				s.completed(rec, fakeapi.Text)
				turns := s.run.Turns()
				if len(turns) == 0 {
					t.Fatal("it asked nothing")
				}
				last := turns[len(turns)-1]
				if !strings.Contains(last.Last(), "echo of the boiler with 17 letters of secret") {
					s.fail(rec, "the model is told %q; offered are %q", last.Last(), turns[0].Names())
				}
				if !slices.ContainsFunc(rec.Tools, func(tool harness.Tool) bool {
					return strings.HasSuffix(tool.Name, "echo") && tool.Outcome == harness.ToolOK
				}) {
					s.fail(rec, "the call is not in the record")
				}
				t.Logf("%s offers %q", cli, turns[0].Names())
			})
		})
	}
}

// TestASecretIsOnNoCommandLine looks at every process of a run while it waits, and at
// every file it leaves.
func TestASecretIsOnNoCommandLine(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, writes := range map[string]bool{"reading": false, "writing": true} {
		t.Run(name, func(t *testing.T) {
			each(t, all, func(t *testing.T, cli harness.Name) {
				s := set(t, cli, fakeapi.Plain().With(fakeapi.Stall))
				secret := "of-the-server-" + s.run.Key
				task := s.task("say something")
				task.System, task.Write = "be a boiler", writes
				task.MCP = &child.MCP{Command: exe, Args: []string{mcpRole}, Env: []string{mcpSecret + "=" + secret}}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan harness.Record, 1)
				go func() {
					rec, err := s.starter.Run(ctx, task)
					if err != nil {
						t.Error(err)
					}
					ended <- rec
				}()
				s.run.Await(t, 1)
				if lines := commands(t, s.run.Key); len(lines) > 0 {
					t.Errorf("on a command line: %q", lines)
				}
				stop()
				rec := <-ended
				s.look(rec, task)
				if left := holding(t, s.state, s.run.Key); len(left) > 0 {
					t.Errorf("left in %q", left)
				}
			})
		})
	}
}

// holding are the files below a directory that hold a text.
func holding(t *testing.T, dir, text string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheShellSeesNothingOfTheDaemon has each program run env, and looks at what the
// model is told. That an allowed command of all but codex sees the key of its own
// program is a gap that the documentation names.
func TestTheShellSeesNothingOfTheDaemon(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.runs()
		s.run = s.api.Run(fakeapi.UseTools(s.shell("env; true boilers")))
		task := s.task("what is in your environment?")
		task.Write, task.Permit = true, (&permits{answer: child.Answer{Allow: true}}).permit
		rec, err := s.starter.Run(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		s.completed(rec, fakeapi.Text)
		turns := s.run.Turns()
		if len(turns) < 2 {
			t.Fatalf("asked %d times", len(turns))
		}
		said := turns[len(turns)-1].Last()
		if !strings.Contains(said, "PATH=") || strings.Contains(said, "DAEMON_SECRET") || strings.Contains(said, daemonSecret) {
			t.Errorf("the model is told %q", said)
		}
		if key := strings.Contains(said, "_API_KEY="); key && cli == harness.Codex {
			t.Errorf("the model is told the key: %q", said)
		}
	})
}
