//go:build unix

package child

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// lab is a Starter with walls, and places to work in.
type lab struct {
	*Starter
	dir, state string
}

func setup(t testing.TB) *lab {
	t.Helper()
	launcher, err := confine.New(confine.Options{
		Enforce: confine.EnforceBest,
		Proxy:   func(ln net.Listener, _ confine.Owner) func() { return func() { _ = ln.Close() } },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	base := t.TempDir()
	l := &lab{dir: filepath.Join(base, "dir"), state: filepath.Join(base, "state")}
	l.Starter = New(launcher, Config{Grace: 300 * time.Millisecond, Environ: []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "SECRET_OF_DAEMON=x"}})
	for _, dir := range []string{l.dir, l.state} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// task is one of claude, played by this test binary. Nothing waits for its limit that
// goes well.
func (l *lab) task(t testing.TB, mode string, args ...string) Task {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Task{
		CLI: harness.Claude, Program: exe, Args0: append([]string{"fake-cli", mode}, args...),
		Prompt: "What is the answer?", Dir: l.dir, State: l.state, Wall: time.Minute,
	}
}

func (l *lab) run(t testing.TB, task Task) harness.Record {
	t.Helper()
	r, err := l.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(l.state, "run")); err != nil || len(left) != 0 {
		t.Errorf("left of the run: %v, %v", left, err)
	}
	return r
}

func TestARunGivesItsRecord(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "well")
	task.Prompt = "--flag\nwhat?"
	var session string
	task.Started = func(id string) { session += id }
	r := l.run(t, task)
	if r.Outcome != harness.Completed || r.Text != task.Prompt || r.Session != fakeID || session != fakeID || r.Version != "2.1.332" {
		t.Errorf("%+v, started %q", r, session)
	}
}

// TestWhatEndsARun: each program ends, with everything of it, and the record says how.
func TestWhatEndsARun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode            string
		wall, quiet     time.Duration
		cancel, write   bool
		outcome         harness.Outcome
		reason, warning string
	}{
		{mode: "stubborn", cancel: true, outcome: harness.Killed, reason: ReasonCancelled},
		{mode: "silent", quiet: 300 * time.Millisecond, outcome: harness.Killed, reason: ReasonQuiet},
		{mode: "chatter", wall: 3 * time.Second, quiet: 30 * time.Second, outcome: harness.Killed, reason: ReasonWall},
		{mode: "half", outcome: harness.Cut, warning: string(harness.WarnHalfLine)},
		{mode: "error-zero", outcome: harness.Auth, reason: "success"},
		{mode: "flood", outcome: harness.Completed, reason: "success", warning: string(harness.WarnLongLine)},
		{mode: "closes", outcome: harness.Killed, reason: ReasonLingers},
		{mode: "closes-done", outcome: harness.Completed, reason: "success", warning: string(harness.WarnExit)},
		{mode: "deaf", write: true, outcome: harness.Killed, reason: ReasonDeaf},
		{mode: "refuses", outcome: harness.NotStarted},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			l := setup(t)
			task := l.task(t, c.mode)
			task.Quiet, task.Write = c.quiet, c.write
			if c.reason == ReasonLingers || c.warning == string(harness.WarnExit) {
				l.cfg.Linger = 300 * time.Millisecond
			}
			if c.wall > 0 {
				task.Wall = c.wall
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel {
				task.Started = func(string) { cancel() }
			}
			r, err := l.Run(ctx, task)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != c.outcome || r.Reason != c.reason {
				t.Errorf("%s %q, want %s %q: %+v", r.Outcome, r.Reason, c.outcome, c.reason, r)
			}
			found := c.warning == ""
			for _, w := range r.Warnings {
				found = found || string(w.Kind) == c.warning
			}
			if !found {
				t.Errorf("no warning %s: %+v", c.warning, r.Warnings)
			}
			if c.mode == "refuses" && !strings.Contains(r.Error, "No conversation found") {
				t.Errorf("its last words are lost: %+v", r)
			}
		})
	}
}

// TestNothingIsLeftOfARun: a shell in a session of its own, deaf to SIGTERM, with our
// pipe in its hands, ends with the run.
func TestNothingIsLeftOfARun(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"leaves", "holds"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := setup(t)
			lock := filepath.Join(l.state, "claude", "lock")
			task := l.task(t, mode, lock)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			want := harness.Completed
			if mode == "holds" {
				want = harness.Killed
				task.Started = func(string) { cancel() }
			}
			r, err := l.Run(ctx, task)
			if err != nil || r.Outcome != want {
				t.Fatalf("%v %+v", err, r)
			}
			f, err := os.OpenFile(lock, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				t.Errorf("somebody of the run still holds the lock: %v", err)
			}
		})
	}
}

func TestAPermissionIsAsked(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "asks")
	task.Write = true
	var asked Ask
	task.Permit = func(_ context.Context, a Ask) Answer { asked = a; return Answer{Allow: true} }
	r := l.run(t, task)
	if asked.Kind != KindCommand || asked.Command != "make" || asked.Tool != "Bash" || asked.ID != "t1" {
		t.Errorf("asked %+v", asked)
	}
	if r.Outcome != harness.Completed || !strings.Contains(r.Text, `"behavior":"allow","updatedInput":{"command":"make"}`) {
		t.Errorf("%+v", r)
	}
	if len(r.Permissions) != 1 || r.Permissions[0].Decision != harness.Allowed {
		t.Errorf("booked %+v", r.Permissions)
	}

	task = l.task(t, "asks")
	task.Write = true // and nobody is there
	if r = l.run(t, task); !strings.Contains(r.Text, `"behavior":"deny"`) || len(r.Permissions) != 1 || r.Permissions[0].Decision != harness.Refusal {
		t.Errorf("%+v", r)
	}
}

// TestSilenceIsOursWhileAPermissionWaits: the limit of silence does not run. That of
// it is called off, and what is allowed after that is not.
func TestSilenceIsOursWhileAPermissionWaits(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "asks")
	task.Write, task.Quiet, task.Wall = true, 3*time.Second, 3*time.Second
	task.Permit = func(ctx context.Context, _ Ask) Answer {
		select {
		case <-time.After(task.Quiet + 500*time.Millisecond):
		case <-ctx.Done():
		}
		return Answer{Allow: true}
	}
	if r := l.run(t, task); r.Outcome != harness.Completed {
		t.Errorf("%+v", r)
	}

	task = l.task(t, "asks", "and never gives up")
	task.Write = true
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var ended atomic.Bool
	task.Permit = func(ctx context.Context, _ Ask) Answer {
		enough()
		<-ctx.Done()
		ended.Store(true)
		return Answer{Allow: true}
	}
	r, err := l.Run(ctx, task)
	if err != nil || r.Outcome != harness.Killed || r.Reason != ReasonCancelled || !ended.Load() {
		t.Errorf("%+v, %v", r, err)
	}
	if len(r.Permissions) != 1 || r.Permissions[0].Decision != harness.Refusal {
		t.Errorf("leave that came too late counts: %+v", r.Permissions)
	}
}

func TestTooManyQuestionsAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "asks-many")
	task.Write = true
	var mu sync.Mutex
	at, most, asked := 0, 0, 0
	open := make(chan struct{})
	task.Permit = func(ctx context.Context, _ Ask) Answer {
		mu.Lock()
		at, asked = at+1, asked+1
		most = max(most, at)
		if asked == maxAtOnce {
			close(open)
		}
		mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
		}
		mu.Lock()
		at--
		mu.Unlock()
		return Answer{}
	}
	if r := l.run(t, task); r.Outcome != harness.Completed || most != maxAtOnce {
		t.Errorf("%d at once: %+v", most, r)
	}
}

func TestWhatNobodyKnowsGetsAnError(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "odd")
	task.Write = true
	if r := l.run(t, task); r.Outcome != harness.Completed || !strings.Contains(r.Text, `"subtype":"error","request_id":"x1"`) {
		t.Errorf("%+v", r)
	}
	l.cfg.Linger = 300 * time.Millisecond // it does not end by itself
	task = l.task(t, "acp-odd")
	task.CLI = harness.ACP
	r := l.run(t, task)
	if r.Outcome != harness.Unavailable || r.Status != 429 || r.Error != "Internal error: request failed with status 429 Too Many Requests" || r.Session != "s-odd" || r.Version != "9.9" {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{"r0", "r1", "r2", "r3"} {
		if !strings.Contains(r.Text, `{"jsonrpc":"2.0","id":"`+id+`","error":{"code":-32601`) {
			t.Errorf("no error for %s: %s", id, r.Text)
		}
	}
}

// TestNothingIsInheritedButWhatIsListed: the environment is ours.
func TestNothingIsInheritedButWhatIsListed(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "env")
	task.Env = []string{"ANTHROPIC_API_KEY=k", "HOME=/root", "CLAUDE_CONFIG_DIR=/root/.claude"}
	r := l.run(t, task)
	for _, want := range []string{"ANTHROPIC_API_KEY=k", "HOME=" + l.state + "/run/", "PATH=/usr/bin:/bin", "LC_ALL=C", "TERM=dumb", "CLAUDE_CONFIG_DIR=" + l.state + "/claude"} {
		if !strings.Contains(r.Text, `"`+want) {
			t.Errorf("no %s in %s", want, r.Text)
		}
	}
	for _, bad := range []string{"SECRET_OF_DAEMON", "=/root"} {
		if strings.Contains(r.Text, bad) {
			t.Errorf("%s in %s", bad, r.Text)
		}
	}
}

// TestADirectoryIsReadUnlessTheTaskWrites: the walls say so, whatever the program does.
func TestADirectoryIsReadUnlessTheTaskWrites(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"read": "no yes", "write": "yes yes", "brain": "no yes"} {
		l := setup(t)
		if !l.launcher.Report().Confined {
			t.Skip("no walls on this system")
		}
		task := l.task(t, "writes", l.dir, filepath.Join(l.state, "claude"))
		task.Write, task.Brain = mode != "read", mode == "brain"
		if r := l.run(t, task); r.Text != want {
			t.Errorf("%s: %q, want %q", mode, r.Text, want)
		}
	}
}

func TestOneSessionHasOneRun(t *testing.T) {
	t.Parallel()
	l := setup(t)
	first := l.task(t, "stubborn")
	first.Session = fakeID
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first.Started = func(string) {
		second := l.task(t, "well")
		second.Session = fakeID
		if _, err := l.Run(ctx, second); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second run: %v", err)
		}
		cancel()
	}
	if _, err := l.Run(ctx, first); err != nil {
		t.Fatal(err)
	}
	again := l.task(t, "well")
	again.Session = fakeID
	if r := l.run(t, again); r.Outcome != harness.Completed {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotBeStartedSaysSo(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "well")
	task.Program = filepath.Join(l.dir, "none")
	if _, err := l.Run(t.Context(), task); !fault.Is(err, fault.NotFound) {
		t.Errorf("no program: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Run(ctx, l.task(t, "well")); !fault.Is(err, fault.Cancelled) {
		t.Errorf("over before it began: %v", err)
	}
}

// TestNewsIsTold in order, and a listener that is too slow loses some and is told so.
func TestNewsIsTold(t *testing.T) {
	t.Parallel()
	l := setup(t)
	task := l.task(t, "replay", fixture(t, "claude", "bidi-permission-deny"), filepath.Join(l.state, "claude", "log"))
	task.Write = true
	var kinds []string
	task.Tell = func(n Note) { kinds = append(kinds, n.Kind+" "+n.Tool) }
	l.run(t, task)
	if got := strings.Join(kinds, ", "); got != "text , tool_started Write, tool_ended Write, text " {
		t.Errorf("told %s", got)
	}
	block, heard := make(chan struct{}), make(chan Note, 2*maxAhead)
	te := newTeller(func(n Note) { <-block; heard <- n })
	for range maxAhead + 100 {
		te.say(Note{Text: strings.Repeat("é", maxNote)})
	}
	close(block)
	for range maxAhead {
		if n := <-heard; len(n.Text) > maxNote+len("…") {
			t.Errorf("a note of %d bytes", len(n.Text))
		}
	}
	te.say(Note{Kind: "last"})
	te.stop()
	close(heard)
	var last Note
	for n := range heard {
		last = n
	}
	if last.Omitted < 99 || last.Omitted > 100 {
		t.Errorf("%d were left out, it was told %d", 100, last.Omitted)
	}
}

// TestDescriptorsAreGivenBack: after many runs there are as many as before.
func TestDescriptorsAreGivenBack(t *testing.T) {
	l := setup(t) // not parallel: descriptors are of the whole process
	l.cfg.Linger = 300 * time.Millisecond
	l.run(t, l.task(t, "bare"))
	before := descriptors(t)
	for _, mode := range []string{"bare", "asks", "closes", "half", "refuses", "bare"} {
		task := l.task(t, mode)
		task.Write = mode == "asks"
		l.run(t, task)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// fixture is a recorded dialogue.
func fixture(t testing.TB, cli, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", cli, name+".io"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
