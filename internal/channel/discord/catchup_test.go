package discord

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
)

// away has an adapter know three channels, and then be away while something is written.
func away(t *testing.T) *bench {
	b := setup(t)
	b.start()
	b.up(1)
	for _, c := range []string{discordtest.DM, discordtest.General, discordtest.Thread} {
		b.server.Write(c, "first")
	}
	b.taken(3)
	_ = b.stop()
	b.server.Forget()
	return b
}

func TestWhatWasWrittenMeanwhileIsReadUpOn(t *testing.T) {
	t.Parallel()
	b := away(t)
	b.server.Write(discordtest.DM, "direct 1")
	b.server.Write(discordtest.DM, "direct 2")
	b.server.Say(discordtest.Message{ChannelID: discordtest.General, Content: "<@&" + discordtest.Admins + "> help", MentionRoles: []string{discordtest.Admins}})
	b.server.Say(discordtest.Message{ChannelID: discordtest.General, Author: b.server.Bot, Content: "mine"})
	b.server.Say(discordtest.Message{ChannelID: discordtest.Thread, Type: 21, Content: "a thread began"})
	b.start()
	got := b.taken(6)[3:]
	want := map[string]bool{"direct 1": false, "direct 2": false, "@admins help": true}
	for _, m := range got {
		if mentioned, ok := want[m.Text]; !ok || m.MentionsMe != mentioned || m.Group == (m.Chat == discordtest.DM) || m.Group && m.Title != "#general" {
			t.Errorf("%+v", m)
		}
	}
	direct := slices.DeleteFunc(texts(got), func(s string) bool { return s == "@admins help" })
	if !slices.Equal(direct, []string{"direct 1", "direct 2"}) {
		t.Errorf("%q", direct)
	}
	b.server.Write(discordtest.DM, "now")
	b.taken(7)
	if s := b.in.Now(); s.Again != 0 || len(s.Downs) != 0 {
		t.Errorf("%d again, %v", s.Again, s.Downs)
	}
}

// One message of a shape that is not known hides no other, and counts as one of a page.
func TestAMessageOfAnUnknownShapeHidesNoOther(t *testing.T) {
	t.Parallel()
	var rows []string
	for n := range page {
		rows = append(rows, fmt.Sprintf(`{"id":"%d","type":0,"channel_id":"1","author":{"id":"2"},"content":"%d"}`, 1000+n, n))
	}
	rows[3] = `{"id":"1003","type":"a new one","author":["2"]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "["+strings.Join(rows, ",")+"]")
	}))
	t.Cleanup(srv.Close)
	a, err := newAdapter(channel.Setup{Values: map[string]string{"api_url": srv.URL}, Secret: func(context.Context, string) (string, error) { return "token", nil }}, settings{})
	if err != nil {
		t.Fatal(err)
	}
	list, whole, err := a.history(t.Context(), "1", "limit=100")
	if err != nil || whole || len(list) != page-1 || list[3].ID != "1004" {
		t.Errorf("%d messages, whole %v, %v", len(list), whole, err)
	}
}

func TestNoMoreThanTwoPagesAreRead(t *testing.T) {
	t.Parallel()
	for written, want := range map[int]int{99: 99, 100: 100, 150: 150, 200: 200, 350: 200} {
		t.Run(fmt.Sprint(written), func(t *testing.T) {
			t.Parallel()
			b := away(t)
			for n := range written {
				b.server.Write(discordtest.DM, fmt.Sprint(n))
			}
			b.start()
			got := texts(b.taken(3 + want)[3:])
			if got[0] != "0" || got[99%len(got)] != "99" && written > 99 || got[len(got)-1] != fmt.Sprint(written-1) {
				t.Errorf("from %s to %s", got[0], got[len(got)-1])
			}
			b.server.Write(discordtest.DM, "now")
			if got := b.taken(4 + want); len(got) != 4+want || got[len(got)-1].Text != "now" {
				t.Errorf("%d messages, the last %q", len(got), got[len(got)-1].Text)
			}
		})
	}
}

func TestAChannelThatCannotBeReadLosesNothing(t *testing.T) {
	t.Parallel()
	for _, f := range []discordtest.Fault{discordtest.Unauthorized, discordtest.TooMany, discordtest.Broken, discordtest.BadGateway, discordtest.Garbage,
		discordtest.Cut, discordtest.Hang, discordtest.LostAfter, discordtest.LostBefore} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b := away(t)
			b.api.client.Timeout = 100 * time.Millisecond
			b.server.Write(discordtest.DM, "missed")
			b.server.Fault("GET /channels/"+discordtest.DM+"/messages", f, 3)
			b.start()
			b.up(2)
			b.server.Write(discordtest.General, "meanwhile") // waits for no other channel
			b.server.Write(discordtest.DM, "live")
			got := texts(b.taken(6)[3:])
			slices.Sort(got)
			if !slices.Equal(got, []string{"live", "meanwhile", "missed"}) {
				t.Errorf("%q", got)
			}
			if f == discordtest.TooMany {
				return // that is no trouble
			}
			s := b.until("recovery", func(s channeltest.Seen) bool { return len(s.Downs) > 0 && len(s.Ups) > 2 })
			if c := parseCursor(s.Cursor); c.last[discordtest.DM] == "" {
				t.Errorf("%v", c.last)
			}
		})
	}
}

func TestTheCursorWaitsForWhatIsStillToBeRead(t *testing.T) {
	t.Parallel()
	b := away(t)
	before := parseCursor(b.in.Now().Cursor).last[discordtest.DM]
	b.server.Write(discordtest.DM, "missed")
	b.server.Fault("GET /channels/"+discordtest.DM+"/messages", discordtest.Broken, 1_000_000)
	b.start()
	b.up(2)
	b.server.Write(discordtest.DM, "live")
	b.taken(4)
	_ = b.stop()
	if got := parseCursor(b.in.Now().Cursor).last[discordtest.DM]; got != before {
		t.Fatalf("the cursor moved over what is unread")
	}
	b.server.Heal()
	b.server.Forget()
	b.start()
	if got := texts(b.taken(5)[3:]); !slices.Equal(got, []string{"live", "missed"}) {
		t.Errorf("%q", got)
	}
}

func TestAChannelThatIsGoneIsLetGo(t *testing.T) {
	t.Parallel()
	b := away(t)
	b.server.Deny(discordtest.General, 50001)
	_ = b.in.Advance(b.ctx, `{"`+discordtest.DM+`":"5","`+discordtest.General+`":"5","999":"5"}`)
	b.start()
	b.server.Write(discordtest.DM, "hello")
	b.taken(4)
	b.server.Write(discordtest.General, "back")
	b.taken(5)
	if s := b.in.Now(); len(s.Downs) != 0 {
		t.Errorf("%v", s.Downs)
	}
}

func TestWhatTheStoreRefusesIsReadAgain(t *testing.T) {
	t.Parallel()
	b := away(t)
	for n := range 5 {
		b.server.Write(discordtest.DM, fmt.Sprint(n))
	}
	b.in.FailNext(4)
	b.start()
	if got := texts(b.taken(8)[3:]); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("%q", got)
	}
}

func TestANewSessionReadsUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	b.server.Write(discordtest.DM, "1")
	b.taken(1)
	b.server.Forget()
	b.server.Write(discordtest.DM, "2")
	b.server.Drop(1006)
	b.up(2)
	b.server.Write(discordtest.DM, "3")
	if got := texts(b.taken(3)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("%q", got)
	}
}

func TestAChannelThatIsNewToOmbudIsReadToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.AddChannel(discordtest.Channel{ID: "78", GuildID: discordtest.Guild, Name: "old"})
	b.server.Say(discordtest.Message{ID: "175928847299117063", ChannelID: "78", Content: "of years ago"})
	b.start()
	b.up(1)
	b.server.Write(discordtest.DM, "1")
	b.taken(1)
	_ = b.stop()
	b.server.Forget()
	b.server.AddChannel(discordtest.Channel{ID: "77", GuildID: discordtest.Guild, Name: "new"})
	b.server.Say(discordtest.Message{ChannelID: "77", Content: "<@" + b.server.Bot.ID + ">", Mentions: []discordtest.User{b.server.Bot}})
	b.start()
	if m := b.taken(2)[1]; m.Chat != "77" || !m.Group || !m.MentionsMe || m.Title != "#new" {
		t.Errorf("%+v", m)
	}
	b.server.Write(discordtest.DM, "2")
	if got := b.taken(3); len(got) != 3 {
		t.Errorf("%q", texts(got))
	}
}

func TestReadingUpWaitsForTheRolesOfItsGuild(t *testing.T) {
	t.Parallel()
	b := away(t)
	b.set.settle = time.Hour
	b.places = newPlaces(b.api) // as after a restart
	b.server.HoldGuild()
	b.server.Say(discordtest.Message{ChannelID: discordtest.General, Content: "<@&" + discordtest.Admins + ">", MentionRoles: []string{discordtest.Admins}})
	b.start()
	b.up(2)
	b.server.TellGuild()
	if m := b.taken(4)[3]; !m.MentionsMe || m.Text != "@admins" {
		t.Errorf("%+v", m)
	}
}

func TestAGuildThatIsAwayIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	b := away(t)
	b.server.HoldGuild()
	b.server.Write(discordtest.DM, "hello")
	b.start()
	b.taken(4)
}

func TestWhereNothingIsNewNothingIsRead(t *testing.T) {
	t.Parallel()
	b := away(t)
	b.server.Write(discordtest.Thread, "new")
	b.start()
	b.taken(4)
	b.server.Write(discordtest.General, "now")
	b.taken(5)
	for channel, want := range map[string]int{discordtest.General: 0, discordtest.Thread: 1} {
		if n := len(b.server.Calls("GET /channels/" + channel + "/messages")); n != want {
			t.Errorf("channel %s was read %d times, want %d", channel, n, want)
		}
	}
}

// Whenever an adapter is stopped, dropped or finds no store: each message is taken in once,
// and in each channel in order.
func TestStoppedAtAnyMomentItLosesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.up(1)
	chats := []string{discordtest.DM, discordtest.General, discordtest.Thread}
	for _, chat := range chats {
		b.server.Write(chat, "-1")
	}
	b.taken(len(chats))
	const rounds = 60
	for n := range rounds {
		for _, chat := range chats {
			b.server.Write(chat, fmt.Sprint(n))
		}
		switch n % 5 {
		case 0:
			_ = b.stop()
			b.server.Forget()
			b.start()
		case 1:
			b.server.Drop(1006)
		case 2:
			b.in.FailNext(2)
		case 3:
			b.server.Forget()
			b.server.Drop(4000)
		case 4:
			b.server.AskToReconnect()
		}
		if n%7 == 0 {
			b.until("a message", func(s channeltest.Seen) bool { return len(s.Taken) > n })
		}
	}
	b.taken((rounds + 1) * len(chats))
	next := map[string]int{discordtest.DM: -1, discordtest.General: -1, discordtest.Thread: -1}
	for _, m := range b.in.Now().Taken {
		if m.Text != fmt.Sprint(next[m.Chat]) {
			t.Errorf("%s in %s, want %d", m.Text, m.Chat, next[m.Chat])
		}
		next[m.Chat]++
	}
}
