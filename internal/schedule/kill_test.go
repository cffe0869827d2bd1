package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// life says how one life of a victim goes.
type life struct {
	DSN   string
	Start int64  // what its clock shows first, Unix µs
	Looks int    // after so many it ends by itself
	Where string // "fire" (before the commit) or "commit" (right after it)
	Nth   int64  // of which it dies; 0 for none

}

// victim lives one life. Its time passes by itself, as fast as it looks.
func victim(spec string) int {
	var l life
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		return 3
	}
	if err := l.live(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return 0
}

func (l life) live() error {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Options{DSN: l.DSN})
	if err != nil {
		return err
	}
	v, err := vault.New([]byte(victimKey))
	if err != nil {
		return err
	}
	events := eventlog.NewLog(d, v, nil, eventlog.Options{})
	kinds := run.NewKinds()
	if err := kinds.Add(run.Kind{Name: workKind, Handle: func(context.Context, *run.Run) ([]byte, error) { return nil, nil }}); err != nil {
		return err
	}
	runs := run.New(d, v, events, kinds, run.Options{})
	var passes atomic.Int64
	die := func(where string) {
		if where == l.Where && passes.Add(1) == l.Nth {
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {} // it comes at once
		}
	}
	c := newClock(time.UnixMicro(l.Start))
	s := New(d, v, events, runs, func(ctx context.Context, tx *db.Tx, f Firing) (string, error) {
		id, err := runs.StartTx(ctx, tx, run.Spec{Kind: workKind, Cause: f.Event, Actor: "test"})
		die("fire")
		tx.AfterCommit(func() { die("commit") })
		return id, err
	}, Options{Clock: c})
	if err := s.review(ctx); err != nil {
		return err
	}
	last := c.Read()
	for range l.Looks {
		if _, err := s.lookOnce(ctx, &last); err != nil {
			return err
		}
		c.pass(10*time.Second, 10*time.Second)
	}
	return d.Close()
}

const victimKey = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"

// TestAKillBetweenFireAndCommitLosesNothingAndRepeatsNothing kills a process at every
// firing, before its commit and after it, starts the next one a little later, and counts.
func TestAKillBetweenFireAndCommitLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.DSN(t, kind)
			const begin = "2026-03-04T12:00:30Z"
			func() {
				h := newHouse(t, open(t, dsn), begin)
				defer h.close()
				for i := range 3 {
					h.add(fmt.Sprint("s", i), "* * * * *", "UTC", queue, policy(All, 0))
				}
			}()
			at := newHouseTime(t, begin)
			kills := 0
			for n := int64(1); n <= 4; n++ {
				for _, where := range []string{"fire", "commit"} {
					spec, err := json.Marshal(life{DSN: dsn, Start: at.UnixMicro(), Looks: 20, Where: where, Nth: n})
					if err != nil {
						t.Fatal(err)
					}
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
					cmd.Stderr = os.Stderr
					err = cmd.Run()
					if code := cmd.ProcessState.ExitCode(); code == 0 || code == 3 || code == 4 {
						t.Fatalf("%s %d ended by itself: %v", where, n, err)
					}
					kills++
					at = at.Add(150 * time.Second) // longer than it lived
				}
			}
			h := newHouse(t, open(t, dsn), at.Format(time.RFC3339))
			defer h.close()
			h.review()
			h.look()
			started := h.started()
			for i := range 3 {
				x := h.get(fmt.Sprint("s", i))
				seen := map[int64]bool{}
				for _, j := range h.payloads(x) {
					if seen[j.AtUS] {
						t.Errorf("%s: %s came twice", x.Name, j.At)
					}
					seen[j.AtUS] = true
					event := fmt.Sprintf("schedule:%s:%s:%d", x.ID, x.rule, j.AtUS)
					if started[event] != 1 {
						t.Errorf("%s: %s started %d runs", x.Name, j.At, started[event])
					}
					delete(started, event)
				}
				for m := newHouseTime(t, begin).Truncate(time.Minute).Add(time.Minute); !m.After(at); m = m.Add(time.Minute) {
					if !seen[m.UnixMicro()] {
						t.Errorf("%s: %s came to nothing", x.Name, m)
					}
				}
			}
			if len(started) != 0 {
				t.Errorf("runs without a firing: %v", started)
			}
			t.Logf("%d kills", kills)
		})
	}
}

func newHouseTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func open(t *testing.T, dsn string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DSN: dsn, BackupDir: filepath.Join(t.TempDir(), "backup")})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (h *house) close() {
	if err := h.db.Close(); err != nil {
		h.t.Error(err)
	}
}
