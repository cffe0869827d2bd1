package bench

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
)

// lesser is a kernel with less than the one we run on, so that each layer of a job's
// walls can be left out.
type lesser struct {
	confine.Report
}

func (s lesser) Landlock() int { return s.Report.Landlock }
func (s lesser) Seccomp() bool { return s.Report.Seccomp }
func (s lesser) Namespaces() error {
	if s.Report.Namespaces {
		return nil
	}
	return errors.New("left out")
}

// launches is how many starts are one round.
const launches = 10

// BenchmarkLaunch starts a program behind its walls, until it has ended, beside the
// bare start of the same program in the same environment.
func BenchmarkLaunch(b *testing.B) {
	ombud, dir := program(b), b.TempDir()
	env := []string{"HOME=" + dir, "OMBUD_HOME=" + dir, "OMBUD_LISTEN_ADDRESS=off"}
	here := launcher(b, ombud, nil).Report()
	layers := func(change func(*confine.Report)) confine.System {
		r := here
		change(&r)
		return lesser{r}
	}
	for _, c := range []struct {
		name, target string
		program      []string
		system       confine.System
	}{
		{"launch ombud, confined", "≤2.0", []string{ombud, "version"}, nil},
		{"launch ombud, without namespaces", "", []string{ombud, "version"}, layers(func(r *confine.Report) { r.Namespaces = false })},
		{"launch ombud, without seccomp", "", []string{ombud, "version"}, layers(func(r *confine.Report) { r.Seccomp = false })},
		{"launch ombud, without Landlock", "", []string{ombud, "version"}, layers(func(r *confine.Report) { r.Landlock = 0 })},
		{"launch ombud, held only", "", []string{ombud, "version"}, layers(func(r *confine.Report) { *r = confine.Report{} })},
		{"launch /bin/true, confined", "", []string{"/bin/true"}, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := launcher(b, ombud, c.system)
			l.Report() // asks the system once
			spec := confine.Spec{Path: c.program[0], Args: c.program, Env: env, Dir: dir, Profile: confine.ShellProfile(dir)}
			measure(b, figure{name: c.name, unit: "ms", peer: "bare exec, ms", target: c.target},
				func() float64 {
					return took(func() {
						cmd := exec.Command(c.program[0], c.program[1:]...)
						cmd.Env, cmd.Dir = env, dir
						if err := cmd.Run(); err != nil {
							b.Fatal(err)
						}
					})
				},
				func() (float64, int) {
					return took(func() {
						j, err := l.Start(b.Context(), spec)
						if err != nil {
							b.Fatal(err)
						}
						if x, err := j.Wait(); err != nil || x.Code != 0 {
							b.Fatal(x, err)
						}
					}), launches
				})
		})
	}
}

func launcher(b *testing.B, exe string, system confine.System) *confine.Launcher {
	b.Helper()
	l, err := confine.New(confine.Options{Exe: exe, System: system, Enforce: confine.EnforceBest})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return l
}

// took returns the median of some starts in milliseconds.
func took(start func()) float64 {
	var each []float64
	for range launches {
		at := time.Now()
		start()
		each = append(each, float64(time.Since(at))/float64(time.Millisecond))
	}
	return median(each)
}
