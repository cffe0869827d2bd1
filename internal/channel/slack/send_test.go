package slack

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

func outgoing(chat, text string) channel.Outgoing {
	return channel.Outgoing{Place: channel.Place{Chat: chat}, Key: "obx_1.0", Piece: markup.Piece{Text: text}}
}

func form(t *testing.T, c slacktest.Call) url.Values {
	t.Helper()
	v, err := url.ParseQuery(c.Form)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSendingAndEditingGiveTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	root := b.Post(chat, ann, "hi")
	pieces := b.a.Render("# Head\n\n| a | b |\n|---|---|\n| *1* | `2` |\n\n<@U1> & [a](https://a.example)")
	for name, ask := range map[string]string{"plain": "", "question": "ap_1"} {
		t.Run(name, func(t *testing.T) {
			out := outgoing(chat, "")
			out.Piece, out.Approval, out.Thread = pieces[0], ask, root
			ref, err := b.a.Send(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.a.Edit(t.Context(), ref, out); err != nil {
				t.Fatal(err)
			}
			posts, edits := b.Calls("chat.postMessage"), b.Calls("chat.update")
			p, e := form(t, posts[len(posts)-1]), form(t, edits[len(edits)-1])
			for _, field := range []string{"channel", "text", "metadata", "link_names", "parse"} {
				if p.Get(field) == "" || p.Get(field) != e.Get(field) {
					t.Errorf("%s: sent %q, edited %q", field, p.Get(field), e.Get(field))
				}
			}
			if ask != "" && p.Get("blocks") != e.Get("blocks") {
				t.Errorf("sent %q, edited %q", p.Get("blocks"), e.Get("blocks"))
			}
			if p.Get("unfurl_links") != "false" || p.Get("unfurl_media") != "false" || p.Get("link_names") != "false" || p.Get("parse") != "none" || p.Get("thread_ts") != root {
				t.Errorf("sent %v", p)
			}
		})
	}
	if strings.Contains(pieces[0].Text, "<@U1>") {
		t.Errorf("a text can name people: %q", pieces[0].Text)
	}
}

func TestAnEditTakesTheButtonsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	chat := b.Direct(b.User("ann"))
	out := outgoing(chat, strings.Repeat("a line of text\n", 250))
	out.Approval = "ap_1"
	ref, err := b.a.Send(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Sent()[0]; !strings.Contains(s.Blocks, approveID) || !strings.Contains(s.Blocks, denyID) || s.Metadata.Payload["key"] != out.Key || s.Metadata.Type != metadataType {
		t.Errorf("sent %+v", s)
	}
	out.Approval, out.Piece.Text = "", "approved"
	if err := b.a.Edit(t.Context(), ref, out); err != nil {
		t.Fatal(err)
	}
	if s := b.Sent()[0]; s.Blocks != "" || s.Text != "approved" || s.Edits != 1 {
		t.Errorf("now it is %+v", s)
	}
}

// Buttons that Slack does not take are left out, once.
func TestWithoutButtonsIfSlackTakesNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	chat := b.Direct(b.User("ann"))
	out := outgoing(chat, "May I?")
	out.Approval = strings.Repeat("x", 2001)
	if _, err := b.a.Send(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if s := b.Sent(); len(s) != 1 || s[0].Blocks != "" || len(b.Calls("chat.postMessage")) != 2 {
		t.Errorf("sent %+v", s)
	}
}

func TestALongAnswerArrivesWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	chat := b.Direct(b.User("ann"))
	var words []string
	for i := 0; len(strings.Join(words, " ")) < 3*limit; i++ {
		words = append(words, "word"+strings.Repeat("a", i%7)+"ä")
	}
	pieces := b.a.Render(strings.Join(words, " "))
	if len(pieces) < 3 {
		t.Errorf("%d pieces", len(pieces))
	}
	var got []string
	for _, p := range pieces {
		if n := utf8.RuneCountInString(p.Text); n > limit {
			t.Errorf("a piece has %d characters", n)
		}
		out := outgoing(chat, "")
		out.Piece = p
		if _, err := b.a.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range b.Sent() {
		got = append(got, strings.Fields(s.Text)...)
	}
	if !slices.Equal(got, words) {
		t.Errorf("%d words of %d arrived", len(got), len(words))
	}
}

// fate is what the class of an error says of a message.
func fate(err error) string {
	_, wait := errors.AsType[*outbox.RetryAfter](err)
	switch class := fault.ClassOf(err); {
	case err == nil:
		return "sent"
	case wait, class == fault.Unavailable:
		return "again"
	case class == fault.Invalid, class == fault.NotFound, class == fault.Denied, class == fault.Permission:
		return "never"
	}
	return "unknown"
}

func TestWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(b *bundle, out *channel.Outgoing)
		fate string
		sent bool
	}{
		"sent":             {func(*bundle, *channel.Outgoing) {}, "sent", true},
		"401":              {faulty(slacktest.Status401), "again", false},
		"403":              {faulty(slacktest.Status403), "never", false},
		"429":              {faulty(slacktest.Status429), "again", false},
		"500":              {faulty(slacktest.Status500), "unknown", false},
		"garbage":          {faulty(slacktest.Garbage), "unknown", false},
		"empty":            {faulty(slacktest.Empty), "unknown", false},
		"cut":              {faulty(slacktest.Cut), "unknown", true},
		"hang":             {faulty(slacktest.Hang), "unknown", false},
		"hang after":       {faulty(slacktest.HangAfter), "unknown", true},
		"close before":     {faulty(slacktest.CloseBefore), "unknown", false},
		"close after":      {faulty(slacktest.CloseAfter), "unknown", true},
		"no such channel":  {func(_ *bundle, o *channel.Outgoing) { o.Chat = "C1" }, "never", false},
		"left":             {func(b *bundle, o *channel.Outgoing) { b.Leave(o.Chat) }, "never", false},
		"archived":         {func(b *bundle, o *channel.Outgoing) { b.Archive(o.Chat) }, "never", false},
		"too long":         {func(_ *bundle, o *channel.Outgoing) { o.Piece.Text = strings.Repeat("a", 40001) }, "never", false},
		"empty text":       {func(_ *bundle, o *channel.Outgoing) { o.Piece.Text = " " }, "never", false},
		"rate":             {func(b *bundle, o *channel.Outgoing) { b.Burst = 0 }, "again", false},
		"restricted":       {func(b *bundle, _ *channel.Outgoing) { b.Refuse("restricted_action_read_only_channel") }, "never", false},
		"invalid_auth":     {func(b *bundle, _ *channel.Outgoing) { b.Refuse("invalid_auth") }, "again", false},
		"token_revoked":    {func(b *bundle, _ *channel.Outgoing) { b.Refuse("token_revoked") }, "again", false},
		"account_inactive": {func(b *bundle, _ *channel.Outgoing) { b.Refuse("account_inactive") }, "again", false},
		"missing_scope":    {func(b *bundle, _ *channel.Outgoing) { b.Refuse("missing_scope") }, "again", false},
		"ratelimited":      {func(b *bundle, _ *channel.Outgoing) { b.Refuse("ratelimited") }, "again", false},
		"fatal_error":      {func(b *bundle, _ *channel.Outgoing) { b.Refuse("fatal_error") }, "unknown", false},
		"a new error":      {func(b *bundle, _ *channel.Outgoing) { b.Refuse("a_new_error") }, "unknown", false},
		"no token":         {func(b *bundle, _ *channel.Outgoing) { b.BotToken = "" }, "again", false},
		"tokens swapped":   {func(b *bundle, _ *channel.Outgoing) { b.BotToken = b.AppToken }, "again", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			out := outgoing(b.Channel("general", "channel"), "hello")
			if strings.HasPrefix(name, "hang") {
				b.impatient()
			}
			c.do(b, &out)
			ref, err := b.a.Send(t.Context(), out)
			if got := fate(err); got != c.fate || (ref != "") != (err == nil) {
				t.Errorf("%s (%v, ref %q), want %s", got, err, ref, c.fate)
			}
			if got := len(b.Sent()) == 1; got != c.sent {
				t.Errorf("sent: %v", got)
			}
			b.silent(err)
			if err := b.a.Edit(t.Context(), "1700000000.000100", out); err == nil {
				t.Error("it edits what is not there")
			}
		})
	}
}

func TestWhatBecameOfAnEdit(t *testing.T) {
	t.Parallel()
	for f, want := range map[slacktest.Fault]string{
		slacktest.Status401: "again", slacktest.Status403: "never", slacktest.Status429: "again", slacktest.Status500: "unknown",
		slacktest.Garbage: "unknown", slacktest.Empty: "unknown", slacktest.Cut: "unknown", slacktest.Hang: "unknown",
		slacktest.HangAfter: "unknown", slacktest.CloseBefore: "unknown", slacktest.CloseAfter: "unknown",
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			out := outgoing(b.Channel("general", "channel"), "hello")
			ref, err := b.a.Send(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(string(f), "hang") {
				b.impatient()
			}
			b.Fault("chat.update", f, 1)
			if err = b.a.Edit(t.Context(), ref, out); fate(err) != want {
				t.Errorf("%s (%v), want %s", fate(err), err, want)
			}
			b.silent(err)
			if err := b.a.Edit(t.Context(), ref, out); err != nil {
				t.Errorf("then it says %v", err)
			}
		})
	}
}

func faulty(f slacktest.Fault) func(*bundle, *channel.Outgoing) {
	return func(b *bundle, _ *channel.Outgoing) { b.Fault("chat.postMessage", f, 1) }
}

func TestSlackUnreachableIsSurelyNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setup.Values = map[string]string{partURL: "http://127.0.0.1:1/api"}
	b.make()
	_, err := b.a.Send(t.Context(), outgoing("C1", "hello"))
	if fate(err) != "again" {
		t.Errorf("got %v (%s)", err, fault.ClassOf(err))
	}
}

func TestRetryAfterIsWhatSlackSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Fault("chat.postMessage", slacktest.Status429, 1)
	_, err := b.a.Send(t.Context(), outgoing(b.Channel("a", "channel"), "hello"))
	if r, ok := errors.AsType[*outbox.RetryAfter](err); !ok || r.After != 2*time.Second || pauseAfter(0, err) != 2*time.Second {
		t.Errorf("got %v", err)
	}
}

func TestWhatAProbeFinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann, room := b.User("ann"), b.Channel("general", "channel")
	root := b.Post(room, ann, "root")
	since := b.Now()
	b.Fault("chat.postMessage", slacktest.CloseAfter, 2)
	top, in := outgoing(room, "top"), outgoing(room, "in")
	in.Thread, in.Key = root, "obx_2.0"
	for _, out := range []channel.Outgoing{top, in} {
		if _, err := b.a.Send(t.Context(), out); fate(err) != "unknown" {
			t.Fatal(err)
		}
		answer, ref, err := b.a.Probe(t.Context(), out, since)
		if err != nil || answer != outbox.Happened || !slices.ContainsFunc(b.Sent(), func(s slacktest.Sent) bool { return s.TS == ref && s.Text == out.Piece.Text }) {
			t.Errorf("%s: %s %q %v", out.Piece.Text, answer, ref, err)
		}
	}
	never := top
	never.Key = "obx_3.0"
	if answer, _, err := b.a.Probe(t.Context(), never, since); err != nil || answer != outbox.DidNotHappen {
		t.Errorf("got %s, %v", answer, err)
	}
	never.Chat = b.Channel("full", "channel")
	for range probePages*pageSize + 1 {
		b.Post(never.Chat, ann, "noise")
	}
	if answer, _, err := b.a.Probe(t.Context(), never, since); err != nil || answer != outbox.CannotTell {
		t.Errorf("beyond what is read: %s, %v", answer, err)
	}
	never.Chat = "C1"
	if answer, _, err := b.a.Probe(t.Context(), never, since); err == nil || answer != outbox.CannotTell {
		t.Errorf("of no channel: %s, %v", answer, err)
	}
	b.impatient()
	for _, f := range slacktest.Faults() {
		b.Fault("conversations.history", f, 1)
		if answer, _, err := b.a.Probe(t.Context(), top, since); err == nil || answer != outbox.CannotTell {
			t.Errorf("%s: %s, %v", f, answer, err)
		}
	}
}

func TestAProbeThatIsShownNoMetadataCannotTell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.HideMetadata = true
	out := outgoing(b.Channel("general", "channel"), "hello")
	for _, want := range []outbox.Answer{outbox.DidNotHappen, outbox.CannotTell} {
		if answer, _, err := b.a.Probe(t.Context(), out, b.Now()); err != nil || answer != want {
			t.Errorf("got %s, %v, want %s", answer, err, want)
		}
		if _, err := b.a.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever can post with metadata could say that something was sent.
func TestAProbeBelievesOwnMessagesAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	room := b.Channel("general", "channel")
	b.BotID, b.BotUser = "B0OTHER", "U0OTHER"
	out := outgoing(room, "forged")
	if _, err := b.a.Send(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	b.BotID, b.BotUser = "B0BOT", "U0BOT"
	if answer, _, err := b.a.Probe(t.Context(), out, b.Now()); err != nil || answer != outbox.DidNotHappen {
		t.Errorf("got %s, %v", answer, err)
	}
}

// The methods that read take forms alone, and the token is in the header alone.
func TestHowItReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	room := b.Channel("general", "channel")
	root := b.Post(room, b.User("ann"), "root")
	out := outgoing(room, "in")
	out.Thread = root
	since := time.Unix(1700000000, 0)
	if _, _, err := b.a.Probe(t.Context(), out, since); err != nil {
		t.Fatal(err)
	}
	want := "channel=" + room + "&include_all_metadata=true&limit=200&oldest=1699999100.000000&ts=" + root
	if c := b.Calls("conversations.replies"); len(c) != 1 || c[0].ContentType != "application/x-www-form-urlencoded" || c[0].Form != want {
		t.Errorf("got %+v, want %s", c, want)
	}
	for _, c := range b.Calls("") {
		if strings.Contains(c.Form, b.BotToken) || strings.Contains(c.Form, "token") {
			t.Errorf("%s has the token in its form", c.Method)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	b := setup(t)
	me, err := b.a.Check(t.Context())
	if err != nil || me.ID != b.BotUser || me.Name != "@ombud" || !me.Is(b.BotID) || !me.Is(b.BotUser) || me.Is("") {
		t.Errorf("got %+v, %v", me, err)
	}
	for code, refused := range map[string]bool{"invalid_auth": true, "token_revoked": true, "account_inactive": true, "missing_scope": true, "fatal_error": false} {
		b.Refuse(code)
		if _, err := b.a.Check(t.Context()); fault.Is(err, fault.Denied) != refused || refused && fault.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", code, err, fault.ClassOf(err))
		}
	}
	b.Refuse("")
	b.BotID = ""
	if _, err := b.a.Check(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("the token of a person: %v", err)
	}
}

func TestWhatAnAdapterIsMadeFrom(t *testing.T) {
	t.Parallel()
	k := Kind()
	if k.Name != "slack" || len(k.Needs) != 3 || !k.Needs[0].Secret || !k.Needs[1].Secret || k.Needs[2].Default != defaultURL {
		t.Errorf("got %+v", k)
	}
	secret := func(context.Context, string) (string, error) { return "", fault.New(fault.NotFound, "not set") }
	for address, ok := range map[string]bool{"": true, "https://slack.com/api/": true, "http://127.0.0.1:8/api": true, "ftp://slack.com": false, "slack": false, "https://a@slack.com/api/": false, "https://slack.com/api/?a=b": false} {
		a, err := k.Make(channel.Setup{Name: "s", Values: map[string]string{partURL: address}, Secret: secret})
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
			continue
		}
		if ok {
			if _, err := a.Check(t.Context()); !fault.Is(err, fault.Denied) {
				t.Errorf("without a token: %v", err)
			}
			if c := a.Capabilities(); !c.Buttons || c.Edits != 1200*time.Millisecond || c.Limit != 3800 {
				t.Errorf("can %+v", c)
			}
		}
	}
}

func TestASocketIsReachedThroughTheGuard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for address, ok := range map[string]bool{
		"ws://127.0.0.1:9/link/?ticket=s":       true,  // the host of the API
		"ws://10.1.2.3:9/link/?ticket=s":        true,  // looked at when it connects
		"https://127.0.0.1:9/":                  false, // no socket
		"ws://u:p@127.0.0.1:9/":                 false,
		"":                                      false,
		"ws://":                                 false,
		"wss://wss-primary.slack.com/?ticket=s": true,
		"ws://%zz/?ticket=s":                    false,
	} {
		if _, err := b.a.socketGuard(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		} else {
			b.silent(err)
		}
	}
	for _, address := range []string{"ws://127.0.0.2:9/?ticket=s", "ws://169.254.169.254/?ticket=s", "ws://localhost:9/?ticket=s"} {
		_, err := b.a.dial(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), "refused: ") {
			t.Errorf("%s: %v", address, err)
		}
		b.silent(err)
	}
	b.setup.Values = map[string]string{partURL: "https://slack.com/api/"}
	b.make()
	if _, err := b.a.socketGuard("ws://wss-primary.slack.com/"); err == nil {
		t.Error("a socket without TLS beside an API with it")
	}
}
