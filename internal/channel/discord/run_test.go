package discord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestWhatIsWrittenComesInOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	var want []string
	for n := range 50 {
		text := fmt.Sprint(n)
		m := b.server.Write(discordtest.DM, text)
		b.server.Replay(m)
		want = append(want, text)
	}
	b.server.Say(discordtest.Message{ChannelID: discordtest.Thread, Type: 18, Content: "a thread began"})
	b.server.Say(discordtest.Message{ChannelID: discordtest.General, Author: b.server.Bot, Content: "mine"})
	last := b.server.Say(discordtest.Message{ChannelID: discordtest.General, Content: "<@&" + discordtest.BotRole + "> in <#" + discordtest.Thread + ">", MentionRoles: []string{discordtest.BotRole}})
	got := b.taken(51)
	if !slices.Equal(texts(got[:50]), want) {
		t.Errorf("%q", texts(got))
	}
	if m := got[50]; !m.MentionsMe || m.Text != "@ombud in #plans" || m.Title != "#general" || !m.Group || m.Chat != discordtest.General {
		t.Errorf("%+v", m)
	}
	if m := got[0]; m.Group || m.Title != "Ada" || m.Sender != b.server.Ada.ID || m.Own || m.Bot {
		t.Errorf("%+v", m)
	}
	if c := parseCursor(b.in.Now().Cursor); c.last[discordtest.General] != last.ID || len(c.last) != 2 {
		t.Errorf("%v", c.last)
	}
	if me := b.in.Now().Ups[0]; me.Name != "@ombud" || !me.Is(b.server.Bot.ID) {
		t.Errorf("%+v", me)
	}
}

func TestEveryCloseCodeReconnectsOrStops(t *testing.T) {
	t.Parallel()
	fatal := []int{4004, 4010, 4011, 4012, 4013, 4014}
	anew := []int{4003, 4005, 4007, 4009}
	for _, code := range []int{1000, 1001, 1006, 1011, 1012, 4000, 4001, 4002, 4003, 4004, 4005, 4006, 4007, 4008, 4009, 4010, 4011, 4012, 4013, 4014, 4999} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.start()
			b.up(1)
			b.server.Write(discordtest.DM, "before")
			b.taken(1)
			b.server.Drop(code)
			if slices.Contains(fatal, code) {
				if err := b.ended(); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
					t.Fatalf("%v", err)
				}
				return
			}
			b.up(2)
			b.server.Write(discordtest.DM, "after")
			if got := texts(b.taken(2)); !slices.Equal(got, []string{"before", "after"}) {
				t.Errorf("%q", got)
			}
			if resumed := b.server.Resumed(); (resumed == 1) == slices.Contains(anew, code) {
				t.Errorf("resumed %d times, identified %d times", resumed, b.server.Identified())
			}
			if downs := b.in.Now().Downs; len(downs) != 1 {
				t.Errorf("told of trouble: %v", downs)
			}
		})
	}
}

func TestTheIntentIsAskedForInThePortal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Portal(false)
	err := b.Run(b.ctx, b.in)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "Message Content Intent") {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}

func TestASilentGatewayIsLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Heartbeat(30 * time.Millisecond)
	b.start()
	b.up(1) // there is a session to go on with
	b.server.Mute(true)
	b.until("a zombie", func(s channeltest.Seen) bool {
		return slices.ContainsFunc(s.Downs, func(err error) bool { return errors.Is(err, errZombie) })
	})
	b.server.Mute(false)
	b.server.Write(discordtest.DM, "hello")
	b.taken(1)
	if b.server.Resumed() == 0 || b.server.Identified() != 1 {
		t.Errorf("resumed %d times, identified %d times", b.server.Resumed(), b.server.Identified())
	}
}

func TestHeartbeatsKeepTheConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Heartbeat(500 * time.Millisecond)
	b.start()
	b.up(1)
	if !b.server.Until(b.ctx, func() bool { return b.server.Beats() > 4 }) {
		t.Fatalf("%d heartbeats", b.server.Beats())
	}
	if s := b.in.Now(); len(s.Ups) != 1 || len(s.Downs) != 0 {
		t.Errorf("%d times up, trouble %v", len(s.Ups), s.Downs)
	}
}

func TestAHeartbeatThatIsAskedForComesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Heartbeat(time.Hour)
	b.start()
	b.up(1)
	b.server.Ping()
	if !b.server.Until(b.ctx, func() bool { return b.server.Beats() == 1 }) {
		t.Errorf("%d heartbeats", b.server.Beats())
	}
}

func TestWhatWasMissedComesAgainWhenASessionGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	for n := range 5 {
		b.server.Drop(1006)
		b.server.Write(discordtest.DM, fmt.Sprint(n))
	}
	if got := texts(b.taken(5)); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("%q", got)
	}
	if b.server.Identified() != 1 {
		t.Errorf("identified %d times", b.server.Identified())
	}
}

func TestWhatTheStoreRefusesComesAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	b.in.FailNext(3)
	m := b.server.Say(discordtest.Message{ChannelID: discordtest.DM, Author: b.server.Bot, Content: "may I?"})
	b.server.Write(discordtest.DM, "1")
	id := b.server.Press(b.server.Ada, m, "ombud:appr_1:y")
	b.server.Write(discordtest.General, "2")
	got := b.taken(3)
	if !slices.Equal(texts(got), []string{"1", "Approve", "2"}) || got[1].Press == nil {
		t.Errorf("%+v", got)
	}
	if !b.server.Until(b.ctx, func() bool { return b.server.Answered(id) == 6 }) {
		t.Errorf("answered %d", b.server.Answered(id))
	}
	if b.server.Identified() != 1 {
		t.Errorf("identified %d times", b.server.Identified())
	}
}

func TestAPressIsAcknowledgedOnceItIsKept(t *testing.T) {
	t.Parallel()
	for f, answered := range map[discordtest.Fault]int{"": 6, discordtest.Broken: 0, discordtest.Hang: 0, discordtest.Garbage: 0, discordtest.Cut: 6, discordtest.Unauthorized: 0} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.start()
			b.up(1)
			ref, err := b.Send(b.ctx, channel.Outgoing{Place: channel.Place{Chat: discordtest.General}, Piece: piece("may I?", "").Piece, Approval: "appr_1"})
			if err != nil {
				t.Fatal(err)
			}
			b.server.Fault("/interactions", f, 1)
			id := b.server.Press(b.server.Bert, b.server.Sent()[0], b.server.Sent()[0].Components[0].Components[1].CustomID)
			got := b.taken(1)[0]
			if *got.Press != (channel.Press{Approval: "appr_1", Ref: ref}) || got.Sender != b.server.Bert.ID || !got.Group || got.Title != "#general" {
				t.Errorf("%+v %+v", got, got.Press)
			}
			b.server.Write(discordtest.DM, "next") // nobody waits for the answer
			b.taken(2)
			if !b.server.Until(b.ctx, func() bool { return len(b.server.Calls("/interactions")) == 1 && b.server.Answered(id) == answered }) {
				t.Errorf("answered %d", b.server.Answered(id))
			}
			if err := b.stop(); !errors.Is(err, context.Canceled) || len(b.in.Now().Downs) != 0 {
				t.Errorf("%v %v", err, b.in.Now().Downs)
			}
			if strings.Contains(b.logged(), "aW50ZXJhY3Rpb24") {
				t.Errorf("the log has the interaction's token: %s", b.logged())
			}
		})
	}
}

func TestWhatTheGatewayAsks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ask     func(*discordtest.Server)
		resumed int
		least   time.Duration
	}{
		"reconnect":              {(*discordtest.Server).AskToReconnect, 1, 0},
		"a session to resume":    {func(s *discordtest.Server) { s.Invalidate(true) }, 1, time.Second},
		"a session that is over": {func(s *discordtest.Server) { s.Invalidate(false) }, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.start()
			b.up(1)
			b.server.Write(discordtest.DM, "before")
			b.taken(1)
			c.ask(b.server)
			b.up(2)
			b.server.Write(discordtest.DM, "after")
			b.taken(2)
			if b.server.Resumed() != c.resumed || b.server.Identified() != 2-c.resumed || len(b.in.Now().Downs) != 0 {
				t.Errorf("resumed %d, identified %d, %v", b.server.Resumed(), b.server.Identified(), b.in.Now().Downs)
			}
			if w := b.waited(); len(w) != 1 || w[0] < c.least || w[0] > 5*time.Second {
				t.Errorf("waited %v", w)
			}
		})
	}
}

func TestAPlaceToGoOnAtThatIsNone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"ws://127.0.0.1:1", "ws://169.254.169.254/", "http://x", "wss://a:b@127.0.0.1", "::"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.server.ResumeAt(address)
			b.start()
			b.up(1)
			b.server.Drop(4000)
			b.up(2)
			if b.server.Resumed() != 1 || b.server.Identified() != 1 {
				t.Errorf("resumed %d, identified %d", b.server.Resumed(), b.server.Identified())
			}
		})
	}
}

func TestWhatIsNoEventEndsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	b.server.Raw("garbage")
	b.up(2)
	b.server.Raw(`{"op":`)
	b.up(3)
	b.server.Event("MESSAGE_CREATE", []byte(`{"id":7}`))
	b.server.Event("MESSAGE_CREATE", []byte(`[]`))
	b.server.Event("GUILD_CREATE", []byte(`"x"`))
	b.server.Event("NO_SUCH_EVENT", []byte(`{}`))
	b.server.Event("INTERACTION_CREATE", []byte(`{"type":2}`))
	b.server.Write(discordtest.DM, "hello")
	b.taken(1)
}

func TestPausesGrowToAMinuteAndNeverEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Fault("/gateway/bot", discordtest.Broken, 12)
	b.start()
	b.up(1)
	waits := b.waited()
	if len(waits) != 12 || len(b.in.Now().Downs) != 12 {
		t.Fatalf("%v", waits)
	}
	for n, w := range waits {
		most := min(time.Second<<n, time.Minute)
		if w > most || w < most*3/4 {
			t.Errorf("pause %d is %v, not nearly %v", n, w, most)
		}
	}
}

func TestNoMoreSessionsAreStartedThanDiscordAllows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.StartLimit(0, 3*time.Hour)
	b.start()
	b.until("trouble", func(s channeltest.Seen) bool { return len(s.Downs) > 0 })
	b.server.StartLimit(5, time.Hour)
	b.up(1)
	if w := b.waited(); w[0] != 3*time.Hour || b.server.Identified() != 1 {
		t.Errorf("waited %v, identified %d times", w, b.server.Identified())
	}
}

// Every call a run makes may fail in every way: it lives, tells, and recovers.
func TestARunOutlivesEveryFault(t *testing.T) {
	t.Parallel()
	for _, f := range []discordtest.Fault{discordtest.Forbidden, discordtest.TooMany, discordtest.Broken, discordtest.BadGateway, discordtest.Garbage,
		discordtest.Cut, discordtest.Hang, discordtest.LostAfter, discordtest.LostBefore} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.api.client.Timeout = 100 * time.Millisecond
			b.server.Fault("/gateway/bot", f, 2)
			b.start()
			s := b.up(1)
			if len(s.Downs) < 1 || strings.Contains(fmt.Sprint(s.Downs), b.server.Token) {
				t.Errorf("told of trouble: %v", s.Downs)
			}
			b.server.AddChannel(discordtest.Channel{ID: "77", GuildID: discordtest.Guild, Name: "new"}) // nobody tells of it
			b.server.Fault("GET /channels/77", f, 2)                                                    // the client itself reads twice on a connection that closes
			b.server.Write("77", "hello")
			if got := b.taken(1)[0]; got.Title != "" || !got.Group || got.Chat != "77" {
				t.Errorf("%+v", got)
			}
		})
	}
	b := setup(t)
	b.server.Fault("/gateway/bot", discordtest.Unauthorized, 1)
	if err := b.Run(b.ctx, b.in); !fault.Is(err, fault.Denied) {
		t.Errorf("401: %v", err)
	}
	b.start() // as its owner does after a while
	b.up(1)
}

func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(b *bench){
		"connected": func(b *bench) { b.start(); b.up(1) },
		"no gateway": func(b *bench) {
			b.server.Fault("/gateway/bot", discordtest.Hang, 100)
			b.start()
			b.server.Until(b.ctx, func() bool { return len(b.server.Calls("/gateway/bot")) > 0 })
		},
		"pausing": func(b *bench) {
			b.set.wait = channel.Wait
			b.server.Fault("/gateway/bot", discordtest.Broken, 1000)
			b.start()
			b.until("trouble", func(s channeltest.Seen) bool { return len(s.Downs) > 0 })
		},
		"a slow store": func(b *bench) {
			b.start()
			b.up(1)
			b.in.Slow(time.Hour)
			b.server.Write(discordtest.DM, "hello")
		},
		"reading up": func(b *bench) {
			_ = b.in.Advance(b.ctx, `{"`+discordtest.DM+`":"5"}`)
			b.server.Fault("GET /channels", discordtest.Hang, 1000)
			b.start()
			b.server.Until(b.ctx, func() bool { return len(b.server.Calls("GET /channels")) > 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.api.client.Timeout = time.Hour
			prepare(b)
			if err := b.stop(); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}
