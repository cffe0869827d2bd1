package telegram

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func piece(chat, text string, entities ...markup.Entity) channel.Outgoing {
	return channel.Outgoing{Place: channel.Place{Chat: chat}, Piece: markup.Piece{Text: text, Entities: entities}}
}

func (b *bench) makeWith(t tuning) *adapter {
	b.t.Helper()
	s := channel.Setup{Name: "tg", Values: map[string]string{partAPI: b.api.URL}, Secret: func(context.Context, string) (string, error) { return b.token() }}
	a, err := newAdapter(s, t)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		a.calls.CloseIdleConnections()
		a.polls.CloseIdleConnections()
	})
	return a
}

// send sends a piece that has to arrive.
func (b *bench) send(out channel.Outgoing, approval string) string {
	b.t.Helper()
	out.Approval = approval
	ref, err := b.Send(b.t.Context(), out)
	if err != nil {
		b.t.Fatal(err)
	}
	return ref
}

// secretIsSafe looks for the token in errors and in the log.
func (b *bench) secretIsSafe(errs ...error) {
	b.t.Helper()
	_, secret, _ := strings.Cut(b.api.Token, ":")
	for _, err := range errs {
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %s", err, err, fault.HintOf(err)), secret) {
			b.t.Errorf("the token is in %v", err)
		}
	}
	if strings.Contains(b.log.String(), secret) {
		b.t.Errorf("the token is in the log: %s", b.log)
	}
}

// known is a bench whose bot knows Ann, and a forum with topic 7.
func known(t *testing.T) *bench {
	b := setup(t)
	b.say("hello")
	b.api.Say(telegramtest.Words{Chat: telegramtest.TheGroup(), Thread: 7, Text: "hello"})
	return b
}

func TestAPieceIsSentAsItIs(t *testing.T) {
	t.Parallel()
	b := known(t)
	for name, c := range map[string]struct {
		out  channel.Outgoing
		want telegramtest.Sent
	}{
		"plain": {piece("1001", "_a*b [c](d) <e>"), telegramtest.Sent{ChatID: 1001, Text: "_a*b [c](d) <e>"}},
		"with entities": {piece("1001", "😀 bold link", markup.Entity{Type: "bold", Offset: 3, Length: 4}, markup.Entity{Type: "text_link", Offset: 8, Length: 4, URL: "https://x.org"}),
			telegramtest.Sent{ChatID: 1001, Text: "😀 bold link", Entities: []telegramtest.Entity{{Type: "bold", Offset: 3, Length: 4}, {Type: "text_link", Offset: 8, Length: 4, URL: "https://x.org"}}}},
		"an answer in a topic": {channel.Outgoing{Place: channel.Place{Chat: "-1001234567890", Thread: "7"}, Piece: markup.Piece{Text: "x"}, ReplyTo: "1"},
			telegramtest.Sent{ChatID: -1001234567890, Thread: 7, ReplyTo: 1, Text: "x"}},
		"an answer to what is gone": {channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: markup.Piece{Text: "x"}, ReplyTo: "999"}, telegramtest.Sent{ChatID: 1001, Text: "x"}},
		"a question": {channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: markup.Piece{Text: "sure?"}, Approval: "apr_1"},
			telegramtest.Sent{ChatID: 1001, Text: "sure?", Buttons: [][]telegramtest.Button{{{Text: "Approve", Data: "a:apr_1:y"}, {Text: "Deny", Data: "a:apr_1:n"}}}}},
	} {
		ref, err := b.Send(t.Context(), c.out)
		list := b.api.Sent()
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := list[len(list)-1]
		c.want.MessageID = got.MessageID
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) || ref != fmt.Sprint(got.MessageID) {
			t.Errorf("%s: %s is\n%+v, want\n%+v", name, ref, got, c.want)
		}
	}
}

// What Telegram cannot read is sent once more as it is, without the formatting.
func TestFormattingThatCannotBeReadIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench) markup.Entity{
		"beyond the end":  func(*bench) markup.Entity { return markup.Entity{Type: "bold", Offset: 25, Length: 9} },
		"an unknown type": func(*bench) markup.Entity { return markup.Entity{Type: "loud", Offset: 0, Length: 1} },
		"half an emoji":   func(*bench) markup.Entity { return markup.Entity{Type: "bold", Offset: 0, Length: 1} },
		"in Telegram's other words": func(b *bench) markup.Entity {
			b.api.Fault("sendMessage", 1, telegramtest.Status(400, "Bad Request: ENTITY_BOUNDS_INVALID"))
			b.api.Fault("editMessageText", 1, telegramtest.Status(400, "Bad Request: can't parse entities: x"))
			return markup.Entity{Type: "bold", Offset: 0, Length: 2}
		},
	} {
		b := known(t)
		e := prepare(b)
		out := piece("1001", "😀 a_b*c[d](e)`~>#+-=|{}.!", e)
		ref, err := b.Send(t.Context(), out)
		if got := b.api.Sent(); err != nil || len(got) != 1 || got[0].Text != out.Piece.Text || got[0].Entities != nil || b.api.Count("sendMessage") != 2 {
			t.Errorf("%s: %v, sent %+v in %d calls", name, err, got, b.api.Count("sendMessage"))
		}
		out.Piece.Text, out.Piece.Plain = "😀 b", "plain"
		if err := b.Edit(t.Context(), ref, out); err != nil || b.api.Texts()[0] != "plain" || b.api.Count("editMessageText") != 2 {
			t.Errorf("%s, by an edit: %v, %q", name, err, b.api.Texts())
		}
	}
	b := known(t)
	b.api.Fault("sendMessage", 3, telegramtest.Status(400, "Bad Request: can't parse entities: x"))
	if _, err := b.Send(t.Context(), piece("1001", "😀x", markup.Entity{Type: "bold", Length: 2})); !fault.Is(err, fault.Invalid) || b.api.Count("sendMessage") != 2 {
		t.Errorf("refused without formatting too: %v after %d calls", err, b.api.Count("sendMessage"))
	}
	if _, err := b.Send(t.Context(), piece("1001", "x")); !fault.Is(err, fault.Invalid) || b.api.Count("sendMessage") != 3 {
		t.Errorf("refused, and it had none: %v after %d calls", err, b.api.Count("sendMessage"))
	}
}

func TestWhatBecameOfAMessageIsInItsError(t *testing.T) {
	t.Parallel()
	b := known(t)
	b.api.Meet(telegramtest.Direct(telegramtest.User{ID: 5}))
	b.api.Block(5)
	for name, c := range map[string]struct {
		out  channel.Outgoing
		want fault.Class
	}{
		"4096":                    {piece("1001", strings.Repeat("x", 4096)), ""},
		"4097":                    {piece("1001", strings.Repeat("x", 4097)), fault.Invalid},
		"2048 emoji":              {piece("1001", strings.Repeat("😀", 2048)), ""},
		"2048 emoji and a letter": {piece("1001", strings.Repeat("😀", 2048)+"x"), fault.Invalid},
		"nothing":                 {piece("1001", ""), fault.Invalid},
		"a chat nobody knows":     {piece("99", "x"), fault.NotFound},
		"somebody who blocked it": {piece("5", "x"), fault.Denied},
		"a topic that is gone":    {channel.Outgoing{Place: channel.Place{Chat: "-1001234567890", Thread: "8"}, Piece: markup.Piece{Text: "x"}}, fault.NotFound},
		"no topic":                {channel.Outgoing{Place: channel.Place{Chat: "1001", Thread: "seven"}, Piece: markup.Piece{Text: "x"}}, fault.Invalid},
		"an answer to no id":      {channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: markup.Piece{Text: "x"}, ReplyTo: "-1"}, fault.Invalid},
		"64 bytes in a button":    {channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: markup.Piece{Text: "x"}, Approval: strings.Repeat("a", 60)}, ""},
		"65 bytes in a button":    {channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: markup.Piece{Text: "x"}, Approval: strings.Repeat("a", 61)}, fault.Invalid},
	} {
		if _, err := b.Send(t.Context(), c.out); fault.ClassOf(err) != c.want {
			t.Errorf("%s: %v (%s), want %s", name, err, fault.ClassOf(err), c.want)
		}
	}
	for _, c := range b.api.Calls() {
		if strings.Contains(c.Params["reply_markup"], strings.Repeat("a", 61)) {
			t.Error("what cannot be a button is sent")
		}
	}
}

// Every call can be answered in every way: what became of it is known, or said to be
// unknown, the process lives, and the next call works.
func TestEveryCallCanGoWrongInEveryWay(t *testing.T) {
	t.Parallel()
	calls := map[string]func(b *bench, ref string) error{
		"getMe": func(b *bench, _ string) error { _, err := b.Check(b.t.Context()); return err },
		"sendMessage": func(b *bench, _ string) error {
			_, err := b.Send(b.t.Context(), piece("1001", "x", markup.Entity{Type: "bold", Length: 1}))
			return err
		},
		"editMessageText": func(b *bench, ref string) error {
			return b.Edit(b.t.Context(), ref, piece("1001", fmt.Sprint(len(b.api.Calls()))))
		},
		"sendChatAction": func(b *bench, _ string) error { return b.Typing(b.t.Context(), channel.Place{Chat: "1001"}) },
	}
	for name, c := range map[string]struct {
		fault       telegramtest.Fault
		sends, asks fault.Class // of calls that send, of those that look
	}{
		"401":                   {telegramtest.Unauthorized(), fault.Unavailable, fault.Denied},
		"404":                   {telegramtest.Status(404, "Not Found"), fault.Unavailable, fault.Denied},
		"403":                   {telegramtest.Forbidden(), fault.Denied, fault.Unavailable},
		"400":                   {telegramtest.Status(400, "Bad Request: strange"), fault.Invalid, fault.Unavailable},
		"no rights":             {telegramtest.Status(400, "Bad Request: not enough rights to send text messages to the chat"), fault.Denied, fault.Unavailable},
		"429":                   {telegramtest.RetryAfter(33), "retry after 33s", "retry after 33s"},
		"429 for a year":        {telegramtest.RetryAfter(365 * 86400), "retry after 24h0m0s", "retry after 24h0m0s"},
		"429 for ever":          {telegramtest.Raw(429, `{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":9223372036854775807}}`), "retry after 24h0m0s", "retry after 24h0m0s"},
		"500":                   {telegramtest.Status(500, "Internal Server Error"), fault.Unknown, fault.Unavailable},
		"502":                   {telegramtest.Status(502, "Bad Gateway"), fault.Unknown, fault.Unavailable},
		"503":                   {telegramtest.Status(503, "Service Unavailable"), fault.Unavailable, fault.Unavailable},
		"garbage":               {telegramtest.Garbage(), fault.Unknown, fault.Unknown},
		"a proxy's 502":         {telegramtest.Page(502), fault.Unknown, fault.Unknown},
		"a proxy's 503":         {telegramtest.Page(503), fault.Unavailable, fault.Unavailable},
		"a proxy's 404":         {telegramtest.Page(404), fault.Unavailable, fault.Unavailable},
		"a proxy's redirection": {telegramtest.Page(302), fault.Unknown, fault.Unknown},
		"cut":                   {telegramtest.Cut(), fault.Unknown, fault.Unknown},
		"lost after":            {telegramtest.LostAfter(), fault.Unknown, fault.Unknown},
		"lost before":           {telegramtest.LostBefore(), fault.Unknown, fault.Unknown},
		"a hang":                {telegramtest.Hang(), fault.Unknown, fault.Unknown},
		"200 with half a yes":   {telegramtest.Raw(200, `{"ok":true}`), fault.Unknown, fault.Unknown},
		"200 with a no":         {telegramtest.Raw(200, `{"ok":false}`), fault.Unknown, fault.Unknown},
		"the token come back":   {telegramtest.Raw(400, `{"ok":false,"error_code":400,"description":"Bad Request: 7000000001:AAHxV0gY3dUq9mO5sT2bLwKcJ8eRiNfZpQ4"}`), fault.Invalid, fault.Unavailable},
		"a wild error":          {telegramtest.Raw(400, `{"ok":false,"error_code":400,"description":"a\u0000\n`+strings.Repeat("b", 9999)+`"}`), fault.Invalid, fault.Unavailable},
	} {
		for method, call := range calls {
			t.Run(name+" of "+method, func(t *testing.T) {
				t.Parallel()
				b := known(t)
				if strings.Contains(name, "hang") {
					b.call = 100 * time.Millisecond
					b.adapter = b.makeWith(b.tuning)
				}
				ref := b.send(piece("1001", "first"), "")
				b.api.Fault(method, 1, c.fault)
				want := c.sends
				if method == "getMe" {
					want = c.asks
				}
				if name == "200 with half a yes" && (method == "editMessageText" || method == "sendChatAction") {
					want = "" // of their answers nothing is read but that it is yes
				}
				err := call(b, ref)
				if class(err) != want {
					t.Errorf("%v (%s), want %s", err, class(err), want)
				}
				if err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x00\n")) {
					t.Errorf("%q", err)
				}
				b.secretIsSafe(err)
				if err := call(b, ref); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		}
	}
}

func TestNothingIsSentWhereNobodyListens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := channel.Setup{Values: map[string]string{partAPI: "http://127.0.0.1:1/telegram/"}, Secret: func(context.Context, string) (string, error) { return b.api.Token, nil }}
	a, err := newAdapter(s, tuning{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(t.Context(), piece("1001", "x"))
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	b.secretIsSafe(err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Send(ctx, piece("1001", "x")); !fault.Is(err, fault.Unavailable) || b.api.Count("sendMessage") != 0 {
		t.Errorf("after the end: %v", err)
	}
}

// closing counts how often the connections that wait for use were closed.
type closing struct {
	http.RoundTripper
	n atomic.Int32
}

func (c *closing) CloseIdleConnections() { c.n.Add(1) }

// A connection that died while the machine slept looks alive: HTTP/2 would send every
// later call into it.
func TestAConnectionThatFailedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	b := known(t)
	c := &closing{RoundTripper: b.calls.Transport}
	b.calls.Transport = c
	b.api.Fault("sendMessage", 1, telegramtest.LostAfter())
	if _, err := b.Send(t.Context(), piece("1001", "x")); !fault.Is(err, fault.Unknown) || c.n.Load() != 1 {
		t.Errorf("%v, closed %d times", err, c.n.Load())
	}
	b.calls.Transport = c.RoundTripper
}

func TestAnEdit(t *testing.T) {
	t.Parallel()
	b := known(t)
	ref := b.send(piece("1001", "sure?"), "apr_1")
	edit := func(out channel.Outgoing) error { return b.Edit(t.Context(), ref, out) }
	same := piece("1001", "sure?")
	same.Approval = "apr_1"
	if err := edit(same); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	if err := edit(piece("1001", "approved", markup.Entity{Type: "bold", Length: 8})); err != nil {
		t.Error(err)
	}
	got := b.api.Sent()[0]
	if got.Text != "approved" || got.Buttons != nil || len(got.Entities) != 1 || got.Edits != 1 || got.Preview {
		t.Errorf("it is %+v", got)
	}
	for name, c := range map[string]struct {
		ref  string
		want fault.Class
	}{"gone": {"777", fault.NotFound}, "another's": {"1", fault.Invalid}, "none": {"", fault.Invalid}, "no id": {"x", fault.Invalid}} {
		if err := b.Edit(t.Context(), c.ref, piece("1001", "x")); !fault.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTyping(t *testing.T) {
	t.Parallel()
	b := known(t)
	if err := b.Typing(t.Context(), channel.Place{Chat: "-1001234567890", Thread: "7"}); err != nil {
		t.Error(err)
	}
	if c := b.api.Calls(); c[0].Params["action"] != "typing" || c[0].Params["message_thread_id"] != "7" {
		t.Errorf("called %+v", c)
	}
	if err := b.Typing(t.Context(), channel.Place{Chat: "99"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("nowhere: %v", err)
	}
}

// A flood says how long to wait, also to an edit.
func TestAFloodSaysHowLongToWait(t *testing.T) {
	t.Parallel()
	b := known(t)
	b.api.Limit(telegramtest.Flood{Messages: 2, In: 33 * time.Second})
	ref := b.send(piece("1001", "1"), "")
	if err := b.Edit(t.Context(), ref, piece("1001", "2")); err != nil {
		t.Fatal(err)
	}
	_, err := b.Send(t.Context(), piece("1001", "3"))
	if d := retryAfter(err); d < 32*time.Second || d > 33*time.Second {
		t.Errorf("wait %s: %v", d, err)
	}
	if d := retryAfter(b.Edit(t.Context(), ref, piece("1001", "4"))); d < 32*time.Second {
		t.Errorf("an edit is to wait %s", d)
	}
	b.api.Advance(34 * time.Second)
	b.send(piece("1001", "3"), "")
	if got := b.api.Texts(); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("sent are %q", got)
	}
}

// What the renderer makes, Telegram takes: long texts in pieces, and what is nobody's
// Markdown as it is.
func TestWhatIsRenderedIsTaken(t *testing.T) {
	t.Parallel()
	code := "```go\n" + strings.Repeat("fmt.Println(\"hello\") // a line of code\n", 160) + "```"
	for name, c := range map[string]struct {
		markdown string
		pieces   int
		holds    string
	}{
		"4096":                         {strings.Repeat("x", 4096), 1, strings.Repeat("x", 4096)},
		"4097":                         {strings.Repeat("x", 4097), 2, ""},
		"12,000":                       {strings.Repeat("word ", 2400), 3, ""},
		"2048 emoji":                   {strings.Repeat("😀", 2048), 1, ""},
		"2049 emoji":                   {strings.Repeat("😀", 2049), 2, ""},
		"a line of 5,000":              {strings.Repeat("y", 5000), 2, ""},
		"6,000 of code":                {code, 2, ""},
		"bold across the end":          {strings.Repeat("x", 4089) + " **" + strings.Repeat("bold ", 4) + "**", 2, ""},
		"200 bold words":               {strings.Repeat("**a** b ", 200), 0, ""},
		"the marks of Markdown itself": {"a\\_b\\*c\\[d\\](e)\\`\\~\\>\\#\\+\\-\\=\\|\\{\\}\\.\\!", 1, "a_b*c[d](e)`~>#+-=|{}.!"},
		"an address":                   {"see [it](https://x.org) & <b>x</b>", 1, "see it & <b>x</b>"},
	} {
		b := known(t)
		pieces := b.Render(c.markdown)
		if c.pieces > 0 && len(pieces) != c.pieces || len(pieces) == 0 {
			t.Errorf("%s: %d pieces, want %d", name, len(pieces), c.pieces)
		}
		for _, p := range pieces {
			if len(p.Entities) > 100 {
				t.Errorf("%s: %d entities", name, len(p.Entities))
			}
			if _, err := b.Send(t.Context(), channel.Outgoing{Place: channel.Place{Chat: "1001"}, Piece: p}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b.api.Count("sendMessage") != len(pieces) {
			t.Errorf("%s: %d calls for %d pieces: Telegram could not read them", name, b.api.Count("sendMessage"), len(pieces))
		}
		if c.holds != "" && b.api.Texts()[0] != c.holds {
			t.Errorf("%s: %q", name, b.api.Texts()[0])
		}
	}
}

func TestASetup(t *testing.T) {
	t.Parallel()
	k := Kind()
	if k.Name != "telegram" || len(k.Needs) != 2 || !k.Needs[0].Secret || k.Needs[0].Optional || !k.Needs[1].Optional || k.Needs[1].Default != "https://api.telegram.org" {
		t.Errorf("%+v", k)
	}
	for url, want := range map[string]fault.Class{
		"": "", "https://api.telegram.org": "", "http://127.0.0.1:8081": "", "https://x.org/bots/": "",
		"api.telegram.org": fault.Config, "ftp://x.org": fault.Config, "https://x.org/?a=b": fault.Config, "https://x.org/#a": fault.Config, "https://me:pw@x.org": fault.Config, "https://": fault.Config, "::": fault.Config,
	} {
		a, err := k.Make(channel.Setup{Values: map[string]string{partAPI: url}})
		if fault.ClassOf(err) != want {
			t.Errorf("%q: %v", url, err)
		}
		if err == nil && a.Capabilities() != (channel.Capabilities{Buttons: true, Edits: 1500 * time.Millisecond, Limit: 4096}) {
			t.Errorf("it can %+v", a.Capabilities())
		}
	}
}

func TestManySendWhileItListens(t *testing.T) {
	t.Parallel()
	b := known(t)
	b.run()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := b.Send(t.Context(), piece("1001", "x")); err != nil {
					t.Error(err)
				}
				b.say("y")
			}
		})
	}
	wg.Wait()
	s := b.until("all", taken(82))
	if len(b.api.Sent()) != 80 || s.Again != 0 {
		t.Errorf("%d sent, %d again", len(b.api.Sent()), s.Again)
	}
}
