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
		got, err := b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Note: "go on"}, "operator")
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

func TestAskingAgainFindsTheFirstQuestionAndAChangedCallNeedsItsOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		told := 0
		b := setup(t, kind, Options{OnAsked: func(context.Context, *db.Tx, Approval) error { told++; return nil }})
		first := b.mustAsk("tool/1.0")
		if again := b.mustAsk("tool/1.0"); again.ID != first.ID || told != 1 {
			t.Errorf("asked again as %s, told %d times", again.ID, told)
		}
		if _, err := b.Resolve(t.Context(), first.ID, Reply{Decision: Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
		changed := call("tool/1.0")
		changed.CallHash, changed.ToolDigest = []byte("another"), "d2"
		second, err := b.ask(changed)
		if err != nil || second.ID == first.ID || second.State != Pending {
			t.Fatalf("the changed call: %+v, %v", second, err)
		}
		if s := b.state(first.ID); s != Expired {
			t.Errorf("the approval of the call before it was changed is %s", s)
		}
		wants(t, "the old approval", b.use(first.ID, first.CallHash), fault.Denied)
		err = b.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			found, err := b.ByCall(ctx, q, changed.Run, changed.Step, changed.CallHash)
			if found.ID != second.ID {
				t.Errorf("found %s", found.ID)
			}
			if _, err := b.ByCall(ctx, q, changed.Run, "tool/9.9", changed.CallHash); !fault.Is(err, fault.NotFound) {
				t.Errorf("a call nobody asked about: %v", err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOfTwoDecisionsOneIsToldConflict(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		a := b.mustAsk("tool/1.0")
		answers := make(chan error, 16)
		for i := range cap(answers) {
			go func() {
				_, err := b.Resolve(t.Context(), a.ID, Reply{Decision: []Decision{Approve, Deny}[i%2]}, "operator")
				answers <- err
			}()
		}
		won := 0
		for range cap(answers) {
			switch err := <-answers; {
			case err == nil:
				won++
			case !fault.Is(err, fault.Conflict):
				t.Errorf("a decision too late: %v", err)
			}
		}
		if k := b.kinds(a.ID); won != 1 || len(k) != 2 {
			t.Errorf("%d decisions counted, events %v", won, k)
		}
	})
}

func TestNobodyDecidesForItselfNorWithoutAName(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Options{})
	a := b.mustAsk("tool/1.0")
	for what, c := range map[string]struct {
		decision       Decision
		resolver, note string
		class          fault.Class
	}{
		"the subject itself": {Approve, a.Subject, "", fault.Denied},
		"nobody":             {Approve, "", "", fault.Invalid},
		"no decision":        {"perhaps", "operator", "", fault.Invalid},
		"a NUL":              {Deny, "operator", "no\x00", fault.Invalid},
	} {
		_, err := b.Resolve(t.Context(), a.ID, Reply{Decision: c.decision, Note: c.note}, c.resolver)
		wants(t, what, err, c.class)
	}
	_, err := b.Resolve(t.Context(), "apr_none", Reply{Decision: Approve}, "operator")
	wants(t, "no such approval", err, fault.NotFound)
	if s := b.state(a.ID); s != Pending {
		t.Errorf("it is %s", s)
	}
}

func TestTheAnswerAndWhatItWakesAreOneCommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		fails := true
		b := setup(t, kind, Options{OnResolved: func(ctx context.Context, tx *db.Tx, a Approval) error {
			if fails {
				return fault.New(fault.Unavailable, "the run cannot be woken")
			}
			_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", a.ID, string(a.State))
			return err
		}})
		a := b.mustAsk("tool/1.0")
		_, err := b.Resolve(t.Context(), a.ID, Reply{Decision: Deny}, "operator")
		wants(t, "the hook fails", err, fault.Unavailable)
		if s := b.state(a.ID); s != Pending {
			t.Errorf("decided without waking the run: %s", s)
		}
		fails = false
		b.pass(25 * time.Hour)
		_, err = b.Resolve(t.Context(), a.ID, Reply{Decision: Approve}, "operator")
		wants(t, "too late", err, fault.Conflict)
		if n, err := b.ExpireOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("expired %d, %v", n, err)
		}
		got, err := b.Get(t.Context(), a.ID)
		if err != nil || got.State != Expired || got.Resolver != Self || got.Resolved == 0 {
			t.Errorf("%+v, %v", got, err)
		}
		var woken string
		err = b.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", a.ID).Scan(&woken)
		})
		if err != nil || woken != string(Expired) {
			t.Errorf("woken with %q, %v", woken, err)
		}
	})
}

func TestADetachedQuestionOutlivesItsRunAndOthersDoNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		left, other, decided := b.mustAsk("tool/1.0"), b.mustAsk("tool/1.1"), b.mustAsk("tool/1.2")
		if _, err := b.Resolve(t.Context(), decided.ID, Reply{Decision: Deny}, "operator"); err != nil {
			t.Fatal(err)
		}
		detach := func(id string) error {
			return b.tx(func(ctx context.Context, tx *db.Tx) error { return b.DetachTx(ctx, tx, id) })
		}
		for range 2 {
			if err := detach(left.ID); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, "detach what is decided", detach(decided.ID), fault.Conflict)
		if err := b.tx(func(ctx context.Context, tx *db.Tx) error {
			return b.WithdrawTx(ctx, tx, left.Run, "the run was cancelled")
		}); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]State{left.ID: Pending, other.ID: Expired, decided.ID: Denied} {
			if s := b.state(id); s != want {
				t.Errorf("%s is %s, want %s", id, s, want)
			}
		}
		got, err := b.Resolve(t.Context(), left.ID, Reply{Decision: Approve}, "operator")
		if err != nil || !got.Detached {
			t.Errorf("%+v, %v", got, err)
		}
		found, err := b.Find(t.Context(), left.ID[:len(left.ID)-1])
		if err != nil || found.ID != left.ID {
			t.Errorf("found %s, %v", found.ID, err)
		}
		_, err = b.Find(t.Context(), "apr_")
		wants(t, "several", err, fault.Invalid)
		list, err := b.List(t.Context(), Filter{Run: left.Run, Before: decided.ID})
		if err != nil || len(list) != 2 || list[0].ID != other.ID || list[1].ID != left.ID {
			t.Errorf("list: %+v, %v", list, err)
		}
	})
}

func TestTheLoopExpiresAndStops(t *testing.T) {
	t.Parallel()
	expired := make(chan State, 1)
	b := setup(t, dbtest.KindSQLite, Options{Poll: time.Millisecond, Expires: time.Minute, OnResolved: func(_ context.Context, tx *db.Tx, a Approval) error {
		tx.AfterCommit(func() { expired <- a.State })
		return nil
	}})
	b.mustAsk("tool/1.0")
	for range 2 {
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.pass(2 * time.Minute)
	select {
	case s := <-expired:
		if s != Expired {
			t.Errorf("it is %s", s)
		}
	case <-time.After(20 * time.Second):
		t.Error("it never expired")
	}
	b.Stop()
	b.Stop()
}
