package remote

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
)

func (b *bench) set(values ...string) {
	b.t.Helper()
	_, err := b.Set(b.t.Context(), "tg", values, "operator")
	if err != nil {
		b.t.Fatal(err)
	}
}

// pair makes ann the operator in the direct chat dm.
func (b *bench) pair(credential string) {
	b.t.Helper()
	code, err := b.pairing.Start(b.t.Context(), "adapter:tg", "operator")
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := b.Deliver(b.t.Context(), Delivery{Credential: credential, Account: "bot1", Chat: "dm", Sender: "ann", Text: "/pair " + code.Text, Key: id.New("k")})
	if err != nil || !got.Addressed {
		b.t.Fatalf("%+v %v", got, err)
	}
}

// Who is answered through an adapter depends on the same as elsewhere: who wrote, where,
// and by what ombud was addressed.
func TestWhoIsAnsweredThroughAnAdapter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		tg := b.add("tg")
		b.set("group=team:mention", "group=loud:always", "group=shut:never")
		if _, err := b.pairing.Allow(t.Context(), pairing.Sender{Channel: "adapter:tg", Account: "bot1", User: "bob"}, "Bob", "operator"); err != nil {
			t.Fatal(err)
		}
		b.pair(tg)
		for _, c := range []struct {
			name      string
			d         Delivery
			strangers channel.Strangers
			addressed channel.Why
			tier      policy.Tier
			control   bool
		}{
			{"the operator, in the paired chat", Delivery{Chat: "dm", Sender: "ann"}, channel.Ignore, channel.Direct, policy.Paired, true},
			{"the operator, in another chat", Delivery{Chat: "dm2", Sender: "ann"}, channel.Ignore, channel.Direct, policy.SemiTrusted, false},
			{"the operator, in a group, unnamed", Delivery{Chat: "team", Group: true, Sender: "ann"}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"the operator, in a group, named", Delivery{Chat: "team", Group: true, Sender: "ann", MentionsMe: true}, channel.Ignore, channel.Mentioned, policy.SemiTrusted, false},
			{"a group that calls itself the paired chat", Delivery{Chat: "dm", Group: true, Sender: "ann", MentionsMe: true}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"somebody known", Delivery{Chat: "x", Sender: "bob"}, channel.Ignore, channel.Direct, policy.SemiTrusted, false},
			{"somebody known, by a reply", Delivery{Chat: "team", Group: true, Sender: "bob", QuotesMe: true}, channel.Ignore, channel.Replied, policy.SemiTrusted, false},
			{"somebody known, by a command", Delivery{Chat: "team", Group: true, Sender: "bob", Command: true}, channel.Ignore, channel.Commanded, policy.SemiTrusted, false},
			{"somebody known, by the name in the text alone", Delivery{Chat: "team", Group: true, Sender: "bob", Text: "@bot1 hello"}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"somebody known, in a loud group", Delivery{Chat: "loud", Group: true, Sender: "bob"}, channel.Ignore, channel.EveryOne, policy.SemiTrusted, false},
			{"the operator, who passes on what another wrote", Delivery{Chat: "dm", Sender: "ann", Forwarded: true}, channel.Ignore, channel.Direct, policy.Paired, false},
			{"a command to another program, in a loud group", Delivery{Chat: "loud", Group: true, Sender: "bob", Elsewhere: true}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"somebody known, in a shut group", Delivery{Chat: "shut", Group: true, Sender: "bob", MentionsMe: true}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"somebody known, in a group that is not listed", Delivery{Chat: "else", Group: true, Sender: "bob", MentionsMe: true}, channel.Ignore, channel.NotAsked, policy.SemiTrusted, false},
			{"somebody known, at another account", Delivery{Chat: "x", Sender: "bob", Account: "bot2"}, channel.Ignore, channel.NotAsked, policy.Untrusted, false},
			{"a stranger", Delivery{Chat: "y", Sender: "eve"}, channel.Ignore, channel.NotAsked, policy.Untrusted, false},
			{"a stranger who says that he is meant", Delivery{Chat: "y", Sender: "eve", MentionsMe: true, QuotesMe: true, Command: true}, channel.Ignore, channel.NotAsked, policy.Untrusted, false},
			{"a stranger, named in a listed group", Delivery{Chat: "team", Group: true, Sender: "eve", MentionsMe: true}, channel.Ignore, channel.NotAsked, policy.Untrusted, false},
			{"the same, where members are answered", Delivery{Chat: "team", Group: true, Sender: "eve", MentionsMe: true}, channel.InGroups, channel.Mentioned, policy.Untrusted, false},
			{"a stranger where only members are answered", Delivery{Chat: "y", Sender: "eve"}, channel.InGroups, channel.NotAsked, policy.Untrusted, false},
			{"a stranger where all are answered", Delivery{Chat: "y", Sender: "eve"}, channel.Everyone, channel.Direct, policy.Untrusted, false},
			{"another program", Delivery{Chat: "y", Sender: "bob", Bot: true}, channel.Everyone, channel.NotAsked, policy.SemiTrusted, false},
		} {
			b.set("strangers=" + string(c.strangers))
			c.d.Credential, c.d.Key = tg, id.New("k")
			if c.d.Account == "" {
				c.d.Account = "bot1"
			}
			if c.d.Text == "" {
				c.d.Text = "hello"
			}
			got, err := b.Deliver(t.Context(), c.d)
			if err != nil {
				t.Fatal(err)
			}
			in, wants := b.talks.last(), c.addressed != channel.NotAsked
			if in.Addressed != string(c.addressed) || in.Overheard == wants || got.Addressed != wants || in.Tier != c.tier || in.Control != c.control {
				t.Errorf("%s: addressed %q (the adapter is told %v), overheard %v, tier %v, control %v", c.name, in.Addressed, got.Addressed, in.Overheard, in.Tier, in.Control)
			}
			if in.Address.Group != c.d.Group || c.d.Group && in.Ref != c.d.Key {
				t.Errorf("%s: group %v, ref %q", c.name, in.Address.Group, in.Ref)
			}
		}
		if told := b.talks.notices; !slices.ContainsFunc(told, func(s string) bool { return strings.HasSuffix(s, "ombud channel allow adapter:tg eve --account bot1") }) {
			t.Errorf("the operator was told %q", told)
		}
	})
}

// A code that others read in a group pairs nobody.
func TestACodeInAGroupIsNotTried(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	code, err := b.pairing.Start(t.Context(), "", "operator")
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Deliver(t.Context(), Delivery{Credential: tg, Chat: "team", Group: true, Sender: "ann", Text: "/pair " + code.Text, Key: "1"})
	if list, _ := b.pairing.List(t.Context()); err != nil || got.Addressed || len(list) != 0 || b.talks.last().Text != channel.Redacted {
		t.Errorf("%+v %v, paired are %v", got, err, list)
	}
}

func TestSettingsOfAnAdapter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add("tg")
		b.add("dc")
		if a, err := b.Get(t.Context(), "tg"); err != nil || a.Settings.Strangers != channel.Ignore {
			t.Errorf("a new adapter is %+v: %v", a, err)
		}
		b.set("agent=main", "group=-100:1:mention", "rate=3", "strangers=groups", "away=on", "quiet=22:00-07:00 UTC")
		for _, bad := range []string{"stream=on", " stream = on", "url=http://x", "rate=0", "group=x", "agent"} {
			if _, err := b.Set(t.Context(), "tg", []string{"strangers=all", bad}, "operator"); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", bad, err)
			}
		}
		if _, err := b.Set(t.Context(), "xx", []string{"rate=1"}, "operator"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		b.stop()
		b = b.restart()
		list, err := b.List(t.Context())
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		dc, set := list[0].Settings, list[1].Settings
		if set.Agent != "main" || set.Groups["-100:1"] != channel.Mention || set.Rate != 3 || set.Strangers != channel.InGroups || !set.Away || set.Quiet == "" {
			t.Errorf("it came back as %+v", set)
		}
		if dc.Rate != 0 || dc.Strangers != channel.Ignore {
			t.Errorf("another has %+v", dc)
		}
		// One that is added anew answers nobody, whatever its name was allowed before.
		if err := b.Remove(t.Context(), "tg", "operator"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(t.Context(), "tg"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		b.add("tg")
		if a, err := b.Get(t.Context(), "tg"); err != nil || a.Settings.Strangers != channel.Ignore || len(a.Settings.Groups) != 0 {
			t.Errorf("it is back with %+v: %v", a.Settings, err)
		}
	})
}

// Settings that somebody else wrote, or took from another row, are not used.
func TestSettingsThatWereTamperedWithAreNotUsed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		tg := b.add("tg")
		b.add("dc")
		b.set("strangers=all")
		if _, err := b.Set(t.Context(), "dc", []string{"strangers=ignore"}, "operator"); err != nil {
			t.Fatal(err)
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE adapters SET settings = (SELECT settings FROM adapters WHERE name = 'dc') WHERE name = 'tg'")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Deliver(t.Context(), Delivery{Credential: tg, Chat: "c", Sender: "1", Text: "hi", Key: "k"})
		_, listed := b.List(t.Context())
		for _, err := range []error{err, listed} {
			if !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "adapters.settings") {
				t.Error(err)
			}
		}
	})
}

func TestWhatGoesThroughAnAdapterKeepsToItsPace(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	tg := b.add("tg")
	b.set("rate=1", "away=on")
	first, second := b.say("c1", "first"), b.say("c1", "second")
	notice := outbox.Message{Conversation: "c2", Channel: "adapter:tg", Recipient: "c2", Run: id.New("run"), Text: "by the way", Unasked: true}
	var kept outbox.Item
	err := b.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		kept, err = b.box.AppendTx(ctx, tx, notice)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.until(first.ID, func(it outbox.Item) bool { return it.State == outbox.Queued && it.ErrorClass == fault.Unavailable })
	if got := b.next(tg, 1)[0]; got.Key != first.ID { // that nobody took it at first was no message said
		t.Errorf("handed out is %+v", got)
	}
	b.ack(tg, first.ID, Sent)
	b.becomes(first.ID, outbox.Delivered)
	b.until(second.ID, func(it outbox.Item) bool { return strings.Contains(it.Error, "1 messages a minute") })
	b.until(kept.ID, func(it outbox.Item) bool { return strings.Contains(it.Error, "quiet hours") })
	if more, err := b.Next(t.Context(), tg, "", 9, 300*time.Millisecond); err != nil || len(more) != 0 {
		t.Errorf("handed out is %+v: %v", more, err)
	}
	if a, err := b.Get(t.Context(), "tg"); err != nil || a.Said == 0 || a.Asked == 0 || a.Heard != 0 {
		t.Errorf("%+v %v", a, err)
	}
}
