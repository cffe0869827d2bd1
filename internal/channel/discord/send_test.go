package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

func TestAMessageGoesOutAsItShould(t *testing.T) {
	t.Parallel()
	b := setup(t)
	asked := b.server.Write(discordtest.General, "?")
	out := piece("**hello** @everyone", "item_1/0")
	out.ReplyTo, out.Approval = asked.ID, "appr_1"
	ref, err := b.Send(b.ctx, out)
	if err != nil {
		t.Fatal(err)
	}
	m := b.server.Sent()[0]
	if m.ID != ref || m.Content != out.Piece.Text || m.Type != 19 || m.ReferencedMessage.ID != asked.ID || m.Flags != 4 || m.MentionEveryone || m.Nonce == "" || len(m.Nonce) > 25 {
		t.Errorf("%+v", m)
	}
	if len(m.Components) != 1 || len(m.Components[0].Components) != 2 || m.Components[0].Components[0].CustomID != "ombud:appr_1:y" {
		t.Errorf("%+v", m.Components)
	}
	if err := b.Edit(b.ctx, ref, piece("done", "item_1/0")); err != nil {
		t.Fatal(err)
	}
	if m := b.server.Sent()[0]; m.Content != "done" || len(m.Components) != 0 {
		t.Errorf("edited: %+v", m)
	}
	if err := b.Typing(b.ctx, out.Place); err != nil || len(b.server.Typed()) != 1 {
		t.Errorf("typing: %v", err)
	}
	out.ReplyTo, out.Key = "5", "item_2/0" // it was deleted
	if _, err := b.Send(b.ctx, out); err != nil {
		t.Errorf("a reply to what is gone: %v", err)
	}
	me, err := b.Check(b.ctx)
	if err != nil || me.Name != "@ombud" || !me.Is(b.server.Bot.ID) {
		t.Errorf("%+v %v", me, err)
	}
}

func TestRenderFitsWhatDiscordTakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Limit(100, time.Minute)
	for n, p := range b.Render(strings.Repeat("some *words* in a long text 😀 ", 200) + "\n```go\n" + strings.Repeat("x := 1\n", 500) + "```") {
		out := piece("", fmt.Sprint(n))
		out.Piece = p
		if _, err := b.Send(b.ctx, out); err != nil {
			t.Errorf("piece %d: %v", n, err)
		}
	}
	if len(b.Render("")) < 1 {
		t.Error("nothing has no piece")
	}
}

// classOf is the class of an error of a send, or what it asks to wait.
func classOf(err error) string {
	if _, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		return "retry after"
	}
	return string(fault.ClassOf(err))
}

func TestWhatAFaultSaysOfTheMessage(t *testing.T) {
	t.Parallel()
	for f, want := range map[discordtest.Fault]string{
		discordtest.Unauthorized: "unavailable", discordtest.Forbidden: "denied", discordtest.TooMany: "retry after",
		discordtest.Broken: "unknown", discordtest.BadGateway: "unknown", discordtest.Garbage: "unknown", discordtest.Cut: "unknown",
		discordtest.Hang: "unknown", discordtest.LostAfter: "unknown", discordtest.LostBefore: "unknown",
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.server.Fault("POST /channels", f, 1)
			_, err := b.Send(b.ctx, piece("hello", "k"))
			if classOf(err) != want {
				t.Errorf("%s: %v, want %s", classOf(err), err, want)
			}
			if n := len(b.server.Calls("POST /channels")); n != 1 {
				t.Errorf("%d calls: the outbox alone tries again", n)
			}
			if strings.Contains(fmt.Sprint(err), b.server.Token) {
				t.Error("the error has the token")
			}
			for classOf(err) != "" { // and whoever tries again with the key makes one message in all
				if b.ctx.Err() != nil {
					t.Fatal(err)
				}
				if e, ok := errors.AsType[*outbox.RetryAfter](err); ok {
					_ = channel.Wait(b.ctx, e.After)
				}
				_, err = b.Send(b.ctx, piece("hello", "k"))
			}
			if n := len(b.server.Sent()); n != 1 {
				t.Errorf("%d messages", n)
			}
		})
	}
}

func TestWhatDiscordRefusesForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.AddChannel(discordtest.Channel{ID: "8", Type: 1})
	b.server.Deny("8", 50007)
	at := func(chat string) channel.Outgoing {
		out := piece("x", "k")
		out.Chat = chat
		return out
	}
	for want, out := range map[string]channel.Outgoing{
		"not_found": at("7"), "denied": at("8"), "invalid": piece(strings.Repeat("x", 2001), "k"),
	} {
		if _, err := b.Send(b.ctx, out); classOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	calls := len(b.server.Calls(""))
	for _, chat := range []string{"", "../users/@me", "5/messages/6", "@me"} {
		if _, err := b.Send(b.ctx, at(chat)); classOf(err) != "invalid" {
			t.Errorf("channel %q: %v", chat, err)
		}
		if err := b.Edit(b.ctx, chat, piece("x", "k")); classOf(err) != "invalid" {
			t.Errorf("message %q: %v", chat, err)
		}
		if err := b.Typing(b.ctx, channel.Place{Chat: chat}); classOf(err) != "invalid" {
			t.Errorf("typing in %q: %v", chat, err)
		}
	}
	long := piece("x", "k")
	long.Approval = strings.Repeat("a", 100)
	if _, err := b.Send(b.ctx, long); classOf(err) != "invalid" {
		t.Errorf("a long approval: %v", err)
	}
	if n := len(b.server.Calls("")); n != calls {
		t.Errorf("%d calls for what is no channel", n-calls)
	}
}

func TestAServerThatIsNotThereGotNothing(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1:1/api/v10"} {
		a, err := newAdapter(channel.Setup{Values: map[string]string{"api_url": address}, Secret: func(context.Context, string) (string, error) { return "t", nil }}, settings{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Send(t.Context(), piece("x", "k")); classOf(err) != "unavailable" {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTheSixthMessageIsNotEvenTried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 7 {
		_, err := b.Send(b.ctx, piece("x", fmt.Sprint(n)))
		e, limited := errors.AsType[*outbox.RetryAfter](err)
		if limited != (n >= 5) || limited && (e.After <= 0 || e.After > 5*time.Second) {
			t.Errorf("message %d: %v", n, err)
		}
	}
	if n := len(b.server.Calls("POST /channels")); n != 5 {
		t.Errorf("%d calls", n)
	}
	other := piece("x", "k")
	other.Chat = discordtest.DM
	if _, err := b.Send(b.ctx, other); err != nil {
		t.Errorf("another channel: %v", err)
	}
}

func TestAKeyThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token string
		err   error
	}{
		"wrong": {"wrong", nil}, "unset": {"", fault.New(fault.NotFound, "no such secret")}, "empty": {" ", nil}, "two lines": {"a\nb", nil},
	} {
		b := setup(t)
		b.api.token = func(context.Context) (string, error) { return c.token, c.err }
		if _, err := b.Check(b.ctx); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("%s: check: %v", name, err)
		}
		if err := b.Run(b.ctx, b.in); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: run: %v", name, err)
		}
		if _, err := b.Send(b.ctx, piece("x", "k")); classOf(err) != "unavailable" {
			t.Errorf("%s: send: %v", name, err)
		}
		b.api.token = func(context.Context) (string, error) { return "Bot " + b.server.Token + "\n", nil }
		if _, err := b.Send(b.ctx, piece("x", "k")); err != nil {
			t.Errorf("%s: the right one: %v", name, err)
		}
	}
}

func TestFindingAPieceInDoubt(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	id := func(d time.Duration) string { return fmt.Sprint(idAt(since.Add(d))) }
	mine := func(d time.Duration, text string) message {
		return message{ID: id(d), Author: user{ID: "1"}, body: body{Content: text}}
	}
	theirs := message{ID: id(time.Second), Author: user{ID: "2"}, body: body{Content: "hello"}}
	withNonce := mine(time.Second, "changed")
	withNonce.Nonce = json.RawMessage(`"` + nonce("k") + `"`)
	for name, c := range map[string]struct {
		list []message
		all  bool
		want outbox.Answer
	}{
		"nothing":                  {nil, true, outbox.DidNotHappen},
		"nothing of ours":          {[]message{theirs, mine(time.Second, "other")}, true, outbox.DidNotHappen},
		"nothing, and more":        {nil, false, outbox.CannotTell},
		"one":                      {[]message{theirs, mine(time.Second, "hello")}, true, outbox.Happened},
		"trimmed":                  {[]message{mine(time.Second, "hello ")}, true, outbox.Happened},
		"one, and more":            {[]message{mine(time.Second, "hello")}, false, outbox.CannotTell},
		"two":                      {[]message{mine(time.Second, "hello"), mine(2*time.Second, "hello")}, true, outbox.CannotTell},
		"before, by some clock":    {[]message{mine(-time.Second, "hello")}, true, outbox.CannotTell},
		"by the nonce":             {[]message{withNonce, mine(time.Second, "hello")}, false, outbox.Happened},
		"a nonce of another's":     {[]message{{ID: "9", Author: user{ID: "2"}, Nonce: withNonce.Nonce}}, true, outbox.DidNotHappen},
		"older, and once since it": {[]message{mine(-time.Second, "hello"), mine(time.Second, "hello")}, true, outbox.CannotTell},
	} {
		if got, _, err := find(c.list, "1", piece("hello", "k"), since, c.all); got != c.want || err != nil {
			t.Errorf("%s: %s %v, want %s", name, got, err, c.want)
		}
	}
}

func TestAProbeTellsWhatBecameOfAPiece(t *testing.T) {
	t.Parallel()
	b := setup(t)
	since := time.Now()
	probe := func(key, text string) (outbox.Answer, string) {
		t.Helper()
		answer, ref, err := b.Probe(b.ctx, piece(text, key), since)
		if err != nil {
			t.Fatal(err)
		}
		return answer, ref
	}
	for f, want := range map[discordtest.Fault]outbox.Answer{
		discordtest.LostAfter: outbox.Happened, discordtest.Cut: outbox.Happened, discordtest.BadGateway: outbox.Happened,
		discordtest.LostBefore: outbox.DidNotHappen, discordtest.Broken: outbox.DidNotHappen,
	} {
		b.server.Fault("POST /channels", f, 1)
		text := "text of " + string(f)
		if _, err := b.Send(b.ctx, piece(text, string(f))); classOf(err) != "unknown" {
			t.Fatalf("%s: %v", f, err)
		}
		answer, ref := probe(string(f), text)
		if answer != want || (ref != "") != (want == outbox.Happened) {
			t.Errorf("%s: %s %q, want %s", f, answer, ref, want)
		}
	}
	b.server.Fault("GET /channels", discordtest.Broken, 1)
	if answer, _, err := b.Probe(b.ctx, piece("x", "k"), since); answer != outbox.CannotTell || err == nil {
		t.Errorf("no list: %s %v", answer, err)
	}
}

func TestWhereDiscordIs(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"": true, "https://discord.com/api/v10": true, "https://discord.com/api/v10/": true, "http://127.0.0.1:8080/api/v10": true, "http://localhost/x": true, "http://[::1]:1": true,
		"http://discord.com/api/v10": false, "discord.com": false, "ftp://discord.com": false, "https://a:b@discord.com": false, "https://discord.com/?x=1": false, "://": false,
	} {
		_, err := Kind().Make(channel.Setup{Values: map[string]string{"api_url": address}})
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.Config) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestNoErrorHasTheAddressOfACall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const token = "aW50ZXJhY3Rpb24"
	for _, f := range []discordtest.Fault{discordtest.LostBefore, discordtest.LostAfter, discordtest.Hang, discordtest.Cut, discordtest.Garbage, discordtest.Broken, discordtest.TooMany} {
		b.server.Fault("/interactions", f, 1)
		ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
		var out made
		err := b.api.call(ctx, "POST", "/interactions/1/"+token+"/callback", callback{6}, &out)
		cancel()
		if err == nil || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), b.server.Token) {
			t.Errorf("%s: %v", f, err)
		}
	}
}
