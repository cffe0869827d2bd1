package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// addTelegram adds a channel to a Telegram of the test's own.
func addTelegram(t *testing.T, c *wire.Client, tg *telegramtest.Server) {
	t.Helper()
	res, err := c.ChannelAdd(t.Context(), wire.ChannelAddRequest{
		Kind: "telegram", Values: []wire.ChannelValue{{Name: "api_url", Value: tg.URL}}, Secrets: []wire.ChannelSecret{{Part: "token", Value: []byte(tg.Token)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Channel.Title != "@"+tg.Bot.Username {
		t.Errorf("%+v", res.Channel)
	}
}

// heardBy waits until a text was sent to a chat, and returns the whole message.
func heardBy(t *testing.T, tg *telegramtest.Server, chat int64, part string) telegramtest.Sent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var found telegramtest.Sent
	if !tg.Until(ctx, func() bool {
		list := tg.Sent()
		at := slices.IndexFunc(list, func(s telegramtest.Sent) bool { return s.ChatID == chat && strings.Contains(s.Text, part) })
		if at >= 0 {
			found = list[at]
		}
		return at >= 0
	}) {
		t.Fatalf("chat %d never heard %q; all that was sent: %q", chat, part, tg.Texts())
	}
	return found
}

// TestAConversationOnTelegram goes from nothing to a first answer, a question answered by a
// button, a group, a stranger and a message of the operator's, against a Telegram that
// enforces the real rules; ombud explain shows how each came to be.
func TestAConversationOnTelegram(t *testing.T) {
	t.Parallel()
	tg := telegramtest.New(t)
	o := options(t, "")
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, stop := up(t, o)
	addTelegram(t, c, tg)

	// Nobody is answered before they are known.
	tg.Say(telegramtest.Words{Text: "help"})
	code, err := c.PairStart(t.Context(), wire.PairStartRequest{Channel: "telegram"})
	if err != nil {
		t.Fatal(err)
	}
	tg.Say(telegramtest.Words{Text: "/pair " + code.Code})
	ann := telegramtest.Ann().ID
	heardBy(t, tg, ann, "you are the operator")
	if texts := tg.Texts(); len(texts) != 1 {
		t.Errorf("a stranger was answered: %q", texts)
	}

	// A question comes with buttons, and a press decides it.
	tg.Say(telegramtest.Words{Text: "remember that the wifi code is 4711"})
	q := heardBy(t, tg, ann, "May I?")
	if len(q.Buttons) == 0 || len(q.Buttons[0]) != 2 {
		t.Fatalf("%+v", q)
	}
	eve := telegramtest.User{ID: 666, FirstName: "Eve"}
	tg.Press(eve, ann, q.MessageID, q.Buttons[0][0].Text) // what anybody can forge decides nothing
	tg.Press(telegramtest.Ann(), ann, q.MessageID, q.Buttons[0][0].Text)
	heardBy(t, tg, ann, "Approved")
	until(t, "the buttons are gone", func() bool { return len(heardBy(t, tg, ann, "May I?").Buttons) == 0 })
	if res, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{State: "all"}); err != nil || len(res.Approvals) != 1 || res.Approvals[0].Resolver != "operator@telegram" {
		t.Errorf("%+v %v", res, err)
	}
	tg.Say(telegramtest.Words{Text: "what is the wifi code?"})
	heardBy(t, tg, ann, "4711")

	// A group is only heard until it is listed.
	group := telegramtest.TheGroup()
	mention := "@" + tg.Bot.Username + " help"
	tg.Say(telegramtest.Words{Chat: group, Text: mention})
	show := func() wire.Channel {
		res, err := c.ChannelShow(t.Context(), wire.ChannelRequest{Name: "telegram"})
		if err != nil {
			t.Fatal(err)
		}
		return res.Channel
	}
	until(t, "the group is seen", func() bool { return len(show().Groups) == 1 })
	if g := show().Groups[0]; g.Chat != fmt.Sprint(group.ID) || g.Title != group.Title || g.Mode != "never" {
		t.Errorf("%+v", g)
	}
	if _, err := c.ChannelSet(t.Context(), wire.ChannelSetRequest{Name: "telegram", Values: []string{fmt.Sprintf("group=%d:mention", group.ID)}}); err != nil {
		t.Fatal(err)
	}
	tg.Say(telegramtest.Words{Chat: group, Text: "@" + tg.Bot.Username + "2 help"}) // somebody else's name
	asked := tg.Say(telegramtest.Words{Chat: group, Text: mention})
	tg.Say(telegramtest.Words{From: eve, Chat: group, Text: mention}) // a member nobody allowed
	answer := heardBy(t, tg, group.ID, "")
	if answer.ReplyTo != asked.ID {
		t.Errorf("it answers message %d, not %d", answer.ReplyTo, asked.ID)
	}

	// What the operator sends goes out, and what was said is explained from end to end.
	sent, err := c.Send(t.Context(), wire.SendRequest{To: fmt.Sprintf("telegram:%d", group.ID), Text: "the **tea** is ready"})
	if err != nil {
		t.Fatal(err)
	}
	state, err := c.SendState(t.Context(), wire.SendStateRequest{ItemID: sent.ItemID, WaitS: 30})
	if err != nil || state.State != "delivered" {
		t.Errorf("%+v %v", state, err)
	}
	if tea := heardBy(t, tg, group.ID, "the tea is ready"); len(tea.Entities) != 1 || tea.Entities[0].Type != "bold" {
		t.Errorf("%+v", tea)
	}
	if _, err := c.Send(t.Context(), wire.SendRequest{To: "telegarm:1", Text: "x"}); err == nil || !strings.Contains(err.Error(), "there are: telegram") {
		t.Error(err)
	}
	explained(t, c, "what is the wifi code?", "direct chat", "4711")

	// The life after goes on where this one stopped: nothing is heard twice.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before := len(tg.Texts())
	tg.Say(telegramtest.Words{Text: "what is the wifi code? once more"})
	c, _ = up(t, o)
	until(t, "it answers", func() bool { return len(tg.Texts()) > before })
	if list, err := c.ConversationsList(t.Context(), wire.ConversationsListRequest{}); err != nil || len(list.Conversations) < 2 {
		t.Errorf("%+v %v", list, err)
	}
	if got := len(tg.Texts()); got != before+1 {
		t.Errorf("%d messages were sent: %q", got-before, tg.Texts()[before:])
	}
}

// explained looks whether the explanation of the message with a text has some parts.
func explained(t *testing.T, c *wire.Client, text string, parts ...string) {
	t.Helper()
	list, err := c.EventsList(t.Context(), wire.EventsListRequest{Kinds: []string{"comms.message"}, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Events {
		if !strings.Contains(string(e.Data), text) {
			continue
		}
		got, err := c.Explain(t.Context(), wire.ExplainRequest{ID: e.ID})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if !strings.Contains(string(raw), p) {
				t.Errorf("the explanation of %q lacks %q: %s", text, p, raw)
			}
		}
		return
	}
	t.Errorf("no event has %q", text)
}

// TestOfManyWhoAddAChannelOneDoes lets several add a channel of one name at the same time,
// each with a token of another bot: one is there then, with its own token.
func TestOfManyWhoAddAChannelOneDoes(t *testing.T) {
	t.Parallel()
	bots := []*telegramtest.Server{telegramtest.New(t), telegramtest.New(t), telegramtest.New(t)}
	for i, b := range bots {
		b.Token = fmt.Sprintf("%d:AAtoken-of-its-own-%d", 700000+i, i)
	}
	c, _ := up(t, options(t, ""))
	for round := range 5 {
		errs := make([]error, len(bots))
		var all sync.WaitGroup
		for i, b := range bots {
			all.Go(func() {
				_, errs[i] = c.ChannelAdd(t.Context(), wire.ChannelAddRequest{
					Name: "bot", Kind: "telegram", Values: []wire.ChannelValue{{Name: "api_url", Value: b.URL}},
					Secrets: []wire.ChannelSecret{{Part: "token", Value: []byte(b.Token)}},
				})
			})
		}
		all.Wait()
		added := 0
		for _, err := range errs {
			if err == nil {
				added++
			} else if !fault.Is(err, fault.Conflict) {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if _, err := c.ChannelTest(t.Context(), wire.ChannelRequest{Name: "bot"}); added != 1 || err != nil {
			t.Errorf("round %d: %d were added, and the one with its token: %v", round, added, err)
		}
		if _, err := c.ChannelRemove(t.Context(), wire.ChannelRequest{Name: "bot"}); err != nil {
			t.Fatal(err)
		}
		if left, err := c.SecretList(t.Context()); err != nil || len(left.Secrets) != 0 {
			t.Errorf("round %d: secrets are left: %+v %v", round, left.Secrets, err)
		}
	}
}
