package laws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/cli"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// asOmbud makes this binary the real command line, for daemons that are killed.
const asOmbud = "OMBUD_TEST_AS_OMBUD"

func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok { // this program is also what the launcher of a job executes
		os.Exit(code)
	}
	if os.Getenv(asOmbud) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 40 * time.Second

// house is an instance of ombud in a directory of its own.
type house struct {
	t      *testing.T
	dir    string
	in     instance.Instance
	client *wire.Client
	env    map[string]string // of a daemon in this process
}

// build makes an instance whose model is a script. More of the configuration may
// be given.
func build(t *testing.T, script, more string) *house {
	t.Helper()
	dir := t.TempDir()
	env := func(name string) string {
		if name == "OMBUD_HOME" {
			return dir
		}
		return ""
	}
	in, err := instance.New("", env, dir)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, dir: dir, in: in, client: wire.NewClient(in.Socket())}
	if err := in.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	if script != "" {
		path := filepath.Join(dir, "script.yaml")
		h.write(path, script+"\nlog: asked.log\n")
		more = "models:\n  main: scripted/" + path + "\n" + more
	}
	h.write(in.ConfigFile(), more)
	return h
}

func (h *house) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// file is a path in the workspace.
func (h *house) file(name string) string { return filepath.Join(h.in.Workspace(), name) }

func (h *house) read(path string) string {
	h.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(b)
}

func (h *house) options() daemon.Options {
	h.t.Helper()
	loaded, err := config.Load(config.Input{File: h.in.ConfigFile(), Flags: []config.Override{{Flag: "--listen", Key: "listen.address", Value: config.Off}}})
	if err != nil {
		h.t.Fatal(err)
	}
	return daemon.Options{
		Instance: h.in, Config: loaded, Environment: config.ReadEnvironment(func(name string) string { return h.env[name] }),
		Logger: slog.New(slog.DiscardHandler), Version: "test",
	}
}

// live runs the daemon in this process until the test ends or stop is called.
func (h *house) live() (stop func()) {
	h.t.Helper()
	o := h.options()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- daemon.Run(ctx, o) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		h.t.Fatalf("the daemon did not start: %v", err)
	case <-time.After(patience):
		h.t.Fatal("the daemon does not become ready")
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				h.t.Errorf("the daemon ended with %v", err)
			}
		})
	}
	h.t.Cleanup(stop)
	return stop
}

// command is ombud as a process of its own.
func (h *house) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{asOmbud + "=1", "OMBUD_HOME=" + h.dir, "HOME=" + h.dir, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = h.dir
	return cmd
}

// process is a daemon that can be killed. It is started and awaited through confine,
// because a daemon in this process buries the children it does not know of.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out io.Closer
}

// spawn starts a daemon and returns when it is ready.
func (h *house) spawn(wrap ...string) *process {
	h.t.Helper()
	cmd := h.command("up", "--json")
	if len(wrap) > 0 {
		outer := exec.Command(wrap[0], append(wrap[1:], cmd.Args...)...)
		outer.Env, outer.Dir = cmd.Env, cmd.Dir
		cmd = outer
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := confine.Start(cmd); err != nil {
		h.t.Fatal(err)
	}
	p := &process{t: h.t, cmd: cmd, out: out}
	h.t.Cleanup(p.kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = confine.Wait(cmd) // it said why
		h.t.Fatalf("the daemon did not start: %v: %s", err, said.String())
	}
	return p
}

// kill is kill -9, and waits for the end. It is safe to call twice.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = confine.Wait(p.cmd)  // it was killed
}

// within is the context of one thing a test waits for.
func (h *house) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.t.Context(), patience)
}

// send gives a message to a conversation and returns what was acknowledged.
func (h *house) send(conversation, text string) wire.MessageSendResult {
	h.t.Helper()
	ctx, cancel := h.within()
	defer cancel()
	got, err := h.client.MessageSend(ctx, wire.MessageSendRequest{Conversation: conversation, Text: text})
	if err != nil {
		h.t.Fatalf("send %q: %v", text, err)
	}
	return got
}

// answer waits for the end of a turn.
func (h *house) answer(run string) wire.TurnResult {
	h.t.Helper()
	ctx, cancel := h.within()
	defer cancel()
	res, err := h.client.TurnWatch(ctx, wire.TurnWatchRequest{RunID: run}, func(wire.TurnNote) error { return nil })
	if err != nil {
		h.t.Fatalf("watch %s: %v", run, err)
	}
	return res
}

// ask sends and waits for the answer.
func (h *house) ask(conversation, text string) {
	h.t.Helper()
	h.answer(h.send(conversation, text).RunID)
}

func (h *house) explain(id string) wire.Explanation {
	h.t.Helper()
	ctx, cancel := h.within()
	defer cancel()
	e, err := h.client.Explain(ctx, wire.ExplainRequest{ID: id})
	if err != nil {
		h.t.Fatalf("explain %s: %v", id, err)
	}
	return e
}

// until looks again and again until ok.
func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			h.t.Fatalf("it did not come: %s", what)
		}
	}
}

// question waits until a turn asks, and returns what.
func (h *house) question(run string) (q wire.Approval) {
	h.t.Helper()
	h.until("a question of "+run, func() bool {
		list, err := h.client.ApprovalsList(h.t.Context(), wire.ApprovalsListRequest{})
		if err != nil {
			h.t.Fatal(err)
		}
		for _, a := range list.Approvals {
			if a.RunID == run {
				q = a
				return true
			}
		}
		return false
	})
	return q
}

func (h *house) decide(id, decision string) {
	h.t.Helper()
	if _, err := h.client.ApprovalsResolve(h.t.Context(), wire.ApprovalsResolveRequest{ID: id, Decision: decision}); err != nil {
		h.t.Fatal(err)
	}
}

// events are all events of a kind, oldest first.
func (h *house) events(kind string) (out []wire.Event) {
	h.t.Helper()
	for after := int64(0); ; {
		page, err := h.client.EventsList(h.t.Context(), wire.EventsListRequest{After: after, Kinds: []string{kind}, Limit: 1000})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(page.Events) == 0 {
			return out
		}
		out, after = append(out, page.Events...), page.Next
	}
}

// proved checks everything that can be checked.
func (h *house) proved() {
	h.t.Helper()
	if _, err := h.client.AuditVerify(h.t.Context(), wire.AuditVerifyRequest{}); err != nil {
		h.t.Errorf("audit: %v", err)
	}
	rep, err := h.client.RunsVerify(h.t.Context())
	if err != nil || len(rep.Mismatches) > 0 {
		h.t.Errorf("runs: %v, %+v", err, rep.Mismatches)
	}
}

// refused is how ombud ends with this configuration: its exit code and what it says.
func (h *house) refused(config string) (code int, said string) {
	h.t.Helper()
	h.write(h.in.ConfigFile(), config)
	return h.run("up")
}

// run runs a command that ends by itself.
func (h *house) run(args ...string) (code int, said string) {
	h.t.Helper()
	ctx, cancel := h.within()
	defer cancel()
	cmd := h.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := confine.Start(cmd); err != nil {
		h.t.Fatal(err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	err := confine.Wait(cmd)
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		h.t.Fatalf("%v: %v: %s", args, err, out.String())
	} else if ok {
		code = exit.ExitCode()
	}
	return code, out.String()
}

func exitOf(c fault.Class) int { return fault.CodeOf(c).Exit }

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, line(i))
	}
	return b.String()
}
