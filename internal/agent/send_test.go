package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
)

// chats are conversations on a channel called chat: "mine" is the operator's.
type chats struct{ told []Address }

func (chats) Place(_ context.Context, _ db.Q, to string) (Address, error) {
	name, rest, _ := strings.Cut(to, ":")
	if name != "chat" {
		return Address{}, fault.New(fault.NotFound, "no channel %q; there are: chat", name)
	}
	return Address{Channel: "chat", Chat: rest}, nil
}

func (c chats) Told(context.Context, db.Q) ([]Address, error) { return c.told, nil }

func (chats) Operators(_ context.Context, _ db.Q, ad Address) (bool, error) {
	return ad.Chat == "mine", nil
}

// arrives is a channel on which everything arrives but to the chat lost.
type arrives struct{}

func (arrives) Send(_ context.Context, it outbox.Item) (outbox.Receipt, error) {
	if it.Recipient == "lost" {
		return outbox.Receipt{}, fault.New(fault.NotFound, "there is no such chat")
	}
	return outbox.Receipt{Ref: "1"}, nil
}

func (b *bench) sends(to, cause, text string) (it outbox.Item, err error) {
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		it, err = b.SendTx(ctx, tx, Sending{To: to, Cause: cause, By: "agent:main", Text: text, Label: label.Of(label.Own, label.OperatorOnly)})
		return err
	})
	return it, err
}

func TestAMessageOfItsOwnGoesToWhomItNames(t *testing.T) {
	t.Parallel()
	each(t, setup{sender: arrives{}}, func(t *testing.T, b *bench) {
		b.Places = chats{}
		for to, want := range map[string]string{
			"bob": `nobody is called "bob"`, "local:enginer": "no conversation", "mail:bob": "there are: chat", "conv_01a22e100f2c7000b9817b33611e0da3": "no conversation",
		} {
			if _, err := b.sends(to, "run_"+to, "hello"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", to, err)
			}
		}
		if n := b.count("SELECT count(*) FROM conversations"); n != 0 {
			t.Errorf("%d inboxes were made that nobody reads", n)
		}
		it, err := b.sends("chat:ann", "run_1", "the **tea** is ready")
		if err != nil || it.Recipient != "ann" || !it.Unasked {
			t.Fatalf("%+v %v", it, err)
		}
		again, err := b.sends("chat:ann", "run_1", "the **tea** is ready")
		if err != nil || again.ID != it.ID {
			t.Errorf("the same cause is another message: %+v %v", again, err)
		}
		if n := b.count("SELECT seq FROM conversations WHERE id = '" + it.Conversation + "'"); n != 1 {
			t.Errorf("it is in the history %d times", n)
		}
		// The operator is told of what goes to others, not of what goes to them.
		if _, err := b.sends("chat:mine", "run_2", "your briefing"); err != nil {
			t.Error(err)
		}
		main, err := b.sends(ToOperator, "run_3", "a note")
		if err != nil {
			t.Fatal(err)
		}
		if out := b.out(main.Conversation); len(out) != 2 || !strings.Contains(out[0], "agent:main sent to ann on chat: the **tea** is ready") || out[1] != "a note" {
			t.Errorf("%q", out)
		}
	})
}

// The same words said by the tool and then as the answer are one message.
func TestAnAnswerThatWasSentAlreadyIsOneMessage(t *testing.T) {
	t.Parallel()
	each(t, setup{sender: arrives{}}, func(t *testing.T, b *bench) {
		b.Places = chats{}
		got, err := b.Intake(t.Context(), Inbound{
			Address: Address{Channel: "chat", Chat: "ann"}, Sender: "ann", Text: "hello", Source: label.Operator, Key: "1",
		})
		if err != nil {
			t.Fatal(err)
		}
		b.answer(got.Run) // "re: hello"
		send := func(text string) outbox.Item {
			var it outbox.Item
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
				it, err = b.SendTx(ctx, tx, Sending{To: got.Conversation, Text: text, Cause: "step", Run: got.Run, By: "agent:main", Label: label.Of(label.Own, label.OperatorOnly)})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return it
		}
		if it := send("re: hello"); it.Ordinal != 0 {
			t.Errorf("it is said again: %+v", it)
		}
		if one, two := send("something else"), send("and more"); one.Ordinal != 1 || two.Ordinal != 2 {
			t.Errorf("%+v %+v", one, two)
		}
		if out := b.out(got.Conversation); len(out) != 3 {
			t.Errorf("%q", out)
		}
	})
}

// What the operator is told at the machine is also told in the chats they chose, once.
func TestTheOperatorIsToldWhereTheyWantToBe(t *testing.T) {
	t.Parallel()
	each(t, setup{sender: arrives{}}, func(t *testing.T, b *bench) {
		b.Places = chats{told: []Address{{Channel: "chat", Chat: "mine"}}}
		for range 2 {
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return b.NoticeTx(ctx, tx, "cause", "the tea is ready") })
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.sends(ToOperator, "run_1", "your briefing"); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", "two"} { // of the results of one turn
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := b.SendTx(ctx, tx, Sending{To: ToOperator, Text: text, Run: "run_2", By: "agent:main", Label: label.Of(label.Own, label.OperatorOnly)})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]int{}
		items, err := b.Outbox.List(t.Context(), outbox.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			got[it.Channel+": "+it.Text]++
		}
		want := map[string]int{"local: the tea is ready": 1, "chat: the tea is ready": 1, "local: your briefing": 1, "chat: your briefing": 1}
		for _, text := range []string{"one", "two"} {
			want["local: "+text], want["chat: "+text] = 1, 1
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v", got)
		}
	})
}

// KARMAX's cases: the same words within six hours, much the same within ten minutes.
func TestWhatWasJustSaidIsNotSaidAgain(t *testing.T) {
	t.Parallel()
	each(t, setup{sender: arrives{}}, func(t *testing.T, b *bench) {
		b.Places = chats{}
		const news = "The quarterly report for Berlin is finished and waiting in the shared folder"
		if _, err := b.sends("chat:ann", "run_1", news); err != nil {
			t.Fatal(err)
		}
		age := func(minutes int) {
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE outbox SET queued = queued - $1", int64(minutes)*60e6)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range []struct {
			after   int // minutes more
			to      string
			text    string
			refused bool
		}{
			{0, "chat:ann", "the QUARTERLY report, for Berlin, is finished and waiting in the shared folder!", true},
			{0, "chat:ann", "Berlin: the finished quarterly report is waiting in your shared folder", true},
			{0, "chat:bob", news, false},
			{0, "chat:ann", "Lunch is at noon", false},
			{11, "chat:ann", "Berlin: the finished quarterly report is waiting in your shared folder", false},
			{11, "chat:ann", news, true},
			{400, "chat:ann", news, false},
		} {
			age(c.after)
			_, err := b.sends(c.to, "run_c"+string(rune('a'+i)), c.text)
			if got := fault.Is(err, fault.Conflict); got != c.refused || err != nil && !got {
				t.Errorf("%d: %q: %v", i, c.text, err)
			}
		}
	})
}

// A message that cannot be delivered is known to the next turn and to the operator.
func TestTheNextTurnKnowsWhatDidNotArrive(t *testing.T) {
	t.Parallel()
	knows := func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		return said(fmt.Sprint(strings.Contains(fmt.Sprint(req.Messages), "was not delivered")))
	}
	each(t, setup{sender: arrives{}, main: knows}, func(t *testing.T, b *bench) {
		b.Places = chats{}
		it, err := b.sends("chat:lost", "run_1", "are you there?")
		if err != nil {
			t.Fatal(err)
		}
		b.until("it has failed", func() bool { x, err := b.Outbox.Get(t.Context(), it.ID); return err == nil && x.State == outbox.Failed })
		failed, err := b.Outbox.Get(t.Context(), it.ID)
		if err != nil {
			t.Fatal(err)
		}
		err = b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return b.UndeliveredTx(ctx, tx, failed) })
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Intake(t.Context(), Inbound{
			Address: Address{Channel: "chat", Chat: "lost"}, Sender: "ann", Text: "hello", Source: label.Operator, Tier: 0, Key: "1",
		})
		if err != nil {
			t.Fatal(err)
		}
		if a := b.answer(got.Run); a.Reply+a.Withheld != "true" {
			t.Errorf("the next turn does not know: %+v", a)
		}
	})
}
