package budget

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*Budget
	t   testing.TB
	now *atomic.Int64 // Unix µs
}

func setup(t testing.TB, kind dbtest.Kind, c Config) *bench {
	t.Helper()
	b := &bench{t: t, now: new(atomic.Int64)}
	b.now.Store(time.Date(2026, 3, 31, 22, 0, 0, 0, time.UTC).UnixMicro())
	o := dbtest.Options(t, kind)
	o.Now = func() time.Time { return time.UnixMicro(b.now.Load()) }
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	b.Budget = New(dbtest.Open(t, o), c)
	return b
}

func each(t *testing.T, fn func(t *testing.T, kind dbtest.Kind)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) { fn(t, kind) })
	}
}

func (b *bench) tx(fn func(ctx context.Context, tx *db.Tx) error) error {
	return b.db.InTx(b.t.Context(), fn)
}

// reserve goes on after a refusal, as act does to record it.
func (b *bench) reserve(r Reserve) (id string, refused error) {
	b.t.Helper()
	err := b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		id, err = b.ReserveTx(ctx, tx, r)
		if refused = err; fault.Is(err, fault.Denied) {
			return nil
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id, refused
}

func (b *bench) do(what func(ctx context.Context, tx *db.Tx, id string) error, id string) error {
	return b.tx(func(ctx context.Context, tx *db.Tx) error { return what(ctx, tx, id) })
}

func (b *bench) commit(id string, actual int64, known bool) error {
	return b.tx(func(ctx context.Context, tx *db.Tx) error { return b.CommitTx(ctx, tx, id, actual, known) })
}

func (b *bench) level(agent, root, node, window string) (out Level) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		h, err := b.Left(ctx, q, agent, root)
		for _, l := range h.Levels {
			if l.Node == node && l.Window == window {
				out = l
			}
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestAReservationIsSpentAndTheNextOneRefusedByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Config{Instance: Limits{Day: At(1_000_000)}, Agents: map[string]Limits{"main": {Month: At(500_000)}}, Run: At(400_000)})
		id, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 300_000, Known: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 100_001, Known: true}); !fault.Is(err, fault.Denied) ||
			!strings.Contains(err.Error(), "run:r1 may spend $0.40 a run; $0.00 is spent, $0.30 reserved, $0.00 possibly spent, and the call may cost $0.100001") {
			t.Errorf("refused with %v", err)
		}
		if err := b.commit(id, 250_000, true); err != nil {
			t.Fatal(err)
		}
		if err := b.commit(id, 1, true); !fault.Is(err, fault.Conflict) {
			t.Errorf("committed twice: %v", err)
		}
		if _, err := b.reserve(Reserve{Run: "r2", Agent: "main", Amount: 250_001, Known: true}); !fault.Is(err, fault.Denied) ||
			!strings.Contains(err.Error(), "agent:main may spend $0.50 a month; $0.25 is spent") {
			t.Errorf("refused with %v", err)
		}
		for _, w := range []struct{ node, window string }{{"instance", "day"}, {"instance", "month"}, {"agent:main", "day"}, {"agent:main", "month"}, {"run:r1", "run"}} {
			if l := b.level("main", "r1", w.node, w.window); l.Spent != 250_000 || l.Reserved != 0 || l.Possible != 0 {
				t.Errorf("%s %s: %+v", w.node, w.window, l)
			}
		}
	})
}
