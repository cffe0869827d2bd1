package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestShellChildRole is not a test of its own: it is a program that the daemon runs
// for an agent and that tries to approve a call by itself. Its arguments are how,
// the socket and the approval, and where to write what it was answered; the paths
// are in hex, as a program that hides them would have them.
func TestShellChildRole(t *testing.T) {
	args := flag.Args()
	if len(args) < 3 {
		t.Skip("plays a program of TestAProgramOfAnAgentCannotApprove")
	}
	socket, err := hex.DecodeString(args[1])
	if err != nil {
		t.Fatal(err)
	}
	switch args[0] {
	case "fork": // waits for what a grandchild says, whose parent has died
		middle := exec.Command("/proc/self/exe", append([]string{"-test.run=^TestShellChildRole$", "middle"}, args[1:]...)...)
		if err := middle.Run(); err != nil {
			t.Fatal(err)
		}
		out, err := hex.DecodeString(args[3])
		if err != nil {
			t.Fatal(err)
		}
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if said, err := os.ReadFile(string(out)); err == nil {
				_, _ = os.Stdout.WriteString("\nforked\n" + string(said))
				os.Exit(0)
			}
		}
	case "middle":
		cmd := exec.Command("/proc/self/exe", append([]string{"-test.run=^TestShellChildRole$", "orphan"}, append(args[1:], strconv.Itoa(os.Getpid()))...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "orphan":
		for tick := time.NewTicker(time.Millisecond); strconv.Itoa(os.Getppid()) == args[4]; <-tick.C {
		}
	}
	client := wire.NewClient(string(socket))
	answer := "\n"
	_, err = client.ApprovalsResolve(context.Background(), wire.ApprovalsResolveRequest{ID: args[2], Decision: wire.Approve})
	answer += "approve: " + oneLine(err) + "\n"
	_, err = client.PairStart(context.Background(), wire.PairStartRequest{})
	answer += "pair: " + oneLine(err) + "\n"
	_, err = client.AdapterAdd(context.Background(), wire.AdapterAddRequest{Name: "mine"})
	answer += "adapter: " + oneLine(err) + "\n"
	if args[0] != "orphan" {
		_, _ = os.Stdout.WriteString(answer)
		os.Exit(0)
	}
	out, err := hex.DecodeString(args[3])
	if err == nil {
		err = os.WriteFile(string(out)+".part", []byte(answer), 0o600)
	}
	if err == nil {
		err = os.Rename(string(out)+".part", string(out))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func oneLine(err error) string {
	if err == nil {
		return "done"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// copyOfSelf puts this test program where a configuration can name it.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ombud")
	if err := os.WriteFile(path, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A program that an agent runs, with leave, has the operator's uid. It, its child
// and its child whose parent died are refused at the operator's socket, also where
// there are no walls that keep them from it.
func TestAProgramOfAnAgentCannotApprove(t *testing.T) {
	program := copyOfSelf(t)
	o := options(t, "tools:\n  shell:\n    allow: [\""+program+"\"]\nconfine:\n  enforce: off\n")
	c, _ := up(t, o)
	target := pending(t, c, "a", "run "+program+" -test.run=^TestNothing$ hello")
	out := filepath.Join(t.TempDir(), "answer")
	socket := hex.EncodeToString([]byte(o.Instance.Socket()))
	runs := func(conversation, how string) string {
		t.Helper()
		text := strings.Join([]string{"run", program, "-test.run=^TestShellChildRole$", how, socket, target, hex.EncodeToString([]byte(out))}, " ")
		id := pending(t, c, conversation, text)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		res, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: id, Decision: wire.Approve})
		if err != nil {
			t.Fatal(err)
		}
		turn, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: res.RunID}, func(wire.TurnNote) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return turn.Reply
	}
	check := func(what, said string) {
		t.Helper()
		if n := strings.Count(said, "may not speak as its operator"); n != 3 {
			t.Errorf("%s was answered %q", what, said)
		}
	}
	check("a child", runs("b", "approve"))
	if said := runs("c", "fork"); strings.Contains(said, "forked") {
		check("a child whose parent died", said)
	} else {
		t.Errorf("it did not fork: %q", said)
	}
	open, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
	if err != nil || len(open.Approvals) != 1 || open.Approvals[0].ID != target {
		t.Errorf("the inbox has %+v: %v", open.Approvals, err)
	}
	if list, err := c.AdapterList(t.Context()); err != nil || len(list.Adapters) != 0 {
		t.Errorf("there are adapters %+v: %v", list, err)
	}
}

// errFound ends a watch that has seen what it was for.
var errFound = errors.New("found")

// pending says something that needs leave and returns the question.
func pending(t *testing.T, c *wire.Client, conversation, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := c.MessageSend(ctx, wire.MessageSendRequest{Conversation: conversation, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	_, err = c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: got.RunID}, func(n wire.TurnNote) error {
		if a, is := n.(wire.TurnApproval); is {
			found = a.ID
			return errFound
		}
		return nil
	})
	if found == "" {
		t.Fatalf("%q asks nothing: %v", text, err)
	}
	return found
}

// TestDaemonRole is not a test of its own: it is a daemon that can be killed.
func TestDaemonRole(t *testing.T) {
	home := os.Getenv(homeVar)
	if home == "" {
		t.Skip("plays the daemon of TestAMessageInFlightWhenTheDaemonIsKilledIsSentOnce")
	}
	in, loaded := instanceIn(t, home)
	err := Run(context.Background(), Options{
		Instance: in, Config: loaded, Environment: config.ReadEnvironment(func(string) string { return "" }),
		Logger: slog.New(slog.DiscardHandler), Version: "test", Ready: func() { _, _ = os.Stdout.WriteString("\nready\n") },
	})
	if err != nil {
		t.Fatal(err)
	}
	os.Exit(0)
}

const homeVar = "DAEMON_TEST_HOME"

func instanceIn(t *testing.T, home string) (instance.Instance, *config.Loaded) {
	t.Helper()
	in, err := instance.New("", func(name string) string { return map[string]string{"OMBUD_HOME": home}[name] }, home)
	if err == nil {
		err = in.MakeDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in.ConfigFile(), []byte("models:\n  main: builtin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Input{File: in.ConfigFile(), Flags: unheard("")})
	if err != nil {
		t.Fatal(err)
	}
	return in, loaded
}

// process starts a daemon as a process of its own and returns when it is ready.
func process(t *testing.T, home string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestDaemonRole$")
	cmd.Env = []string{homeVar + "=" + home}
	ready := make(chan struct{})
	cmd.Stdout = &waiter{word: "ready", found: ready}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the daemon does not become ready")
	}
	return cmd
}

// kill ends a daemon as kill -9 does. Once more does nothing.
func kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// waiter closes found when a word was written.
type waiter struct {
	word  string
	seen  string
	found chan struct{}
}

func (w *waiter) Write(p []byte) (int, error) {
	if before := strings.Contains(w.seen, w.word); !before {
		w.seen += string(p)
		if strings.Contains(w.seen, w.word) {
			close(w.found)
		}
	}
	return len(p), nil
}

// The daemon is killed after an adapter took a message and before it settled it:
// the next daemon asks, marked so, under the same key, and the adapter, which
// knows the key, sends nothing twice. The message that came in is not lost either.
func TestAMessageInFlightWhenTheDaemonIsKilledIsSentOnce(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	in, loaded := instanceIn(t, home)
	o := Options{Instance: in, Config: loaded}
	first := process(t, home)
	a := addAdapter(t, o, wire.NewClient(in.Socket()))
	answerAll(t, wire.NewClient(in.Socket()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	a.says("7", "bob", "help", "m1")
	got, err := a.client.AdapterNext(ctx, wire.AdapterNextRequest{Credential: a.credential, WaitS: 30})
	if err != nil || len(got.Messages) != 1 || got.Messages[0].Again {
		t.Fatalf("it is handed %+v: %v", got, err)
	}
	key := got.Messages[0].Key
	a.keys[key], a.sent = true, got.Messages // it was sent, and then:
	kill(first)
	process(t, home)
	again, err := a.client.AdapterNext(ctx, wire.AdapterNextRequest{Credential: a.credential, WaitS: 30})
	if err != nil || len(again.Messages) != 1 || !again.Messages[0].Again || again.Messages[0].Key != key {
		t.Fatalf("after the kill it is handed %+v: %v", again, err)
	}
	if _, err := a.client.AdapterAck(ctx, wire.AdapterAckRequest{Credential: a.credential, Key: key, Result: "sent", Ref: "net:1"}); err != nil {
		t.Fatal(err)
	}
	if once := a.says("7", "bob", "help", "m1"); !once.Duplicate {
		t.Error("the message from before the kill is not known")
	}
	a.run()
	a.says("7", "bob", "help", "m2")
	a.hears("bob", 2)
	if sent, _ := a.in("bob"); len(sent) != 2 {
		t.Errorf("bob heard %d messages", len(sent))
	}
}
