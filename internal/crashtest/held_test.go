package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

const heldConfig = `models:
  main: scripted/%s
tools:
  shell:
    allow: [sh]
confine:
  enforce: %s
roles:
  held:
    allow: [shell.exec]
agents:
  main:
    role: held
`

// heldScript has the agent run a program that leaves children in sessions of their
// own, whose parents have ended and who take no notice of a polite signal, and that
// is itself in the middle of its work when it says so.
const heldScript = `turns:
  - match: hold
    steps:
      - calls:
          - tool: shell.exec
            input:
              timeout_s: 300
              argv: [sh, hold.sh, %s]
      - text: reply to hold
`

const heldProgram = `echo began >> began
child='trap "" TERM HUP INT QUIT; while :; do sleep 1; done'
for i in 1 2 3; do
  setsid sh -c "setsid sh -c '$child' sh $1 & setsid sh -c '$child' sh $1 &" </dev/null >/dev/null 2>&1
done
(sh -c "$child" sh "$1" &)
echo up >> up
trap "" TERM
while :; do sleep 1; done`

// holding is a life whose agent can be told to hold.
func holding(t *testing.T, enforce string) *life {
	t.Helper()
	l := newLife(t, dbtest.KindSQLite)
	l.write(l.in.ConfigFile(), fmt.Sprintf(heldConfig, l.path("script.yaml"), enforce))
	l.write(l.path("script.yaml"), fmt.Sprintf(heldScript, l.dir))
	if err := os.MkdirAll(l.in.Workspace(), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(l.in.Workspace(), "hold.sh"), heldProgram)
	return l
}

// ours lists the processes of this life that are not its daemon: launchers and
// programs, by what they execute and by what they were told.
func (l *life) ours() (out []string) {
	program, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, dir := range all {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 { // gone, or dead and not buried
			continue
		}
		argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		exe, _ := os.Readlink(filepath.Join(dir, "exe")) // of another user: none
		if slices.Contains(argv, l.dir) || exe == program && argv[0] == "ombud-job" && l.descends(filepath.Base(dir)) {
			out = append(out, filepath.Base(dir)+" "+strings.Join(argv, " "))
		}
	}
	return out
}

// descends reports whether a launcher is of this life: other tests have some too. It
// shows by what it has below it, or, once that is gone, by nothing; the programs are
// what counts.
func (l *life) descends(pid string) bool {
	children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return false
	}
	for child := range strings.FieldsSeq(string(children)) {
		if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil && strings.Contains(string(line), l.dir) {
			return true
		}
	}
	return false
}

// count is how many lines a file of the workspace has.
func (l *life) count(name string) int {
	text, err := os.ReadFile(filepath.Join(l.in.Workspace(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// A daemon that is killed in the middle of a call leaves no process, wherever its
// children went. The next one does not run the program again: what became of the call
// is unknown, and the turn goes on knowing that.
func TestAKilledDaemonLeavesNoProcess(t *testing.T) {
	supported(t)
	for _, enforce := range []string{"strict", "off"} {
		t.Run(enforce, func(t *testing.T) {
			l := holding(t, enforce)
			l.start()
			defer func() { l.stop() }()
			var slowest time.Duration
			for n := range heldKills {
				got, err := l.client.MessageSend(t.Context(), wire.MessageSendRequest{Conversation: "c" + strconv.Itoa(n), Text: "hold", Key: "k" + strconv.Itoa(n)})
				if err != nil {
					t.Fatal(err)
				}
				l.approve(said{run: got.RunID})
				l.until("the program is up", func(ctx context.Context) bool {
					if got, err := l.client.RunsGet(ctx, wire.RunsGetRequest{ID: got.RunID}); err == nil && got.Run.State == "completed" {
						t.Fatalf("it did not hold: %s", got.Steps[2].Result)
					}
					return l.count("up") > n && len(l.ours()) >= 8 // the program and its seven
				})
				if err := l.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				l.until("nothing is left", func(context.Context) bool { return len(l.ours()) == 0 })
				took := time.Since(killed)
				slowest = max(slowest, took)
				if took > heldWithin {
					t.Errorf("kill %d: something lived for %v", n, took)
				}
				<-l.exited
				l.start()
				turn := insist(l, "the turn", func(ctx context.Context) (wire.TurnResult, error) {
					return l.client.TurnWatch(ctx, wire.TurnWatchRequest{RunID: got.RunID}, func(wire.TurnNote) error { return nil })
				})
				run, err := l.client.RunsGet(t.Context(), wire.RunsGetRequest{ID: got.RunID})
				if err != nil || turn.Outcome != "completed" || run.Run.Unknown != 1 {
					t.Errorf("kill %d: the turn ended %s with %d unknown steps: %v", n, turn.Outcome, run.Run.Unknown, err)
				}
				if began := l.count("began"); began != n+1 {
					t.Fatalf("after %d calls the program was started %d times", n+1, began)
				}
			}
			t.Logf("%d kills, the slowest end took %v", heldKills, slowest.Round(time.Millisecond))
		})
	}
}
