package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// perCommit says how many callers shared a commit in a stretch of work.
func perCommit(d *db.DB, before db.Stats) string {
	after := d.Stats()
	if after.Batches == before.Batches {
		return ""
	}
	return fmt.Sprintf("%.1f a commit", float64(after.Callers-before.Callers)/float64(after.Batches-before.Batches))
}

func producers() []int { return []int{1, 8, 64} }

// BenchmarkAppend is durable appends a second, from 1, 8 and 64 producers: one
// plain row of 1 KiB, and one sealed event.
func BenchmarkAppend(b *testing.B) {
	for _, kind := range dbtest.Kinds() {
		for _, n := range producers() {
			b.Run(fmt.Sprintf("row/%s/%d", kind, n), func(b *testing.B) { appendRows(b, kind, n) })
		}
	}
	for _, n := range producers() {
		b.Run(fmt.Sprintf("event/sqlite/%d", n), func(b *testing.B) { appendEvents(b, n) })
	}
}

func appendTarget(n int, many string) string {
	switch n {
	case 1:
		return "≥0.70"
	case 64:
		return many
	}
	return ""
}

func appendRows(b *testing.B, kind dbtest.Kind, n int) {
	b.Helper()
	p := open(b, kind)
	disk := newProbe(b, p.dir)
	body := strings.Repeat("v", 1024)
	var key atomic.Int64
	before := p.db.Stats()
	f := figure{name: fmt.Sprintf("append row, %s, %d producers", kind, n), unit: "rows/s", peer: "raw fsync/s", target: appendTarget(n, "≥40000/s")}
	measure(b, f, disk.rate, func() (float64, int) {
		return rate(n, func(int, int) bool {
			err := p.db.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", fmt.Sprintf("k%09d", key.Add(1)), body)
				return err
			})
			if err != nil {
				b.Error(err)
			}
			return err == nil
		})
	})
	annotate(f.name, perCommit(p.db, before))
}

// annotate adds a note to a figure that is in the table.
func annotate(name, note string) {
	table.mu.Lock()
	defer table.mu.Unlock()
	for i := range table.rows {
		if table.rows[i].name == name {
			table.rows[i].note = note
		}
	}
}

// payload is a message of the usual length.
var payload = struct {
	Text string `json:"text"`
}{"a message of the usual length, which is a sentence or two and seldom more than that"}

func appendEvents(b *testing.B, n int) {
	b.Helper()
	p := open(b, dbtest.KindSQLite)
	disk := newProbe(b, p.dir)
	before := p.db.Stats()
	f := figure{name: fmt.Sprintf("append event, sealed, %d producers", n), unit: "events/s", peer: "raw fsync/s"}
	measure(b, f, disk.rate, func() (float64, int) {
		return rate(n, func(who, _ int) bool {
			_, err := p.events.Append(context.Background(), eventlog.New{Stream: fmt.Sprint("s", who), Kind: "k", Expect: eventlog.Any, Data: payload})
			if err != nil {
				b.Error(err)
			}
			return err == nil
		})
	})
	annotate(f.name, perCommit(p.db, before))
}

// BenchmarkSealing is the sealing of an event beside the whole of its append, where
// an append is cheapest: 64 producers share a commit.
func BenchmarkSealing(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	plain := []byte(`{"text":"` + payload.Text + `"}`)
	append64 := func() float64 {
		perSecond, _ := rate(64, func(who, _ int) bool {
			_, err := p.events.Append(context.Background(), eventlog.New{Stream: fmt.Sprint("s", who), Kind: "k", Expect: eventlog.Any, Data: payload})
			if err != nil {
				b.Error(err)
			}
			return err == nil
		})
		return 1e6 / perSecond
	}
	f := figure{name: "seal an event", unit: "µs", peer: "append, 64 producers, µs", target: "≤0.10"}
	measure(b, f, append64, func() (float64, int) {
		const n = 20000
		start := time.Now()
		for range n {
			p.vault.Seal(vault.EventData, "evt_0198c0ffee00700080000000000000", plain)
		}
		return float64(time.Since(start).Microseconds()) / n, n
	})
}

// BenchmarkStep is what a local tool call costs: the run's event, its step, the
// row of the run and an audit entry, sealed, in one commit.
func BenchmarkStep(b *testing.B) {
	for _, n := range producers() {
		b.Run(fmt.Sprintf("tx/%d", n), func(b *testing.B) { stepRate(b, n) })
	}
	b.Run("open+close", stepTime)
}

func stepRate(b *testing.B, n int) {
	b.Helper()
	p := open(b, dbtest.KindSQLite)
	disk := newProbe(b, p.dir)
	begin, done := make(chan time.Time), make(chan int)
	for range n { // the runs go on over all rounds: their starts and ends are not measured
		p.steps <- func(ctx context.Context, r *run.Run) error {
			i := 0
			for start := range begin {
				first := i
				for ; time.Since(start) < slice; i++ {
					if err := p.auditedStep(ctx, r, i); err != nil {
						b.Error(err)
						break
					}
				}
				done <- i - first
			}
			return nil
		}
		if _, err := p.runs.Start(b.Context(), run.Spec{Kind: stepsKind, Actor: "bench"}); err != nil {
			b.Fatal(err)
		}
	}
	round := func() (float64, int) {
		ops, start := 0, time.Now()
		for range n {
			begin <- start
		}
		for range n {
			ops += <-done
		}
		return float64(ops) / time.Since(start).Seconds(), ops
	}
	round() // all runs are under way after it
	before := p.db.Stats()
	f := figure{name: fmt.Sprintf("event + step + audit, sealed, %d producers", n), unit: "steps/s", peer: "raw fsync/s", target: appendTarget(n, "≥25000/s")}
	measure(b, f, disk.rate, round)
	annotate(f.name, perCommit(p.db, before))
	close(begin)
}

func (p *parts) auditedStep(ctx context.Context, r *run.Run, i int) error {
	spec := run.StepSpec{Name: fmt.Sprint("tool/", i), Kind: "tool", OnClose: func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
		ref, err := p.audit.AppendTx(ctx, tx, audit.Entry{
			Kind: "call", Actor: "bench", Subject: "agent:main", Tool: "memory.remember", Scopes: []string{"memory.write"}, Outcome: "ok",
			Run: r.ID(), Step: "tool",
		})
		o.Audit = run.AuditRef(ref)
		return err
	}}
	_, err := r.DoTx(ctx, spec, func(context.Context, *db.Tx) run.Outcome { return run.Succeed(json.RawMessage(`{"text":"done"}`)) })
	return err
}

// stepTime is the median time of one step with an effect outside: its intent and
// its outcome are a commit each.
func stepTime(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	disk := newProbe(b, p.dir)
	f := figure{name: "step, open + close (2 commits), p50", unit: "µs", peer: "raw fsync, µs", target: "≤1000 µs"}
	measure(b, f, disk.once, func() (float64, int) {
		const steps = 60
		var took []float64
		done := make(chan error)
		p.steps <- func(ctx context.Context, r *run.Run) error {
			for i := range steps {
				start := time.Now()
				_, err := r.Step(ctx, fmt.Sprint("s/", i), run.Policy{Kind: run.AtMostOnce}, func(context.Context) (json.RawMessage, error) {
					return json.RawMessage(`{}`), nil
				})
				if err != nil {
					done <- err
					return err
				}
				took = append(took, micro(time.Since(start)))
			}
			done <- nil
			return nil
		}
		if _, err := p.runs.Start(b.Context(), run.Spec{Kind: stepsKind, Actor: "bench"}); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		return median(took), steps
	})
}
