package channel

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
)

func TestAChannelIsAddedOnceItsNetworkSaysWhoOmbudIs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		refused := fault.New(fault.Denied, "the key is refused")
		s.net.check = func() (Me, error) { return Me{}, refused }
		_, err := s.Add(t.Context(), Adding{Kind: "net", Secrets: map[string]string{"token": "sesame"}}, "operator")
		if !fault.Is(err, fault.Denied) || len(s.secrets) != 0 || len(s.List()) != 0 {
			t.Errorf("%v %v %v", err, s.secrets, s.List())
		}
		for want, a := range map[string]Adding{
			"there are: net":      {Kind: "nett"},
			"needs its token":     {Kind: "net"},
			`no setting "colour"`: {Kind: "net", Values: map[string]string{"colour": "red"}},
			`no secret "url"`:     {Kind: "net", Secrets: map[string]string{"token": "x", "url": "y"}},
			"a letter first":      {Kind: "net", Name: "1net", Secrets: map[string]string{"token": "x"}},
			"given is empty":      {Kind: "net", Values: map[string]string{"team": "x"}, Secrets: map[string]string{"token": " \n"}},
			"not \"local\"":       {Kind: "net", Name: "local", Secrets: map[string]string{"token": "x"}},
		} {
			if _, err := s.Add(t.Context(), a, "operator"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		s.net.check = nil
		if i := s.add(map[string]string{"team": "a"}); i.Name != "net" || i.Me.Name != "@me" || i.Settings.Strangers != Ignore {
			t.Errorf("%+v", i)
		}
		if _, err := s.Add(t.Context(), Adding{Kind: "net", Secrets: map[string]string{"token": "sesame"}}, "operator"); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
		s.until("it works", func() bool { return s.List()[0].State == Working })

		// Another life knows it.
		s.Stop()
		again := newAgain(t, s)
		if i, err := again.Get("net"); err != nil || i.Me.ID != "me" || i.Settings.Values["team"] != "a" {
			t.Errorf("%+v %v", i, err)
		}
		if err := again.Remove(t.Context(), "net", "operator"); err != nil || len(again.List()) != 0 || len(s.secrets) != 0 {
			t.Errorf("%v %v %v", err, again.List(), s.secrets)
		}
		if _, err := again.Get("net"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

// newAgain is the channels of a store once more, as another life has them.
func newAgain(t *testing.T, s *site) *site {
	t.Helper()
	n := &network{}
	again, err := assemble(s.db, n, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	again.t, again.secrets, again.Secrets = t, s.secrets, s.secrets
	again.book = s.book
	again.Audit = s.book
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return again
}

// Who is answered depends on who wrote, where, and by what ombud was addressed; on nothing
// that anybody says.
func TestWhoIsAnswered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"group=team:mention", "group=loud:always", "group=shut:never"}}, "operator"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.people.Allow(t.Context(), pairing.Sender{Channel: "net", Account: "me", User: "bob"}, "Bob", "operator"); err != nil {
			t.Fatal(err)
		}
		code, err := s.people.Start(t.Context(), "net", "operator")
		if err != nil {
			t.Fatal(err)
		}
		if in := s.hear(Received{ID: "0", Chat: "dm", Sender: "ann", Text: "pair " + code.Text}); in.Text != Redacted {
			t.Errorf("the record has %q", in.Text)
		}
		for i, c := range []struct {
			name      string
			m         Received
			strangers Strangers
			addressed Why
			tier      policy.Tier
			control   bool
		}{
			{"the operator, in the paired chat", Received{Chat: "dm", Sender: "ann"}, Ignore, Direct, policy.Paired, true},
			{"the operator, in another chat", Received{Chat: "dm2", Sender: "ann"}, Ignore, Direct, policy.SemiTrusted, false},
			{"the operator, in a group, unnamed", Received{Chat: "team", Group: true, Sender: "ann"}, Ignore, NotAsked, policy.SemiTrusted, false},
			{"the operator, in a group, named", Received{Chat: "team", Group: true, Sender: "ann", MentionsMe: true}, Ignore, Mentioned, policy.SemiTrusted, false},
			{"a group that calls itself the paired chat", Received{Chat: "dm", Group: true, Sender: "ann", MentionsMe: true}, Ignore, NotAsked, policy.SemiTrusted, false},
			{"somebody known", Received{Chat: "x", Sender: "bob"}, Ignore, Direct, policy.SemiTrusted, false},
			{"somebody known, by a reply", Received{Chat: "team", Group: true, Sender: "bob", QuotesMe: true}, Ignore, Replied, policy.SemiTrusted, false},
			{"somebody known, by a command", Received{Chat: "team", Group: true, Sender: "bob", Command: true}, Ignore, Commanded, policy.SemiTrusted, false},
			{"somebody known, in a loud group", Received{Chat: "loud", Group: true, Sender: "bob"}, Ignore, EveryOne, policy.SemiTrusted, false},
			{"a command to another program, in a loud group", Received{Chat: "loud", Group: true, Sender: "bob", Elsewhere: true}, Ignore, NotAsked, policy.SemiTrusted, false},
			{"the operator, passing on what a stranger wrote", Received{Chat: "dm", Sender: "ann", Forwarded: true}, Ignore, Direct, policy.Paired, false},
			{"somebody known, in a shut group", Received{Chat: "shut", Group: true, Sender: "bob", MentionsMe: true}, Ignore, NotAsked, policy.SemiTrusted, false},
			{"somebody known, in a group that is not listed", Received{Chat: "else", Group: true, Sender: "bob", MentionsMe: true}, Ignore, NotAsked, policy.SemiTrusted, false},
			{"a stranger", Received{Chat: "y", Sender: "eve"}, Ignore, NotAsked, policy.Untrusted, false},
			{"a stranger who calls himself bob", Received{Chat: "y", Sender: "eve", SenderName: "bob"}, Ignore, NotAsked, policy.Untrusted, false},
			{"a stranger, named in a listed group", Received{Chat: "team", Group: true, Sender: "eve", MentionsMe: true}, Ignore, NotAsked, policy.Untrusted, false},
			{"the same, where members are answered", Received{Chat: "team", Group: true, Sender: "eve", MentionsMe: true}, InGroups, Mentioned, policy.Untrusted, false},
			{"a stranger where only members are answered", Received{Chat: "y", Sender: "eve"}, InGroups, NotAsked, policy.Untrusted, false},
			{"a stranger where all are answered", Received{Chat: "y", Sender: "eve"}, Everyone, Direct, policy.Untrusted, false},
			{"another program", Received{Chat: "y", Sender: "bob", Bot: true}, Everyone, NotAsked, policy.SemiTrusted, false},
		} {
			if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"strangers=" + string(c.strangers)}}, "operator"); err != nil {
				t.Fatal(err)
			}
			s.until("it listens", func() bool { return s.net.intake() != nil })
			c.m.ID, c.m.Text = string(rune('a'+i)), "hello"
			in := s.hear(c.m)
			if in.Addressed != string(c.addressed) || in.Overheard != (c.addressed == NotAsked) || in.Tier != c.tier || in.Control != c.control {
				t.Errorf("%s: addressed %q, overheard %v, tier %v, control %v", c.name, in.Addressed, in.Overheard, in.Tier, in.Control)
			}
			if own := in.Source == label.Operator; own != (c.tier == policy.Paired && !c.m.Forwarded) {
				t.Errorf("%s: it is labelled %s", c.name, in.Source)
			}
		}
		if told := s.talks.told(); len(told) == 0 || !strings.Contains(told[0], "ombud channel allow net eve") {
			t.Errorf("the operator was told %q", told)
		}
	})
}

// Whoever has many accounts does not fill the operator's chat.
func TestTheOperatorIsToldOfSoManyStrangersAnHour(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		for i := range 3 * (maxStrangers + 5) {
			who := fmt.Sprint("eve", i/3) // each writes three times, which counts once
			s.hear(Received{ID: fmt.Sprint(i), Chat: who, Sender: who, Text: "buy"})
		}
		if n := len(s.talks.told()); n != maxStrangers {
			t.Errorf("%d notices", n)
		}
	})
}

// Whoever guesses at codes is answered so often, and then no more; the operator is told once.
// A right one is always answered.
func TestWrongCodesAreAnsweredSoOften(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		n := 0
		try := func(who, code string) agent.Inbound {
			n++
			return s.hear(Received{ID: fmt.Sprint(n), Chat: who, Sender: who, Text: "/pair " + code})
		}
		for i := range wrongOfSender + 3 {
			if in := try("eve", "AAAA-AAAA"); in.Overheard != (i >= wrongOfSender) || in.Text != Redacted {
				t.Errorf("guess %d of one sender: %+v", i+1, in)
			}
		}
		for i := range wrongOfAll { // others have their own, until there are too many
			try(fmt.Sprint("mallory", i/3), "AAAA-AAAA")
		}
		if len(s.talks.said) != wrongOfAll {
			t.Errorf("%d answers", len(s.talks.said))
		}
		if told := s.talks.told(); len(told) != 1 || !strings.Contains(told[0], "tries pairing codes on net, the last was eve") {
			t.Errorf("the operator was told %q", told)
		}
		code, err := s.people.Start(t.Context(), "net", "operator")
		if err != nil {
			t.Fatal(err)
		}
		try("eve", code.Text)
		if last := s.talks.said[len(s.talks.said)-1]; len(s.talks.said) != wrongOfAll+1 || !strings.Contains(last, "you are the operator") {
			t.Errorf("after the right code: %q", last)
		}
	})
}

func TestWhatStrangersMadeOmbudSayIsOverAfterAnHour(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	for _, later := range []time.Duration{time.Hour, -10 * time.Hour} {
		var u Unknown
		for range wrongOfSender + 2 {
			u.Wrong("eve", now)
		}
		if answer, tell := u.Wrong("eve", now.Add(59*time.Minute)); answer || tell {
			t.Errorf("within the hour: %v %v", answer, tell)
		}
		if !u.MayTell("eve", now) || u.MayTell("eve", now.Add(time.Minute)) {
			t.Error("one stranger is told of other than once")
		}
		if answer, _ := u.Wrong("eve", now.Add(later)); !answer || !u.MayTell("eve", now.Add(later)) {
			t.Errorf("%s later nothing is said", later)
		}
	}
}

// A code that others read in a group pairs nobody.
func TestACodeInAGroupIsNotTried(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		code, err := s.people.Start(t.Context(), "net", "operator")
		if err != nil {
			t.Fatal(err)
		}
		in := s.hear(Received{ID: "1", Chat: "team", Group: true, Sender: "ann", Text: "/pair " + code.Text})
		if list, err := s.people.List(t.Context()); err != nil || len(list) != 0 || !in.Overheard || in.Text != Redacted {
			t.Errorf("%v %v %+v", list, err, in)
		}
	})
}

func TestOnlyTheOperatorPressesAButton(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(map[string]string{"strangers": "all"})
		code, err := s.people.Start(t.Context(), "net", "operator")
		if err != nil {
			t.Fatal(err)
		}
		s.hear(Received{ID: "0", Chat: "dm", Sender: "ann", Text: "/pair " + code.Text})
		press := func(id, chat, sender string, group bool) {
			s.hear(Received{ID: id, Chat: chat, Sender: sender, Group: group, Press: &Press{Approval: "apr_1", Yes: true}})
		}
		press("1", "dm", "eve", false)
		press("2", "team", "ann", true)
		press("3", "dm2", "ann", false)
		if len(s.talks.pressed) != 0 {
			t.Error(s.talks.pressed)
		}
		press("4", "dm", "ann", false)
		if !slices.Equal(s.talks.pressed, []string{"apr_1 true by operator@net"}) {
			t.Error(s.talks.pressed)
		}
	})
}

func TestTheOperatorsChatsAreToldWhereItIsSet(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		told := func() (out []agent.Address) {
			err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
				out, err = s.Told(ctx, q)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		code, err := s.people.Start(t.Context(), "net", "operator")
		if err != nil {
			t.Fatal(err)
		}
		s.hear(Received{ID: "0", Chat: "dm", Sender: "ann", Text: "pair " + code.Text})
		if got := told(); len(got) != 0 {
			t.Errorf("%+v before it is set", got)
		}
		if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"notices=on"}}, "operator"); err != nil {
			t.Fatal(err)
		}
		if got := told(); len(got) != 1 || got[0] != (agent.Address{Channel: "net", Account: "me", Chat: "dm"}) {
			t.Errorf("%+v", got)
		}
		s.until("another account than was paired tells nobody", func() bool {
			s.net.intake().Up(Me{ID: "you"})
			return len(told()) == 0
		})
	})
}

// A question that was decided has no buttons any more; a press that decides nothing takes
// none away.
func TestAButtonThatWasPressedGoesAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		e := streams(t, s)
		s.ended(s.say("May-I?", func(m *outbox.Message) { m.Run, m.Approval = "apr_1", "apr_1" }))
		press := func(id, sender string) {
			s.hear(Received{ID: id, Chat: "dm", Sender: sender, Press: &Press{Approval: "apr_1", Yes: true, Ref: "ref May-I?"}})
		}
		press("1", "eve")
		press("2", "ann")
		s.until("the buttons are gone", func() bool { return e.last() == "May-I?" })
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.edits) != 1 || e.edits[0].Approval != "" {
			t.Errorf("%+v", e.edits)
		}
	})
}

// The cursor is committed with its message, with a message that came before too, and with
// none that the store did not take.
func TestTheCursorMovesWithItsMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		in := s.net.intake()
		cursor := func() string {
			c, err := in.Cursor(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		take := func(id, text, at string) error {
			return in.Take(t.Context(), Received{ID: id, Chat: "c", Sender: "eve", Text: text, Cursor: at})
		}
		if c := cursor(); c != "" {
			t.Error(c)
		}
		if err := take("1", "hello", "11"); err != nil || cursor() != "11" {
			t.Error(err, cursor())
		}
		s.talks.fail = fault.New(fault.Unavailable, "the store is away")
		if err := take("2", "hello", "12"); err == nil || cursor() != "11" {
			t.Error(err, cursor())
		}
		s.talks.fail = nil
		if err := take("1", "hello", "12"); err != nil || cursor() != "12" || len(s.talks.in) != 1 {
			t.Error(err, cursor(), s.talks.in)
		}
		for i, m := range []Received{
			{ID: "", Chat: "c", Sender: "eve", Text: "no id"}, {ID: "3", Chat: "c", Sender: strings.Repeat("x", 600), Text: "too long"},
			{ID: "4", Chat: "c", Sender: "eve", Text: " "}, {ID: "5", Chat: "c", Sender: "eve", Text: "mine", Own: true},
			{ID: "6", Chat: "c\x00", Sender: "eve", Text: "a zero"},
		} {
			m.Cursor = string(rune('a' + i))
			if err := in.Take(t.Context(), m); err != nil || cursor() != m.Cursor || len(s.talks.in) != 1 {
				t.Errorf("%d: %v %q %d", i, err, cursor(), len(s.talks.in))
			}
		}
		s.held = true
		if err := take("7", "hello", "20"); !fault.Is(err, fault.Unavailable) || cursor() == "20" {
			t.Error("taken while held: ", err)
		}
	})
}

// A secret that was set before is used, and stays if the channel is not added after all.
func TestAChannelIsAddedWithASecretThatWasSetBefore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		bare := Adding{Kind: "net"}
		if _, err := s.Add(t.Context(), bare, "operator"); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "ombud secret set channel.net.token") {
			t.Error(err)
		}
		s.secrets["channel.net.token"] = "sesame"
		s.net.check = func() (Me, error) { return Me{}, fault.New(fault.Unavailable, "no answer") }
		if _, err := s.Add(t.Context(), bare, "operator"); !fault.Is(err, fault.Unavailable) || s.secrets["channel.net.token"] != "sesame" {
			t.Errorf("%v, the token is %q", err, s.secrets["channel.net.token"])
		}
		s.net.check = nil
		if _, err := s.Add(t.Context(), bare, "operator"); err != nil {
			t.Error(err)
		}
	})
}

// A change is made whole or not at all, its secrets too.
func TestAChangeThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		change := Change{Name: "net", Values: []string{"rate=5", "bogus=1"}, Secrets: map[string]string{"token": "another"}}
		if _, err := s.Set(t.Context(), change, "operator"); !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
		if i, err := s.Get("net"); err != nil || i.Settings.Rate != 0 || s.secrets["channel.net.token"] != "sesame" {
			t.Errorf("%+v %v, the token is %q", i, err, s.secrets["channel.net.token"])
		}
		change.Values = change.Values[:1]
		if i, err := s.Set(t.Context(), change, "operator"); err != nil || i.Settings.Rate != 5 || s.secrets["channel.net.token"] != "another" {
			t.Errorf("%+v %v, the token is %q", i, err, s.secrets["channel.net.token"])
		}
	})
}

// What no adapter can be made of is refused, though the network is not asked.
func TestSettingsThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		bad := Adding{Kind: "net", Values: map[string]string{"url": "nowhere"}, Secrets: map[string]string{"token": "sesame"}, Uncheck: true}
		if _, err := s.Add(t.Context(), bad, "operator"); !fault.Is(err, fault.Invalid) || len(s.secrets) != 0 {
			t.Errorf("%v, kept are %v", err, s.secrets)
		}
		s.add(nil)
		if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"url=nowhere"}}, "operator"); !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
		if i, err := s.Get("net"); err != nil || i.State != Working || len(i.Settings.Values) != 0 {
			t.Errorf("%+v %v", i, err)
		}
	})
}

// A key that is replaced may be another account's: who ombud is is asked anew.
func TestAChannelIsConnectedAgainWithANewKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.run = func(ctx context.Context, in Intake) error {
			s.net.mu.Lock()
			me := Me{ID: fmt.Sprint("me", s.net.asked)}
			s.net.mu.Unlock()
			in.Up(me)
			<-ctx.Done()
			return ctx.Err()
		}
		s.add(nil)
		s.until("it is connected", func() bool { i, err := s.Get("net"); return err == nil && i.Me.ID == "me1" })
		for _, other := range []string{"channel.net", "net.token", "channel.tent.token", "channel."} {
			s.Renewed(other)
		}
		if i, err := s.Get("net"); err != nil || i.Me.ID != "me1" {
			t.Errorf("%+v %v", i, err)
		}
		s.Renewed("channel.net.token")
		s.until("it is connected as another", func() bool { i, err := s.Get("net"); return err == nil && i.Me.ID == "me2" && i.State == Working })
	})
}

// The operator is told once when a channel stops working and once when it works again,
// however often it is tried; a key that is refused needs a person.
func TestTroubleIsToldOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		broken := fault.New(fault.Unavailable, "no answer")
		mend := make(chan struct{})
		s.net.run = func(ctx context.Context, in Intake) error {
			select {
			case <-mend:
				in.Up(Me{ID: "me"})
				<-ctx.Done()
				return ctx.Err()
			default:
				return broken
			}
		}
		s.add(nil)
		s.until("it was tried often", func() bool { s.net.mu.Lock(); defer s.net.mu.Unlock(); return s.net.asked > 10 })
		s.until("the operator is told", func() bool { return len(s.talks.told()) == 1 })
		if i := s.List()[0]; i.State != Degraded || i.Reason != "no answer" {
			t.Errorf("%+v", i)
		}
		close(mend)
		s.until("it works", func() bool { return s.List()[0].State == Working })
		s.until("the operator is told again", func() bool { return len(s.talks.told()) == 2 })
		if told := s.talks.told(); !strings.Contains(told[0], "no answer") || !strings.Contains(told[1], "works again") {
			t.Errorf("%q", told)
		}
	})
}

// A change of settings is no sign that a channel works again.
func TestAChangeOfSettingsDoesNotSayThatItWorks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.run = func(context.Context, Intake) error { return fault.New(fault.Denied, "the key is refused") }
		s.add(nil)
		s.until("the operator is told", func() bool { return len(s.talks.told()) == 1 })
		s.net.mu.Lock()
		before := s.net.asked
		s.net.mu.Unlock()
		if _, err := s.Set(t.Context(), Change{Name: "net", Values: []string{"rate=5"}}, "operator"); err != nil {
			t.Fatal(err)
		}
		s.until("it was tried again", func() bool { s.net.mu.Lock(); defer s.net.mu.Unlock(); return s.net.asked > before+2 })
		if told := s.talks.told(); len(told) != 1 {
			t.Errorf("%q", told)
		}
	})
}

func TestAPanicOfAnAdapterIsTrouble(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.run = func(context.Context, Intake) error { panic("boo") }
		s.net.send = func(Outgoing) (string, error) { panic("boo") }
		s.add(nil)
		s.until("it is in trouble", func() bool { return s.List()[0].State == Degraded })
		if it := s.ended(s.say("hello", nil)); it.State != "uncertain" {
			t.Errorf("%+v", it)
		}
	})
}

func TestAPausedChannelHearsAndSaysNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		if i, err := s.Pause(t.Context(), "net", "operator"); err != nil || i.State != Paused {
			t.Fatal(i, err)
		}
		id := s.say("hello", nil)
		s.until("it was tried", func() bool { return s.item(id).Error != "" })
		if it := s.item(id); it.State != "queued" || len(s.net.texts()) != 0 {
			t.Errorf("%+v %v", it, s.net.texts())
		}
		if _, err := s.Resume(t.Context(), "net", "operator"); err != nil {
			t.Fatal(err)
		}
		s.until("it listens", func() bool { return s.List()[0].State == Working })
	})
}

func TestQuietHours(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		x, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct {
		hours, now string
		left       time.Duration
	}{
		{"22:00-07:00 UTC", "2026-03-01T21:59:59Z", 0},
		{"22:00-07:00 UTC", "2026-03-01T22:00:00Z", 9 * time.Hour},
		{"22:00-07:00", "2026-03-01T06:30:00Z", 30 * time.Minute},
		{"22:00-07:00 UTC", "2026-03-01T07:00:00Z", 0},
		{"13:00-14:00 Europe/Berlin", "2026-07-01T11:30:00Z", 30 * time.Minute},
		{"13:00-14:00 Europe/Berlin", "2026-01-01T11:30:00Z", 0},
		{"", "2026-01-01T11:30:00Z", 0},
	} {
		q, err := quietHours(c.hours)
		if err != nil || q.left(at(c.now)) != c.left {
			t.Errorf("%s at %s: %v left, %v", c.hours, c.now, q.left(at(c.now)), err)
		}
	}
	for _, bad := range []string{"22-7", "22:00-22:00", "22:00-07:00 Mars/Base", "25:00-07:00", "22:00-07:00 Local", "x"} {
		if _, err := quietHours(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	k := kindOf(&network{})
	for _, bad := range []string{
		"strangers=some", "group=x", "group=:mention", "group=x:often", "rate=0", "rate=many", "away=perhaps", "token=x", "nothing=x", "quiet=always",
	} {
		var s Settings
		name, value, _ := strings.Cut(bad, "=")
		if err := s.Set(k, name, value); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var s Settings
	for _, good := range []string{"group=a:b@x:mention", "group=y:always", "group=y:", "agent=main", "rate=3", "away=on", "stream=off", "url=http://x", "strangers=groups"} {
		name, value, _ := strings.Cut(good, "=")
		if err := s.Set(k, name, value); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	if len(s.Groups) != 1 || s.Groups["a:b@x"] != Mention || s.values(k)["url"] != "http://x" || s.rate() != 3 || !s.Away {
		t.Errorf("%+v", s)
	}
}

func TestPairCode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/pair ABCD-2345": "ABCD-2345", "pair abcd-2345": "abcd-2345", " Pair ABCD2345 ": "ABCD2345", "/PAIR ABCD 2345": "ABCD2345",
		"/pair@mybot ABCD-2345": "ABCD-2345", "/pair": "", "pair": "no", "pair of shoes": "no", "pair up tomorrow": "no", "/pairs ABCD-2345": "no", "": "no",
	} {
		got, is := PairCode(text)
		if is != (want != "no") || is && got != want {
			t.Errorf("%q: %q %v", text, got, is)
		}
	}
}

func TestOmbudsOwnNameIsNoPartOfWhatIsSaid(t *testing.T) {
	t.Parallel()
	me := Me{Name: "@mybot", Names: []string{"ombud"}}
	for text, want := range map[string]string{
		"@mybot help": "help", "@MyBot: help": "help", "@ombud, /stop": "/stop", "@mybot": "@mybot", "@mybot ": "@mybot ", "@mybot2 help": "@mybot2 help",
		"@mybotter": "@mybotter", "@mybot_x help": "@mybot_x help", "ask @mybot": "ask @mybot", "": "", "@": "@", "@mybotä": "@mybotä",
	} {
		if got := withoutName(text, me); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// called is a network that calls, also at a path that all of its kind have.
type called struct{ *network }

func (called) Hook(Intake) http.Handler { return nil }
func (called) HookPath() string         { return "/comms/net" }

func TestAPathThatSeveralChannelsHaveIsAlwaysTheSameOnes(t *testing.T) {
	t.Parallel()
	c := New(Deps{}, Config{})
	for _, name := range []string{"b", "a", "d", "c"} {
		l := newLine(c, name)
		l.adapter = called{}
		c.lines[name] = l
	}
	for range 50 {
		for path, want := range map[string]string{"/comms/net": "a", "/channels/d": "d"} {
			if l, _ := c.hooked(path); l == nil || l.name != want {
				t.Fatalf("%s is %+v", path, l)
			}
		}
	}
}
