package confine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestAForkBombStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		if os.Geteuid() == 0 && (system != "with namespaces" || !ownPIDMax()) {
			t.Skip("only a cgroup holds root here")
		}
		var out lockedBuffer
		s := role(t, "bomb", dir, &out)
		s.Profile.Limits.Processes = 64
		x := wait(t, start(t, l, s))
		var n int
		if _, err := fmt.Sscanf(out.String(), "refused after %d", &n); err != nil || x.Code != 0 || n > 64+2*firstReused {
			t.Errorf("%v, %q", x, out.String())
		}
		// And it is still possible to start another.
		wait(t, start(t, l, role(t, "die", dir, nil, "exit", "0")))
	})
}

func TestADiskIsNotFilledPastTheLimit(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out lockedBuffer
		s := role(t, "fill", dir, &out, dir)
		s.Args = []string{s.Path, dir}
		if system == "with namespaces" {
			s.Args = append(s.Args, "/tmp", "/dev/shm")
		}
		s.Profile.Limits = Limits{FileSize: 8 << 20, Tmp: 4 << 20}
		wait(t, start(t, l, s))
		want := "wrote 8 MiB: file too large\n"
		if system == "with namespaces" {
			want += strings.Repeat("wrote 4 MiB: no space left on device\n", 2)
		}
		if out.String() != want {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestMemoryIsTakenFromAJobFirst(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		out := &bytes.Buffer{}
		dir := t.TempDir()
		spec := role(t, "die", dir, out)
		spec.Path, spec.Args = "/bin/cat", []string{"cat", "/proc/self/oom_score_adj"}
		if x := wait(t, start(t, l, spec)); x.Code != 0 || strings.TrimSpace(out.String()) != oomScore || string(own) == out.String() {
			t.Errorf("%s: %+v, a job has %q, we %q", system, x, out, own)
		}
	})
}

// looseGroups hold a job and do not bound it, or fail to.
type looseGroups struct{ bounds bool }

func (g looseGroups) New(string) (Group, error) { return looseGroup{}, nil }
func (g looseGroups) Bounds() bool              { return g.bounds }

type looseGroup struct{}

func (looseGroup) Dir() *os.File   { return nil }
func (looseGroup) Add(int) error   { return nil }
func (looseGroup) Limit(int) error { return errors.New("refused by the test") }
func (looseGroup) Kill() error     { return nil }
func (looseGroup) Close() error    { return nil }

// A cgroup that holds a job need not bound it: where that is missed, it is said.
func TestAJobThatIsNotBoundedIsSaidToBeNot(t *testing.T) {
	t.Parallel()
	needWalls(t)
	for _, bounds := range []bool{true, false} {
		var log lockedBuffer
		l := launcher(t, Options{System: systemNamed("without namespaces"), Groups: looseGroups{bounds}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		dir := t.TempDir()
		if x := wait(t, start(t, l, Spec{Path: "/bin/true", Dir: dir, Profile: ShellProfile(dir)})); x.Code != 0 {
			t.Errorf("bounds %v: %v", bounds, x)
		}
		if logged := strings.Contains(log.String(), "not bounded"); logged != bounds {
			t.Errorf("bounds %v: logged %q", bounds, log.String())
		}
		reported := strings.Contains(strings.Join(l.Report().Missing, "; "), "not bounded for root")
		if want := !bounds && os.Geteuid() == 0; reported != want {
			t.Errorf("bounds %v: reported %v", bounds, reported)
		}
	}
}
