//go:build harness

package real

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

// used is what one answer of the API costs, as a program tells it.
func used(cli harness.Name) harness.Usage {
	switch cli {
	case harness.Codex:
		return harness.Usage{Known: true, Cumulative: true, Input: 80, CacheRead: 20, Output: 7}
	case harness.Gemini: // whose API tells what was read from a cache within the input
		return harness.Usage{Known: true, Input: 80, CacheRead: 20, Output: 7}
	}
	return harness.Usage{Known: true, Input: 100, CacheRead: 20, CacheWrite: 10, Output: 7}
}

// times is usage n times over.
func times(u harness.Usage, n int64) harness.Usage {
	u.Input, u.CacheRead, u.CacheWrite, u.Output = n*u.Input, n*u.CacheRead, n*u.CacheWrite, n*u.Output
	return u
}

func TestAPlainAnswer(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		task := s.task("say something")
		task.System = "Answer like a boiler."
		var session string
		task.Started = func(id string) { session = id }
		rec := s.play(task)
		s.completed(rec, fakeapi.Text)
		if rec.Text != fakeapi.Text || rec.ExitCode != 0 || len(rec.Warnings) > 0 || rec.Usage != used(cli) {
			s.fail(rec, "not as it was told; usage is to be %+v", used(cli))
		}
		if session != rec.Session {
			t.Errorf("the session was told as %q", session)
		}
		turns := s.run.Turns()
		if len(turns) != 1 {
			t.Fatalf("asked %d times", len(turns))
		}
		said := turns[0].Said("user")
		if !strings.Contains(said, "say something") || !strings.Contains(turns[0].System+said, "Answer like a boiler.") {
			t.Errorf("the model is told %q, by the system %q", said, turns[0].System)
		}
		if got := files(t, s.dir); !slices.Equal(got, []string{"note.txt"}) {
			t.Errorf("left %q where it worked", got)
		}
	})
}

func TestATool(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.runs()
		s.run = s.api.Run(fakeapi.UseTools(s.reading()))
		rec := s.play(s.task("read the note"))
		s.completed(rec, fakeapi.Text)
		if rec.Usage != times(used(cli), 2) || len(rec.Tools) != 1 || rec.Tools[0].Outcome != harness.ToolOK || len(rec.Permissions) > 0 || len(rec.Files) > 0 {
			s.fail(rec, "not as it was told; usage is to be %+v", times(used(cli), 2))
		}
		turns := s.run.Turns()
		if len(turns) != 2 || !strings.Contains(turns[1].Last(), "seven boilers") {
			t.Errorf("the model is told %q", turns[len(turns)-1].Last())
		}
	})
}

func TestARunThatReadsWritesNothing(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.run = s.api.Run(fakeapi.UseTools(s.writing()))
		rec := s.play(s.task("write a file"))
		s.completed(rec, fakeapi.Text)
		if got := files(t, s.dir); !slices.Equal(got, []string{"note.txt"}) {
			t.Errorf("it wrote: %q", got)
		}
		if len(rec.Files) > 0 || slices.ContainsFunc(rec.Tools, func(tool harness.Tool) bool { return tool.Outcome == harness.ToolOK }) && cli != harness.Codex {
			s.fail(rec, "it says that it wrote")
		}
		turn := s.run.Turns()[0]
		if cli != harness.Codex && turn.Offers("(?i)^(write|write_file|edit|bash|run_shell_command|replace)$") {
			t.Errorf("offered are %q", turn.Names())
		}
	})
}

// asking are the programs that ask before they write.
var asking = []harness.Name{harness.Codex, harness.Claude, harness.Gemini, harness.OpenCode}

func TestAWriteThatIsAllowed(t *testing.T) {
	each(t, asking, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.run = s.api.Run(fakeapi.UseTools(s.writing()))
		s.runs()
		task := s.task("write a file")
		p := &permits{answer: child.Answer{Allow: true}}
		task.Write, task.Permit = true, p.permit
		rec := s.play(task)
		s.completed(rec, fakeapi.Text)
		raw, err := os.ReadFile(filepath.Join(s.dir, "new.txt"))
		if err != nil || string(raw) != "written\n" {
			s.fail(rec, "wrote %q, %v", raw, err)
		}
		asked := p.all()
		if len(asked) != 1 {
			t.Fatalf("asked %+v", asked)
		}
		a := asked[0]
		switch {
		case cli == harness.Codex && (a.Kind != child.KindCommand || !strings.Contains(a.Command, "new.txt")):
			t.Errorf("asked %+v", a)
		case cli != harness.Codex && (a.Kind != child.KindEdit || !slices.ContainsFunc(a.Paths, func(path string) bool { return strings.HasSuffix(path, "new.txt") })):
			t.Errorf("asked %+v, %s", a, a.Input)
		}
		if len(rec.Permissions) != 1 || rec.Permissions[0].Decision != harness.Allowed {
			s.fail(rec, "the permission is not in the record")
		}
	})
}

func TestAWriteThatIsDenied(t *testing.T) {
	each(t, asking, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.run = s.api.Run(fakeapi.UseTools(s.writing()))
		task := s.task("write a file")
		p := &permits{answer: child.Answer{Why: "the operator is asleep"}}
		task.Write, task.Permit = true, p.permit
		rec := s.play(task)
		if got := files(t, s.dir); !slices.Equal(got, []string{"note.txt"}) {
			t.Errorf("it wrote: %q", got)
		}
		if len(p.all()) != 1 || len(rec.Permissions) != 1 || rec.Permissions[0].Decision != harness.Refusal || len(rec.Files) > 0 {
			s.fail(rec, "asked %+v", p.all())
		}
		if rec.Outcome != harness.Completed && rec.Outcome != harness.Denied {
			s.fail(rec, "it did not end")
		}
		t.Logf("%s: %s, the model is told %q", cli, rec.Outcome, s.run.Turns()[len(s.run.Turns())-1].Last())
	})
}

func TestAModelThatDeclines(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Declines())
		rec := s.play(s.task("do what is forbidden"))
		t.Logf("%s: %s %s %q %q", cli, rec.Outcome, rec.Reason, rec.Error, rec.Text)
		want := harness.Refused
		if cli == harness.Codex || cli == harness.Gemini {
			want = harness.Completed // they do not tell; codex gives no text then
		}
		if rec.Outcome != want {
			s.fail(rec, "not %s", want)
		}
	})
}
