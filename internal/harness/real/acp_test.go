//go:build harness

package real

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

// TestAnAgentOfTheProtocol drives an agent that ombud knows nothing of but that it
// speaks the Agent Client Protocol.
func TestAnAgentOfTheProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		allow bool
		want  []string
	}{"allowed": {true, []string{"new.txt", "note.txt"}}, "denied": {false, []string{"note.txt"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := set(t, harness.ACP, fakeapi.Plain())
			s.tries = "api.anthropic.com:443" // nothing tells it not to
			path := filepath.Join(s.dir, "new.txt")
			s.run = s.api.Run(fakeapi.UseTools(fakeapi.CallOf("Write$", map[string]string{"file_path": path, "content": "written\n"})))
			task := s.task("write a file")
			p := &permits{answer: child.Answer{Allow: c.allow}}
			task.Write, task.Permit = true, p.permit
			rec := s.play(task)
			if got := files(t, s.dir); !slices.Equal(got, c.want) {
				s.fail(rec, "files %q", got)
			}
			if c.allow {
				s.completed(rec, fakeapi.Text)
				if raw, err := os.ReadFile(path); err != nil || string(raw) != "written\n" {
					t.Errorf("wrote %q, %v", raw, err)
				}
			}
			if asked := p.all(); len(asked) != 1 || len(rec.Permissions) != 1 || (rec.Permissions[0].Decision == harness.Allowed) != c.allow {
				s.fail(rec, "asked %+v", asked)
			}
		})
	}
}
