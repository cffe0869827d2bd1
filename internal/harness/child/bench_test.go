//go:build unix

package child

import (
	"io"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/harness"
)

// BenchmarkRun measures a whole run of an agent that answers at once, beside the same
// program started by the launcher alone: what this package adds is the difference.
func BenchmarkRun(b *testing.B) {
	l := setup(b)
	task := l.task(b, "bare")
	room, err := l.rooms.open(l.state, task.CLI)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("launcher", func(b *testing.B) {
		for b.Loop() {
			job, err := l.launcher.Start(b.Context(), confine.Spec{
				Path: task.Program, Args: append([]string{task.Program}, task.Args0...), Env: []string{"PATH=/usr/bin:/bin"}, Dir: l.dir,
				Stdin: strings.NewReader("hi"), Stdout: io.Discard, Stderr: io.Discard, Profile: profileOf(&task, room),
			})
			if err != nil {
				b.Fatal(err)
			}
			if exit, err := job.Wait(); err != nil || exit.Code != 0 {
				b.Fatal(exit, err)
			}
		}
	})
	b.Run("run", func(b *testing.B) {
		for b.Loop() {
			if r, err := l.Run(b.Context(), task); err != nil || r.Outcome != harness.Completed {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("dialogue", func(b *testing.B) {
		asked := task
		asked.Args0, asked.Write = []string{"fake-cli", "asks"}, true
		for b.Loop() {
			if r, err := l.Run(b.Context(), asked); err != nil || r.Outcome != harness.Completed {
				b.Fatal(r, err)
			}
		}
	})
}
