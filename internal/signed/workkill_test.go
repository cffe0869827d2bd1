package signed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/run"
)

// asWorker makes this binary a process that does the runs of a loop until it kills itself.
const asWorker = "OMBUD_TEST_SIGNED_WORKER"

// life says how one life of a worker goes. The places at which it may die are each commit
// and look at the store, and the beginning and end of each effect.
type life struct {
	DSN, Effects, Run string
	Nth               int64 // at which of the places it dies; 0 for none
	Outside           bool  // of those that are around an effect, else at the store
}

func worker(spec string) int {
	var l life
	err := json.Unmarshal([]byte(spec), &l)
	if err == nil {
		err = l.live(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return 0
}

func (l life) live(ctx context.Context) error {
	var places atomic.Int64
	var open atomic.Bool
	place := func(outside bool) {
		if open.Load() && outside == l.Outside && places.Add(1) == l.Nth {
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {} // it comes at once
		}
	}
	d, err := db.Open(ctx, db.Options{DSN: l.DSN, Now: func() time.Time { place(false); return time.Now() }})
	if err != nil {
		return err
	}
	var writing sync.Mutex
	s := openSite(ctx, d, choice{at: func() { place(true) }, opening: func() { open.Store(true) }, effect: func(text string) {
		writing.Lock()
		defer writing.Unlock()
		f, err := os.OpenFile(l.Effects, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, text)
		}
		if err != nil {
			panic(err)
		}
		_ = f.Close() // it is written
	}}, func(args ...any) { panic(fmt.Sprint(args...)) })
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		rec, _, err := s.runs.Get(ctx, l.Run)
		if err != nil {
			return err
		}
		if rec.State.Ended() {
			s.stop()
			return d.Close()
		}
		if err := l.attend(ctx, s, rec); err != nil {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
	return fmt.Errorf("the run does not end")
}

// attend is the person beside: who says yes, sends the signal, and settles what is in doubt.
func (l life) attend(ctx context.Context, s *site, rec run.Record) error {
	if rec.Wait == run.ForSignal {
		_ = s.runs.Signal(ctx, l.Run, "go", nil, "operator") // twice is not harmful
	}
	if rec.State == run.Uncertain {
		step, decision, err := l.looked(ctx, s)
		if err != nil {
			return err
		}
		fmt.Println("resolved", step, decision)
		return s.runs.Resolve(ctx, l.Run, decision, "operator", "looked")
	}
	list, err := s.apr.List(ctx, approval.Filter{State: approval.Pending})
	for _, a := range list {
		if _, err := s.apr.Resolve(ctx, a.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			return err
		}
	}
	return err
}

// longStep is the call whose answer is longer than its buffer.
const longStep = "h/10"

// looked is what a person says of the step in doubt who has looked whether its effect is there.
func (l life) looked(ctx context.Context, s *site) (step string, d run.Decision, err error) {
	done, err := os.ReadFile(l.Effects)
	if err != nil && !os.IsNotExist(err) {
		return "", "", err
	}
	_, steps, err := s.runs.Get(ctx, l.Run)
	for _, x := range steps {
		if x.State != run.Unknown {
			continue
		}
		if text := map[string]string{"h/1": "one", "h/3": "shell.exec", "h/6": "two", longStep: "t.long"}[x.Name]; text != "" && strings.Contains(string(done), text) {
			return x.Name, run.MarkDone, err
		} else if text == "shell.exec" { // it was approved once; the person does it by himself
			return x.Name, run.MarkFailed, os.WriteFile(l.Effects, append(done, "shell.exec{}\n"...), 0o600)
		}
		return x.Name, run.Retry, err
	}
	return "", "", fmt.Errorf("nothing is in doubt: %w", err)
}

// lives are those that end at some of the commits, and around the model and the effects.
func lives() (out []life) {
	for nth := int64(2); nth < 130; nth += 17 {
		out = append(out, life{Nth: nth})
	}
	for nth := int64(1); nth <= 6; nth++ {
		out = append(out, life{Nth: nth, Outside: true})
	}
	return out
}

// A process that dies at any commit or effect of a run is followed by one that goes on: each
// effect is made once. Where nobody can know whether it was, the run says so, and a person
// who has looked settles it.
func TestAKillAtAnyPlaceOfARunRepeatsNoEffect(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	if _, err := guestModule(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			deaths, doubts := 0, 0
			for _, l := range lives() {
				nth := l.Nth
				l.DSN, l.Effects = dbtest.DSN(t, kind), filepath.Join(t.TempDir(), "effects")
				l.Run = beginRun(t, l.DSN)
				longs := 1
				for died := true; died; l.Nth = 0 {
					var out string
					if died, out = l.die(t); died {
						deaths++
					}
					doubts += strings.Count(out, "resolved")
					if strings.Contains(out, "resolved "+longStep+" "+string(run.MarkDone)) {
						longs = 2 // of a call that a person settled no answer is known: none is too long, and the next is a call of its own
					}
				}
				judgeRun(t, l, nth, longs)
			}
			t.Logf("%d deaths, %d doubts", deaths, doubts)
			if deaths < 8 || doubts == 0 {
				t.Errorf("%d deaths left %d doubts", deaths, doubts)
			}
		})
	}
}

// die lets a process live, and reports whether it died of itself.
func (l life) die(t *testing.T) (died bool, out string) {
	t.Helper()
	spec, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWorker+"="+string(spec), "OMBUD_TEST_SIGNED_CACHE="+compiledDir())
	text, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if code > 0 {
		t.Fatalf("place %d: %v\n%s", l.Nth, err, text)
	}
	return code == -1, string(text)
}

// beginRun starts the run in a store, of which nothing is done yet.
func beginRun(t *testing.T, dsn string) string {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	s := openSite(t.Context(), d, choice{}, func(args ...any) { t.Helper(); t.Fatal(args...) })
	if err := s.runs.Stop(t.Context()); err != nil { // so that nothing is begun here
		t.Fatal(err)
	}
	const long = `{"name":"t.long","input":{}}`
	id := s.start(t,
		put("one"), call("ask", `{"prompt":"p"}`), call("tool", `{"name":"shell.exec","input":{}}`), ours("sleep", `{"ms":10}`),
		ours("wait_signal", `{"name":"go","timeout_ms":0}`), put("two"), call("remember", `{"fact":"done"}`),
		line{Do: "step", Name: "s", Steps: []line{call("short_set", `{"Group":"g","Key":"k","Value":"v"}`)}}, call("notify", `{"title":"end"}`),
		line{Do: "call", Name: "tool", Req: long, Cap: 100}, line{Do: "call", Name: "tool", Req: long, Cap: 1 << 20},
	)
	s.stop()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return id
}

// judgeRun holds what was done outside against what the run says.
func judgeRun(t *testing.T, l life, nth int64, longs int) {
	t.Helper()
	raw, err := os.ReadFile(l.Effects)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for text := range strings.Lines(string(raw)) {
		count[strings.TrimSpace(text)]++
	}
	for what, want := range map[string]int{`t.put{"text":"one"}`: 1, `t.put{"text":"two"}`: 1, "shell.exec{}": 1, "t.long{}": longs} {
		if count[what] != want {
			t.Errorf("place %d: %s was done %d times; all: %v", nth, what, count[what], count)
		}
	}
	d, err := db.Open(t.Context(), db.Options{DSN: l.DSN})
	if err != nil {
		t.Fatal(err)
	}
	s := openSite(t.Context(), d, choice{}, func(args ...any) { t.Helper(); t.Fatal(args...) })
	rec, _, err := s.runs.Get(t.Context(), l.Run)
	if err != nil || rec.State != run.Completed {
		t.Errorf("place %d: the run is %s: %s, %v", nth, rec.State, rec.Error, err)
	}
	facts := 0
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM memories").Scan(&facts)
	})
	if err != nil || facts != 1 {
		t.Errorf("place %d: it is remembered %d times, %v", nth, facts, err)
	}
	s.stop()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
