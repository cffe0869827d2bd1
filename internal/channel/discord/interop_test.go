package discord

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
)

// elsewhere sends what is for Discord to a server of a test.
type elsewhere struct {
	host string
	base *http.Transport
}

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", e.host
	return e.base.RoundTrip(r)
}

// A client that others wrote takes the fake for Discord.
func TestTheFakeIsDiscordToAnotherClient(t *testing.T) {
	t.Parallel()
	fake := discordtest.New(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(fake.URL, "http://"), "/")
	s, err := discordgo.New("Bot " + fake.Token)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	s.Client = &http.Client{Transport: elsewhere{host, base}, Timeout: 5 * time.Second}
	s.Identify.Intents = intents
	s.SyncEvents = true
	heard := make(chan *discordgo.Message, 10)
	pressed := make(chan *discordgo.Interaction, 1)
	s.AddHandler(func(_ *discordgo.Session, m *discordgo.MessageCreate) { heard <- m.Message })
	s.AddHandler(func(_ *discordgo.Session, i *discordgo.InteractionCreate) { pressed <- i.Interaction })
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	asked := fake.Write(discordtest.General, "hello")
	if m := receive(t, heard); m.Content != "hello" || m.Author.ID != fake.Ada.ID || m.GuildID != discordtest.Guild || m.ID != asked.ID {
		t.Errorf("%+v", m)
	}
	rows, err := buttons("appr_1")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := s.ChannelMessageSendComplex(discordtest.General, &discordgo.MessageSend{Content: "may I?", Reference: &discordgo.MessageReference{MessageID: asked.ID}, Components: rows})
	if err != nil || sent.Type != discordgo.MessageTypeReply || sent.ReferencedMessage.Content != "hello" || len(sent.Components) != 1 {
		t.Fatalf("%+v %v", sent, err)
	}
	if m := receive(t, heard); m.ID != sent.ID {
		t.Errorf("%+v", m)
	}
	fake.Press(fake.Bert, fake.Sent()[0], "ombud:appr_1:y")
	i := receive(t, pressed)
	if i.MessageComponentData().CustomID != "ombud:appr_1:y" || i.Member.User.ID != fake.Bert.ID || i.Message.ID != sent.ID {
		t.Errorf("%+v", i)
	}
	if err := s.InteractionRespond(i, &discordgo.InteractionResponse{Type: discordgo.InteractionResponseDeferredMessageUpdate}); err != nil {
		t.Error(err)
	}
	if _, err := s.ChannelMessageEdit(discordtest.General, sent.ID, "done"); err != nil || fake.Sent()[0].Content != "done" {
		t.Errorf("%v %+v", err, fake.Sent())
	}
	if err := s.ChannelTyping(discordtest.DM); err != nil {
		t.Error(err)
	}
	if list, err := s.ChannelMessages(discordtest.General, 10, "", "", ""); err != nil || len(list) != 2 || list[0].ID != sent.ID {
		t.Errorf("%+v %v", list, err)
	}
	if c, err := s.Channel(discordtest.Thread); err != nil || c.Name != "plans" || !c.IsThread() {
		t.Errorf("%+v %v", c, err)
	}
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	select {
	case v = <-from:
	case <-ctx.Done():
		t.Fatal("nothing came")
	}
	return v
}
