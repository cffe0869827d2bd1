package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// BenchmarkNineSubscriptions: an event counts when all nine have handled it. Its
// peer appends the same events with nobody reading.
func BenchmarkNineSubscriptions(b *testing.B) {
	const events = 6000
	quiet, p := open(b, dbtest.KindSQLite), open(b, dbtest.KindSQLite)
	var left sync.WaitGroup
	var subs []eventlog.Subscription
	for i := range 9 {
		subs = append(subs, eventlog.Subscription{Name: fmt.Sprint("s", i), Handle: func(_ context.Context, tx *db.Tx, _ eventlog.Event) error {
			tx.AfterCommit(left.Done)
			return nil
		}})
	}
	if err := p.events.Start(b.Context(), subs...); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.events.Stop)
	f := figure{name: "events through 9 subscriptions", unit: "events/s", peer: "appended only, events/s", target: "≥10000/s"}
	measure(b, f, func() float64 { return appendMany(b, quiet, events, nil) }, func() (float64, int) {
		left.Add(9 * events)
		return appendMany(b, p, events, left.Wait), events
	})
}

func appendMany(b *testing.B, p *parts, n int, wait func()) float64 {
	b.Helper()
	start := time.Now()
	for from := 0; from < n; from += 500 {
		batch := make([]eventlog.New, min(500, n-from))
		for i := range batch {
			batch[i] = eventlog.New{Stream: fmt.Sprint("s", i%100), Kind: "k", Expect: eventlog.Any, Data: payload}
		}
		if _, err := p.events.Append(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	if wait != nil {
		wait()
	}
	return float64(n) / time.Since(start).Seconds()
}

// BenchmarkAuditVerify checks a chain from the store. Its peer is the hash and the
// MAC of the same number of entries of the same length, in memory.
func BenchmarkAuditVerify(b *testing.B) {
	const entries = 30000
	p := open(b, dbtest.KindSQLite)
	for from := 0; from < entries; from += 500 {
		err := p.db.InTx(b.Context(), func(ctx context.Context, tx *db.Tx) error {
			for i := range 500 {
				_, err := p.audit.AppendTx(ctx, tx, audit.Entry{
					Kind: "call", Actor: "agent:main", Subject: "operator", Tool: "fs.read", Scopes: []string{"fs.read:/x"}, Outcome: "ok",
					InputMAC: make([]byte, 32), Run: "run_0198c0ffee00700080000000000000", Step: fmt.Sprint("tool/", i), DurationUS: 1234,
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	f := figure{name: "audit verify", unit: "entries/s", peer: "hash + MAC alone, entries/s", target: "≥300000/s"}
	measure(b, f, func() float64 { return hashOnly(entries) }, func() (float64, int) {
		start := time.Now()
		rep, err := audit.Verify(b.Context(), p.db, p.vault.Keys())
		if err != nil || rep.Entries != entries {
			b.Fatalf("%+v, %v", rep, err)
		}
		return entries / time.Since(start).Seconds(), entries
	})
}

func hashOnly(n int) float64 {
	entry, hash, mac := make([]byte, 450), make([]byte, 32), make([]byte, 32)
	h, m := sha256.New(), hmac.New(sha256.New, make([]byte, 32))
	start := time.Now()
	for range n {
		h.Reset()
		h.Write(hash)
		h.Write(entry)
		hash = h.Sum(hash[:0])
		m.Reset()
		m.Write(mac)
		m.Write(hash)
		mac = m.Sum(mac[:0])
	}
	return float64(n) / time.Since(start).Seconds()
}

// BenchmarkPolicy is one decision of the shipped role about a call it allows.
func BenchmarkPolicy(b *testing.B) {
	who := mainAgent(b)
	in := &policy.Input{
		Subject: "agent:main", Tool: policy.ToolFacts{Name: "memory.remember"}, Scopes: []scope.Scope{scope.Must("memory.write")},
		Grants: who.Grants, Role: who.Role, Tier: policy.Trusted, Autonomy: who.Autonomy, Label: label.Of(label.Operator, label.OperatorOnly),
	}
	if d := policy.Decide(in); d.Effect != policy.Allow {
		b.Fatal(d)
	}
	allocs := testing.AllocsPerRun(1000, func() { policy.Decide(in) })
	f := figure{name: "policy decision", unit: "ns", target: "≤2000 ns, 0 allocs", note: fmt.Sprintf("%.0f allocs", allocs)}
	measure(b, f, nil, func() (float64, int) {
		const n = 100000
		start := time.Now()
		for range n {
			policy.Decide(in)
		}
		return float64(time.Since(start).Nanoseconds()) / n, n
	})
}
