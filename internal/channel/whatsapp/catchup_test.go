package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/fault"
)

// held runs an adapter in a test that holds the clock.
func held(t *testing.T, fn func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() (stop func() error))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, w, _ := setup(t)
		inProcess(a, w)
		in := channeltest.NewIntake()
		fn(t, a, w, in, func() func() error {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx, in) }()
			synctest.Wait()
			return func() error {
				cancel()
				return <-done
			}
		})
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func ids(all []channel.Received) string {
	var out []string
	for _, m := range all {
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

func say(w *whatsapptest.Wacli, chat whatsapptest.Chat, id string, ago time.Duration) whatsapptest.Message {
	m := whatsapptest.From(chat, id, "text of "+id, time.Now().Add(-ago))
	w.Store(m)
	return m
}

// One message, or one chat, of a shape that is not known hides no other in wacli's lists.
func TestAnUnknownShapeHidesNothingInAList(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	now := time.Now().UTC().Truncate(time.Second)
	a.exec = func(_ context.Context, _ int, args ...string) (ended, error) {
		if args[0] == "api" {
			return ended{out: []byte(`{"chats":[{"jid":7},{"jid":"15550002222@s.whatsapp.net","name":"Ann"}]}`)}, nil
		}
		return ended{out: fmt.Appendf(nil, `{"messages":[{"id":"1","content":{"text":"x"}},{"id":"2","chat_jid":"15550002222@s.whatsapp.net","sender_jid":"15550002222@s.whatsapp.net","content":"hi","timestamp":%q}]}`, now.Format(time.RFC3339))}, nil
	}
	found, _, err := a.find(t.Context(), now.Add(-time.Hour), now)
	if err != nil || ids(found) != "2" {
		t.Errorf("%s %v", ids(found), err)
	}
}

// What the hook could not keep while the list was read is owed still.
func TestWhatIsOwedMeanwhileIsOwedStill(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	in := channeltest.NewIntake()
	now := time.Now().UTC().Truncate(time.Second)
	if err := in.Advance(t.Context(), now.Add(-time.Hour).Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	during := func() {}
	a.exec = func(context.Context, int, ...string) (ended, error) {
		during()
		return ended{out: []byte(`{"messages":[],"chats":[]}`)}, nil
	}
	for _, owed := range []bool{false, true} {
		if owed {
			during = func() { a.owe(now) }
		}
		a.owe(now.Add(-time.Minute))
		if err := a.missed(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if a.owed.IsZero() == owed {
			t.Errorf("owed is %s, want any: %v", a.owed, owed)
		}
	}
}

func TestTheFirstStartBeginsNow(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, _ *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		say(w, whatsapptest.Ann, "A1", time.Hour)
		stop := run()
		defer stop()
		if got := in.Now(); len(got.Taken) != 0 || got.Cursor != time.Now().UTC().Format(time.RFC3339) || len(got.Ups) != 1 || got.Ups[0].ID != whatsapptest.Phone {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhatWasSaidMeanwhileIsTakenOnce(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		_ = in.Advance(t.Context(), time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339))
		say(w, whatsapptest.Ann, "before", 12*time.Minute)
		say(w, whatsapptest.Ann, "overlap", 10*time.Minute+30*time.Second)
		for i := range 10 {
			say(w, whatsapptest.Ann, fmt.Sprintf("A%d", 9-i), time.Duration(9-i)*time.Second+time.Minute)
		}
		say(w, whatsapptest.Team, "G1", 2*time.Minute)
		say(w, whatsapptest.Shut, "locked", time.Minute)
		say(w, whatsapptest.Chat{JID: "1@s.whatsapp.net"}, "unknown", time.Minute)
		own := whatsapptest.From(whatsapptest.Ann, "own", "x", time.Now().Add(-time.Minute))
		own.IsFromMe = true
		w.Store(own)
		stop := run()
		got := in.Now()
		if ids(got.Taken) != "overlap G1 A9 A8 A7 A6 A5 A4 A3 A2 A1 A0" {
			t.Errorf("taken: %s", ids(got.Taken))
		}
		if want := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339); got.Cursor != want {
			t.Errorf("cursor %s, want %s", got.Cursor, want)
		}
		if m := got.Taken[1]; !m.Group || m.Title != "The team" || m.Sender != "15550003333@s.whatsapp.net" {
			t.Errorf("a message of a group: %+v", m)
		}
		// The hook brings one of them too, and the daemon starts again.
		if s := whatsapptest.Post(a.Hook(in), secret, whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, "A0", "text of A0", time.Now().Add(-time.Minute)))); s != 200 {
			t.Errorf("%d", s)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		stop = run()
		defer stop()
		if got := in.Now(); len(got.Taken) != 12 {
			t.Errorf("taken after another start: %s", ids(got.Taken))
		}
	})
}

func TestOnlyHalfADayIsLookedBack(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, _ *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		_ = in.Advance(t.Context(), time.Now().Add(-100*time.Hour).UTC().Format(time.RFC3339))
		say(w, whatsapptest.Ann, "old", 13*time.Hour)
		say(w, whatsapptest.Ann, "new", 11*time.Hour)
		defer run()()
		if got := in.Now(); ids(got.Taken) != "new" {
			t.Errorf("taken: %s", ids(got.Taken))
		}
	})
}

func TestTheNewestTwoHundredAreTaken(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		log, text := newLog()
		a.log = log
		_ = in.Advance(t.Context(), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		for i := range 450 {
			say(w, whatsapptest.Ann, fmt.Sprintf("A%d", i), time.Duration(450-i)*time.Second)
		}
		defer run()()
		got := in.Now().Taken
		if len(got) != most || got[0].ID != "A250" || got[most-1].ID != "A449" {
			t.Errorf("%d taken", len(got))
		}
		if !strings.Contains(text.String(), "left_out_at_least=250") {
			t.Errorf("it is not told: %s", text)
		}
	})
}

func TestASilentHookIsNotTrusted(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		defer run()()
		pass(5 * time.Minute)
		say(w, whatsapptest.Ann, "A1", 0)
		pass(3 * time.Minute)
		if got := in.Now(); len(got.Taken) != 0 {
			t.Errorf("it did not wait: %s", ids(got.Taken))
		}
		pass(3 * time.Minute)
		if got := in.Now(); ids(got.Taken) != "A1" {
			t.Errorf("after ten minutes: %s", ids(got.Taken))
		}
		say(w, whatsapptest.Ann, "A2", 0)
		pass(11 * time.Minute)
		if got := in.Now(); ids(got.Taken) != "A1 A2" {
			t.Errorf("after ten more: %s", ids(got.Taken))
		}
		lists := func() (n int) {
			for _, c := range w.Calls() {
				if c.Args[0] == "messages" {
					n++
				}
			}
			return n
		}
		before := lists()
		for range 20 { // a hook that is heard
			whatsapptest.Post(a.Hook(in), secret, []byte(`{"event":"sync_complete"}`))
			pass(time.Minute)
		}
		if n := lists(); n != before {
			t.Errorf("the list was read %d times though the hook was heard", n-before)
		}
	})
}

func TestAConnectionThatComesBackIsFollowedByALook(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, _ *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		defer run()()
		for _, down := range []func(*whatsapptest.State){
			func(s *whatsapptest.State) { s.Away = true },
			func(s *whatsapptest.State) { s.Connected = false },
			func(s *whatsapptest.State) { s.DND = false },
		} {
			before := in.Now()
			good := w.State()
			w.Change(down)
			pass(2 * time.Minute)
			for i := range 10 {
				say(w, whatsapptest.Ann, fmt.Sprintf("A%d-%d", len(before.Taken), i), 0)
			}
			if got := in.Now(); len(got.Downs) == len(before.Downs) || len(got.Ups) != len(before.Ups) {
				t.Errorf("%d down, %d up", len(got.Downs), len(got.Ups))
			}
			w.Set(good)
			pass(time.Minute)
			if got := in.Now(); len(got.Taken) != len(before.Taken)+10 || len(got.Ups) != len(before.Ups)+1 {
				t.Errorf("%d taken, %d up", len(got.Taken), len(got.Ups))
			}
		}
	})
}

func TestOnlyALogOutEndsIt(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		stop := run()
		w.Next("status", whatsapptest.Fail, whatsapptest.Garbage, whatsapptest.NotSent)
		pass(4 * time.Minute)
		if got := in.Now(); len(got.Downs) != 3 || len(got.Ups) != 2 {
			t.Errorf("%d down, %d up", len(got.Downs), len(got.Ups))
		}
		w.Change(func(s *whatsapptest.State) { s.Connected, s.User = false, "" })
		pass(2 * time.Minute)
		if err := stop(); !fault.Is(err, fault.Denied) {
			t.Errorf("it ended with %v", err)
		}
		w.Change(func(s *whatsapptest.State) { s.Away = true })
		if err := a.Run(t.Context(), in); !fault.Is(err, fault.Unavailable) {
			t.Errorf("without a daemon: %v", err)
		}
	})
}

func TestWhatTheStoreDidNotTakeIsTakenLater(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		_ = in.Advance(t.Context(), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		for i := range 5 {
			say(w, whatsapptest.Ann, fmt.Sprintf("A%d", i), time.Duration(10-i)*time.Minute)
		}
		in.FailNext(1)
		defer run()()
		if got := in.Now(); len(got.Taken) != 0 {
			t.Errorf("taken: %s", ids(got.Taken))
		}
		pass(2 * time.Minute)
		if got := in.Now(); ids(got.Taken) != "A0 A1 A2 A3 A4" {
			t.Errorf("taken later: %s", ids(got.Taken))
		}
		// A call that found no store, and that wacli gave up after five tries.
		m := say(w, whatsapptest.Ann, "A5", 0)
		in.FailNext(5)
		for range 5 {
			if s := whatsapptest.Post(a.Hook(in), secret, whatsapptest.Event("incoming_message", whatsapptest.Ann, m)); s != 503 {
				t.Errorf("%d", s)
			}
		}
		pass(2 * time.Minute)
		if got := in.Now(); ids(got.Taken) != "A0 A1 A2 A3 A4 A5" || a.toCatchUp() {
			t.Errorf("taken: %s, to catch up: %v", ids(got.Taken), a.toCatchUp())
		}
	})
}

// TestAFreshMessageOfAGroupIsLeftToTheHook: only there is it said whom it mentions.
func TestAFreshMessageOfAGroupIsLeftToTheHook(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		_ = in.Advance(t.Context(), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		m := say(w, whatsapptest.Team, "G1", 5*time.Second)
		say(w, whatsapptest.Team, "G2", 4*time.Second)
		defer run()()
		if got := in.Now(); len(got.Taken) != 0 {
			t.Errorf("taken: %s", ids(got.Taken))
		}
		m.MentionsMe = true
		if s := whatsapptest.Post(a.Hook(in), secret, whatsapptest.Event("incoming_message", whatsapptest.Team, m)); s != 200 {
			t.Errorf("%d", s)
		}
		pass(2 * time.Minute)
		if got := in.Now(); ids(got.Taken) != "G1 G2" || !got.Taken[0].MentionsMe {
			t.Errorf("taken: %+v", got.Taken)
		}
	})
}

func TestWithoutTheListOfOpenChatsNothingIsLookedAt(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, _ *wacli, w *whatsapptest.Wacli, in *channeltest.Intake, run func() func() error) {
		_ = in.Advance(t.Context(), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		say(w, whatsapptest.Ann, "A1", time.Minute)
		say(w, whatsapptest.Shut, "locked", time.Minute)
		w.Next("api", "", whatsapptest.Garbage, whatsapptest.Fail) // the first asks for the id of the account
		defer run()()
		pass(time.Minute)
		if got := in.Now(); len(got.Taken) != 0 {
			t.Errorf("taken: %s", ids(got.Taken))
		}
		pass(time.Minute)
		if got := in.Now(); ids(got.Taken) != "A1" {
			t.Errorf("taken: %s", ids(got.Taken))
		}
	})
}
