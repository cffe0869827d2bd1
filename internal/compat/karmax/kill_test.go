package karmax

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
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/run"
)

// asVictim makes this binary a process that does a recipe until it kills itself.
const asVictim = "OMBUD_TEST_RECIPE_VICTIM"

// life says how one life of a victim goes.
type life struct {
	DSN, Dir, Effects string
	Run               string // of the recipe; "" starts it
	Nth               int64  // at which of the places it dies; 0 for none
}

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

// live does the recipe to its end, or dies. What it does outside is a line in a file.
func (l life) live() error {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Options{DSN: l.DSN})
	if err != nil {
		return err
	}
	var places atomic.Int64
	var writing sync.Mutex
	h := openHouse(ctx, d, l.Dir, func(args ...any) { panic(fmt.Sprint(args...)) })
	h.at = func(string) {
		if places.Add(1) == l.Nth {
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {} // it comes at once
		}
	}
	h.effect = func(text string) {
		h.at("before")
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
		h.at("after")
	}
	woken := make(chan struct{}, 1)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		rec, _, err := h.runs.Get(ctx, l.Run)
		if err != nil {
			return err
		}
		doubts, err := h.runs.List(ctx, run.Filter{State: run.Uncertain})
		if err != nil {
			return err
		}
		for _, doubt := range doubts { // a person has the word, and has looked
			decision, err := l.looked(ctx, h, doubt)
			if err != nil {
				return err
			}
			if err := h.runs.Resolve(ctx, doubt.ID, decision, "operator", "looked"); err != nil {
				return err
			}
			fmt.Println("resolved")
		}
		if rec.State.Ended() {
			h.stop()
			return d.Close()
		}
		if rec.Wait == run.ForSignal {
			h.at("signal")
			_ = h.runs.Signal(ctx, l.Run, "go", json.RawMessage(`{"ok":true}`), "operator") // twice is not harmful
		}
		list, err := h.apr.List(ctx, approval.Filter{State: approval.Pending})
		if err != nil {
			return err
		}
		for _, a := range list {
			if a.Tool == "kit.propose" {
				continue // it stays open: nobody waits for it
			}
			h.at("approval")
			if _, err := h.apr.Resolve(ctx, a.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
				return err
			}
		}
		select {
		case <-woken:
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("the run does not end")
}

// looked is what a person says of the step in doubt who has looked whether its effect is there.
func (l life) looked(ctx context.Context, h *house, doubt run.Record) (run.Decision, error) {
	done, err := os.ReadFile(l.Effects)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	_, steps, err := h.runs.Get(ctx, doubt.ID)
	for _, s := range steps {
		if s.State != run.Unknown {
			continue
		}
		effect := "put {\"text\":\"one\"}"
		for part, text := range map[string]string{"work": "harness", "/0/": "a 0", "/1/": "b 1", "/2/": "c 2", "-left-": "left", "-right-": "right"} {
			if strings.Contains(s.Name, part) {
				effect = text
			}
		}
		if doubt.Name == "recipe:inner" {
			effect = "inner"
		}
		if strings.Contains(string(done), effect) {
			return run.MarkDone, err
		}
		return run.Retry, err
	}
	return "", err
}

// A process that dies at any place of a recipe with every verb is followed by one that goes
// on: each effect is made once. Where nobody can know whether it was, the run says so, and a
// person who has looked settles it.
func TestAKillAtAnyPlaceRepeatsNoEffect(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	text, err := os.ReadFile("testdata/kill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := shelf(t, map[string]string{"kill.yaml": string(text), "inner.yaml": "name: inner\non: {manual: true}\ngrants: [\"tool:free\"]\nsteps: [{tool: {name: t.put, text: inner}}]\n"})
			deaths, doubts := 0, 0
			for nth := int64(1); nth < 31; nth += 3 {
				dsn := dbtest.DSN(t, kind)
				l := life{DSN: dsn, Dir: dir, Effects: filepath.Join(t.TempDir(), "effects"), Nth: nth}
				l.Run = begin(t, dsn, dir)
				died := true
				for lives := 0; lives < 4 && died; lives++ {
					spec, err := json.Marshal(l)
					if err != nil {
						t.Fatal(err)
					}
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
					out, err := cmd.CombinedOutput()
					code := cmd.ProcessState.ExitCode()
					if died = code == -1; !died && code != 0 {
						t.Fatalf("place %d: %v\n%s", nth, err, out)
					}
					doubts += strings.Count(string(out), "resolved")
					if died {
						deaths++
					}
					l.Nth = 0
				}
				l.Nth = nth
				judge(t, dsn, l)
			}
			t.Logf("%d deaths, %d doubts", deaths, doubts)
			if deaths < 6 || doubts == 0 {
				t.Errorf("%d deaths left %d doubts", deaths, doubts)
			}
		})
	}
}

// begin starts the recipe in a store, of which nothing is done yet.
func begin(t *testing.T, dsn, dir string) string {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	h := openHouse(t.Context(), d, dir, func(args ...any) { t.Helper(); t.Fatal(args...) })
	if err := h.runs.Stop(t.Context()); err != nil { // so that nothing is begun here
		t.Fatal(err)
	}
	id, err := h.times.Manual(t.Context(), recipe.Subject("kill"), json.RawMessage(`{"list":["a","b","c"]}`), "operator")
	if err != nil {
		t.Fatal(err)
	}
	h.stop()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return id
}

// judge holds what was done outside against what the run says.
func judge(t *testing.T, dsn string, l life) {
	t.Helper()
	raw, err := os.ReadFile(l.Effects)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		count[strings.TrimSpace(line)]++
	}
	d, err := db.Open(t.Context(), db.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	h := openHouse(t.Context(), d, l.Dir, func(args ...any) { t.Helper(); t.Fatal(args...) })
	defer h.stop()
	rec, _, err := h.runs.Get(t.Context(), l.Run)
	if err != nil {
		t.Fatal(err)
	}
	if rec.State != run.Completed {
		t.Fatalf("place %d: the run is %s: %s", l.Nth, rec.State, rec.Error)
	}
	for _, want := range []string{`put {"text":"one"}`, `put {"text":"a 0"}`, `put {"text":"b 1"}`, `put {"text":"c 2"}`, `put {"text":"left"}`, `put {"text":"right"}`, `put {"text":"inner"}`, "harness"} {
		if count[want] != 1 {
			t.Errorf("place %d: %q was done %d times; all: %v", l.Nth, want, count[want], count)
		}
	}
}
