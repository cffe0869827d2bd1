package telegram

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestWhatWaitedAndWhatComesIsTakenInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.say("1", "2") // before the first start ever
	stop := b.run()
	b.until("what waited", taken(2))
	b.untilAPI("polling", b.api.Polling)
	b.say("3")
	s := b.until("what came", taken(3))
	if got := texts(s); !slices.Equal(got, []string{"1", "2", "3"}) || s.Again != 0 {
		t.Errorf("taken are %q, %d again", got, s.Again)
	}
	if len(s.Ups) != 1 || s.Ups[0].Name != "@ombud_test_bot" || s.Ups[0].ID != "7000000001" || !s.Ups[0].Is("7000000001") || len(s.Downs) != 0 {
		t.Errorf("up %+v, down %v", s.Ups, s.Downs)
	}
	began := time.Now()
	if err := stop(); !errors.Is(err, context.Canceled) || time.Since(began) > 5*time.Second {
		t.Errorf("stopped with %v after %s", err, time.Since(began))
	}
}

// A hundred are fetched at a time.
func TestAThousandMessagesAreTakenOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 1000 {
		b.say("x")
	}
	b.run()
	s := b.until("a thousand", taken(1000))
	for i, m := range s.Taken {
		if want := telegramtest.Ann().ID; m.Chat != id(want) || m.ID != id(int64(i+1)) {
			t.Fatalf("the message at %d is %+v", i, m)
		}
	}
	if s.Again != 0 {
		t.Errorf("%d came again", s.Again)
	}
	b.untilAPI("all confirmed", func() bool { return b.api.Waiting() == 0 })
}

func TestTheOffsetSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.say("1", "2")
	stop := b.run()
	b.until("two", taken(2))
	b.untilAPI("polling", b.api.Polling)
	_ = stop()
	if n := b.api.Waiting(); n != 0 {
		t.Errorf("%d are not confirmed", n)
	}
	b.say("3", "4") // while nobody listens
	before := len(b.api.Offsets())
	b.adapter = b.make()
	b.run()
	s := b.until("four", taken(4))
	if got := texts(s); !slices.Equal(got, []string{"1", "2", "3", "4"}) || s.Again != 0 {
		t.Errorf("taken are %q, %d again", got, s.Again)
	}
	if first := b.api.Offsets()[before]; first != 1002 {
		t.Errorf("the first poll of the second start asks from %d", first)
	}
}

// What a process took, and died before it could confirm it, comes again and is the same
// message.
func TestWhatWasNotConfirmedComesAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.say("1", "2")
	if err := (&run{adapter: b.adapter, in: b.in}).once(t.Context()); err != nil { // and then it dies
		t.Fatal(err)
	}
	if err := b.in.Advance(t.Context(), "7000000001:1001"); err != nil { // when the first was committed
		t.Fatal(err)
	}
	b.say("3")
	b.adapter = b.make()
	b.run()
	s := b.until("three", taken(3))
	if got := texts(s); !slices.Equal(got, []string{"1", "2", "3"}) || s.Again != 1 {
		t.Errorf("taken are %q, %d again", got, s.Again)
	}
}

func TestWhatCouldNotBeKeptComesAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.say("1", "2", "3")
	b.in.FailNext(3)
	b.run()
	s := b.until("three", taken(3))
	if got := texts(s); !slices.Equal(got, []string{"1", "2", "3"}) || s.Again != 0 {
		t.Errorf("taken are %q, %d again", got, s.Again)
	}
	for _, o := range b.api.Offsets()[:4] {
		if o != 0 {
			t.Errorf("offset %d is confirmed before anything was kept", o)
		}
	}
	s = b.until("up again", up(2))
	if len(s.Downs) != 3 || !fault.Is(s.Downs[0], fault.Unavailable) || len(s.Ups) != 2 {
		t.Errorf("down %v, up %v", s.Downs, s.Ups)
	}
	b.in.FailNext(1)
	b.say("4")
	b.until("the fourth", taken(4))
	if w := b.waited(); !slices.Equal(w, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, time.Second}) {
		t.Errorf("waited %v", w)
	}
}

func TestWhatIsNoMessageMovesTheOffsetOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	said := b.api.Say(telegramtest.Words{Text: "1"})
	for range 3 {
		b.api.Say(telegramtest.Words{Text: "better", Edited: true, Message: said.ID})
	}
	b.api.Join(telegramtest.Ann(), telegramtest.TheGroup(), "member")
	b.run()
	s := b.until("all committed", func(s channeltest.Seen) bool { return s.Cursor == "7000000001:1005" })
	if got := texts(s); !slices.Equal(got, []string{"1"}) {
		t.Errorf("taken are %q", got)
	}
	b.untilAPI("all confirmed", func() bool { return b.api.Waiting() == 0 })
	if !strings.Contains(b.log.String(), "membership") || !strings.Contains(b.log.String(), "chat=-1001234567890") {
		t.Errorf("the membership is not told: %s", b.log)
	}
}

// An update that nobody can read is told, and holds nothing up.
func TestAnUpdateThatCannotBeReadIsPassedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.api.Raw("message", `{"message":"text"}`)
	b.api.Raw("message", `{"message":{"message_id":1,"chat":{"id":"nine","type":"private"},"date":1,"text":"x"}}`)
	b.api.Raw("message", `{"message":{"message_id":1,"chat":{"id":9,"type":"private"},"date":1,"text":"x","entities":[{"type":"bold","offset":1e99,"length":1}]}}`)
	b.say("readable")
	b.run()
	s := b.until("the one that can be read", taken(1))
	if got := texts(s); !slices.Equal(got, []string{"readable"}) || len(s.Downs) != 0 {
		t.Errorf("taken are %q, down %v", got, s.Downs)
	}
	if n := strings.Count(b.log.String(), "cannot be read"); n != 3 {
		t.Errorf("%d are told:\n%s", n, b.log)
	}
}

func TestUpdatesWithoutAnIDAreTrouble(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.api.Raw("message", `{"update_id":"x","message":{}}`)
	b.run()
	s := b.until("down", func(s channeltest.Seen) bool { return len(s.Downs) >= 8 })
	if w := b.waited(); w[6] != time.Minute || w[7] != time.Minute {
		t.Errorf("waited %v", w)
	}
	if len(s.Taken) != 0 || len(s.Ups) != 0 {
		t.Errorf("%+v", s)
	}
}

// After a week of silence Telegram numbers updates anew.
func TestIDsThatBeginAnewAreFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.say("before")
	stop := b.run()
	b.until("the first", taken(1))
	b.untilAPI("polling", b.api.Polling)
	_ = stop()
	b.api.Renumber(5)
	b.say("after")
	b.adapter = b.make()
	b.run()
	s := b.until("the second", taken(2))
	if s.Cursor != "7000000001:6" {
		t.Errorf("the cursor is %q", s.Cursor)
	}
}

// The numbers of another bot's updates say nothing of this one's.
func TestACursorOfAnotherBotIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{"42:1001", "x", ":", "7000000001:-5", "7000000001:x", "1001"} {
		b := setup(t)
		b.say("1")
		_ = b.in.Advance(t.Context(), cursor)
		b.run()
		b.until("what waits, from "+cursor, taken(1))
	}
}

func TestAPressIsTakenAndAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.api.Meet(telegramtest.Direct(telegramtest.Ann()))
	ref := b.send(piece("1001", "sure?"), "apr_7")
	b.run()
	b.untilAPI("polling", b.api.Polling)
	b.in.FailNext(1)
	press := b.api.Press(telegramtest.Ann(), 1001, 1, "Approve")
	s := b.until("the press", taken(1))
	if p := s.Taken[0].Press; p == nil || p.Approval != "apr_7" || !p.Yes || p.Ref != ref {
		t.Errorf("taken is %+v", s.Taken[0])
	}
	b.untilAPI("answered", func() bool { return b.api.Answered(press) })
	if n := b.api.Count("answerCallbackQuery"); n != 1 {
		t.Errorf("answered %d times: also before it was kept", n)
	}
	for _, fault := range []telegramtest.Fault{telegramtest.Status(500, "x"), telegramtest.Garbage(), telegramtest.Cut(), telegramtest.LostBefore(), telegramtest.Hang(), telegramtest.RetryAfter(9)} {
		b.api.Fault("answerCallbackQuery", 1, fault)
		b.api.Press(telegramtest.Ann(), 1001, 1, "Deny")
	}
	s = b.until("all presses", taken(7))
	if len(s.Downs) != 1 { // the store's, above
		t.Errorf("an answer that fails is trouble: %v", s.Downs)
	}
}

func TestAGroupThatMovesIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, fresh := telegramtest.Chat{ID: -6, Type: telegramtest.Group, Title: "g"}, telegramtest.Chat{ID: -1006, Type: telegramtest.Supergroup, Title: "g"}
	b.api.Upgrade(old, fresh)
	b.run()
	b.until("passed over", func(s channeltest.Seen) bool { return s.Cursor == "7000000001:1002" })
	if !strings.Contains(b.log.String(), "chat=-6 supergroup=-1006") {
		t.Errorf("it is not told: %s", b.log)
	}
	_, err := b.Send(t.Context(), piece("-6", "hello"))
	if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "-1006") {
		t.Errorf("to the group of before: %v, hint %q", err, fault.HintOf(err))
	}
}

// Whatever Telegram answers, Run goes on, and says so.
func TestTroubleOfThePollPasses(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]telegramtest.Fault{
		"403": telegramtest.Forbidden(), "429": telegramtest.RetryAfter(33), "500": telegramtest.Status(500, "Internal Server Error"),
		"502": telegramtest.Status(502, "Bad Gateway"), "503": telegramtest.Status(503, "Service Unavailable"), "garbage": telegramtest.Garbage(), "cut": telegramtest.Cut(),
		"lost before": telegramtest.LostBefore(), "lost after": telegramtest.LostAfter(), "409": telegramtest.Status(409, "Conflict: terminated by other getUpdates request"),
	} {
		for _, method := range []string{"getMe", "getUpdates"} {
			if method == "getMe" && name == "409" {
				continue
			}
			t.Run(name+" of "+method, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.api.Fault(method, 3, f)
				b.say("1")
				b.run()
				s := b.until("over it", taken(1))
				if len(s.Downs) != 3 || len(s.Ups) != 1 || s.Again != 0 {
					t.Errorf("down %v, up %v, %d again", s.Downs, s.Ups, s.Again)
				}
				want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
				switch name {
				case "429":
					want = []time.Duration{33 * time.Second, 33 * time.Second, 33 * time.Second}
				case "409":
					want = []time.Duration{contested, contested, contested}
				}
				if w := b.waited(); !slices.Equal(w, want) {
					t.Errorf("waited %v, want %v", w, want)
				}
				b.secretIsSafe(s.Downs...)
			})
		}
	}
}

func TestAPollThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.call, b.poll, b.late = 200*time.Millisecond, time.Second, 100*time.Millisecond
	b.adapter = b.makeWith(b.tuning)
	b.api.Fault("getMe", 1, telegramtest.Hang())
	b.api.Fault("getUpdates", 1, telegramtest.Hang())
	b.run()
	s := b.until("up", up(1))
	if len(s.Downs) != 2 {
		t.Errorf("down %v", s.Downs)
	}
	b.untilAPI("polling", b.api.Polling)
	b.api.Fault("getUpdates", 1, telegramtest.Hang()) // of a poll that waits
	b.say("1")
	b.until("the message", taken(1))
	b.until("up again", up(2))
	b.secretIsSafe(b.in.Now().Downs...)
}

func TestARefusedTokenEndsTheRun(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(b *bench){
		"replaced before": func(b *bench) { b.api.Revoke() },
		"replaced while it polls": func(b *bench) {
			b.api.Fault("getUpdates", 1, telegramtest.Unauthorized())
		},
		"another's":   func(b *bench) { b.token = func() (string, error) { return "7000000002:AAother", nil } },
		"no token":    func(b *bench) { b.token = func() (string, error) { return "letmein/../getMe?x=", nil } },
		"none is set": func(b *bench) { b.token = func() (string, error) { return "", fault.New(fault.NotFound, "no secret") } },
	} {
		b := setup(t)
		prepare(b)
		err := b.Run(t.Context(), b.in)
		if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", name, err, fault.HintOf(err))
		}
		b.secretIsSafe(err)
		if strings.Contains(err.Error(), "letmein") || name == "no token" && !strings.Contains(err.Error(), "none of Telegram's") {
			t.Errorf("%s: it was used, or is told: %v", name, err)
		}
	}
}

func TestATokenIsReadWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	current := "7000000001:AAold"
	b.token = func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return current, nil
	}
	if _, err := b.Check(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("the old one: %v", err)
	}
	mu.Lock()
	current = b.api.Token + "\n"
	mu.Unlock()
	if me, err := b.Check(t.Context()); err != nil || me.Name != "@ombud_test_bot" {
		t.Errorf("the new one: %+v %v", me, err)
	}
	b.token = func() (string, error) { return "", errors.New("the store is away") }
	if _, err := b.Check(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no store: %v", err)
	}
}

func TestAnotherProgramIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.api.Webhook("https://example.com/hook")
	stop := b.run()
	s := b.until("down", func(s channeltest.Seen) bool { return len(s.Downs) > 2 })
	if err := s.Downs[0]; !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "webhook") || !strings.Contains(fault.HintOf(err), "deleteWebhook") {
		t.Errorf("a webhook: %v, hint %q", err, fault.HintOf(err))
	}
	if b.api.Count("deleteWebhook") != 0 || len(s.Ups) != 0 {
		t.Error("the other program's webhook was taken away, or all seems well")
	}
	b.api.Webhook("")
	b.say("1")
	b.until("free", taken(1))
	for _, d := range b.waited() {
		if d != contested {
			t.Errorf("waited %v", b.waited())
			break
		}
	}
	_ = stop()

	// Two that poll: the one that waits is ended by the other's poll.
	b = setup(t)
	b.run()
	b.untilAPI("polling", b.api.Polling)
	other := b.make()
	var none []struct{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = other.do(ctx, other.polls, "getUpdates", getUpdates{Timeout: 50}, &none) // it is cancelled, or ended by the first
		other.polls.CloseIdleConnections()
	}()
	s = b.until("down", func(s channeltest.Seen) bool { return len(s.Downs) == 1 })
	if err := s.Downs[0]; !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "same token") || fault.HintOf(err) == "" {
		t.Errorf("two polls: %v", err)
	}
	cancel()
	<-done
	b.say("1")
	b.until("up again", func(s channeltest.Seen) bool { return len(s.Ups) == 2 && len(s.Taken) == 1 })
	short := 0
	for _, c := range b.api.Calls() {
		if c.Method == "getUpdates" && c.Params["timeout"] == "0" {
			short++
		}
	}
	if short != 1 { // one that does not wait would succeed beside the other program, and say that all is well
		t.Errorf("%d polls did not wait", short)
	}
}

// A gateway that answers a long poll at once is not asked without a pause.
func TestAPollThatMayNotWaitIsSlowedDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.run()
	b.untilAPI("polling", b.api.Polling)
	b.api.Say(telegramtest.Words{Text: "1"})
	b.until("one", taken(1))
	if w := b.waited(); len(w) != 0 {
		t.Errorf("waited %v while all is well", w)
	}
	_ = stop()
	empty := setup(t)
	r := &run{adapter: empty.adapter, in: empty.in, up: true}
	empty.api.Fault("getUpdates", 1, telegramtest.OK("[]"))
	if u, err := r.fetch(t.Context()); err != nil || len(u) != 0 {
		t.Errorf("%v %v", u, err)
	}
	if w := empty.waited(); !slices.Equal(w, []time.Duration{time.Second}) {
		t.Errorf("waited %v", w)
	}
}

func TestItIsStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.tuning.wait = channel.Wait // really
	b.adapter = b.makeWith(b.tuning)
	b.api.Fault("getUpdates", 1, telegramtest.RetryAfter(3600))
	stop := b.run()
	b.until("down", func(s channeltest.Seen) bool { return len(s.Downs) == 1 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
}

func TestOnlyWhatIsReadIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run()
	b.untilAPI("polling", b.api.Polling)
	polls := 0
	for _, c := range b.api.Calls() {
		if c.Method == "getUpdates" {
			polls++
			if want := `["message","channel_post","callback_query","my_chat_member"]`; c.Params["allowed_updates"] != want || c.Params["timeout"] != "0" {
				t.Errorf("asked with %v", c.Params)
			}
		}
	}
	if polls != 1 {
		t.Errorf("%d polls were answered before the one that waits", polls)
	}
}

// Stopped at any moment, and started again as another process would, it loses nothing.
func TestItIsStoppedAndStartedAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const rounds = 25
	for i := range rounds {
		b.adapter = b.make()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx, b.in) }()
		b.say("a", "b")
		if i%3 == 0 {
			b.until("some", taken(2*i+1))
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	b.run()
	s := b.until("all", taken(2*rounds))
	for i, m := range s.Taken {
		if m.ID != id(int64(i+1)) {
			t.Fatalf("the message at %d is %+v", i, m)
		}
	}
}
