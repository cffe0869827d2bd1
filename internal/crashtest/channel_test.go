package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

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
  - match: hello
    steps: [{text: hi}]
`

// longAnswer has several pieces on every network, which can be told apart.
func longAnswer() string {
	var b strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&b, "word%04d ", i)
	}
	return b.String()
}

// newChat is a life whose model answers on a network of the test's own.
func newChat(t *testing.T, n network, kills ...string) (*life, chat) {
	t.Helper()
	l := newLife(t, dbtest.KindSQLite, kills...)
	l.write(l.path("script.yaml"), fmt.Sprintf(chatScript, l.path("asked"), longAnswer()))
	return l, n.begin(t, l)
}

// line is what a person writes.
type line struct {
	who  int
	text string
}

// story is what is written. Before strangers are answered everybody greets, which nobody
// answers: from then on what they write while ombud is away is found on every network.
func (n network) story() []line {
	return []line{{0, "short 1"}, {0, "long 2"}, {1, "short 3"}}[:1+n.people]
}

// chatStory lets two people write, through any death, until everything is answered or
// known to be in doubt.
func (l *life) chatStory(n network, c chat) {
	l.t.Helper()
	insist(l, "add the channel", func(ctx context.Context) (bool, error) {
		_, err := l.client.ChannelAdd(ctx, n.add(c))
		if fault.Is(err, fault.Conflict) {
			err = nil // it was added, though we were not told
		}
		return true, err
	})
	l.connected(n)
	for who := range n.people {
		l.greet(n, c, who)
	}
	insist(l, "answer strangers", func(ctx context.Context) (bool, error) {
		_, err := l.client.ChannelSet(ctx, wire.ChannelSetRequest{Name: n.kind, Values: []string{"strangers=all"}})
		return true, err
	})
	for i, m := range n.story() {
		insist(l, "write", func(context.Context) (bool, error) { return true, c.say(m.who, i, m.text) })
	}
	deaths := l.deaths
	insist(l, "the end of all", func(ctx context.Context) (bool, error) {
		got, err := l.client.EventsList(ctx, wire.EventsListRequest{Kinds: []string{"comms.message", "comms.sent", "comms.uncertain", "comms.failed"}, Limit: 1000})
		if err == nil && len(n.on(got.Events)) < len(n.story())+late(got.Events) {
			err = errNotYet
		}
		if l.deaths > deaths && c.later != nil {
			deaths = l.deaths
			l.connected(n)
			c.later()
		}
		return true, err
	})
}

// late are the greetings that were heard only when strangers were answered already, and so
// are answered: those that were missed at first, of a person who greeted again.
func late(list []wire.Event) (n int) {
	for _, e := range list {
		var d struct {
			Content   string
			Addressed string
		}
		if json.Unmarshal(e.Data, &d) == nil && strings.HasPrefix(d.Content, "hello") && d.Addressed != "" {
			n++
		}
	}
	return n
}

// greet lets somebody write until it was heard, as a person does who gets no answer.
func (l *life) greet(n network, c chat, who int) {
	l.t.Helper()
	text := fmt.Sprint("hello from ", who)
	said, deaths := false, l.deaths
	insist(l, text, func(ctx context.Context) (bool, error) {
		if l.deaths > deaths {
			said, deaths = false, l.deaths
			l.connected(n)
		}
		got, err := l.client.EventsList(ctx, wire.EventsListRequest{Kinds: []string{"comms.message"}, Limit: 100})
		if err != nil || heard(got.Events, text) > 0 {
			return true, err
		}
		if !said {
			if err := c.say(who, 100+2*l.deaths+who, text); err != nil {
				return false, err
			}
			said = true
		}
		return false, errNotYet
	})
}

// heard is how often a text was.
func heard(list []wire.Event, text string) (n int) {
	for _, e := range list {
		var d struct{ Content string }
		if json.Unmarshal(e.Data, &d) == nil && d.Content == text {
			n++
		}
	}
	return n
}

// on are the events of messages that go out there: the operator is told of a dead letter at
// the machine.
func (n network) on(list []wire.Event) (out []wire.Event) {
	for _, e := range list {
		if strings.Contains(string(e.Data), `"karmax_channel_id":"`+n.kind+`"`) {
			out = append(out, e)
		}
	}
	return out
}

// inspectChat checks that each message was heard once and answered once: where a death fell
// into a send, a network that can be asked was, and on any other the answer is shown as
// uncertain and was not sent again. It returns how many are in doubt.
func (l *life) inspectChat(n network, c chat) int {
	l.t.Helper()
	bad := func(format string, args ...any) {
		l.t.Helper()
		l.t.Errorf("%s: "+format, append([]any{l.name}, args...)...)
	}
	ctx := l.t.Context()
	for _, m := range n.story() {
		if times := heard(l.events("comms.message"), m.text); times != 1 {
			bad("%q was heard %d times", m.text, times)
		}
	}
	sent, doubt, failed := len(n.on(l.events("comms.sent"))), len(n.on(l.events("comms.uncertain"))), len(n.on(l.events("comms.failed")))
	most := 2 * l.deaths // two chats can have a send under way
	if n.tells {
		most = 0
	}
	if extra := sent + doubt - len(n.story()); extra < 0 || extra > late(l.events("comms.message")) || doubt > most || failed != 0 {
		bad("%d were sent, %d are in doubt, %d failed", sent, doubt, failed)
	}
	if dead, err := l.client.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) != doubt {
		bad("%d are in doubt, and shown are %+v %v", doubt, dead, err)
	}
	l.inspectPieces(n, c, doubt)
	if _, err := l.client.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		bad("audit verify: %v", err)
	}
	return doubt
}

// inspectPieces checks that no piece came twice or before one that is ahead of it, and that
// all came if nothing is in doubt.
func (l *life) inspectPieces(n network, c chat, doubt int) {
	l.t.Helper()
	count, order := map[string]int{}, map[string][]string{}
	total := 0
	for _, m := range c.sent() {
		word := strings.Fields(m.text)[0]
		if word == "hi" {
			continue // to somebody who greeted late
		}
		count[m.chat+" "+word]++
		order[m.chat] = append(order[m.chat], word)
		total++
	}
	for what, times := range count {
		if times > 1 {
			l.t.Errorf("%s: %q was sent %d times", l.name, what, times)
		}
	}
	for chat, words := range order { // "a short answer" comes first, then word0000 and so on
		if !slices.IsSorted(words) {
			l.t.Errorf("%s: in chat %s it was said in the order %q", l.name, chat, words)
		}
	}
	if doubt == 0 && total != n.people+n.pieces {
		l.t.Errorf("%s: %d pieces were sent: %v", l.name, total, count)
	}
}

// TestAChatIsHeardAndAnsweredOnceWhereverItDies kills the daemon at the passes of the fail
// points that a conversation on a chat network makes, and counts on both sides.
func TestAChatIsHeardAndAnsweredOnceWhereverItDies(t *testing.T) {
	supported(t)
	for _, n := range networks {
		t.Run(n.kind, func(t *testing.T) { chatCampaign(t, n) })
	}
}

func chatCampaign(t *testing.T, n network) {
	passes := n.count(t)
	var tried, died, doubt atomic.Int64
	t.Run("kill", func(t *testing.T) {
		for i, p := range passes {
			if sent := p.point == "channel.send.after" && p.n%chatSends == 0; i%n.stride != n.first && !sent {
				continue
			}
			t.Run(p.kill(), func(t *testing.T) {
				t.Parallel()
				l, c := newChat(t, n, p.kill())
				l.start()
				l.chatStory(n, c)
				doubt.Add(int64(l.inspectChat(n, c)))
				l.stop()
				tried.Add(1)
				died.Add(int64(l.deaths))
			})
		}
	})
	t.Logf("%s: %d passes counted, %d tried, %d deaths; %d answers in doubt", n.kind, len(passes), tried.Load(), died.Load(), doubt.Load())
	if died.Load() == 0 {
		t.Error("nobody died")
	}
}

// count lets a conversation go by undisturbed and returns what it passed.
func (n network) count(t *testing.T) (passes []pass) {
	t.Helper()
	l, c := newChat(t, n)
	l.start()
	before := len(l.lines("passes0"))
	l.chatStory(n, c)
	l.inspectChat(n, c)
	l.stop()
	seen := map[string]int{}
	for i, point := range l.lines("passes0") {
		seen[point]++
		if i >= before {
			passes = append(passes, pass{point, seen[point], i})
		}
	}
	if seen["channel.send.before"] != n.people+n.pieces {
		t.Errorf("%d pieces were sent", seen["channel.send.before"])
	}
	return passes
}
