package grant

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

func TestAGrantIsInForceUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		other := b.again()
		if h := b.held("conv_1"); len(h.Rules)+len(h.Standing)+len(h.Bounds) > 0 || h.Autonomy != nil {
			t.Fatalf("held before anything was granted: %+v", h)
		}
		x := b.must(Deny, "fs.write:/ws/secret/**")
		y := b.must(Standing, "shell.exec:git")
		h := b.held("conv_1")
		if len(h.Rules) != 1 || h.Rules[0].String() != "deny fs.write:/ws/secret/**" || len(h.Standing) != 1 {
			t.Fatalf("held: %+v", h)
		}
		if h, err := other.For(t.Context(), subject, ""); err != nil || len(h.Rules) != 1 {
			t.Errorf("another process: %+v, %v", h, err)
		}
		if h, err := b.For(t.Context(), "agent:other", ""); err != nil || len(h.Rules)+len(h.Standing) > 0 {
			t.Errorf("another subject: %+v, %v", h, err)
		}
		if err := b.revoke(x.ID, Operator); err != nil {
			t.Fatal(err)
		}
		wants(t, "revoked twice", b.revoke(x.ID, Operator), fault.Conflict)
		wants(t, "no such grant", b.revoke("grt_none", Operator), fault.NotFound)
		for name, g := range map[string]*Grants{"this": b.Grants, "another": other} {
			if h, err := g.For(t.Context(), subject, ""); err != nil || len(h.Rules) != 0 || len(h.Standing) != 1 {
				t.Errorf("%s process after the revocation: %+v, %v", name, h, err)
			}
		}
		id, err := b.Find(t.Context(), x.ID[:len(x.ID)-1])
		if err != nil {
			t.Fatal(err)
		}
		found, err := b.Get(t.Context(), id)
		if err != nil || found.ID != x.ID || found.StateAt(0) != Revoked || found.RevokedBy != Operator {
			t.Errorf("found %+v, %v", found, err)
		}
		_, err = b.Find(t.Context(), "grt_")
		wants(t, "several", err, fault.Invalid)
		_, err = b.Find(t.Context(), "")
		wants(t, "none", err, fault.NotFound)
		list, err := b.List(t.Context(), Filter{Subject: subject})
		if err != nil || len(list) != 1 || list[0].ID != y.ID {
			t.Errorf("list: %+v, %v", list, err)
		}
		list, err = b.List(t.Context(), Filter{Ended: true, Before: y.ID})
		if err != nil || len(list) != 1 || list[0].ID != x.ID {
			t.Errorf("list of all: %+v, %v", list, err)
		}
		if k := b.kinds(); !slices.Equal(k, []string{"grant.added", "grant.added", "grant.revoked"}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestAGrantForAConversationHoldsThereOnlyAndEndsInTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		n := New{Subject: subject, Scope: scope.Must("shell.exec:git"), Effect: Standing, Conversation: "conv_1",
			Expires: b.db.Time() + time.Hour.Microseconds(), Origin: "approval:apr_1"}
		first, err := b.grant(n, Operator)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := b.grant(n, Operator); err != nil || again.ID != first.ID {
			t.Errorf("the same grant again is %s, %v", again.ID, err)
		}
		if here, there := len(b.held("conv_1").Standing), len(b.held("conv_2").Standing); here != 1 || there != 0 {
			t.Errorf("%d here, %d there", here, there)
		}
		b.ahead.Add(int64(2 * time.Hour))
		if h := b.held("conv_1"); len(h.Standing) != 0 {
			t.Errorf("in force after its end: %+v", h)
		}
		n.Expires = 0
		second, err := b.grant(n, Operator)
		if err != nil || second.ID == first.ID || second.Origin != "approval:apr_1" {
			t.Fatalf("after the first has expired: %+v, %v", second, err)
		}
		if len(b.held("conv_1").Standing) != 1 {
			t.Error("the new one is not in force")
		}
		if k := b.kinds(); !slices.Equal(k, []string{"grant.added", "grant.revoked", "grant.added"}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestOnlyTheOperatorChangesAuthority(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		x := b.must(Deny, "fs.write")
		n := New{Subject: subject, Scope: scope.Must("fs.read"), Effect: Allow}
		p, err := NewPreset("full", "/ws", "/home/ana")
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{subject, "agent:other", "", "loop:x", "Operator", "operator ", "telegram:operator", "ombud"} {
			_, err := b.grant(n, by)
			wants(t, "grant by "+by, err, fault.Denied)
			wants(t, "revoke by "+by, b.revoke(x.ID, by), fault.Denied)
			wants(t, "level by "+by, b.tx(func(ctx context.Context, tx *db.Tx) error {
				return b.SetLevelTx(ctx, tx, subject, "", policy.Autonomous, true, by)
			}), fault.Denied)
			wants(t, "preset by "+by, b.tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := b.PresetTx(ctx, tx, subject, p, by)
				return err
			}), fault.Denied)
		}
		if h := b.held(""); len(h.Rules) != 1 || h.Autonomy != nil || h.Bounds != nil {
			t.Errorf("held: %+v", h)
		}
		if k := b.kinds(); len(k) != 1 {
			t.Errorf("events %v", k)
		}
	})
}

func TestBadGrantsAreRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		good := New{Subject: subject, Scope: scope.Must("fs.read"), Effect: Allow}
		for what, change := range map[string]func(*New){
			"the operator":              func(n *New) { n.Subject = "operator" },
			"no kind":                   func(n *New) { n.Subject = "main" },
			"an unknown kind":           func(n *New) { n.Subject = "daemon:main" },
			"no name":                   func(n *New) { n.Subject = "agent:" },
			"a space":                   func(n *New) { n.Subject = "agent:a b" },
			"a NUL":                     func(n *New) { n.Subject = "agent:a\x00b" },
			"a long name":               func(n *New) { n.Subject = "agent:" + strings.Repeat("a", 200) },
			"no scope":                  func(n *New) { n.Scope = scope.Scope{} },
			"no effect":                 func(n *New) { n.Effect = "" },
			"an unknown effect":         func(n *New) { n.Effect = "perhaps" },
			"expired":                   func(n *New) { n.Expires = 1 },
			"a limit in a conversation": func(n *New) { n.Effect, n.Conversation = Limit, "conv_1" },
		} {
			n := good
			change(&n)
			_, err := b.grant(n, Operator)
			wants(t, what, err, fault.Invalid)
		}
		wants(t, "an unknown area", b.level("filesystem", policy.Manual, true), fault.Invalid)
		wants(t, "no level to take back", b.level("fs", policy.Manual, false), fault.NotFound)
		if k := b.kinds(); len(k) != 0 {
			t.Errorf("events %v", k)
		}
	})
}

func TestLevelsAreByAreaAndCanBeTakenBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		write, read := scope.Must("fs.write").Base(), scope.Must("memory.write").Base()
		for _, err := range []error{b.level("", policy.Supervised, true), b.level("fs", policy.Manual, true)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		h := b.held("")
		if h.Autonomy.Of(write) != policy.Manual || h.Autonomy.Of(read) != policy.Supervised {
			t.Errorf("fs %s, memory %s", h.Autonomy.Of(write), h.Autonomy.Of(read))
		}
		if err := b.level("", policy.Manual, false); err != nil {
			t.Fatal(err)
		}
		if h := b.held(""); h.Autonomy.Of(write) != policy.Manual || h.Autonomy.Of(read) != policy.Assisted {
			t.Errorf("after one was taken back: fs %s, memory %s", h.Autonomy.Of(write), h.Autonomy.Of(read))
		}
		list, err := b.LevelsOf(t.Context(), subject)
		if err != nil || len(list) != 1 || list[0].Area != "fs" || list[0].By != Operator {
			t.Errorf("levels %+v, %v", list, err)
		}
		if k := b.kinds(); !slices.Equal(k, []string{"level.set", "level.set", "level.set"}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestAChangeWithoutItsAuditEntryIsNone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		b.must(Deny, "fs.write")
		if err := b.audit.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := b.grant(New{Subject: subject, Scope: scope.Must("fs.read"), Effect: Allow}, Operator)
		wants(t, "no audit", err, fault.Unavailable)
		wants(t, "no audit of a level", b.level("", policy.Autonomous, true), fault.Unavailable)
		if h := b.held(""); len(h.Rules) != 1 || h.Autonomy != nil {
			t.Errorf("held: %+v", h)
		}
		var entries []string
		err = b.db.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
			entries, err = db.All(ctx, q, db.Column[string], "SELECT entry FROM audit ORDER BY seq")
			return err
		})
		if err != nil || len(entries) != 1 || !strings.Contains(entries[0], `"kind":"grant.added"`) {
			t.Errorf("audit %v, %v", entries, err)
		}
	})
}

func TestAChangedRowIsNamedAndNothingIsAllowed(t *testing.T) {
	t.Parallel()
	for what, statement := range map[string]string{
		"another effect":       "UPDATE grants SET effect = 'standing'",
		"another subject":      "UPDATE grants SET subject = 'agent:other'",
		"another conversation": "UPDATE grants SET conversation = 'conv_1'",
		"no end":               "UPDATE grants SET expires = 0",
		"a moved body":         "UPDATE grants SET id = 'grt_other'",
		"a level moved":        "UPDATE levels SET area = 'net'",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, b *bench) {
				n := New{Subject: subject, Scope: scope.Must("fs.read"), Effect: Deny, Expires: b.db.Time() + time.Hour.Microseconds()}
				if _, err := b.grant(n, Operator); err != nil {
					t.Fatal(err)
				}
				if err := b.level("fs", policy.Autonomous, true); err != nil {
					t.Fatal(err)
				}
				if err := b.tx(func(ctx context.Context, tx *db.Tx) error {
					_, err := tx.Exec(ctx, statement)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				var err error
				for _, who := range []string{subject, "agent:other"} {
					if _, e := b.again().For(t.Context(), who, "conv_1"); e != nil {
						err = e
					}
				}
				wants(t, what, err, fault.Verification)
				if !strings.Contains(err.Error(), "grt_") && !strings.Contains(err.Error(), subject) {
					t.Errorf("the row is not named: %v", err)
				}
				b.repair()
			})
		})
	}
}

// repair takes back every grant and level, damaged or not, and sees them gone.
func (b *bench) repair() {
	b.t.Helper()
	var ids, levels []string
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		if ids, err = db.All(ctx, q, db.Column[string], "SELECT id FROM grants"); err == nil {
			levels, err = db.All(ctx, q, db.Column[string], "SELECT area FROM levels")
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, id := range ids {
		if err := b.revoke(id, Operator); err != nil {
			b.t.Error(err)
		}
	}
	for _, area := range levels {
		if err := b.level(area, policy.Manual, false); err != nil {
			b.t.Error(err)
		}
	}
	for _, who := range []string{subject, "agent:other"} {
		if h, err := b.For(b.t.Context(), who, "conv_1"); err != nil || len(h.Rules)+len(h.Standing) > 0 || h.Autonomy != nil {
			b.t.Errorf("%s after the repair: %+v, %v", who, h, err)
		}
	}
}

var _ Auditor = (*audit.Audit)(nil)
