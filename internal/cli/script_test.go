//go:build unix

package cli

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ombud": func() {
			r := fakeRoof()
			if os.Getenv("OMBUD_TEST_ROOF") == "real" {
				r = roof()
			}
			os.Exit(r.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

func fakeRoof() Roof {
	return Roof{
		Up: runFake,
		VerifyAudit: func(context.Context, Place, wire.AuditVerifyRequest) (wire.AuditVerifyResult, error) {
			return wire.AuditVerifyResult{Entries: 1, Chains: 1}, nil
		},
		VerifyAuditFile: func(_ context.Context, _ io.Reader, key, _ string) (wire.AuditVerifyResult, error) {
			if _, err := vault.ParsePublicKey(key); err != nil {
				return wire.AuditVerifyResult{}, err
			}
			return wire.AuditVerifyResult{}, fault.New(fault.Verification, "entry 1 does not hold")
		},
	}
}

var update = flag.Bool("update", false, "write what commands print into the scripts that compare it")

// TestScripts plays testdata/script with the real command line, as processes of
// their own, over the fake daemon, which they start themselves. Beside the usual
// commands there are:
//
//	code N CMD…      the command has to end with this exit code
//	killdaemon       kill -9
//	interrupt        SIGINT for the background commands, once a turn hangs
//	lives N          so many daemons there were
func TestScripts(t *testing.T) {
	t.Parallel()
	play(t, "script", false, map[string]func(*testscript.TestScript, bool, []string){
		"killdaemon": killCmd,
		"interrupt":  interruptCmd,
		"lives":      livesCmd,
	})
}

// play runs the scripts of a directory of testdata, each with a home of its own and
// more commands than code. What they start is the fake daemon, or with real the real
// one and a model that needs no network.
func play(t *testing.T, dir string, real bool, cmds map[string]func(*testscript.TestScript, bool, []string)) {
	t.Helper()
	cmds["code"] = codeCmd
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", dir),
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("OMBUD_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("TZ", "UTC")
			env.Setenv("NO_COLOR", "")
			env.Setenv("OMBUD_LISTEN_ADDRESS", "off")
			if real {
				env.Setenv("OMBUD_TEST_ROOF", "real")
				env.Setenv("OMBUD_MODELS_MAIN", "builtin")
			}
			in, err := instanceOf(env.Getenv)
			if err != nil {
				return err
			}
			env.Defer(func() { endDaemon(in) })
			return nil
		},
		Cmds: cmds,
	})
}

func instanceOf(getenv func(string) string) (instance.Instance, error) {
	return instance.New("", getenv, "/nowhere")
}

// endDaemon ends what a script left, so that its directory can be removed.
func endDaemon(in instance.Instance) {
	pid, held, err := lockHolder(in.LockFile())
	if err != nil || !held {
		return
	}
	if n, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended just now
		for alive(n) {
			<-time.After(time.Millisecond)
		}
	}
}

func place(ts *testscript.TestScript) instance.Instance {
	in, err := instanceOf(ts.Getenv)
	ts.Check(err)
	return in
}

func codeCmd(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exit, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func killCmd(ts *testscript.TestScript, _ bool, _ []string) {
	in := place(ts)
	s, err := wire.NewClient(in.Socket()).SystemStatus(context.Background())
	ts.Check(err)
	ts.Check(syscall.Kill(s.PID, syscall.SIGKILL))
	for alive(s.PID) {
		<-time.After(time.Millisecond)
	}
}

func interruptCmd(ts *testscript.TestScript, _ bool, _ []string) {
	state := filepath.Join(place(ts).StateDir, "fake.json")
	for deadline := time.Now().Add(20 * time.Second); ; {
		raw, err := os.ReadFile(state)
		if err == nil && strings.Contains(string(raw), `"Watched":1`) {
			break
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no turn hangs")
		}
		<-time.After(5 * time.Millisecond)
	}
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(os.Interrupt))
	}
}

func livesCmd(ts *testscript.TestScript, _ bool, args []string) {
	raw, err := os.ReadFile(filepath.Join(place(ts).StateDir, "fake.json"))
	ts.Check(err)
	if !strings.Contains(string(raw), `"Lives":`+args[0]+`,`) {
		ts.Fatalf("want %s lives: %s", args[0], raw)
	}
}
