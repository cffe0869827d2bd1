package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/run"
)

// act is what a victim does, and where it dies.
type act struct {
	DSN    string
	Letter string
	Do     string // "replay", "fresh", "drop"
	After  bool   // right after the commit, else right before it
}

func victim(spec string) int {
	var a act
	if err := json.Unmarshal([]byte(spec), &a); err != nil {
		return 3
	}
	if err := a.live(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return 0
}

func (a act) live() error {
	ctx := context.Background()
	h, err := newHouse(ctx, quiet{}, db.Options{DSN: a.DSN})
	if err != nil {
		return err
	}
	// Its subscription runs; the runs and deliveries it sets going are for the next life.
	err = h.log.Start(ctx, eventlog.Subscription{Name: reader, Filter: eventlog.Filter{Kinds: []string{"k"}}, Handle: h.handle})
	if err != nil {
		return err
	}
	return h.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		decide, req := h.letters.replayTx, Request{ID: a.Letter, By: "operator", Fresh: a.Do == "fresh"}
		if a.Do == "drop" {
			decide = h.letters.dropTx
		}
		if _, err := decide(ctx, tx, req); err != nil {
			return err
		}
		if !a.After {
			die()
		}
		tx.AfterCommit(die)
		return nil
	})
}

// quiet is a testing.TB for a process that is none.
type quiet struct{ testing.TB }

func (quiet) Helper() {}

func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // it comes at once
}

// TestAKillAtTheCommitOfADecisionLosesNothingAndRepeatsNothing kills a process right
// before and right after the commit of each sort of decision, decides once more in the
// next life, and counts.
func TestAKillAtTheCommitOfADecisionLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		for _, source := range []eventlog.Source{eventlog.FromSubscription, eventlog.FromRun, eventlog.FromDelivery} {
			for _, do := range []string{"replay", "fresh", "drop"} {
				for _, after := range []bool{false, true} {
					if do == "fresh" && source != eventlog.FromRun {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s/after=%v", kind, source, do, after), func(t *testing.T) {
						t.Parallel()
						killed(t, kind, source, act{Do: do, After: after})
					})
				}
			}
		}
	}
}

func killed(t *testing.T, kind dbtest.Kind, source eventlog.Source, a act) {
	a.DSN = dbtest.DSN(t, kind)
	h, err := newHouse(t.Context(), t, db.Options{DSN: a.DSN})
	if err != nil {
		t.Fatal(err)
	}
	h.start(t.Context())
	d := map[eventlog.Source]func(string) eventlog.DeadLetter{
		eventlog.FromSubscription: h.event, eventlog.FromRun: h.run, eventlog.FromDelivery: h.delivery,
	}[source]("x")
	handled := len(h.notes("handled"))
	h.close()

	a.Letter = d.ID
	spec, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
	cmd.Stderr = os.Stderr
	err = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == 0 || code == 3 || code == 4 {
		t.Fatalf("it ended by itself: %v", err)
	}

	h, err = newHouse(t.Context(), t, db.Options{DSN: a.DSN})
	if err != nil {
		t.Fatal(err)
	}
	h.start(t.Context())
	defer h.close()
	want := map[string]eventlog.LetterState{"replay": eventlog.LetterReplayed, "fresh": eventlog.LetterReplayed, "drop": eventlog.LetterDropped}[a.Do]
	if got := h.get(d.ID); a.After && got.State != want || !a.After && got.State != eventlog.LetterWaiting {
		t.Errorf("after the kill it is %s", got.State)
	}
	req := Request{ID: d.ID, By: "operator", Fresh: a.Do == "fresh"}
	if a.Do == "drop" {
		_, err = h.letters.Drop(t.Context(), req)
	} else {
		_, err = h.letters.Replay(t.Context(), req)
	}
	if a.After && !fault.Is(err, fault.Conflict) || !a.After && err != nil {
		t.Errorf("decided once more: %v", err)
	}
	got := h.get(d.ID)
	if got.State != want {
		t.Errorf("it is %s, want %s", got.State, want)
	}
	if events, audited := h.decisions(d.ID); len(events) != 1 || len(audited) != 1 {
		t.Errorf("events %q, audited %q", events, audited)
	}
	h.count(d, got, a, handled)
}

// count holds what was done against what was decided.
func (h *house) count(d, got eventlog.DeadLetter, a act, handled int) {
	h.t.Helper()
	replays := 1
	if a.Do == "drop" {
		replays = 0
	}
	switch d.Source {
	case eventlog.FromSubscription:
		if n := len(h.notes("handled")) - handled; n != replays {
			h.t.Errorf("handled %d times", n)
		}
	case eventlog.FromDelivery:
		if replays > 0 {
			until(h.t, func() bool { return h.item(d.Ref).State == outbox.Delivered })
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.sent) != replays {
			h.t.Errorf("sent %d times", len(h.sent))
		}
	case eventlog.FromRun:
		want := []string{d.Ref + ` first "x"`}
		switch a.Do {
		case "replay":
			h.wait(d.Ref, run.Completed)
			want = append(want, d.Ref+` second "x"`)
		case "fresh":
			h.wait(got.Run, run.Completed)
			want = append(want, got.Run+` first "x"`, got.Run+` second "x"`)
		}
		if worked := h.notes("worked"); !slices.Equal(worked, want) {
			h.t.Errorf("worked\n%s\nwant\n%s", strings.Join(worked, "\n"), strings.Join(want, "\n"))
		}
		if all, err := h.runs.List(context.Background(), run.Filter{Kind: workKind}); err != nil || len(all) != 1+map[string]int{"fresh": 1}[a.Do] {
			h.t.Errorf("%d runs, %v", len(all), err)
		}
		if _, err := h.runs.Verify(context.Background()); err != nil {
			h.t.Error(err)
		}
	}
}

func (h *house) item(id string) outbox.Item {
	h.t.Helper()
	it, err := h.outbox.Get(context.Background(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return it
}
