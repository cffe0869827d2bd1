package pairing

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t  testing.TB
	db *db.DB
	*Pairing
}

func setup(t testing.TB, d *db.DB) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	chain := audit.New(d, v, "test", quiet)
	if err := chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := chain.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, d, New(d, v, eventlog.NewLog(d, v, quiet, eventlog.Options{}), chain)}
}

func (b *bench) start(channel string) Code {
	b.t.Helper()
	c, err := b.Start(b.t.Context(), channel, "operator")
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// send sends a code as a message would bring it: a refusal is committed.
func (b *bench) send(s Sender, chat string, group bool, text string) (i Identity, refused error) {
	b.t.Helper()
	err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		i, refused = b.RedeemTx(ctx, tx, s, "Ann", chat, group, text)
		if fault.Is(refused, fault.Denied) {
			return nil
		}
		return refused
	})
	if err != nil {
		b.t.Error(err)
	}
	return i, refused
}

func (b *bench) of(s Sender) Identity {
	b.t.Helper()
	var i Identity
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		i, err = b.Of(ctx, q, s)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

var ann = Sender{Channel: "adapter:tg", Account: "bot1", User: "1001"}

func TestACodePairsOneUserInOneChatOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		if got := b.of(ann); got.Standing != Stranger {
			t.Fatalf("with nobody listed she is %s", got.Standing)
		}
		c := b.start("")
		if len(c.Text) != 9 || strings.Trim(c.Text, letters+"-") != "" {
			t.Errorf("the code is %q", c.Text)
		}
		if got, err := b.send(ann, "dm", false, " "+strings.ToLower(c.Text)+" "); err != nil || got.Standing != Operator {
			t.Fatalf("paired: %+v %v", got, err)
		}
		got := b.of(ann)
		if !got.OperatorIn("dm", false) || got.OperatorIn("dm", true) || got.OperatorIn("other", false) || got.OperatorIn("", false) {
			t.Errorf("she is %+v", got)
		}
		for _, other := range []Sender{
			{"adapter:tg", "bot1", "1002"}, {"adapter:tg", "bot2", "1001"}, {"adapter:dc", "bot1", "1001"}, {"adapter:tg", "", "1001"},
		} {
			if got := b.of(other); got.Standing != Stranger {
				t.Errorf("%+v is %s", other, got.Standing)
			}
		}
		if _, err := b.send(Sender{"adapter:tg", "bot1", "1002"}, "dm2", false, c.Text); !fault.Is(err, fault.Denied) {
			t.Errorf("the code is good twice: %v", err)
		}
		if i, err := b.chatOf("adapter:tg", "bot1", "dm"); err != nil || i.ID != got.ID {
			t.Errorf("the chat is that of %+v: %v", i, err)
		}
		if _, err := b.chatOf("adapter:tg", "bot2", "dm"); !fault.Is(err, fault.NotFound) {
			t.Errorf("another account's chat: %v", err)
		}
		if _, err := b.Remove(t.Context(), got.ID[:len(got.ID)-2], "operator"); err != nil {
			t.Fatal(err)
		}
		if got := b.of(ann); got.Standing != Stranger {
			t.Errorf("after it was removed she is %s", got.Standing)
		}
		if list, err := b.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("listed are %v: %v", list, err)
		}
	})
}

// chatOf is the operator whose direct chat it is.
func (b *bench) chatOf(channel, account, chat string) (i Identity, err error) {
	err = b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		i, err = b.OperatorChat(ctx, q, channel, account, chat)
		return err
	})
	return i, err
}

func TestEveryCodeThatIsNotGoodHasOneAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	refused := func(why string, s Sender, chat string, group bool, text string) {
		t.Helper()
		_, err := b.send(s, chat, group, text)
		if !fault.Is(err, fault.Denied) || err.Error() != errCode.Error() {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("no code is open", ann, "dm", false, "0000-0000")
	old := b.start("")
	now := b.start("adapter:dc")
	refused("an older code", ann, "dm", false, old.Text)
	refused("another channel", ann, "dm", false, now.Text)
	now = b.start("adapter:tg")
	refused("a group", ann, "g", true, now.Text)
	refused("no chat", ann, "", false, now.Text)
	refused("nothing", ann, "dm", false, "")
	refused("noise", ann, "dm", false, strings.Repeat("x", 5000))
	if got := b.of(ann); got.Standing != Stranger {
		t.Fatalf("she is %s", got.Standing)
	}
	if _, err := b.send(ann, "dm", false, now.Text); err != nil {
		t.Errorf("the good one, at the fifth try: %v", err)
	}
	late := b.start("")
	expire(t, b)
	refused("an expired code", Sender{"adapter:tg", "bot1", "1002"}, "dm2", false, late.Text)
}

func expire(t *testing.T, b *bench) {
	t.Helper()
	err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE pair_codes SET expires = $1", tx.Now()-1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuessingShutsOutTheGuesserAndThenClosesTheCode(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	c := b.start("")
	eve := func(n int) Sender { return Sender{"adapter:tg", "bot1", fmt.Sprintf("eve%d", n)} }
	for range 3 * perSender {
		_, err := b.send(eve(0), "e", false, "0000-0000")
		if !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
	}
	if _, err := b.send(eve(0), "e", false, c.Text); !fault.Is(err, fault.Denied) {
		t.Errorf("who guessed five times is heard: %v", err)
	}
	// One guesser does not use up the code for the others.
	for n := 1; n <= 3; n++ {
		for range perSender - 1 {
			_, err := b.send(eve(n), "e", false, "0000-0000")
			if !fault.Is(err, fault.Denied) {
				t.Fatal(err)
			}
		}
	}
	if _, err := b.send(ann, "dm", false, c.Text); err != nil {
		t.Fatalf("after %d guesses: %v", perSender+3*(perSender-1), err)
	}
	c = b.start("")
	for n := range perCode {
		_, err := b.send(eve(n), "e", false, "0000-0000")
		if !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
	}
	if _, err := b.send(Sender{"adapter:tg", "bot1", "1002"}, "dm2", false, c.Text); !fault.Is(err, fault.Denied) {
		t.Errorf("a code that was guessed at %d times is good: %v", perCode, err)
	}
}

func TestACodeSentManyTimesAtOncePairsOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		c := b.start("")
		var paired atomic.Int32
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				if _, err := b.send(Sender{"adapter:tg", "bot1", fmt.Sprint(n)}, fmt.Sprint("dm", n), false, c.Text); err == nil {
					paired.Add(1)
				}
			})
		}
		wg.Wait()
		if list, err := b.List(t.Context()); err != nil || paired.Load() != 1 || len(list) != 1 {
			t.Errorf("%d were paired, %d are listed: %v", paired.Load(), len(list), err)
		}
	})
}

func TestAKnownSenderIsNoOperator(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	first, err := b.Allow(t.Context(), ann, "Ann", "operator")
	if err != nil || first.Standing != Known || first.OperatorIn("dm", false) {
		t.Fatalf("%+v %v", first, err)
	}
	if again, err := b.Allow(t.Context(), ann, "Ann", "operator"); err != nil || again.ID != first.ID {
		t.Errorf("listed twice: %+v %v", again, err)
	}
	if _, err := b.send(ann, "dm", false, b.start("").Text); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Allow(t.Context(), ann, "Ann", "operator"); err != nil || got.Standing != Operator {
		t.Errorf("listing an operator makes them %s: %v", got.Standing, err)
	}
	for _, bad := range []Sender{{}, {Channel: "x"}, {Channel: "x", User: " "}, {Channel: "x", User: "a\x00b"}, {Channel: "x", User: "\xff"}, {Channel: "x", User: strings.Repeat("a", maxPart+1)}} {
		if _, err := b.Allow(t.Context(), bad, "", "operator"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestATamperedSenderIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	eve := Sender{"adapter:tg", "bot1", "666"}
	known, err := b.Allow(t.Context(), eve, "Eve", "operator")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Allow(t.Context(), ann, "Ann", "operator"); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]string{
		"raised":        "UPDATE senders SET standing = 'operator' WHERE id = '" + known.ID + "'",
		"another's row": "UPDATE senders SET body = (SELECT body FROM senders WHERE id <> '" + known.ID + "')",
	} {
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Exec(ctx, change); err != nil {
				return err
			}
			_, err := b.Of(ctx, tx, eve)
			if !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), known.ID) {
				t.Errorf("%s: %v", name, err)
			}
			return fault.New(fault.Internal, "undo")
		})
		if !fault.Is(err, fault.Internal) {
			t.Fatal(err)
		}
	}
}

func TestOnlyADigestOfACodeIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	c := b.start("")
	err := b.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		var kept []byte
		err := q.QueryRow(ctx, "SELECT code FROM pair_codes").Scan(&kept)
		if bytes.Contains(kept, []byte(c.Text)) || bytes.Contains(kept, []byte(normal(c.Text))) || len(kept) != 32 {
			t.Error("the code is in the store")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
