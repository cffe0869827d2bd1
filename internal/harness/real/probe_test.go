//go:build harness

package real

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

func TestAProbeUsesNoTokens(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		task := s.task("none")
		target := child.Target{CLI: cli, Program: task.Program, Args0: task.Args0, State: s.state, Env: task.Env, BaseURL: task.BaseURL, Profile: task.Profile}
		for with, want := range map[bool]child.Login{true: child.LoginYes, false: child.LoginNo} {
			target.Env = nil
			if with {
				target.Env = task.Env
			}
			p, err := s.starter.Probe(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if p.Version != versions[cli] || len(p.Warning) > 0 || p.Login != want || strings.Contains(p.Detail, s.run.Key) {
				t.Errorf("with a key %v: %+v", with, p)
			}
			t.Logf("%s with a key %v: %s %q", cli, with, p.Login, p.Detail)
		}
		if turns := s.run.Turns(); len(turns) > 0 {
			t.Errorf("it asked %+v", turns)
		}
		s.look(harness.Record{CLI: cli}, task)
	})
}
