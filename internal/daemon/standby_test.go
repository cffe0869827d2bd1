package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// shareVault gives an instance the vault of another.
func shareVault(t *testing.T, from, to Options) {
	t.Helper()
	for _, pair := range [][2]string{
		{from.Instance.VaultFile(), to.Instance.VaultFile()}, {from.Instance.KeyFile(), to.Instance.KeyFile()},
	} {
		text, err := os.ReadFile(pair[0])
		if err == nil {
			err = os.WriteFile(pair[1], text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// becomes waits until a daemon is a standby or is not.
func becomes(t *testing.T, c *wire.Client, standby bool) (s wire.Status) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		s, err := c.SystemStatus(t.Context())
		if err == nil && (s.Standby != nil) == standby && s.Ready != standby {
			return s
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("standby %v: it never happened: %+v, %v", standby, s, err)
		}
	}
}

func TestAStandbyWritesNothingSaysWhoIsActiveAndTakesOver(t *testing.T) {
	t.Parallel()
	dsn := dbtest.PostgresDSN(t)
	store := fmt.Sprintf("store: %q\n", dsn)
	a, b := options(t, store), options(t, store)
	ca, stopA := up(t, a)
	_ = ask(t, ca, "remember that the boiler code is 4711")
	shareVault(t, a, b)
	cb, stopB := up(t, b)

	s := becomes(t, cb, true)
	if !strings.Contains(s.Standby.Active, fmt.Sprintf("process %d, instance default", os.Getpid())) || s.Standby.Since == 0 || s.Store != "postgres" {
		t.Errorf("status: %+v", s.Standby)
	}
	_, err := cb.MessageSend(t.Context(), wire.MessageSendRequest{Text: "hello"})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the active one of the store is ") {
		t.Errorf("told %v", err)
	}
	if _, err := cb.EventsTail(t.Context(), wire.EventsTailRequest{}, func(wire.Event) error { return nil }); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}

	if err := stopA(); err != nil {
		t.Error(err)
	}
	_ = becomes(t, cb, false)
	if got := ask(t, cb, "what is the boiler code?"); !strings.Contains(got.Reply, "4711") {
		t.Errorf("after the takeover: %q", got.Reply)
	}

	// It is replaced as a node that slept is: it stops its work and waits again.
	ca, stopA = up(t, a)
	_ = becomes(t, ca, true)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "UPDATE leases SET fence = fence + 1000, owner = 'nobody', expires = 1 WHERE name = 'ombud.active'"); err != nil {
		t.Fatal(err)
	}
	_ = becomes(t, ca, false)
	_ = becomes(t, cb, true)
	if got := ask(t, ca, "what is the boiler code?"); !strings.Contains(got.Reply, "4711") {
		t.Errorf("after the second takeover: %q", got.Reply)
	}
	for _, check := range []func() error{stopB, stopA} {
		if err := check(); err != nil {
			t.Error(err)
		}
	}
}

func TestANodeThatIsToEndEndsAlsoWhileItBecomesTheActiveOne(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	s := newStandby(o)
	s.ask()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := work(ctx, o, turn{standby: s}); err != nil || ctx.Err() != nil {
		t.Errorf("it ended with %v, %v", err, ctx.Err())
	}
}

func TestAPersonIsAskedOnceForAllTurns(t *testing.T) {
	t.Parallel()
	asked := 0
	ask, forget := askOnce(func(context.Context, vault.Question) (*vault.Secret, error) {
		asked++
		return vault.NewPassphrase("typed", []byte("correct horse battery"))
	})
	for range 2 {
		s, err := ask(t.Context(), vault.Question{})
		if err != nil || string(s.Reveal()) != "correct horse battery" {
			t.Fatalf("%v", err)
		}
		s.Wipe() // as the vault does when it is open
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	forget()
	if ask, forget := askOnce(nil); ask != nil || forget != nil {
		t.Error("there is nobody to ask")
	}
}

func TestAStandbyWithoutTheKeyIsToldAtOnce(t *testing.T) {
	t.Parallel()
	store := fmt.Sprintf("store: %q\n", dbtest.PostgresDSN(t))
	a, b := options(t, store), options(t, store)
	_, _ = up(t, a)
	if err := Run(t.Context(), b); !fault.Is(err, fault.Verification) && !fault.Is(err, fault.Config) {
		t.Errorf("told %v", err)
	}
}

func TestWhatWritesWithoutADaemonIsRefusedWhileAnotherIsActive(t *testing.T) {
	t.Parallel()
	store := fmt.Sprintf("store: %q\n", dbtest.PostgresDSN(t))
	a, b := options(t, store), options(t, store)
	ca, _ := up(t, a)
	_ = ask(t, ca, "remember that the boiler code is 4711")
	shareVault(t, a, b)
	_, err := ChangeVault(t.Context(), b, VaultRequest{RecoveryKey: true})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "active daemon") {
		t.Errorf("told %v", err)
	}
	if _, err := VerifyAudit(t.Context(), b, wire.AuditVerifyRequest{}); err != nil {
		t.Errorf("reading: %v", err)
	}
}
