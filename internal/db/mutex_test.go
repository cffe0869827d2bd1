//go:build unix

package db_test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// taken and written are the operations on the seat as a lock with fences.
type (
	taken   struct{ fence int64 }
	written struct{ fence, seq int64 }
)

// lockModel is a lock whose fences grow, and a register that only its holder counts up.
var lockModel = porcupine.Model{
	Init: func() any { return written{} },
	Step: func(state, input, _ any) (bool, any) {
		s := state.(written)
		switch in := input.(type) {
		case taken:
			return in.fence > s.fence, written{in.fence, s.seq}
		case written:
			if in.seq == 0 { // refused: another has it, or nobody
				return in.fence != s.fence, s
			}
			return in.fence == s.fence && in.seq == s.seq+1, written{s.fence, in.seq}
		}
		return false, s
	},
}

// Three processes want the seat. They are paused and killed at random while they write.
// What they did is one history of a lock with fences: a write of who has it not any
// more is refused, and none is lost or there twice.
func TestASeatIsALockWithFences(t *testing.T) {
	t.Parallel()
	dsn := dbtest.DSN(t, dbtest.KindPostgres)
	var mu sync.Mutex
	var lines []string
	var all sync.WaitGroup
	start := func(name string) *exec.Cmd {
		cmd := child(t, "contend", dsn, "")
		cmd.Env = append(cmd.Env, childName+"="+name)
		cmd.Stdin = nil
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for s := bufio.NewScanner(out); s.Scan(); {
				mu.Lock()
				lines = append(lines, s.Text())
				mu.Unlock()
			}
			_ = cmd.Wait() // it was killed
		})
		return cmd
	}
	tried := func() (takes, refused int) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			if strings.HasPrefix(l, "take ") {
				takes++
			}
			if strings.HasPrefix(l, "wrote ") && strings.HasSuffix(l, " 0") {
				refused++
			}
		}
		return takes, refused
	}
	procs := map[int]*exec.Cmd{}
	for i := range 3 {
		procs[i] = start(fmt.Sprint("n", i))
	}
	for n, limit := 0, time.Now().Add(time.Minute); time.Now().Before(limit); n++ {
		if takes, refused := tried(); takes >= 5 && refused >= 1 {
			break
		}
		<-time.After(time.Duration(200+rand.IntN(600)) * time.Millisecond)
		i := rand.IntN(3)
		p := procs[i].Process
		if n%4 == 3 {
			_ = p.Kill()
			procs[i] = start(fmt.Sprint("n", i, "-", n))
			continue
		}
		_ = p.Signal(syscall.SIGSTOP)
		<-time.After(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
		_ = p.Signal(syscall.SIGCONT)
	}
	for _, p := range procs {
		_ = p.Process.Kill()
	}
	all.Wait()

	stored := map[string]int64{}
	d := dbtest.Open(t, db.Options{DSN: dsn})
	if err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		_, err := db.All(ctx, q, func(r *db.Rows) (struct{}, error) {
			var key string
			var seq int64
			err := r.Scan(&key, &seq)
			stored[key] = seq
			return struct{}{}, err
		}, "SELECT key, CAST(value AS BIGINT) FROM meta WHERE key LIKE 'n%/%'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	history := historyOf(t, lines, stored)
	if got := porcupine.CheckOperationsTimeout(lockModel, history, time.Minute); got != porcupine.Ok {
		t.Errorf("the history of %d operations is %s", len(history), got)
	}
	takes, refused := tried()
	if refused == 0 || takes < 4 {
		t.Errorf("%d writes were refused, the seat was taken %d times: nothing was tried", refused, takes)
	}
	t.Logf("%d operations, seat taken %d times, %d writes refused", len(history), takes, refused)
}

// historyOf makes a history of what the children said. Of a write whose end was not
// said the store tells whether it came to be.
func historyOf(t *testing.T, lines []string, stored map[string]int64) (out []porcupine.Operation) {
	t.Helper()
	type begun struct{ at, fence int64 }
	open := map[string]begun{}
	for _, l := range lines {
		var a, b, c int64
		var key string
		switch {
		case scan(l, "take %d %d %d", &a, &b, &c):
			out = append(out, porcupine.Operation{Input: taken{c}, Call: a, Return: b})
		case scan(l, "write %d %s %d", &a, &key, &b):
			open[key] = begun{a, b}
		case scan(l, "wrote %d %s %d", &a, &key, &b):
			w := open[key]
			delete(open, key)
			if b != stored[key] {
				t.Errorf("%s: told %d, stored %d", key, b, stored[key])
			}
			out = append(out, porcupine.Operation{Input: written{w.fence, b}, Call: w.at, Return: a})
		}
	}
	for key, w := range open {
		if seq := stored[key]; seq != 0 {
			out = append(out, porcupine.Operation{Input: written{w.fence, seq}, Call: w.at, Return: math.MaxInt64})
		}
	}
	return out
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}
