package faults

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestMain: this program is also what the launcher of a job executes.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

// house is an instance of ombud in a directory of its own, with a model that does
// what a script says.
type house struct {
	t      *testing.T
	dir    string
	in     instance.Instance
	client *wire.Client
	log    journal
}

// journal is what the daemon has logged.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// since returns what was logged behind a place, and the place now.
func (j *journal) since(at int) (string, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()[at:], j.text.Len()
}

// build makes an instance. Script is the steps of every turn, one a line.
func build(t *testing.T, more string, steps ...string) *house {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in, err := instance.New("", func(name string) string {
		if name == "OMBUD_HOME" {
			return dir
		}
		return ""
	}, dir)
	if err == nil {
		err = in.MakeDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, dir: dir, in: in, client: wire.NewClient(in.Socket())}
	h.script(steps...)
	h.write(in.ConfigFile(), "models:\n  main: scripted/"+filepath.Join(dir, "script.yaml")+"\n"+more)
	return h
}

// script says what the model does in every turn of a daemon that is started later.
func (h *house) script(steps ...string) {
	h.t.Helper()
	turn := "  - steps:\n      - " + strings.Join(append(slices.Clone(steps), "text: done"), "\n      - ") + "\n"
	h.write(filepath.Join(h.dir, "script.yaml"), "turns:\n"+strings.Repeat(turn, 64))
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

// read is what a file holds, "" if it is not there.
func (h *house) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
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
		Instance: h.in, Config: loaded, Environment: config.ReadEnvironment(func(string) string { return "" }),
		Logger: slog.New(slog.NewJSONHandler(&h.log, nil)), Version: "test",
	}
}

// live runs the daemon until the test ends or stop is called.
func (h *house) live() (stop func()) {
	h.t.Helper()
	o := h.options()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- daemon.Run(ctx, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("the daemon ended with %v", err)
		}
	}
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		h.t.Fatalf("the daemon did not start: %v", err)
	case <-time.After(patience):
		cancel()
		h.t.Fatal("the daemon does not become ready")
	}
	h.t.Cleanup(stop)
	return stop
}

func (h *house) within() context.Context {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	h.t.Cleanup(cancel)
	return ctx
}

func (h *house) send(text string) wire.MessageSendResult {
	h.t.Helper()
	got, err := h.client.MessageSend(h.within(), wire.MessageSendRequest{Text: text})
	if err != nil {
		h.t.Fatalf("send %q: %v", text, err)
	}
	return got
}

// answer waits for the end of a turn.
func (h *house) answer(run string) wire.TurnResult {
	h.t.Helper()
	res, err := h.client.TurnWatch(h.within(), wire.TurnWatchRequest{RunID: run}, func(wire.TurnNote) error { return nil })
	if err != nil {
		h.t.Fatalf("watch %s: %v", run, err)
	}
	return res
}

// calls is what became of each call of a turn that was sent and has ended.
func (h *house) calls(text string) (out []wire.RunStep) {
	h.t.Helper()
	sent := h.send(text)
	h.answer(sent.RunID)
	e, err := h.client.Explain(h.within(), wire.ExplainRequest{ID: sent.EventID})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range e.Steps {
		if s.Call != nil {
			out = append(out, s)
		}
	}
	return out
}

// question waits until a turn asks.
func (h *house) question(run string) (q wire.Approval) {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx := h.within(); ; {
		list, err := h.client.ApprovalsList(ctx, wire.ApprovalsListRequest{})
		if err != nil {
			h.t.Fatal(err)
		}
		for _, a := range list.Approvals {
			if a.RunID == run {
				return a
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			h.t.Fatalf("%s does not ask", run)
		}
	}
}

func (h *house) decide(id, decision string) {
	h.t.Helper()
	if _, err := h.client.ApprovalsResolve(h.within(), wire.ApprovalsResolveRequest{ID: id, Decision: decision}); err != nil {
		h.t.Fatal(err)
	}
}

// free is the configuration of an agent that may do without asking what scopes say.
func free(scopes string) string {
	return "roles:\n  free:\n    allow: [" + scopes + "]\nagents:\n  main:\n    role: free\n"
}

func text(s wire.RunStep) string {
	out := string(s.Result)
	if s.Error != nil {
		out += " " + s.Error.Message
	}
	return out
}
