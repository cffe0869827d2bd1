package slack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestAMessageIsAcknowledgedWhenItIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	b.run()
	entered, release := b.in.hold()
	ts := b.Say(chat, ann, "hello &lt;there&gt;")
	<-entered
	if len(b.Acks()) != 0 {
		t.Fatal("acknowledged before it was kept")
	}
	release()
	m := b.taken(1)[0]
	b.server("acknowledged", func() bool { return len(b.Acks()) == 1 })
	if m.ID != ts || m.Chat != chat || m.Group || m.Sender != ann || m.SenderName != "ann" || m.Text != "hello <there>" || m.Thread != "" || m.Own || m.Bot {
		t.Errorf("got %+v", m)
	}
}

// A copy that says it comes again may be the only one that arrived.
func TestWhatComesAgainIsTakenIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	b.pace.again = time.Hour
	b.make()
	b.run()
	entered, release := b.in.hold()
	b.in.FailNext(1)
	b.Say(chat, ann, "one")
	<-entered
	release()
	b.Advance(3 * time.Second)
	if got := b.taken(1); got[0].Text != "one" {
		t.Errorf("got %+v", got)
	}
	b.server("acknowledged", func() bool { return len(b.Acks()) == 1 })
	if a := b.Acks()[0]; a.Attempt != 1 {
		t.Errorf("acknowledged try %d, but only the second was kept", a.Attempt)
	}
	b.Advance(time.Hour)
	if b.Lost() != 0 || b.Unacked() != 0 {
		t.Error("it comes again and again")
	}
}

// The last copy comes after five minutes, when nothing in memory may still know of the
// first, and the process may be another.
func TestTheLastCopyOfAKeptMessageIsNoSecondOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	r := b.run()
	entered, release := b.in.hold()
	b.Say(chat, ann, "one")
	<-entered
	b.Fault("apps.connections.open", slacktest.Status500, 1000)
	b.Drop() // it will be kept, and the acknowledgement finds no socket
	b.server("broken off", func() bool { return b.Open() == 0 })
	release()
	b.taken(1)
	if err := r.stop(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	b.Advance(61 * time.Second)
	b.Mend()
	b.make()
	b.start()
	b.server("there again", func() bool { return b.Open() == 1 })
	b.Advance(300 * time.Second)
	b.until("told again", func(s channeltest.Seen) bool { return s.Again >= 1 })
	b.server("acknowledged", func() bool { return b.Unacked() == 0 && b.Lost() == 0 })
	if a := b.Acks(); len(a) != 1 || a[0].Attempt != 3 {
		t.Errorf("acknowledged %+v", a)
	}
	if got := b.in.Now(); len(got.Taken) != 1 {
		t.Errorf("taken %d times", len(got.Taken))
	}
}

func TestAMentionIsOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann, room := b.User("ann"), b.Channel("general", "channel")
	b.run()
	ts := b.Mention(room, ann, "what is up?")
	b.server("both acknowledged", func() bool { return len(b.Acks()) == 2 })
	s := b.in.Now()
	if len(s.Taken) != 1 || s.Again != 1 {
		t.Fatalf("taken %d, again %d", len(s.Taken), s.Again)
	}
	m := s.Taken[0]
	if m.ID != ts || m.Thread != ts || !m.MentionsMe || !m.Group || m.Title != "general" || m.Text != "@ombud what is up?" || m.Command {
		t.Errorf("got %+v", m)
	}
	b.Say(room, ann, "and then?", slacktest.In(ts))
	if m := b.taken(2)[1]; m.Thread != ts {
		t.Errorf("what follows is in another conversation: %+v", m)
	}
}

func TestPressesAndCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	b.run()
	out := outgoing(chat, "May I?")
	out.Approval = "ap_1"
	ref, err := b.a.Send(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{approveID, denyID} {
		entered, release := b.in.hold()
		b.in.FailNext(1)
		if !b.Press(ref, ann, id) {
			t.Fatalf("there is no button %s", id)
		}
		<-entered
		release()
		b.Advance(3 * time.Second)
		b.server("acknowledged", func() bool { return len(b.Acks()) == i+1 })
		if a := b.Acks()[i]; a.Attempt != 1 {
			t.Errorf("a press that was not kept was acknowledged: %+v", a)
		}
	}
	for i, m := range b.taken(2) {
		if m.Press == nil || m.Press.Approval != "ap_1" || m.Press.Yes != (i == 0) || m.Press.Ref != ref || m.Sender != ann || m.Chat != chat || m.SenderName != "ann" || m.Text == "" || m.Cursor != "" {
			t.Errorf("got %+v", m)
		}
	}
	b.Slash(chat, ann, "/ombud", "help")
	b.server("answered", func() bool { return len(b.Acks()) == 3 })
	if a := b.Acks()[2]; !strings.Contains(a.Payload, "no slash commands") {
		t.Errorf("said %q", a.Payload)
	}
	if n := len(b.in.Now().Taken); n != 2 {
		t.Errorf("%d were taken in", n)
	}
}

func TestWhatIsNoMessageIsDoneWith(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann, room := b.User("ann"), b.Channel("general", "channel")
	b.run()
	for _, ev := range []string{
		`{"type":"reaction_added","user":"U1","reaction":"+1","item":{"type":"message"},"event_ts":"1.000001"}`,
		`{"type":"message","subtype":"message_changed","hidden":true,"message":{"text":"a","user":"U1","ts":"1700000000.000100"},"channel":"C1","ts":"1700000000.000200"}`,
		`{"type":"message","subtype":"channel_join","user":"U1","text":"<@U1> has joined the channel","channel":"C1","ts":"1700000000.000300"}`,
		`{"type":"message","user":"U1","text":"no ts","channel":"C1"}`,
		`{"type":"message","user":"U1","text":"odd ts","channel":"C1","ts":"yesterday"}`,
		`{"type":"message","text":["of","another","shape"],"ts":{}}`, `[]`, `7`, `null`,
	} {
		b.Event(ev)
	}
	b.Envelope("interactive", `{"type":"view_submission"}`)
	b.Envelope("interactive", `"none"`)
	b.Envelope("something_new", `{}`)
	b.Frame(`{"type":"something_new"}`)
	b.Broken("no json")
	b.Ping()
	b.Say(room, ann, "still here")
	b.taken(1)
	b.server("acknowledged", func() bool { return b.Unacked() == 0 })
	if s := b.in.Now(); len(s.Taken) != 1 || len(s.Downs) != 0 || b.Opened() != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestASocketIsReplacedBeforeItCloses(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"warning", "refresh_requested"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ann := b.User("ann")
			chat := b.Direct(ann)
			b.run()
			entered, release := b.in.hold()
			b.Say(chat, ann, "through the old one")
			<-entered
			b.Disconnect(reason)
			b.server("replaced", func() bool { return b.Opened() == 2 && b.Open() == 2 })
			b.Ping()
			b.server("heard on both", func() bool { return b.Pongs() == 2 })
			release()
			b.server("acknowledged through the old one", func() bool { return b.Unacked() == 0 })
			if a := b.Acks()[0]; a.Attempt != 0 {
				t.Errorf("it had to come again: %+v", a)
			}
			b.Say(chat, ann, "through the new one")
			b.taken(2)
			b.server("closed", func() bool { return b.Open() == 1 })
			if s := b.in.Now(); len(s.Downs) != 0 || len(s.Ups) != 1 {
				t.Errorf("it was told as trouble: %+v", s)
			}
		})
	}
}

func TestWhatEndsIt(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(b *bundle){
		"link disabled":  func(b *bundle) { b.Disconnect("link_disabled") },
		"token revoked":  func(b *bundle) { b.Refuse("token_revoked"); b.Drop() },
		"invalid auth":   func(b *bundle) { b.Refuse("invalid_auth"); b.Drop() },
		"inactive":       func(b *bundle) { b.Refuse("account_inactive"); b.Drop() },
		"scope":          func(b *bundle) { b.Refuse("missing_scope"); b.Drop() },
		"no socket mode": func(b *bundle) { b.Fault("apps.connections.open", slacktest.Status401, 1); b.Drop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			r := b.run()
			do(b)
			err := r.wait(t)
			if !fault.Is(err, fault.Denied) {
				t.Errorf("it ended with %v (%s)", err, fault.ClassOf(err))
			}
			b.silent(err)
			b.Refuse("")
			b.start()
			b.until("up again", func(s channeltest.Seen) bool { return len(s.Ups) == 2 })
		})
	}
}

// Each call of the API going wrong in each way, one after another: the adapter lives, tells
// of it, and works when Slack does.
func TestNothingOfSlackEndsIt(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"auth.test", "apps.connections.open", "socket", "hello"} {
		for _, f := range slacktest.Faults() {
			if method == "hello" && f != slacktest.Hang {
				continue // there is one way not to say it
			}
			if f == slacktest.Status401 && method != "socket" && method != "hello" {
				continue // TestWhatEndsIt
			}
			t.Run(method+" "+string(f), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				ann := b.User("ann")
				chat := b.Direct(ann)
				if strings.HasPrefix(string(f), "hang") {
					b.impatient()
				}
				b.Fault(method, f, 3)
				b.start()
				s := b.until("up", func(s channeltest.Seen) bool { return len(s.Ups) == 1 })
				cut := method == "socket" && slices.Contains([]slacktest.Fault{slacktest.Cut, slacktest.HangAfter, slacktest.CloseAfter}, f)
				if len(s.Downs) < 3 && !cut {
					t.Errorf("told of %d troubles", len(s.Downs))
				}
				for _, err := range s.Downs {
					b.silent(err)
				}
				b.Say(chat, ann, "hello")
				b.taken(1)
			})
		}
	}
}

func TestWithoutNamesAndHistoriesItWorks(t *testing.T) {
	t.Parallel()
	for _, f := range slacktest.Faults() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ann, room := b.User("ann"), b.Channel("general", "channel")
			if strings.HasPrefix(string(f), "hang") {
				b.impatient()
			}
			b.Post(room, ann, "long ago")
			b.Advance(2 * overlap)
			before := stamp(b.Now().UnixMicro())
			b.Post(room, ann, "missed")
			if err := b.in.Advance(t.Context(), cursor{Channels: map[string]string{room: before}}.String()); err != nil {
				t.Fatal(err)
			}
			for _, m := range []string{"users.info", "conversations.info"} {
				b.Fault(m, f, 1000)
			}
			b.Fault("conversations.history", f, 2)
			b.run()
			b.Say(room, ann, "live")
			texts := map[string]bool{}
			for _, m := range b.taken(2) {
				texts[m.Text] = true
				if m.SenderName != "" || m.Title != "" {
					t.Errorf("where does the name come from? %+v", m)
				}
			}
			if !texts["missed"] || !texts["live"] {
				t.Errorf("got %v", texts)
			}
			b.server("acknowledged", func() bool { return b.Unacked() == 0 })
		})
	}
}

func TestHowLongItWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Fault("auth.test", slacktest.Status500, 9)
	b.Fault("auth.test", slacktest.Status429, 1)
	b.run()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waits) != 10 || b.waits[0] != 0 || b.waits[9] < 30*time.Second || b.waits[9] > time.Minute {
		t.Fatalf("waited %v", b.waits)
	}
	for i, d := range b.waits[1:8] {
		if full := time.Second << i; d < min(full, longest)/2 || d > min(full, longest) {
			t.Errorf("wait %d is %v", i+1, d)
		}
	}
}

func TestWhatWasMissedIsReadFromTheHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	room, chat := b.Channel("general", "channel"), b.Direct(ann)
	r := b.run()
	b.Say(chat, ann, "one")
	root := b.Mention(room, ann, "two")
	b.server("acknowledged", func() bool { return len(b.Acks()) == 3 })
	_ = r.stop(t)
	b.server("gone", func() bool { return b.Open() == 0 })

	b.Say(chat, ann, "three")
	b.Say(chat, ann, "four")
	b.Say(room, ann, "five", slacktest.In(root))
	fresh := b.Say(room, ann, "six")
	b.Say(room, ann, "seven", slacktest.In(fresh))
	b.Say(room, ann, "eight", slacktest.In(root), slacktest.Broadcast())
	b.Post(room, "U0NOBODY", "<@U0NOBODY> has joined the channel", slacktest.Subtype("channel_join"))
	b.Advance(10 * time.Minute) // Slack has given up
	b.make()
	b.start()
	var order = map[string][]string{}
	for _, m := range b.taken(8) {
		order[m.Chat] = append(order[m.Chat], m.Text)
	}
	if got := strings.Join(order[chat], " "); got != "one three four" {
		t.Errorf("the direct chat got %q", got)
	}
	if got := strings.Join(order[room], " "); got != "@ombud two five six seven eight" {
		t.Errorf("the channel got %q", got)
	}
	if got := b.taken(8); !slices.ContainsFunc(got, func(m channel.Received) bool { return m.Text == "five" && m.Thread == root }) {
		t.Error("the reply lost its thread")
	}
	// A break of the line while the process lives is the same.
	b.Refuse("fatal_error")
	b.Drop()
	b.server("gone", func() bool { return b.Open() == 0 })
	b.Post(chat, ann, "nine")
	b.Refuse("")
	if got := b.taken(9)[8]; got.Text != "nine" {
		t.Errorf("got %+v", got)
	}
}

// Of two sockets each may have what the other has not: what is a little older than what was
// taken in last may be missing, and is read too.
func TestWhatCameOutOfOrderIsNotMissed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	r := b.run()
	b.Post(chat, ann, "one") // its envelope is with a socket that breaks off
	b.Say(chat, ann, "two")
	b.server("acknowledged", func() bool { return len(b.Acks()) == 1 })
	_ = r.stop(t)
	b.server("gone", func() bool { return b.Open() == 0 })
	b.make()
	b.start()
	got := b.taken(2)
	if got[0].Text != "two" || got[1].Text != "one" {
		t.Errorf("got %+v", got)
	}
}

func TestAHistoryIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.PageMost = 15
	ann, room := b.User("ann"), b.Channel("general", "channel")
	b.Post(room, ann, "seen")
	b.Advance(2 * overlap)
	seen := stamp(b.Now().UnixMicro())
	for range 100 {
		b.Post(room, ann, "missed")
		b.Advance(overlap / 20)
	}
	if err := b.in.Advance(t.Context(), cursor{Channels: map[string]string{room: seen}}.String()); err != nil {
		t.Fatal(err)
	}
	b.run()
	got := b.taken(100)
	if !slices.IsSortedFunc(got, func(a, b channel.Received) int { return a.At.Compare(b.At) }) {
		t.Error("they come in another order")
	}
	b.Drop() // what is read again is behind the cursor
	b.until("up", func(s channeltest.Seen) bool { return len(s.Ups) == 2 })
	b.Say(room, ann, "live")
	if s := b.until("live", func(s channeltest.Seen) bool { return len(s.Taken) == 101 }); s.Again > 22 { // of the overlap, and live
		t.Errorf("%d came again", s.Again)
	}
}

// A socket too many is no reason for one more.
func TestAnotherReasonToCloseIsTrouble(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run()
	b.Disconnect("too_many_websockets")
	s := b.until("told", func(s channeltest.Seen) bool { return len(s.Downs) == 1 && len(s.Ups) == 2 })
	if !strings.Contains(s.Downs[0].Error(), "too_many_websockets") {
		t.Errorf("told %v", s.Downs)
	}
}

// A message that the store did not keep is not jumped by the cursor of a later one.
func TestTheCursorStaysBeforeWhatWasNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	b.pace.again = time.Hour
	b.make()
	r := b.run()
	b.in.FailNext(1)
	b.Say(chat, ann, "one")
	b.Say(chat, ann, "two")
	b.server("the second acknowledged", func() bool { return len(b.Acks()) == 1 })
	_ = r.stop(t)
	b.server("gone", func() bool { return b.Open() == 0 })
	b.Advance(time.Minute)
	b.Advance(time.Hour) // given up
	b.make()
	b.start()
	texts := []string{}
	for _, m := range b.taken(2) {
		texts = append(texts, m.Text)
	}
	if !slices.Equal(texts, []string{"two", "one"}) {
		t.Errorf("got %q", texts)
	}
}

// The store away for longer than Slack tries: the history is read again by itself.
func TestWhatTheStoreDidNotKeepIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.User("ann")
	chat := b.Direct(ann)
	b.run()
	b.in.FailNext(3)
	b.Say(chat, ann, "one")
	if got := b.taken(1)[0]; got.Text != "one" {
		t.Errorf("got %+v", got)
	}
}

func TestTheEndOfRunLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		r := b.start()
		if b.Opened()%2 == 0 {
			b.Drop()
		}
		if err := r.stop(t); !errors.Is(err, context.Canceled) {
			t.Fatalf("ended with %v", err)
		}
	}
	b.server("all closed", func() bool { return b.Open() == 0 })
}

func TestRunEndsWhenAllItStartedHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, release := make(chan struct{}), make(chan struct{})
	b.a.pace.wait = func(ctx context.Context, _ time.Duration) error {
		close(waiting)
		<-release
		return ctx.Err()
	}
	b.Fault("auth.test", slacktest.Status500, 1)
	r := b.start()
	<-waiting
	r.cancel()
	select {
	case <-r.done:
		t.Error("it left a goroutine behind")
	case <-time.After(50 * time.Millisecond): // it can only be wrongly content
	}
	close(release)
	if err := r.stop(t); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// Names that hang, and the acknowledgement is still in time, also for those that follow.
func TestNamesDoNotDelayTheAcknowledgement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pace.call, b.pace.names = time.Minute, 200*time.Millisecond
	b.make()
	ann, room := b.User("ann"), b.Channel("general", "channel")
	b.Fault("users.info", slacktest.Hang, 100)
	b.Fault("conversations.info", slacktest.Hang, 100)
	b.run()
	for range 5 {
		b.Say(room, ann, "<@U0SOMEBODY> <@U0ELSE> <#C0ROOM> hello")
	}
	b.taken(5)
	b.server("acknowledged", func() bool { return b.Unacked() == 0 })
	for _, a := range b.Acks() {
		if a.After > 3*time.Second {
			t.Errorf("acknowledged after %v", a.After)
		}
	}
}

func TestAPanicOfAGoroutineIsAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.a.pace.wait = func(context.Context, time.Duration) error { panic("at the wait") }
	b.Fault("auth.test", slacktest.Status500, 1)
	if err := b.start().wait(t); !fault.Is(err, fault.Internal) {
		t.Errorf("ended with %v", err)
	}
}
