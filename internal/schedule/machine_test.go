package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// model is a schedule as its documentation has it: the instants one by one, and no
// short cut.
type model struct {
	spec    Spec
	c       *cron.Schedule
	state   State
	settled int64
	fired   map[string]bool // rule and instant
	want    []string
}

func (m *model) begin(spec Spec, now int64) error {
	c, _, err := read(spec.When, spec.Zone)
	if err != nil {
		return err
	}
	m.spec, m.c, m.settled = spec, c.Anchored(time.UnixMicro(now)), now
	if m.state != Paused {
		m.state = Active
	}
	return nil
}

func (m *model) left() bool {
	_, ok := m.c.Next(time.UnixMicro(m.settled))
	return ok
}

// tell records missed instants: the first ones singly, the rest as a row.
func (m *model) tell(missed []time.Time) {
	for i, at := range missed {
		if i == singly {
			m.want = append(m.want, fmt.Sprintf("missed %s %d from %s", missed[len(missed)-1].Format(time.RFC3339), len(missed)-i, at.Format(time.RFC3339)))
			return
		}
		m.want = append(m.want, "missed "+at.Format(time.RFC3339))
	}
}

func (m *model) look(now int64) {
	if m.state != Active {
		return
	}
	passed, _ := m.c.Between(time.UnixMicro(m.settled), time.UnixMicro(now), 1<<20)
	if len(passed) == 0 {
		return
	}
	newest, missed := passed[len(passed)-1], []time.Time(nil)
	late := time.UnixMicro(now).Sub(newest)
	for i, at := range passed {
		is := func(d time.Duration) bool { return time.UnixMicro(now).Sub(at) <= d }
		outcome := WasMissed
		switch {
		case m.spec.Missed == All && len(passed)-i <= MaxMakeUp, i == len(passed)-1 && late <= promptly,
			i == len(passed)-1 && m.spec.Missed == Once && late <= m.spec.Grace:
			outcome = FiredLate
			if is(promptly) {
				outcome = Fired
			}
		}
		if outcome == WasMissed {
			missed = append(missed, at)
			continue
		}
		m.tell(missed)
		missed = nil
		key := m.c.String() + m.spec.Zone + at.String()
		if !m.fired[key] {
			m.want = append(m.want, fmt.Sprintf("%s %s", outcome, at.Format(time.RFC3339)))
		}
		m.fired[key] = true
	}
	m.tell(missed)
	m.settled = newest.UnixMicro()
	if !m.left() {
		m.state = Done
	}
}

// review is what a start and a clock that goes back by a minute make of it.
func (m *model) review(now int64) {
	if m.state != Paused && m.settled > now {
		m.settled = now
		m.state = Active
		if !m.left() {
			m.state = Done
		}
	}
}

func TestSchedulesDoWhatTheirModelDoes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-28T20:00:00Z")
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		h.clock.set(time.Date(2026, 3, 28, 20, 0, rapid.IntRange(0, 59).Draw(t, "second"), 0, time.UTC))
		h.boot()
		name := fmt.Sprint("s", round)
		whens := []string{"*/7 * * * *", "30 2 * * *", "0 */3 * * *", "*/20 * * * * *", "@every 11m", "@every 40s", "15,45 1-4 * * *", "@at 2026-03-29T01:30:00Z"}
		zones := []string{"UTC", "Europe/Stockholm", "Australia/Lord_Howe", "America/New_York"}
		draw := func() Spec {
			return Spec{
				Owner: Operator, Name: name, When: rapid.SampledFrom(whens).Draw(t, "when"), Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
				Missed: rapid.SampledFrom([]Missed{Once, Skip, All}).Draw(t, "missed"), Overlap: OverlapQueue,
				Grace: rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "grace"), Starts: Starts{Say: "x"},
			}
		}
		m := &model{fired: map[string]bool{}}
		put := func() error {
			spec, now := draw(), h.s.now()
			same := m.c != nil && m.spec.When == spec.When && m.spec.Zone == spec.Zone
			_, err := h.s.Put(context.Background(), spec, Operator)
			if err != nil {
				return err
			}
			if same {
				m.spec = spec
				return nil
			}
			return m.begin(spec, now)
		}
		for put() != nil { // an instant that is past is refused
		}
		x := h.get(name)
		look := func() {
			h.look()
			m.look(h.s.now())
		}
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "looks") {
					d := time.Duration(rapid.IntRange(1, 30).Draw(t, "s")) * time.Second
					h.clock.pass(d, d)
					look()
				}
			},
			"off": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 8*3600).Draw(t, "s")) * time.Second
				h.clock.pass(d, d)
				h.boot()
				h.review()
				m.review(h.s.now())
				look()
			},
			"suspend or forward": func(t *rapid.T) {
				h.clock.pass(time.Duration(rapid.IntRange(1, 4*3600).Draw(t, "s"))*time.Second, time.Second)
				look()
			},
			"back": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 3*3600).Draw(t, "s")) * time.Second
				h.clock.pass(-d, 0)
				if d >= time.Minute {
					m.review(h.s.now())
				}
				look()
			},
			"restart": func(*rapid.T) {
				h.boot()
				h.review()
				m.review(h.s.now())
				look()
			},
			"edit": func(*rapid.T) { _ = put() },
			"pause": func(*rapid.T) {
				if _, err := h.s.Pause(context.Background(), name, Operator); err == nil {
					m.state = Paused
				}
			},
			"resume": func(t *rapid.T) {
				was := m.state
				_, err := h.s.Resume(context.Background(), name, Operator)
				if was != Paused {
					return
				}
				before := m.settled
				m.settled = max(m.settled, h.s.now())
				if m.left() != (err == nil) {
					t.Fatalf("resume: %v, though instants left: %t", err, m.left())
				}
				if err == nil {
					m.state = Active
				} else {
					m.settled = before
				}
			},
			"": func(t *rapid.T) {
				got, stands := h.jobs(x), h.get(name)
				if fmt.Sprint(got) != fmt.Sprint(m.want) {
					n := 0
					for n < len(got) && n < len(m.want) && got[n] == m.want[n] {
						n++
					}
					t.Fatalf("%s in %s, event %d:\n got %v\nwant %v", m.spec.When, m.spec.Zone, n, got[n:min(n+4, len(got))], m.want[n:min(n+4, len(m.want))])
				}
				if stands.State != m.state {
					t.Fatalf("it is %s, want %s", stands.State, m.state)
				}
				if stands.State == Active && stands.Next <= h.s.now() && h.last.Wall.Equal(h.clock.Read().Wall) {
					t.Fatalf("at %s it is still due at %s", show(h.s.now(), time.UTC), show(stands.Next, time.UTC))
				}
			},
		})
		err := h.db.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error { return h.s.RemoveTx(ctx, tx, name, Operator) })
		if err != nil {
			t.Fatal(err)
		}
	})
}
