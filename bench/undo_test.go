package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/confine"
	_ "github.com/ombud-run/ombud/internal/confine/first" // this program is also the launcher
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// bareGit is git without walls: what a checkpoint costs by itself.
type bareGit string

func (g bareGit) Run(ctx context.Context, c checkpoint.Command) error {
	cmd := exec.CommandContext(ctx, string(g), c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return checkpoint.ExitError{How: exit.String()}
	}
	return err
}

// workTree is a repository of n files, committed.
func workTree(b *testing.B, git string, n int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("d%02d/e%02d", i%50, i/50%20), fmt.Sprintf("file%d.txt", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n%s", i, block), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q", "."}, {"config", "gc.auto", "0"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "x"}, {"repack", "-adq"},
	} {
		userGit(b, git, dir, args...)
	}
	return dir
}

func userGit(b *testing.B, git, dir string, args ...string) {
	b.Helper()
	cmd := exec.Command(git, args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0"}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// BenchmarkCheckpoint measures what a call in a git work tree pays for being undoable,
// beside one git status.
func BenchmarkCheckpoint(b *testing.B) {
	git, err := exec.LookPath("git")
	if err != nil {
		b.Skip(err)
	}
	for _, n := range []int{1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchCheckpoint(b, git, n, "", bareGit(git)) })
	}
	launcher, err := confine.New(confine.Options{})
	if err != nil {
		b.Skip(err)
	}
	defer launcher.Close()
	b.Run("confined", func(b *testing.B) { benchCheckpoint(b, git, 1000, ", git confined", checkpoint.NewProgram(launcher)) })
}

func benchCheckpoint(b *testing.B, git string, n int, how string, runner checkpoint.Git) {
	b.Helper()
	dir := workTree(b, git, n)
	home := b.TempDir()
	d, err := db.Open(b.Context(), db.Options{DSN: "sqlite:" + filepath.Join(home, "store.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	}()
	v, err := vault.OpenKeyFile(filepath.Join(home, "key"))
	if err != nil {
		b.Fatal(err)
	}
	c := checkpoint.New(checkpoint.Deps{DB: d, Vault: v, Git: runner}, checkpoint.Options{Dir: filepath.Join(home, "cache")})
	calls := 0
	call := func(change bool) time.Duration {
		calls++
		began := time.Now()
		k := c.Before(b.Context(), tool.Touch{Run: fmt.Sprintf("run_%d", calls), Step: "s", Tool: "shell.exec", Paths: []string{dir}})
		took := time.Since(began) // the rows are part of commits that are made anyway
		if err := d.InTx(b.Context(), k.OpenTx); err != nil {
			b.Fatal(err)
		}
		if change {
			if err := os.WriteFile(filepath.Join(dir, "d00/e00/file0.txt"), fmt.Append(nil, calls), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		began = time.Now()
		k.After(b.Context())
		took += time.Since(began)
		if err := d.InTx(b.Context(), k.CloseTx); err != nil {
			b.Fatal(err)
		}
		k.Done()
		return took
	}
	first := call(false)
	for range 3 { // until the files are old enough to be known by their stamps
		<-time.After(time.Second)
		call(false)
	}
	status := func() time.Duration {
		began := time.Now()
		userGit(b, git, dir, "status", "--porcelain")
		return time.Since(began)
	}
	for _, kind := range []struct {
		name   string
		change bool
	}{{"nothing changed", false}, {"one file changed", true}} {
		var ours, theirs, ratios []float64
		for range 3 * rounds {
			o, t := call(kind.change), status()
			ours, theirs = append(ours, ms(o)), append(theirs, ms(t))
			ratios = append(ratios, ms(o)/ms(t))
		}
		add(b, figure{
			name: fmt.Sprintf("call kept for undo, %d files, %s%s", n, kind.name, how), unit: "ms", value: median(ours), peer: "git status", beside: median(theirs),
			ratio: median(ratios), note: "the first " + first.Round(time.Millisecond).String(),
		})
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
