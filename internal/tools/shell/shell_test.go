//go:build unix

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// TestMain: this program is also what the launcher of a job executes.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// guardByName refuses every path with "secret" in it.
type guardByName struct{}

func (guardByName) Read(path string) error {
	if strings.Contains(path, "secret") {
		return fault.New(fault.Denied, "%s is protected", path)
	}
	return nil
}

type bench struct {
	t   *testing.T
	dir string
	reg *tool.Registry
	inv *tool.Invoker
}

func setup(t *testing.T, cfg Config) bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dir = dir
	s, err := New(cfg, guardByName{}, launcher(t))
	if err != nil {
		t.Fatal(err)
	}
	if missing := s.Missing(); len(missing) > 0 {
		t.Skip("this machine lacks", missing)
	}
	b := bench{t: t, dir: dir}
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	if err := s.Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

// launcher is strict where this machine can confine programs, and does what it can
// where not: what a tool promises besides walls holds there too.
func launcher(t *testing.T) *confine.Launcher {
	t.Helper()
	l, err := confine.New(confine.Options{})
	if err == nil && !l.Report().Confined {
		t.Logf("programs cannot be confined here: %v", l.Report().Missing)
		l, err = confine.New(confine.Options{Enforce: confine.EnforceBest})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func args(in input) json.RawMessage {
	fields := map[string]any{"argv": in.Argv}
	if in.Cwd != "" {
		fields["cwd"] = in.Cwd
	}
	if in.Stdin != "" {
		fields["stdin"] = in.Stdin
	}
	if in.Timeout > 0 {
		fields["timeout_s"] = in.Timeout
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return raw
}

// start starts a call; the stream it returns is closed with the test.
func (b bench) start(ctx context.Context, in input) io.ReadCloser {
	b.t.Helper()
	if err := b.reg.Validate("shell.exec", args(in)); err != nil {
		b.t.Fatalf("the test's input: %v", err)
	}
	out, err := b.inv.Call(ctx, "shell.exec", tool.Invocation{Input: args(in)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := out.Reader.Close(); err != nil {
			b.t.Errorf("close: %v", err)
		}
	})
	return out.Reader
}

func (b bench) run(in input) string {
	b.t.Helper()
	return b.rest(b.start(b.t.Context(), in))
}

func (b bench) rest(r io.Reader) string {
	b.t.Helper()
	raw, err := io.ReadAll(r)
	if err != nil {
		b.t.Fatalf("read: %v", err)
	}
	return string(raw)
}

// until reads up to and with the first line that has mark in it.
func (b bench) until(r io.Reader, mark string) {
	b.t.Helper()
	var got strings.Builder
	one := make([]byte, 1)
	for !strings.Contains(got.String(), mark) || !strings.HasSuffix(got.String(), "\n") {
		if _, err := r.Read(one); err != nil {
			b.t.Fatalf("read %q, then %v", got.String(), err)
		}
		got.Write(one)
	}
}

func TestRunGivesOutputAndHowItEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"cat", "sh", "pwd", "env"}, Env: []string{"GREETING=hej"}})
	if err := os.Mkdir(filepath.Join(b.dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   input
		want string
	}{
		{input{Argv: []string{"cat"}, Stdin: "åtta\n"}, "åtta\n[exit code 0]"},
		{input{Argv: []string{"cat"}}, "[exit code 0]"}, // /dev/null
		{input{Argv: []string{"sh", "-c", "printf out; printf err >&2; exit 3"}}, "outerr\n[exit code 3]"},
		{input{Argv: []string{"sh", "-c", "kill -9 $$"}}, "[killed by signal SIGKILL]"},
		{input{Argv: []string{"sh", "-c", `printf '%s|' "$@"`, "x", "$(id)", "*", "; ls", "a b"}}, "$(id)|*|; ls|a b|\n[exit code 0]"},
		{input{Argv: []string{"pwd"}, Cwd: "sub"}, b.dir + "/sub\n[exit code 0]"},
		{input{Argv: []string{"env"}}, "PATH=/usr/local/bin:/usr/bin:/bin\nLANG=C.UTF-8\nGREETING=hej\n[exit code 0]"},
		{input{Argv: []string{"sh", "-c", `printf 'a\000\377'`}}, "a\x00\xff\n[exit code 0]"},
	} {
		got := b.run(c.in)
		if c.in.Cwd != "" {
			got = strings.Replace(got, "PWD=", "", 1)
		}
		if got != c.want {
			t.Errorf("%q gives %q, want %q", c.in.Argv, got, c.want)
		}
	}
}

func TestNoSpellingReachesAProgramThatIsNotListed(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"ls", "cat"}})
	for name, target := range map[string]string{"ls": "/bin/sh", "mysh": "/bin/sh"} {
		if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{
		{"sh", "-c", "ls"}, {"/bin/sh", "-c", "ls"}, {"/usr/bin/sh", "-c", "ls"}, {"/bin/../bin/sh"}, {"//bin/sh"},
		{"bash", "-c", "ls"}, {"dash"}, {"env", "ls"}, {"/usr/bin/env", "ls"}, {"timeout", "1", "ls"}, {"nice", "ls"},
		{"nohup", "ls"}, {"xargs", "ls"}, {"busybox", "ls"}, {"busybox", "sh"}, {"python3", "-c", "1"}, {"perl", "-e", "1"},
		{"sudo", "ls"}, {"/usr/bin/sudo", "ls"}, {"./ls"}, {"./mysh"}, {filepath.Join(b.dir, "ls")}, {filepath.Join(b.dir, "mysh")},
		{"LS"}, {" ls"}, {"ls "}, {"ls\x00"}, {""}, {"/"}, {"."}, {"ls -l"}, {"ls;sh"}, {"../bin/ls"}, {"/usr/bin"}, {"/proc/self/exe"},
	} {
		_, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: argv})})
		if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "ls, cat") {
			t.Errorf("%q: %v, want denied with what may run", argv, err)
		}
		def, _ := b.reg.Get("shell.exec")
		if need, err := def.Scopes(args(input{Argv: argv})); !fault.Is(err, fault.Denied) {
			t.Errorf("%q needs %v, %v, want denied before anybody is asked", argv, need, err)
		}
	}
}

func TestEverySpellingOfAListedProgramNeedsTheSameScope(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"/usr/bin/cat"}})
	def, err := b.reg.Get("shell.exec")
	if err != nil {
		t.Fatal(err)
	}
	for _, argv0 := range []string{"cat", "/usr/bin/cat", "/usr/bin/../bin/cat", "/usr//bin/cat"} {
		need, err := def.Scopes(args(input{Argv: []string{argv0, "x"}}))
		if err != nil || fmt.Sprint(need) != "[shell.exec:/usr/bin/cat]" {
			t.Errorf("%s needs %v, %v", argv0, need, err)
		}
	}
}

func TestAllowListRefusesLinksToWhatRunsAnything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "harmless")); err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{filepath.Join(dir, "harmless"), "harmless", "/usr/bin/../bin/ls", "a,b"} {
		if _, err := New(Config{Allow: []string{entry}, Path: []string{dir}, Dir: dir}, guardByName{}, nil); !fault.Is(err, fault.Config) {
			t.Errorf("allow %q: %v, want a config error", entry, err)
		}
	}
	s, err := New(Config{Allow: []string{"no-such-program"}, Dir: dir}, guardByName{}, nil)
	if err != nil || len(s.Missing()) != 1 {
		t.Errorf("a program this machine lacks: %v, %v", s.Missing(), err)
	}
	for _, bad := range []string{"", "relative", filepath.Join(dir, "missing")} {
		if _, err := New(Config{Dir: bad}, guardByName{}, nil); !fault.Is(err, fault.Config) {
			t.Errorf("dir %q: %v, want a config error", bad, err)
		}
	}
}

// script puts an executable at path. No fork of a parallel test may inherit the
// file while it is open for writing: running it would fail with "text file busy".
func script(t *testing.T, path string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAManyInOneProgramRunsOnlyAsWhatIsListed(t *testing.T) {
	t.Parallel()
	bin, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(bin, "busybox"))
	for _, name := range []string{"list", "sh"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	b := setup(t, Config{Allow: []string{"list"}, Path: []string{bin}})
	if got := b.run(input{Argv: []string{"list"}}); !strings.HasSuffix(got, "[exit code 0]") {
		t.Errorf("the listed name gives %q", got)
	}
	for _, argv0 := range []string{"busybox", "sh", filepath.Join(bin, "busybox"), filepath.Join(bin, "sh")} {
		if _, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: []string{argv0, "sh"}})}); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v, want denied", argv0, err)
		}
	}
}

func TestAProgramThatWasExchangedSinceTheStartIsRefused(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	script(t, filepath.Join(bin, "v1"))
	script(t, filepath.Join(bin, "v2"))
	link := filepath.Join(bin, "prog")
	if err := os.Symlink("v1", link); err != nil {
		t.Fatal(err)
	}
	b := setup(t, Config{Allow: []string{"prog"}, Path: []string{bin}})
	b.run(input{Argv: []string{"prog"}})
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("v2", link); err != nil {
		t.Fatal(err)
	}
	if _, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: []string{"prog"}})}); !fault.Is(err, fault.Denied) {
		t.Errorf("after the exchange: %v, want denied", err)
	}
}

func TestArgumentsThatNameGuardedFilesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"cat"}})
	if err := os.WriteFile(filepath.Join(b.dir, "secret.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret.key", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"cat", "secret.key"}, {"cat", "--file=secret.key"}, {"cat", "@secret.key"}, {"cat", "link"}, {"cat", b.dir + "/x/../link"},
	} {
		if _, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: argv})}); !fault.Is(err, fault.Denied) {
			t.Errorf("%q: %v, want denied", argv, err)
		}
	}
	for _, cwd := range []string{"..", "/", "../..", filepath.Dir(b.dir)} {
		if _, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: []string{"cat"}, Cwd: cwd})}); !fault.Is(err, fault.Denied) {
			t.Errorf("cwd %q: %v, want denied", cwd, err)
		}
	}
	if _, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: args(input{Argv: []string{"cat", "a\x00b"}})}); !fault.Is(err, fault.Invalid) {
		t.Errorf("NUL in an argument: %v", err)
	}
}

func TestEndlessOutputIsStreamedAndStopsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	r := b.start(t.Context(), input{Argv: []string{"sh", "-c", `exec yes "$1"`, "sh", b.dir}})
	if n, err := io.CopyN(io.Discard, r, 8<<20); err != nil {
		t.Fatalf("after %d bytes: %v", n, err)
	}
	b.some(b.dir)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b.none(b.dir)
}

func TestTimeoutStopsTheWholeGroupAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	r := b.start(t.Context(), input{Argv: []string{"sh", "-c", "sh -c 'sleep 300; exit' \"$1\" & echo up; sleep 300", "sh", b.dir}, Timeout: 3})
	b.until(r, "up")
	b.some(b.dir)
	if got, want := b.rest(r), "[timed out after 3s and stopped; what it had done stays done]"; got != want {
		t.Errorf("it ends with %q, want %q", got, want)
	}
	b.none(b.dir)
}

func TestCancellationStopsAProgramThatIgnoresSigterm(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.start(ctx, input{Argv: []string{"sh", "-c", `trap "echo ignored" TERM; echo up; while :; do sleep 0.05; done`, b.dir}})
	b.until(r, "up")
	b.some(b.dir)
	began := time.Now()
	cancel()
	got := b.rest(r)
	if !strings.HasSuffix(got, "[cancelled and stopped; what it had done stays done]") || !strings.Contains(got, "ignored") {
		t.Errorf("it ends with %q", got)
	}
	if took := time.Since(began); took < grace {
		t.Errorf("it took %v, less than the %v it has", took, grace)
	}
	b.none(b.dir)
}

func TestWhatAProgramLeavesBehindIsKilledWithoutLosingItsOutput(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh", "setsid"}})
	for _, leave := range []string{
		"sleep 300 & echo left; exit 0",
		"setsid sleep 300 & echo left; exit 0",
		"setsid setsid sh -c 'trap \"\" TERM HUP INT; sleep 300' & sleep 0.3; echo left; exit 0",
		"(setsid sh -c 'sleep 300 & sleep 300 &' &) ; sleep 0.3; echo left; exit 0",
	} {
		began := time.Now()
		got := b.run(input{Argv: []string{"sh", "-c", "echo " + b.dir + "; " + leave}})
		if got != b.dir+"\nleft\n[exit code 0]" {
			t.Errorf("%s gives %q", leave, got)
		}
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("%s holds the call for %v", leave, took)
		}
	}
	b.none(b.dir)
}

// A child that takes a session of its own and ignores SIGTERM ends with its call.
func TestAChildInItsOwnSessionIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh", "setsid"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.start(ctx, input{Argv: []string{"sh", "-c", `setsid sh -c 'trap "" TERM HUP INT; echo up; while :; do sleep 0.1; done' "$1" & exec sleep 300`, "sh", b.dir}})
	b.until(r, "up")
	b.some(b.dir)
	cancel()
	if got := b.rest(r); !strings.HasSuffix(got, "[cancelled and stopped; what it had done stays done]") {
		t.Errorf("it ends with %q", got)
	}
	b.none(b.dir)
}

// some fails if there is no such process: then none would prove nothing.
func (b bench) some(mark string) {
	b.t.Helper()
	if len(commandsWith(mark)) == 0 {
		b.t.Fatal("no process of the program is to be seen")
	}
}

// none fails if a process with mark in its command line is left when a call is over.
func (b bench) none(mark string) {
	b.t.Helper()
	if left := commandsWith(mark); len(left) > 0 {
		b.t.Errorf("processes are left: %q", left)
	}
}

// commandsWith lists the command lines, of all processes, in which mark occurs.
func commandsWith(mark string) (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), mark) {
			out = append(out, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// What confinement keeps from a program it is told, since its own message does not.
func TestARefusalIsInTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	if l := launcher(t); !l.Report().Observed {
		t.Skip("refusals are not seen here")
	}
	out := "/usr/" + filepath.Base(filepath.Dir(b.dir)) // as root too
	got := b.run(input{Argv: []string{"sh", "-c", "echo x > " + out}})
	if !strings.Contains(got, "[not allowed here: ") || !strings.Contains(got, out) {
		t.Errorf("it gives %q", got)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("it wrote outside")
	}
}

// A machine that cannot confine runs nothing, and says how that can be changed.
func TestWithoutWallsNothingRunsUnlessThatIsChosen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for enforce, runs := range map[confine.Enforce]bool{confine.EnforceStrict: false, confine.EnforceBest: true, confine.EnforceOff: true} {
		l, err := confine.New(confine.Options{Enforce: enforce, System: bare{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		s, err := New(Config{Allow: []string{"echo"}, Dir: dir}, guardByName{}, l)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.run(t.Context(), tool.Invocation{Input: args(input{Argv: []string{"echo", "ran"}})})
		switch {
		case runs && err != nil:
			t.Errorf("%v: %v", enforce, err)
		case runs:
			if got, err := io.ReadAll(out.Reader); err != nil || string(got) != "ran\n[exit code 0]" {
				t.Errorf("%v: %q, %v", enforce, got, err)
			}
			if err := out.Reader.Close(); err != nil {
				t.Error(err)
			}
		case !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "confine.enforce"):
			t.Errorf("%v: %v, hint %q", enforce, err, fault.HintOf(err))
		}
	}
}

// bare is a kernel that has nothing to confine with.
type bare struct{}

func (bare) Landlock() int     { return 0 }
func (bare) Seccomp() bool     { return false }
func (bare) Namespaces() error { return errors.New("not on this kernel") }

func TestASlowReaderGetsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	r := b.start(t.Context(), input{Argv: []string{"sh", "-c", "seq 1 8000"}}) // fits the pipe: the program ends at once
	p, ok := r.(*process)
	if !ok {
		t.Fatalf("the stream is a %T", r)
	}
	<-p.ended
	<-time.After(3 * drain) // the wake-up deadline has passed before the first read
	got := b.rest(r)
	if lines := strings.Count(got, "\n"); lines != 8000 || !strings.HasSuffix(got, "8000\n[exit code 0]") {
		t.Errorf("%d lines, ending %q", lines, got[max(0, len(got)-40):])
	}
}

func TestStdinLeftUnreadDoesNotHoldTheCall(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Allow: []string{"sh"}})
	got := b.run(input{Argv: []string{"sh", "-c", "exit 4"}, Stdin: strings.Repeat("x", 1<<20)})
	if got != "[exit code 4]" {
		t.Errorf("it gives %q", got)
	}
}

func TestSummaryShowsTheWholeCommandUnmistakably(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   input
		want string
	}{
		{input{Argv: []string{"ls", "-l", "a b"}, Cwd: "sub"}, `run ls -l "a b" in sub`},
		{input{Argv: []string{"rm", "x\nrm y", "\u202e"}, Stdin: "12"}, `run rm "x\nrm y" "\u202e" with 2 bytes of input`},
		{input{Argv: []string{"say", `"quoted"`, ""}}, `run say "\"quoted\"" ""`},
	} {
		if got := summary(args(c.in)); got != c.want {
			t.Errorf("summary %s, want %s", got, c.want)
		}
	}
	long := make([]string, 300)
	for i := range long {
		long[i] = "argument"
	}
	if got := summary(args(input{Argv: long})); len(got) > maxSummary+60 || !strings.Contains(got, "more arguments") {
		t.Errorf("a long command is shown in %d bytes: …%s", len(got), got[len(got)-40:])
	}
}

// A program that starts below the working directory may change all of it, so that is
// what is kept for undo.
func TestWhatIsKeptForUndoIsAllThatAProgramMayChange(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Allow: []string{"true"}, Dir: dir}, guardByName{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	def := s.definition()
	touched := def.Touches(args(input{Argv: []string{"true"}, Cwd: "sub"}))
	for _, path := range append([]string{sub}, s.profile(command{}).Write...) {
		if !slices.Contains(touched, path) {
			t.Errorf("%s is not among %q", path, touched)
		}
	}
}
