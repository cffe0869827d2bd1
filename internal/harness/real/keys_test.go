//go:build harness

package real

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
)

// below are the files below a directory that hold a text.
func below(t testing.TB, dir, text string) (out []string) {
	t.Helper()
	for _, name := range files(t, dir) {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && bytes.Contains(raw, []byte(text)) { // a socket, or gone while we look
			out = append(out, name)
		}
	}
	return out
}

// environs are the processes whose environment holds a text.
func environs(t testing.TB, text string) (out []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte(text)) { // not ours, or gone
			out = append(out, path)
		}
	}
	return out
}

// TestNoProgramHoldsItsKey has each run a command that looks for it everywhere.
func TestNoProgramHoldsItsKey(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.runs()
		s.run = s.api.Run(fakeapi.UseTools(s.shell(
			`(env; for f in /proc/[0-9]*/environ; do tr '\0' '\n' < $f; done; find ` + s.state + ` -type f -exec cat {} +) > seen.txt 2>/dev/null; cat seen.txt`)))
		task := s.task("look around")
		_, token, _ := strings.Cut(task.Env[0], "=")
		look := func() {
			if got := below(t, s.state, s.run.Key); len(got) > 0 {
				t.Errorf("the key is in %q", got)
			}
			if got := environs(t, s.run.Key); len(got) > 0 {
				t.Errorf("the key is in %q", got)
			}
			if len(environs(t, token)) == 0 {
				t.Error("no program was looked at")
			}
		}
		task.Write, task.Started = true, func(string) { look() }
		task.Permit = func(context.Context, child.Ask) child.Answer {
			look()
			return child.Answer{Allow: true}
		}
		rec := s.play(task)
		s.completed(rec, fakeapi.Text)
		raw, err := os.ReadFile(filepath.Join(s.dir, "seen.txt"))
		if err != nil || bytes.Contains(raw, []byte(s.run.Key)) || !bytes.Contains(raw, []byte(token)) {
			s.fail(rec, "it saw its key %v, its token %v, %v", bytes.Contains(raw, []byte(s.run.Key)), bytes.Contains(raw, []byte(token)), err)
		}
		if got := append(below(t, s.state, s.run.Key), below(t, s.dir, s.run.Key)...); len(got) > 0 {
			t.Errorf("the key is left in %q", got)
		}
	})
}

// TestNoServerIsGivenTheKey: some give the servers they start all they have.
func TestNoServerIsGivenTheKey(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		calls := s.echoing()
		task := s.task("x")
		variable, _, _ := strings.Cut(task.Env[0], "=")
		calls[len(calls)-1].Input = []byte(`{"text":"the boiler","variable":"` + variable + `"}`)
		s.run = s.api.Run(fakeapi.UseTools(calls...))
		task = s.task("say it to the boiler")
		_, token, _ := strings.Cut(task.Env[0], "=")
		task.MCP = &child.MCP{Command: exe, Args: []string{mcpRole}, Tools: []string{"echo"}}
		rec := s.play(task)
		s.completed(rec, fakeapi.Text)
		turns := s.run.Turns()
		last := turns[len(turns)-1].Last()
		if !strings.Contains(last, "echo of the boiler") || strings.Contains(last, s.run.Key) {
			t.Errorf("the server says %q", last)
		}
		if given := strings.Contains(last, token); given != (cli == harness.Claude || cli == harness.OpenCode || cli == harness.Pi) {
			t.Errorf("the server of %s is given its environment: %v; %q", cli, given, last)
		}
	})
}

// TestAVendorIsNotAskedAboutAHost: it is not reached while ombud has the key.
func TestAVendorIsNotAskedAboutAHost(t *testing.T) {
	t.Parallel()
	s := set(t, harness.Claude, fakeapi.Plain())
	s.run = s.api.Run(fakeapi.UseTools(fakeapi.CallOf("^WebFetch$", map[string]string{"url": "https://docs.example.org/boilers", "prompt": "what is it?"})))
	s.tries = "docs.example.org:443"
	task := s.task("look it up")
	p := &permits{answer: child.Answer{Allow: true}}
	task.Write, task.Permit = true, p.permit
	rec := s.play(task)
	s.completed(rec, fakeapi.Text)
	if len(s.refused) == 0 && !s.loose || len(p.all()) != 1 {
		s.fail(rec, "it looked for %q and asked %+v", s.refused, p.all())
	}
}

// TestEachProviderIsReachedThroughOmbud: opencode and pi know them by name, and what they
// know of them stays but for the address.
func TestEachProviderIsReachedThroughOmbud(t *testing.T) {
	t.Parallel()
	keys := map[string]string{
		"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "google": "GEMINI_API_KEY", "openrouter": "OPENROUTER_API_KEY", "groq": "GROQ_API_KEY",
		"mistral": "MISTRAL_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "xai": "XAI_API_KEY", "cerebras": "CEREBRAS_API_KEY",
	}
	for name, variable := range keys {
		t.Run(name, func(t *testing.T) {
			each(t, []harness.Name{harness.OpenCode, harness.Pi}, func(t *testing.T, cli harness.Name) {
				s := set(t, cli, fakeapi.Plain())
				s.bare = true
				task := s.task("say something")
				task.Model = name + "/" + modelsOf[name]
				v, known := child.VendorOf(cli, task.Model, variable, "")
				u, err := url.Parse(v.Base)
				if name == "mistral" && cli == harness.OpenCode && !known {
					return // which has to fetch a package for it first
				}
				if !known || !v.Stands || err != nil {
					t.Fatalf("%+v, %v, %v", v, known, err)
				}
				task.Owner.Run = "run_of_" + t.Name()
				l, err := s.keys.Lend(task.Owner.Run, keyproxy.Upstream{Base: s.run.URL + u.Path, Place: v.Place}, s.run.Key)
				if err != nil {
					t.Fatal(err)
				}
				task.Env, task.BaseURL, task.Held, task.Stands = []string{variable + "=" + l.Token}, l.BaseURL, true, true
				rec := s.play(task)
				s.completed(rec, fakeapi.Text)
				for _, q := range s.run.Requests() {
					t.Logf("%s %s: %d", q.Method, q.Path, q.Status)
				}
			})
		})
	}
}

// modelsOf are models that opencode and pi both know.
var modelsOf = map[string]string{
	"anthropic": "claude-sonnet-4-5", "openai": "gpt-5", "google": "gemini-2.5-flash", "openrouter": "openai/gpt-5", "groq": "openai/gpt-oss-120b",
	"mistral": "devstral-medium-latest", "deepseek": "deepseek-v4-pro", "xai": "grok-4.5", "cerebras": "gpt-oss-120b",
}
