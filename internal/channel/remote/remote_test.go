package remote

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talks stands for the agents: it judges messages in a transaction of the store,
// as they do, and keeps them.
type talks struct {
	db *db.DB
	mu sync.Mutex
	in []agent.Inbound

	notices []string // to the operator
}

func (c *talks) Intake(ctx context.Context, in agent.Inbound) (out agent.Accepted, err error) {
	err = c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		judged := in
		var settled bool
		out.Notice, settled, err = in.Judge(ctx, tx, &judged)
		if err == nil && !settled && !judged.Overheard {
			out.Run = "run_1"
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.in = append(c.in, judged)
		return err
	})
	return out, err
}

func (c *talks) ConversationIn(_ context.Context, _ db.Q, conversation string) (agent.Conversation, error) {
	return agent.Conversation{ID: conversation, Address: agent.Address{Channel: "adapter:tg", Account: "bot1", Chat: conversation, Thread: "t"}}, nil
}

func (c *talks) AddressesOn(_ context.Context, _ db.Q, channel string) (out []agent.Address, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.in {
		if in.Address.Channel == channel {
			out = append(out, in.Address)
		}
	}
	return out, nil
}

func (c *talks) PressTx(context.Context, *db.Tx, string, bool, string) (string, error) {
	return "", fault.New(fault.Internal, "an adapter has no buttons")
}

func (c *talks) NoticeTx(_ context.Context, _ *db.Tx, _, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notices = append(c.notices, text)
	return nil
}

func (c *talks) last() agent.Inbound {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in[len(c.in)-1]
}

type bench struct {
	t testing.TB
	*Remote
	talks    *talks
	pairing  *pairing.Pairing
	box      *outbox.Outbox
	restart  func() *bench
	closeAll sync.Once
}

func setup(t testing.TB, d *db.DB) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	events := eventlog.NewLog(d, v, quiet, eventlog.Options{})
	chain := audit.New(d, v, "test", quiet)
	if err := chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := chain.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var open func() *bench
	open = func() *bench {
		b := &bench{t: t, talks: &talks{db: d}, pairing: pairing.New(d, v, events, chain), restart: open}
		channels := outbox.NewSenders()
		b.box = outbox.New(d, v, events, channels, outbox.Options{Poll: 10 * time.Millisecond, SendTimeout: 20 * time.Second, Grace: time.Millisecond})
		b.Remote = New(Deps{
			DB: d, Vault: v, Log: events, Audit: chain, Conversations: b.talks, Senders: b.pairing, Channels: channels, Outbox: b.box,
		}, Config{Lease: 2 * time.Second, Offer: 100 * time.Millisecond, Pause: 10 * time.Millisecond})
		if err := b.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.box.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.stop)
		return b
	}
	return open()
}

func (b *bench) stop() { b.closeAll.Do(b.box.Stop) }

func (b *bench) add(name string) string {
	b.t.Helper()
	_, credential, err := b.Add(b.t.Context(), name, "operator")
	if err != nil {
		b.t.Fatal(err)
	}
	return credential
}

// say puts something into the outbox for the adapter tg.
func (b *bench) say(chat, text string) outbox.Item {
	b.t.Helper()
	var it outbox.Item
	err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		it, err = b.box.AppendTx(ctx, tx, outbox.Message{Conversation: chat, Channel: "adapter:tg", Recipient: chat, Run: id.New("run"), Text: text})
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return it
}

// next asks until it is handed n messages.
func (b *bench) next(credential string, n int) (out []Outgoing) {
	b.t.Helper()
	over := time.Now().Add(20 * time.Second)
	for len(out) < n {
		got, err := b.Next(b.t.Context(), credential, "", n-len(out), time.Second)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, got...)
		if time.Now().After(over) {
			b.t.Fatalf("%d messages were handed out, not %d", len(out), n)
		}
	}
	return out
}

func (b *bench) ack(credential, key string, r Result) {
	b.t.Helper()
	if err := b.Ack(b.t.Context(), Settlement{Credential: credential, Key: key, Result: r, Ref: "net-" + key, Error: "because"}); err != nil {
		b.t.Fatal(err)
	}
}

// becomes waits for an item to get to a state.
func (b *bench) becomes(itemID string, want outbox.State) outbox.Item {
	b.t.Helper()
	return b.until(itemID, func(it outbox.Item) bool { return it.State == want })
}

// until waits for an item to be as it is wanted.
func (b *bench) until(itemID string, is func(outbox.Item) bool) outbox.Item {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var it outbox.Item
	for over := time.Now().Add(20 * time.Second); time.Now().Before(over); <-tick.C {
		var err error
		if it, err = b.box.Get(b.t.Context(), itemID); err != nil {
			b.t.Fatal(err)
		}
		if is(it) {
			return it
		}
	}
	b.t.Fatalf("item is %s (%s)", it.State, it.Error)
	return it
}

func TestACredentialIsGoodUntilItsAdapterIsRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		tg, dc := b.add("tg"), b.add("dc")
		_, secret, _ := strings.Cut(tg, ".")
		deliver := func(credential string) error {
			_, err := b.Deliver(t.Context(), Delivery{Credential: credential, Chat: "c", Sender: "1", Text: "hi", Key: id.New("k")})
			return err
		}
		refused := func(why, credential string) {
			t.Helper()
			_, next := b.Next(t.Context(), credential, "", 1, 0)
			for _, err := range []error{deliver(credential), next, b.Ack(t.Context(), Settlement{Credential: credential, Key: "x", Result: Sent})} {
				if !fault.Is(err, fault.Denied) || err.Error() != errCredential.Error() {
					t.Errorf("%s: %v", why, err)
				}
			}
		}
		if err := deliver(tg); err != nil {
			t.Fatal(err)
		}
		if in := b.talks.last(); in.Address.Channel != "adapter:tg" {
			t.Errorf("it came by %s", in.Address.Channel)
		}
		for why, bad := range map[string]string{
			"nothing": "", "a name": "tg", "a name and a dot": "tg.", "another's secret": "dc." + secret, "a name that is none": "../x." + secret,
			"an adapter that never was": "xx." + secret, "a short secret": tg[:len(tg)-2], "another secret": "tg." + strings.Repeat("0", 64),
		} {
			refused(why, bad)
		}
		if _, _, err := b.Add(t.Context(), "tg", "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("added twice: %v", err)
		}
		if err := b.Remove(t.Context(), "tg", "operator"); err != nil {
			t.Fatal(err)
		}
		refused("a removed adapter", tg)
		if err := b.Remove(t.Context(), "tg", "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("removed twice: %v", err)
		}
		if list, err := b.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != "dc" {
			t.Errorf("listed are %+v: %v", list, err)
		}
		again := b.add("tg")
		refused("the credential from before", tg)
		if deliver(again) != nil || deliver(dc) != nil {
			t.Error("a good credential is refused")
		}
		for _, bad := range []string{"", "Tg", "a.b", "a b", strings.Repeat("a", 33)} {
			if _, _, err := b.Add(t.Context(), bad, "operator"); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}

// A chat is named by its id, whatever account it is of, as long as that can be known.
func TestAChatIsNamedByItsID(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	place := func(to string) (ad agent.Address, err error) {
		err = b.DB.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			ad, err = b.Place(ctx, q, to)
			return err
		})
		return ad, err
	}
	fails := func(to string, class fault.Class, want string) {
		t.Helper()
		if _, err := place(to); !fault.Is(err, class) || !strings.Contains(err.Error()+" "+fault.HintOf(err), want) {
			t.Errorf("%s: %v (%s), want %s", to, err, fault.HintOf(err), want)
		}
	}
	fails("adapter:tg:ann", fault.NotFound, "none was added")
	tg, _ := b.add("tg"), b.add("dc")
	fails("adapter:xx:ann", fault.NotFound, "there are: adapter:dc, adapter:tg")
	fails("adapter:tg:ann", fault.NotFound, "nothing was heard")
	fails("adapter:tg", fault.Invalid, "adapter:tg:CHAT/THREAD")
	hear := func(account, chat, thread string) {
		t.Helper()
		if _, err := b.Deliver(t.Context(), Delivery{Credential: tg, Account: account, Chat: chat, Thread: thread, Sender: "1", Text: "hi", Key: id.New("k")}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(to string, want agent.Address) {
		t.Helper()
		want.Channel = "adapter:tg"
		if ad, err := place(to); err != nil || ad != want {
			t.Errorf("%s is %+v %v, want %+v", to, ad, err, want)
		}
	}
	hear("me@x", "ann", "")
	hear("me@x", "a/b", "7")
	is("adapter:tg:ann", agent.Address{Account: "me@x", Chat: "ann"})
	is("adapter:tg:ann/9", agent.Address{Account: "me@x", Chat: "ann", Thread: "9"})
	is("adapter:tg:a/b", agent.Address{Account: "me@x", Chat: "a/b"})
	is("adapter:tg:new:one", agent.Address{Account: "me@x", Chat: "new:one"}) // the only account there is
	fails("adapter:tg:", fault.Invalid, "known are: adapter:tg:ann of the account me@x, adapter:tg:a/b/7")
	hear("you@x", "bob", "")
	hear("you@x", "both", "")
	hear("me@x", "both", "")
	is("adapter:tg:bob", agent.Address{Account: "you@x", Chat: "bob"})
	fails("adapter:tg:new", fault.Invalid, "has several accounts")
	fails("adapter:tg:both", fault.Invalid, "adapter:tg:both of the account you@x")
}

// What waits for an adapter fails with it, whether the outbox has it or it is on offer.
func TestWhatWaitsForARemovedAdapterFailsWithIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.cfg.Offer, b.cfg.Pause = time.Hour, time.Hour
		b.add("tg")
		offered := b.say("a", "one")
		waits := b.say("a", "two") // behind it
		b.becomes(offered.ID, outbox.Sending)
		if err := b.Remove(t.Context(), "tg", "operator"); err != nil {
			t.Fatal(err)
		}
		if it, err := b.box.Get(t.Context(), waits.ID); err != nil || it.State != outbox.Failed || !strings.Contains(it.Error, "removed") {
			t.Errorf("what waited: %+v %v", it, err)
		}
		if it := b.becomes(offered.ID, outbox.Failed); !strings.Contains(it.Error, "removed") {
			t.Errorf("what was on offer: %+v", it)
		}
	})
}

// What a message may do depends on its sender and its chat, never on what it or
// the adapter says beside.
func TestAMessageIsRankedByItsSender(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	send := func(d Delivery) agent.Inbound {
		t.Helper()
		d.Credential, d.Key = tg, id.New("k")
		if _, err := b.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		return b.talks.last()
	}
	expect := func(why string, in agent.Inbound, tier policy.Tier) {
		t.Helper()
		operator := tier == policy.Paired
		source, audience := label.Untrusted("adapter:tg/"+in.Sender), label.Audience("")
		if operator {
			source, audience = label.Operator, label.OperatorOnly
		}
		if in.Tier != tier || in.Source != source || in.Audience != audience || in.Control != operator {
			t.Errorf("%s: tier %s, source %s, audience %q, control %v", why, in.Tier, in.Source, in.Audience, in.Control)
		}
	}
	ann := Delivery{Account: "bot1", Chat: "dm", Sender: "1001", SenderName: "Ann", Text: "hi"}
	expect("with nobody paired", send(ann), policy.Untrusted)
	code, err := b.pairing.Start(t.Context(), "", "operator")
	if err != nil {
		t.Fatal(err)
	}
	wrong, right := ann, ann
	wrong.Text, right.Text = "/pair 0000-0000", "/PAIR "+code.Text
	if in := send(wrong); in.Text != channel.Redacted || in.Control {
		t.Errorf("a wrong code is kept as %q", in.Text)
	}
	expect("after a wrong code", send(ann), policy.Untrusted)
	if in := send(right); in.Text != channel.Redacted {
		t.Errorf("the code is kept as %q", in.Text)
	}
	expect("the operator", send(ann), policy.Paired)
	for why, change := range map[string]func(*Delivery){
		"her name on somebody else": func(d *Delivery) { d.Sender = "1002" },
		"another account":           func(d *Delivery) { d.Account = "bot2" },
	} {
		d := ann
		change(&d)
		expect(why, send(d), policy.Untrusted)
	}
	for why, change := range map[string]func(*Delivery){
		"the operator in a group":               func(d *Delivery) { d.Chat, d.Group = "g", true },
		"the operator in another chat":          func(d *Delivery) { d.Chat = "g" },
		"the chat, which is said to be a group": func(d *Delivery) { d.Group = true },
	} {
		d := ann
		change(&d)
		expect(why, send(d), policy.SemiTrusted)
	}
	bob := Delivery{Account: "bot1", Chat: "bob", Sender: "7", Text: "hi"}
	expect("a stranger", send(bob), policy.Untrusted)
	if _, err := b.pairing.Allow(t.Context(), pairing.Sender{Channel: "adapter:tg", Account: "bot1", User: "7"}, "Bob", "operator"); err != nil {
		t.Fatal(err)
	}
	expect("somebody listed", send(bob), policy.SemiTrusted)
	for _, bad := range []Delivery{
		{Chat: "c", Text: "x", Key: "k"}, {Sender: "1", Text: "x", Key: "k"}, {Sender: "1", Chat: "c", Text: "x"},
		{Sender: "a\x00b", Chat: "c", Text: "x", Key: "k"}, {Sender: "1", Chat: "c", Text: "x", Key: strings.Repeat("k", maxPart+1)},
		{Sender: "1", Chat: "c", Thread: "\xff", Text: "x", Key: "k"},
	} {
		bad.Credential = tg
		if _, err := b.Deliver(t.Context(), bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestAMessageGoesOutOnceAndIsSettledByItsKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		tg, dc := b.add("tg"), b.add("dc")
		it := b.say("c1", "hello")
		got := b.next(tg, 1)[0]
		if got.Key != it.ID || got.Account != "bot1" || got.Chat != "c1" || got.Thread != "t" || got.Text != "hello" || got.Again {
			t.Errorf("handed out is %+v", got)
		}
		if more, err := b.Next(t.Context(), tg, "", 10, 0); err != nil || len(more) != 0 {
			t.Errorf("it is handed out to two at once: %+v %v", more, err)
		}
		if err := b.Ack(t.Context(), Settlement{Credential: dc, Key: it.ID, Result: Sent}); !fault.Is(err, fault.NotFound) {
			t.Errorf("another adapter settled it: %v", err)
		}
		if err := b.Ack(t.Context(), Settlement{Credential: tg, Key: it.ID, Result: "done"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a result that is none: %v", err)
		}
		b.ack(tg, it.ID, Sent)
		if it := b.becomes(it.ID, outbox.Delivered); it.Ref != "net-"+it.ID {
			t.Errorf("delivered as %+v", it)
		}
		b.ack(tg, it.ID, Sent) // once more changes nothing
		if err := b.Ack(t.Context(), Settlement{Credential: tg, Key: "obx_x", Result: Sent}); !fault.Is(err, fault.NotFound) {
			t.Errorf("a message that never was: %v", err)
		}
	})
}

func TestAnAdapterSaysWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	refused, retried, unsure := b.say("c1", "refused"), b.say("c2", "retried"), b.say("c3", "unsure")
	for _, o := range b.next(tg, 3) {
		switch o.Chat {
		case "c1":
			b.ack(tg, o.Key, Refused)
		case "c2":
			if err := b.Ack(t.Context(), Settlement{Credential: tg, Key: o.Key, Result: NotSent, RetryAfter: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
		case "c3":
			b.ack(tg, o.Key, Unknown)
		}
	}
	if it := b.becomes(refused.ID, outbox.Failed); it.ErrorClass != fault.Invalid || !strings.Contains(it.Error, "because") {
		t.Errorf("refused: %+v", it)
	}
	for n := 0; n < 2; {
		for _, o := range b.next(tg, 1) {
			n++
			switch o.Chat {
			case "c2":
				if o.Again {
					t.Error("what was surely not sent is handed out as a repeat")
				}
				b.ack(tg, o.Key, Sent)
			case "c3": // asked once more what became of it
				if !o.Again {
					t.Error("what may have been sent is handed out as new")
				}
				b.ack(tg, o.Key, Unknown)
			}
		}
	}
	b.becomes(retried.ID, outbox.Delivered)
	b.becomes(unsure.ID, outbox.Uncertain)
	b.ack(tg, unsure.ID, Sent) // it found out later
	b.becomes(unsure.ID, outbox.Delivered)
}

func TestAMessageWaitsForAnAdapterThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	it := b.say("c1", "hello")
	b.becomes(it.ID, outbox.Sending)
	if it := b.becomes(it.ID, outbox.Queued); it.ErrorClass != fault.Unavailable {
		t.Errorf("not taken: %+v", it)
	}
	if got := b.next(tg, 1)[0]; got.Again {
		t.Error("what was never handed out is a repeat")
	}
	b.ack(tg, it.ID, Sent)
	b.becomes(it.ID, outbox.Delivered)
}

func TestAMessageTakenAndNotSettledIsHandedOutAgainAsSuch(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	it := b.say("c1", "hello")
	if got := b.next(tg, 1)[0]; got.Again {
		t.Error("the first time is a repeat")
	}
	if got := b.next(tg, 1)[0]; !got.Again || got.Key != it.ID { // the adapter died; its next process asks
		t.Errorf("handed out again: %+v", got)
	}
	b.ack(tg, it.ID, Sent)
	b.becomes(it.ID, outbox.Delivered)
}

func TestOrderWithinAChatIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	for _, text := range []string{"1", "2", "3"} {
		b.say("c1", text)
	}
	for _, want := range []string{"1", "2", "3"} {
		got := b.next(tg, 1)[0]
		if got.Text != want {
			t.Fatalf("%s came before %s", got.Text, want)
		}
		b.ack(tg, got.Key, Sent)
	}
}

// The daemon dies between the handing out and the settlement: the next one asks
// the adapter, which knows the key, and nothing is sent twice.
func TestAMessageInFlightWhenTheDaemonDiesIsSettledByItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	it := b.say("c1", "hello")
	sent := map[string]int{}
	for _, o := range b.next(tg, 1) {
		sent[o.Key]++ // and the settlement never arrives
	}
	b.stop()
	b = b.restart()
	got := b.next(tg, 1)[0]
	if got.Key != it.ID || !got.Again {
		t.Fatalf("handed out is %+v", got)
	}
	if sent[got.Key] == 0 {
		t.Fatal("the key is another")
	}
	b.ack(tg, got.Key, Sent)
	if it := b.becomes(it.ID, outbox.Delivered); it.Ref == "" {
		t.Errorf("delivered as %+v", it)
	}
}

func TestWhatIsStillToBeSaidThroughARemovedAdapterFailsWithTheReason(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	asked := make(chan error, 1)
	go func() {
		_, err := b.Next(t.Context(), tg, "other", 1, 20*time.Second)
		asked <- err
	}()
	if err := b.Remove(t.Context(), "tg", "operator"); err != nil {
		t.Fatal(err)
	}
	it := b.say("c1", "hello")
	if it := b.becomes(it.ID, outbox.Failed); it.ErrorClass != fault.Denied {
		t.Errorf("it is %+v", it)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Next(ctx, tg, "", 1, time.Second); !fault.Is(err, fault.Denied) && !errors.Is(err, context.Canceled) {
		t.Errorf("a removed adapter asks: %v", err)
	}
	select {
	case err := <-asked:
		if !fault.Is(err, fault.Denied) {
			t.Errorf("an adapter that was removed while it asked: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it asks for ever")
	}
}
