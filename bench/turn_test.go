package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
)

func message(text string) agent.Inbound {
	return agent.Inbound{
		Address: agent.Local("main"), Title: "main", Sender: "operator", Text: text,
		Source: label.Operator, Audience: label.OperatorOnly, Tier: policy.Trusted, Control: true,
	}
}

// BenchmarkTurn is a message's way through the parts, with a model that answers at
// once: until it is acknowledged, and until its turn has ended with a reply. A
// turn is as many commits as the note says, the intake among them.
func BenchmarkTurn(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	disk := newProbe(b, p.dir)
	const turns = 20
	n := 0
	var acks []float64
	var commits uint64
	whole := func() (float64, int) {
		var took []float64
		for range turns {
			n++
			before := p.db.Stats().Batches
			start := time.Now()
			got, err := p.agents.Intake(b.Context(), message(fmt.Sprintf("echo number %d", n)))
			if err != nil {
				b.Fatal(err)
			}
			acks = append(acks, micro(time.Since(start)))
			rec, err := p.runs.Wait(b.Context(), got.Run)
			if err != nil || rec.State != run.Completed {
				b.Fatal(rec.State, rec.Error, err)
			}
			took = append(took, micro(time.Since(start)))
			commits += p.db.Stats().Batches - before
		}
		return median(took), turns
	}
	f := figure{name: "turn without the model, p50", unit: "µs", peer: "raw fsync, µs"}
	measure(b, f, disk.once, whole)
	annotate(f.name, fmt.Sprintf("%.1f commits", float64(commits)/float64(n)))
	intake := figure{name: "message in → ack, p50", unit: "µs", peer: "raw fsync, µs", note: "while turns run"}
	acks = nil
	measure(b, intake, disk.once, func() (float64, int) {
		acks = nil
		whole()
		return median(acks), turns
	})
}

// BenchmarkTurnLong is a turn of a conversation in which so much was said that it is about
// to be summarised, beside the same in one that has just begun.
func BenchmarkTurnLong(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	const turns, earlier = 20, 600
	n := 0
	turn := func(conversation string) float64 {
		n++
		m := message(fmt.Sprintf("echo number %d", n))
		m.Address, m.Title = agent.Local(conversation), conversation
		start := time.Now()
		got, err := p.agents.Intake(b.Context(), m)
		if err != nil {
			b.Fatal(err)
		}
		rec, err := p.runs.Wait(b.Context(), got.Run)
		if err != nil || rec.State != run.Completed {
			b.Fatal(rec.State, rec.Error, err)
		}
		return micro(time.Since(start))
	}
	for range earlier {
		turn("long")
	}
	several := func(conversation func() string) float64 {
		var took []float64
		for range turns {
			took = append(took, turn(conversation()))
		}
		return median(took)
	}
	f := figure{name: "turn of a long conversation, p50", unit: "µs", peer: "of a new one, µs", note: "1,200 entries"}
	measure(b, f, func() float64 { return several(func() string { return fmt.Sprintf("new %d", n) }) },
		func() (float64, int) { return several(func() string { return "long" }), turns })
}
