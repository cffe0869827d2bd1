package approval

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is approvals on a store whose clock the test moves.
type bench struct {
	*Approvals
	t     testing.TB
	db    *db.DB
	log   *eventlog.Log
	ahead *atomic.Int64 // how far the clock is ahead, in nanoseconds
}

func (b *bench) pass(d time.Duration) { b.ahead.Add(int64(d)) }

func setup(t testing.TB, kind dbtest.Kind, o Options) *bench {
	t.Helper()
	b := &bench{t: t, ahead: new(atomic.Int64)}
	now := func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	options := dbtest.Options(t, kind)
	options.Now = now
	b.db = dbtest.Open(t, options)
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	b.log = eventlog.NewLog(b.db, v, slog.New(slog.DiscardHandler), eventlog.Options{Now: now})
	b.Approvals = New(b.db, v, b.log, o)
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

func call(step string) Ask {
	return Ask{Run: "run_1", Step: step, Subject: "agent:main", Tool: "fs.write", ToolDigest: "d1", Summary: "write notes.txt",
		Conversation: "conv_1", CallHash: []byte("hash of " + step), Input: []byte(`{"path":"notes.txt"}`),
		Scopes: []string{"files.write:/w/notes.txt"}, Reasons: []string{"writing asks"}}
}

func (b *bench) ask(q Ask) (out Approval, err error) {
	err = b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = b.AskTx(ctx, tx, q)
		return err
	})
	return out, err
}

func (b *bench) mustAsk(step string) Approval {
	b.t.Helper()
	out, err := b.ask(call(step))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) use(id string, hash []byte) error {
	return b.tx(func(ctx context.Context, tx *db.Tx) error { return b.UseTx(ctx, tx, id, hash) })
}

func (b *bench) state(id string) State {
	b.t.Helper()
	r, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.State
}

// kinds are the events of an approval, in order.
func (b *bench) kinds(id string) (out []string) {
	b.t.Helper()
	events, err := b.log.Stream(b.t.Context(), "approval:"+id, 0, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func wants(t *testing.T, what string, err error, class fault.Class) {
	t.Helper()
	if fault.ClassOf(err) != class {
		t.Errorf("%s: %v (%s), want %s", what, err, fault.ClassOf(err), class)
	}
}

func TestAnApprovalIsUsedOnceByTheCallItWasGivenFor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		a := b.mustAsk("tool/1.0")
		wants(t, "used before it was decided", b.use(a.ID, a.CallHash), fault.Waiting)
		got, err := b.Resolve(t.Context(), a.ID, Approve, "operator", "go on")
		if err != nil || got.State != Approved || got.Resolver != "operator" || got.Note != "go on" || got.Resolved == 0 {
			t.Fatalf("resolved: %+v, %v", got, err)
		}
		wants(t, "another call", b.use(a.ID, []byte("other")), fault.Denied)
		wants(t, "no such approval", b.use("apr_x", a.CallHash), fault.NotFound)
		if err := b.use(a.ID, a.CallHash); err != nil {
			t.Fatal(err)
		}
		wants(t, "used twice", b.use(a.ID, a.CallHash), fault.Conflict)
		got, err = b.Get(t.Context(), a.ID)
		if err != nil || got.State != Used || got.Summary != a.Summary || string(got.Input) != string(a.Input) ||
			!slices.Equal(got.Scopes, a.Scopes) || !slices.Equal(got.Reasons, a.Reasons) {
			t.Errorf("what was asked is not what is kept: %+v, %v", got, err)
		}
		if k := b.kinds(a.ID); !slices.Equal(k, []string{KindAsked, KindResolved}) {
			t.Errorf("events %v", k)
		}
	})
}
