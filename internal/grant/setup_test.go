package grant

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/vault"
)

const subject = "agent:main"

// bench is grants on a store whose clock the test moves.
type bench struct {
	*Grants
	t     testing.TB
	db    *db.DB
	log   *eventlog.Log
	vault *vault.Vault
	audit *audit.Audit
	ahead *atomic.Int64
}

func setup(t testing.TB, kind dbtest.Kind) *bench {
	t.Helper()
	b := &bench{t: t, ahead: new(atomic.Int64)}
	options := dbtest.Options(t, kind)
	options.Now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	b.db = dbtest.Open(t, options)
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b.vault = v
	b.log = eventlog.NewLog(b.db, v, quiet, eventlog.Options{Now: options.Now})
	b.audit = audit.New(b.db, v, "node1", quiet)
	if err := b.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Grants = b.again()
	return b
}

// again is another process on the same store.
func (b *bench) again() *Grants { return NewGrants(b.db, b.vault, b.log, b.audit, policy.Assisted) }

func each(t *testing.T, fn func(t *testing.T, b *bench)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			fn(t, setup(t, kind))
		})
	}
}

func (b *bench) tx(fn func(ctx context.Context, tx *db.Tx) error) error {
	b.t.Helper()
	return b.db.InTx(b.t.Context(), fn)
}

func (b *bench) grant(n New, by string) (x Grant, err error) {
	b.t.Helper()
	err = b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		x, err = b.GrantTx(ctx, tx, n, by)
		return err
	})
	return x, err
}

func (b *bench) must(effect Effect, text string) Grant {
	b.t.Helper()
	x, err := b.grant(New{Subject: subject, Scope: scope.Must(text), Effect: effect}, Operator)
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func (b *bench) revoke(id, by string) error {
	b.t.Helper()
	return b.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := b.RevokeTx(ctx, tx, id, by)
		return err
	})
}

func (b *bench) level(area string, l policy.Level, keep bool) error {
	b.t.Helper()
	return b.tx(func(ctx context.Context, tx *db.Tx) error {
		return b.SetLevelTx(ctx, tx, subject, area, l, keep, Operator)
	})
}

func (b *bench) held(conversation string) policy.Held {
	b.t.Helper()
	h, err := b.For(b.t.Context(), subject, conversation)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// kinds are the events of the subject, in order.
func (b *bench) kinds() (out []string) {
	b.t.Helper()
	events, err := b.log.Stream(b.t.Context(), "grants:"+subject, 0, 256)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func wants(t testing.TB, what string, err error, class fault.Class) {
	t.Helper()
	if fault.ClassOf(err) != class {
		t.Errorf("%s: %v (%s), want %s", what, err, fault.ClassOf(err), class)
	}
}

func assistant(t testing.TB) *policy.Role {
	t.Helper()
	roles, err := policy.LoadRoles("/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get(policy.RoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	return role
}

// input is what policy is asked for the assistant with what is held beside.
func input(t testing.TB, role *policy.Role, h policy.Held) policy.Input {
	t.Helper()
	level, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h.Autonomy != nil {
		level = h.Autonomy
	}
	var rules []policy.Rule
	if role != nil {
		rules = role.Grants(subject).Rules()
	}
	return policy.Input{
		Subject: subject, Grants: policy.NewLayer("grants of "+subject, append(rules, h.Rules...)), Role: role,
		Bounds: h.Bounds, Standing: h.Standing, Tier: policy.Trusted, Autonomy: level,
	}
}
