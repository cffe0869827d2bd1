package daemon

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// The roles this test binary plays as another process.
const (
	dialVar = "DAEMON_TEST_DIAL" // the socket to dial
	forkVar = "DAEMON_TEST_FORK" // dial from a child in a session of its own, and die
)

// TestPeerRole is not a test of its own: it is the other process.
func TestPeerRole(t *testing.T) {
	socket := os.Getenv(dialVar)
	if socket == "" {
		t.Skip("plays the other process of TestOperatorSocketRefusesJobs")
	}
	if os.Getenv(forkVar) != "" {
		cmd := roleCommand(socket, false)
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	answer := "served\n"
	if _, err := wire.NewClient(socket).SystemPing(context.Background()); err != nil {
		answer = "refused: " + err.Error() + "\n"
	}
	_, _ = os.Stdout.WriteString("\n" + answer)
	os.Exit(0)
}

func roleCommand(socket string, fork bool) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPeerRole$")
	cmd.Env = []string{dialVar + "=" + socket}
	if fork {
		cmd.Env = append(cmd.Env, forkVar+"=1")
	}
	return cmd
}

func TestOperatorSocketRefusesJobs(t *testing.T) {
	stop, err := confine.Adopt(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	socket := filepath.Join(t.TempDir(), "run", "s")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	mux := ipc.NewMux()
	ipc.Handle(mux, wire.SystemPing, func(context.Context, wire.Empty) (wire.Pong, error) { return wire.Pong{At: 1}, nil })
	server := ipc.New(ipc.Config{Socket: socket, HoldsLock: true, UID: os.Getuid(), Admit: admitOperator, Hide: func(b []byte) []byte { return b }}, mux, slog.New(slog.DiscardHandler))
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := wire.NewClient(socket).SystemPing(t.Context()); err != nil {
		t.Errorf("the operator is refused: %v", err)
	}
	jobs := map[string]*exec.Cmd{
		"a child": roleCommand(socket, false), "a child of a dead child, in its own session": roleCommand(socket, true),
	}
	// Confined, it has another number in there; the kernel tells us ours.
	confined := roleCommand(socket, false)
	confined.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := exec.Command("unshare", "--user", "--pid", "--fork", "true").Run(); err == nil {
		jobs["a child in namespaces of its own"] = confined
	} else {
		t.Logf("this machine makes no user namespaces: %v", err)
	}
	for name, cmd := range jobs {
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := confine.Start(cmd); err != nil {
			t.Fatal(err)
		}
		var answer string
		for lines := bufio.NewScanner(out); lines.Scan() && answer == ""; {
			if line := lines.Text(); strings.HasPrefix(line, "served") || strings.HasPrefix(line, "refused") {
				answer = line
			}
		}
		if err := confine.Wait(cmd); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(answer, "may not speak as its operator") {
			t.Errorf("%s is answered %q", name, answer)
		}
	}
}
