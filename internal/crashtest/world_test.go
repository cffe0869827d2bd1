package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// program builds ombud with its fail points, once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ombud-crashtest-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "ombud")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "failpoint", "-o", out, "./cmd/ombud")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build: %w\n%s", err, text)
	}
	return out, err
})

func TestMain(m *testing.M) {
	whatsapptest.Main()
	if code, is := codingAgent(os.Args); is {
		os.Exit(code)
	}
	code := m.Run()
	if path, err := program(); code >= 0 && err == nil {
		_ = os.RemoveAll(filepath.Dir(path)) // a directory left in the temporary one harms nobody
	}
	os.Exit(code)
}

const config = `store: %s
models:
  main: scripted/%s
roles:
  crash:
    allow: ["tool:crash", memory.write, memory.read, time.read]
    ask: ["tool:crash-ask"]
agents:
  main:
    role: crash
`

const script = `log: %s
turns:
  - match: one
    steps:
      - calls: [{tool: crash.once, input: {line: once}}]
      - text: reply to one
  - match: two
    steps:
      - calls: [{tool: crash.repeat, input: {line: repeat}}]
      - calls: [{tool: crash.probed, input: {line: probed}}, {tool: memory.remember, input: {text: the boiler code is 4711}}]
      - text: reply to two
  - match: three
    steps:
      - calls: [{tool: crash.once, input: {line: asked, ask: true}}]
      - text: reply to three
  - match: four
    steps:
      - calls: [{tool: time.now, input: {}}, {tool: crash.nothing, input: {}}]
      - text: reply to four
  - match: five
    steps: [{text: reply to five}]
`

// effects are the lines a life leaves outside, and whether a line may be missing or
// there though its step is unknown.
var effects = map[string]policy{"once": atMostOnce, "repeat": repeatable, "probed": probed, "asked": atMostOnce}

type policy int

const (
	atMostOnce policy = iota
	repeatable
	probed
)

// life is one home of ombud and the processes that live in it one after the other.
type life struct {
	t      *testing.T
	name   string
	dir    string
	dsn    string
	world  string // the file of the world outside
	in     instance.Instance
	client *wire.Client
	listen string // where networks call it; "off" by default

	cmd    *exec.Cmd
	exited chan struct{}
	output *bytes.Buffer
	deaths int
	kills  []string // where each process dies, the first first; later ones live
	died   func()   // is called at each death, before the next process is started; nil: nothing is
}

func newLife(t *testing.T, kind dbtest.Kind, kills ...string) *life {
	t.Helper()
	l := &life{t: t, name: strings.Join(kills, " then "), dir: t.TempDir(), dsn: "sqlite", listen: "off", kills: kills}
	l.world = l.path("world")
	if kind == dbtest.KindPostgres {
		l.dsn = dbtest.PostgresDSN(t)
	}
	in, err := instance.New("", func(key string) string {
		if key == "OMBUD_HOME" {
			return l.home()
		}
		return ""
	}, l.dir)
	if err != nil {
		t.Fatal(err)
	}
	l.in, l.client = in, wire.NewClient(in.Socket())
	if err := in.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	l.write(in.ConfigFile(), fmt.Sprintf(config, "sqlite", l.path("script.yaml")))
	l.write(l.path("script.yaml"), fmt.Sprintf(script, l.path("asked")))
	return l
}

func (l *life) home() string            { return filepath.Join(l.dir, "home") }
func (l *life) path(name string) string { return filepath.Join(l.dir, name) }

func (l *life) write(path, text string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// lines returns a file's lines; none if it is not there.
func (l *life) lines(name string) []string {
	l.t.Helper()
	return l.linesOf(l.path(name))
}

func (l *life) linesOf(path string) []string {
	l.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// start starts the next process and waits until it answers or is dead.
func (l *life) start() {
	l.t.Helper()
	kill := ""
	if l.deaths < len(l.kills) {
		kill = l.kills[l.deaths]
	}
	path, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	l.output = &bytes.Buffer{}
	l.cmd = exec.Command(path, "up")
	l.cmd.Dir = l.dir
	l.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "OMBUD_HOME=" + l.home(), "OMBUD_LISTEN_ADDRESS=" + l.listen, "CRASH_WORLD=" + l.world,
		"FAILPOINT_LOG=" + l.path(fmt.Sprintf("passes%d", l.deaths)), "FAILPOINT_KILL=" + kill,
	}
	if l.dsn != "sqlite" {
		l.cmd.Env = append(l.cmd.Env, "OMBUD_STORE="+l.dsn)
	}
	l.cmd.Stdout, l.cmd.Stderr = l.output, l.output
	l.cmd.WaitDelay = time.Second
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	exited, cmd := make(chan struct{}), l.cmd
	l.exited = exited
	go func() { _ = cmd.Wait(); close(exited) }() // how it ended is seen in ProcessState
	l.until("it answers", func(ctx context.Context) bool {
		_, err := l.client.SystemPing(ctx)
		return err == nil || l.dead()
	})
}

func (l *life) dead() bool {
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

// killed reports whether the process ended itself at a fail point.
func (l *life) killed() bool {
	status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// stop ends the process as a person would.
func (l *life) stop() {
	l.t.Helper()
	if l.dead() {
		return
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		l.t.Error(err)
	}
	<-l.exited
}

// patience is how long anything may take. On PostgreSQL a dead node's lease has to
// end first.
const patience = 2 * time.Minute

// until asks again and again; a dead process is started once more.
func (l *life) until(what string, done func(context.Context) bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for !done(ctx) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			l.t.Fatalf("%s: %s: it never happened\n%s", l.name, what, l.output)
		}
	}
}

// insist is what a client does: it asks until it has an answer, and has the daemon
// started again if it died.
func insist[T any](l *life, what string, ask func(context.Context) (T, error)) (out T) {
	l.t.Helper()
	l.until(what, func(ctx context.Context) bool {
		if l.dead() {
			if !l.killed() {
				l.t.Fatalf("%s: %s: the daemon ended by itself: %s\n%s", l.name, what, l.cmd.ProcessState, l.output)
			}
			l.deaths++
			if l.died != nil {
				l.died()
			}
			l.start()
		}
		var err error
		out, err = ask(ctx)
		return err == nil
	})
	return out
}

// supported skips where nothing can be killed.
func supported(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the campaign kills with signals and reads exit states of Linux")
	}
}
