package crashtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// chatScript answers on a chat network: in one message, and in one that has several pieces
// there.
const chatScript = `log: %s
turns:
  - match: short
    steps: [{text: a short answer}]
  - match: long
    steps: [{text: "%s"}]
`

// longAnswer has three pieces on Telegram, which can be told apart.
func longAnswer() string {
	var b strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&b, "word%04d ", i)
	}
	return b.String()
}

// newChat is a life whose model answers on a Telegram of the test's own.
func newChat(t *testing.T, kills ...string) (*life, *telegramtest.Server) {
	t.Helper()
	l := newLife(t, dbtest.KindSQLite, kills...)
	l.write(l.path("script.yaml"), fmt.Sprintf(chatScript, l.path("asked"), longAnswer()))
	return l, telegramtest.New(t)
}

// chatStory lets two people write, through any death, until everything is answered or
// known to be in doubt. The messages wait at Telegram while the daemon is dead.
func (l *life) chatStory(tg *telegramtest.Server) {
	l.t.Helper()
	insist(l, "add the channel", func(ctx context.Context) (bool, error) {
		_, err := l.client.ChannelAdd(ctx, wire.ChannelAddRequest{
			Kind:    "telegram",
			Values:  []wire.ChannelValue{{Name: "api_url", Value: tg.URL}, {Name: "strangers", Value: "all"}},
			Secrets: []wire.ChannelSecret{{Part: "token", Value: []byte(tg.Token)}},
		})
		if fault.Is(err, fault.Conflict) {
			err = nil // it was added, though we were not told
		}
		return true, err
	})
	bob := telegramtest.User{ID: 1002, FirstName: "Bob"}
	tg.Say(telegramtest.Words{Text: "short 1"})
	tg.Say(telegramtest.Words{Text: "long 2"})
	tg.Say(telegramtest.Words{From: bob, Text: "short 3"})
	insist(l, "the end of all", func(ctx context.Context) (bool, error) {
		got, err := l.client.EventsList(ctx, wire.EventsListRequest{Kinds: []string{"comms.sent", "comms.uncertain", "comms.failed"}, Limit: 100})
		if err == nil && len(onTelegram(got.Events)) < 3 {
			err = errNotYet
		}
		return true, err
	})
}

// onTelegram are the events of messages that go out there: the operator is told of a dead
// letter at the machine.
func onTelegram(list []wire.Event) (out []wire.Event) {
	for _, e := range list {
		if strings.Contains(string(e.Data), `"karmax_channel_id":"telegram"`) {
			out = append(out, e)
		}
	}
	return out
}

// inspectChat checks that each message was heard once and answered once: where a death fell
// into a send, the answer is shown as uncertain and was not sent again.
func (l *life) inspectChat(tg *telegramtest.Server) {
	l.t.Helper()
	bad := func(format string, args ...any) {
		l.t.Helper()
		l.t.Errorf("%s: "+format, append([]any{l.name}, args...)...)
	}
	ctx := l.t.Context()
	if n := len(l.events("comms.message")); n != 3 {
		bad("%d messages were heard", n)
	}
	sent, doubt := len(onTelegram(l.events("comms.sent"))), len(onTelegram(l.events("comms.uncertain")))
	if sent+doubt != 3 || doubt > 2*l.deaths { // two chats can have a send under way
		bad("%d were sent, %d are in doubt", sent, doubt)
	}
	if dead, err := l.client.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) != doubt {
		bad("%d are in doubt, and shown are %+v %v", doubt, dead, err)
	}
	count := map[string]int{}
	for _, s := range tg.Sent() {
		count[fmt.Sprint(s.ChatID, " ", strings.Fields(s.Text)[0])]++
	}
	total := 0
	for what, n := range count {
		total += n
		if n > 1 {
			bad("%q was sent %d times", what, n)
		}
	}
	if doubt == 0 && total != 2+pieces {
		bad("%d pieces were sent: %v", total, count)
	}
	if _, err := l.client.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		bad("audit verify: %v", err)
	}
}

// pieces is how many a long answer has on Telegram.
const pieces = 3

// TestAChatIsHeardAndAnsweredOnceWhereverItDies kills the daemon at the passes of the fail
// points that a conversation on a chat network makes, and counts on both sides.
func TestAChatIsHeardAndAnsweredOnceWhereverItDies(t *testing.T) {
	supported(t)
	l, tg := newChat(t)
	l.start()
	before := len(l.lines("passes0"))
	l.chatStory(tg)
	l.inspectChat(tg)
	l.stop()
	seen := map[string]int{}
	var passes []pass
	for i, point := range l.lines("passes0") {
		seen[point]++
		if i >= before {
			passes = append(passes, pass{point, seen[point], i})
		}
	}
	t.Logf("%d passes, %d of them sends", len(passes), seen["channel.send.before"])
	if seen["channel.send.before"] != 2+pieces {
		t.Errorf("%d pieces were sent", seen["channel.send.before"])
	}
	for i := range passes {
		if i%chatStride != chatFirst && !strings.HasPrefix(passes[i].point, "channel.send.after") {
			continue
		}
		t.Run(passes[i].kill(), func(t *testing.T) {
			t.Parallel()
			l, tg := newChat(t, passes[i].kill())
			l.start()
			l.chatStory(tg)
			l.inspectChat(tg)
			l.stop()
		})
	}
}
