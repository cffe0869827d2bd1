package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
)

// life says how one life of a victim goes.
type life struct {
	DSN   string
	From  int    // the number of the first hook it takes; what was acknowledged is not sent again
	Where string // "start" (before the commit that starts a run) or "commit" (right after it)
	Nth   int64  // of which it dies
}

// killing is an engine that kills its process as it starts runs.
type killing struct {
	*run.Engine
	l      life
	passes atomic.Int64
}

func (k *killing) StartTx(ctx context.Context, tx *db.Tx, s run.Spec) (string, error) {
	id, err := k.Engine.StartTx(ctx, tx, s)
	k.die("start")
	tx.AfterCommit(func() { k.die("commit") })
	return id, err
}

func (k *killing) die(where string) {
	if where == k.l.Where && k.passes.Add(1) == k.l.Nth {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // it comes at once
	}
}

const hooksOfALife = 3

// victim takes hooks and hears events until it is killed. It prints each hook that it
// acknowledged, and each event that was appended.
func victim(spec string) int {
	var l life
	err := json.Unmarshal([]byte(spec), &l)
	if err == nil {
		err = l.live()
	}
	if err != nil {
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
	h, err := assemble(d, func(e *run.Engine) Runs { return &killing{Engine: e, l: l} })
	if err != nil {
		return err
	}
	if err := h.log.Start(ctx, h.Subscription()); err != nil {
		return err
	}
	for n := l.From; n < l.From+hooksOfALife; n++ {
		_, err := h.log.Append(ctx, eventlog.New{ID: fmt.Sprint("job:", n), Stream: "job", Kind: "job.came", Actor: "test", Data: map[string]int{"n": n}, Expect: eventlog.Any})
		if err != nil {
			return err
		}
		fmt.Println("event", n)
		r := httptest.NewRequest(http.MethodPost, "/hooks/x", strings.NewReader(fmt.Sprint(n)))
		r.Header.Set("X-Id", fmt.Sprint(n))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != http.StatusOK {
			return fmt.Errorf("hook %d is answered %d %s", n, rec.Code, rec.Body)
		}
		fmt.Println("hook", n)
	}
	h.log.Stop()
	return d.Close()
}

// TestAKillAtAnyStartLosesNothingAcknowledgedAndRepeatsNothing kills a process before and
// after the commit of every start, and sends again what was not acknowledged.
func TestAKillAtAnyStartLosesNothingAcknowledgedAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.DSN(t, kind)
			d, err := db.Open(t.Context(), db.Options{DSN: dsn})
			if err != nil {
				t.Fatal(err)
			}
			h := newHouse(t, d)
			h.replace(on("x", events("job.came"), hook(Webhook{Path: "x", Scheme: Open, IDHeader: "X-Id"})))
			if err := h.log.Start(t.Context(), h.Subscription()); err != nil {
				t.Fatal(err)
			}
			h.log.Stop()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			next, acked, appended := 0, map[string]bool{}, map[string]bool{}
			for nth := int64(1); nth <= 5; nth++ {
				for _, where := range []string{"start", "commit"} {
					spec, err := json.Marshal(life{DSN: dsn, From: next, Where: where, Nth: nth})
					if err != nil {
						t.Fatal(err)
					}
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
					cmd.Stderr = os.Stderr
					said, err := cmd.Output()
					if code := cmd.ProcessState.ExitCode(); code == 4 {
						t.Fatalf("%s %d ended by itself: %v", where, nth, err)
					}
					for line := range strings.FieldsFuncSeq(string(said), func(c rune) bool { return c == '\n' }) {
						what, n, _ := strings.Cut(line, " ")
						if what == "hook" {
							acked[n] = true
							next++
						} else {
							appended[n] = true
						}
					}
				}
			}
			h = newHouse(t, dbtest.Open(t, db.Options{DSN: dsn})).live()
			h.settled()
			count := map[string]int{}
			for _, tr := range h.works() {
				n := tr.value("n")
				if tr.Kind == ByWebhook {
					n = tr.value("body")
				}
				count[tr.Kind+" "+n]++
			}
			for n := range acked {
				if count["webhook "+n] != 1 {
					t.Errorf("hook %s was acknowledged and started %d runs", n, count["webhook "+n])
				}
			}
			for n := range appended {
				if count["event "+n] != 1 {
					t.Errorf("event %s started %d runs", n, count["event "+n])
				}
			}
			for what, n := range count {
				if n != 1 {
					t.Errorf("%s started %d runs", what, n)
				}
			}
			if len(acked) < 8 {
				t.Errorf("only %d hooks were taken", len(acked))
			}
		})
	}
}
