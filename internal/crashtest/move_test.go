package crashtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestAMoveThatIsKilledGoesOn kills ombud store migrate at each of its commits and at
// its end. No daemon starts on what is half there; the next attempt finishes it, and a
// daemon has all of it then.
func TestAMoveThatIsKilledGoesOn(t *testing.T) {
	supported(t)
	t.Parallel()
	l := newLife(t, dbtest.KindSQLite)
	l.start()
	story := []said{l.say("a", "one"), l.say("b", "two")}
	for _, s := range story {
		l.turn(s)
	}
	l.stop()
	before, err := os.ReadFile(l.in.StateDB())
	if err != nil {
		t.Fatal(err)
	}
	move := func(dsn, kill, log string) bool {
		l.dsn = "sqlite"
		killed, _ := l.command(l.home(), kill, log, "store", "migrate", "--to", dsn)
		return killed
	}
	move(dbtest.PostgresDSN(t), "", l.path("passes"))
	seen := map[string]int{}
	for _, point := range l.lines("passes") {
		seen[point]++
	}
	t.Logf("a move passes %v", seen)
	if seen["move.copied"] < 20 || seen["move.finished"] != 1 {
		t.Fatal("the points of a move are not there")
	}
	for i, kill := range []string{
		"move.commit.before:1", "move.copied:1", fmt.Sprintf("move.commit.before:%d", seen["move.copied"]/2),
		fmt.Sprintf("move.copied:%d", seen["move.copied"]), fmt.Sprintf("move.commit.before:%d", seen["move.copied"]+1), "move.finished:1",
	} {
		if stride > 1 && i%2 == 0 {
			continue // make campaign tries all
		}
		dsn := dbtest.PostgresDSN(t)
		l.name = "move killed at " + kill
		if !move(dsn, kill, l.path("none")) {
			t.Errorf("%s: it was not killed", kill)
			continue
		}
		if kill != "move.finished:1" {
			if out := l.refused(dsn, "up"); !strings.Contains(out, "a store is being moved to this database") {
				t.Errorf("%s: a daemon started: %s", kill, out)
			}
			move(dsn, "", l.path("none"))
		}
		l.dsn = dsn
		l.start()
		runs, err := l.client.RunsList(t.Context(), wire.RunsListRequest{})
		if err != nil || len(runs.Runs) != len(story) {
			t.Errorf("%s: %d runs, %v", kill, len(runs.Runs), err)
		}
		if v, err := l.client.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 {
			t.Errorf("%s: %v %v", kill, v, err)
		}
		if _, err := l.client.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
			t.Errorf("%s: %v", kill, err)
		}
		l.stop()
	}
	after, err := os.ReadFile(l.in.StateDB())
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the source has changed: %v", err)
	}
}

// refused runs a command that fails on a store, and returns what it says.
func (l *life) refused(dsn string, args ...string) string {
	l.t.Helper()
	path, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "OMBUD_HOME=" + l.home(), "OMBUD_STORE=" + dsn}
	out, err := cmd.CombinedOutput()
	if err == nil {
		l.t.Errorf("%s: %v was not refused", l.name, args)
	}
	return string(out)
}
