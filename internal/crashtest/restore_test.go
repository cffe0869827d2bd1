package crashtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// command runs the program with its fail points in the life's home, or in another, and
// reports whether it died at kill.
func (l *life) command(home, kill, log string, args ...string) (killed bool, output string) {
	l.t.Helper()
	path, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "OMBUD_HOME=" + home, "OMBUD_LISTEN_ADDRESS=off", "FAILPOINT_LOG=" + log, "FAILPOINT_KILL=" + kill}
	if l.dsn != "sqlite" {
		cmd.Env = append(cmd.Env, "OMBUD_STORE="+l.dsn)
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false, string(out)
	}
	l.cmd = cmd
	if !l.killed() {
		l.t.Fatalf("%s: %v: %v\n%s", l.name, args, err, out)
	}
	return true, string(out)
}

// TestARestoreThatIsKilledIsNothingOrAll kills ombud restore at each of its commits and
// moves, in an instance that has another life, and starts a daemon there: it has the
// life it had, or the one of the backup, held.
func TestARestoreThatIsKilledIsNothingOrAll(t *testing.T) {
	supported(t)
	t.Parallel()
	l := newLife(t, dbtest.KindSQLite)
	l.start()
	l.turn(l.say("a", "one"))
	l.turn(l.say("b", "two"))
	l.stop()
	file := l.path("b.ombud-backup")
	l.command(l.home(), "", l.path("none"), "backup", file, "--include-key")

	// other is a home with a life of its own.
	other := func(t *testing.T, kills ...string) *life {
		o := newLife(t, dbtest.KindSQLite, kills...)
		o.start()
		o.turn(o.say("a", "five"))
		o.stop()
		return o
	}
	o := other(t)
	o.command(o.home(), "", o.path("passes"), "restore", file, "--replace")
	var passes []pass
	seen := map[string]int{}
	for i, point := range o.lines("passes") {
		seen[point]++
		passes = append(passes, pass{point, seen[point], i})
	}
	decided := -1
	for i, p := range passes {
		if p.point == "restore.decide.after" {
			decided = i
		}
	}
	t.Logf("a restore passes %v", seen)
	if decided < 0 || seen["restore.install"] < 2 || seen["restore.aside"] < 3 {
		t.Fatalf("the points of a restore are not there: %v", seen)
	}
	for i, p := range passes {
		t.Run(p.kill(), func(t *testing.T) {
			t.Parallel()
			o := other(t)
			o.name = "restore killed at " + p.kill()
			if killed, out := o.command(o.home(), p.kill(), o.path("none"), "restore", file, "--replace"); !killed {
				t.Fatalf("it was not killed: %s", out)
			}
			o.deaths = 0
			o.start()
			defer o.stop()
			s, err := o.client.SystemStatus(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			runs, err := o.client.RunsList(t.Context(), wire.RunsListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if all := i >= decided; all != (s.Held != nil) || all != (len(runs.Runs) == 2) {
				t.Errorf("%s: held %v, %d runs", o.name, s.Held, len(runs.Runs))
			}
			if v, err := o.client.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 {
				t.Errorf("%s: %v %v", o.name, v, err)
			}
			if _, err := o.client.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
				t.Errorf("%s: %v", o.name, err)
			}
			for _, left := range []string{o.in.StagingDir(), o.in.ReadyDir()} {
				if _, err := os.Lstat(left); !os.IsNotExist(err) {
					t.Errorf("%s: %s is left", o.name, left)
				}
			}
			aside, err := filepath.Glob(o.in.ReplacedDir("*"))
			if err != nil || (i >= decided) != (len(aside) == 1) {
				t.Errorf("%s: moved aside: %q, %v", o.name, aside, err)
			}
		})
	}
}

// On PostgreSQL the commit of all rows decides, and the files of the instance follow it.
func TestARestoreIntoPostgresThatIsKilledIsNothingOrAll(t *testing.T) {
	supported(t)
	t.Parallel()
	l := newLife(t, dbtest.KindSQLite)
	l.start()
	l.turn(l.say("a", "one"))
	l.stop()
	file := l.path("b.ombud-backup")
	l.command(l.home(), "", l.path("none"), "backup", file, "--include-key")
	for point, all := range map[string]bool{
		"restore.decide.before:1": false, "restore.decide.after:1": false, "restore.committed:1": true, "restore.moved:1": true, "restore.install:1": true, "restore.installed:1": true,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			o := newLife(t, dbtest.KindPostgres)
			o.name = "restore killed at " + point
			if killed, out := o.command(o.home(), point, o.path("none"), "restore", file); !killed {
				t.Fatalf("it was not killed: %s", out)
			}
			if !all { // it can be done again
				o.command(o.home(), "", o.path("none"), "restore", file)
			}
			o.start()
			defer o.stop()
			s, err := o.client.SystemStatus(t.Context())
			if err != nil || s.Held == nil || s.Store != "postgres" {
				t.Errorf("%+v, %v", s, err)
			}
			if v, err := o.client.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 || v.Runs != 1 {
				t.Errorf("%v %v", v, err)
			}
			if _, err := o.client.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(o.in.ReadyDir()); !os.IsNotExist(err) {
				t.Errorf("%s is left", o.in.ReadyDir())
			}
		})
	}
}

// TestADaemonKilledWhileItBacksUp dies at each point of writing a backup: the file is
// not there before the rename and whole after it, and the daemon goes on.
func TestADaemonKilledWhileItBacksUp(t *testing.T) {
	supported(t)
	t.Parallel()
	for _, point := range []string{"backup.written:1", "backup.rename.before:1", "backup.rename.after:1"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := newLife(t, dbtest.KindSQLite, point)
			l.start()
			one := l.say("a", "one")
			file := l.path("b.ombud-backup")
			_, err := l.client.BackupCreate(t.Context(), wire.BackupCreateRequest{Path: file}, func(wire.BackupProgress) error { return nil })
			if err == nil {
				t.Fatal("it did not die")
			}
			l.turn(one)
			l.stop()
			_, err = os.Lstat(file)
			if there := err == nil; there != strings.HasPrefix(point, "backup.rename.after") {
				t.Errorf("the file: %v", err)
			} else if there {
				_, out := l.command(l.home(), "", l.path("none"), "backup", "verify", file)
				if !strings.Contains(out, "store.content") {
					t.Errorf("%s", out)
				}
			}
			if left, err := filepath.Glob(l.path(".*.partial")); err != nil || len(left) > 1 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}
