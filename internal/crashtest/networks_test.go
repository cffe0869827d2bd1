package crashtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/wire"
)

// network is a chat network of the test's own.
type network struct {
	kind   string
	pieces int  // of the long answer, there
	tells  bool // it can be asked what became of a message, so nothing stays in doubt
	people int  // who write: the second has a chat of their own
	first  int  // of the stride, where not every pass is tried
	stride int
	begin  func(t *testing.T, l *life) chat
}

// chat is the network of one life, where two people have a direct chat each.
type chat struct {
	values, secrets []string // name, value, …
	// say lets the person 0 or 1 write. It is called once for each message, and again after
	// an error, as a network that calls the daemon comes again.
	say func(who, n int, text string) error
	// later lets a minute go by there, after which what the daemon was told and did not
	// acknowledge is told again; nil: no time has to pass.
	later func()
	sent  func() []message // by ombud, the first first
}

// message is one that ombud sent.
type message struct{ chat, text string }

var networks = []network{
	{kind: "telegram", pieces: 3, people: 2, first: chatFirst, stride: chatStride, begin: onTelegram},
	{kind: "slack", pieces: 3, tells: true, people: 2, first: chatFirst, stride: chatStride, begin: onSlack},
	{kind: "discord", pieces: 6, tells: true, people: 2, first: chatFirst, stride: chatStride, begin: onDiscord},
	{kind: "whatsapp", pieces: 3, tells: true, people: wacliPeople, first: chatFirst, stride: wacliStride, begin: onWacli},
	{kind: "whatsapp-cloud", pieces: 3, people: 2, first: chatFirst, stride: chatStride, begin: onCloud},
}

func onTelegram(t *testing.T, _ *life) chat {
	s := telegramtest.New(t)
	people := []telegramtest.User{telegramtest.Ann(), {ID: 1002, FirstName: "Bob"}}
	return chat{
		values: []string{"api_url", s.URL}, secrets: []string{"token", s.Token},
		say: func(who, _ int, text string) error {
			s.Say(telegramtest.Words{From: people[who], Text: text})
			return nil
		},
		sent: func() (out []message) {
			for _, m := range s.Sent() {
				out = append(out, message{fmt.Sprint(m.ChatID), m.Text})
			}
			return out
		},
	}
}

func onSlack(t *testing.T, _ *life) chat {
	s := slacktest.New(t)
	var people, rooms []string
	for _, name := range []string{"ann", "bob"} {
		people = append(people, s.User(name))
		rooms = append(rooms, s.Direct(people[len(people)-1]))
	}
	return chat{
		values: []string{"api_url", s.URL}, secrets: []string{"app_token", s.AppToken, "bot_token", s.BotToken},
		say: func(who, _ int, text string) error {
			s.Say(rooms[who], people[who], text)
			return nil
		},
		later: func() { s.Advance(time.Minute) },
		sent: func() (out []message) {
			for _, m := range s.Sent() {
				out = append(out, message{m.Channel, m.Text})
			}
			return out
		},
	}
}

func onDiscord(t *testing.T, _ *life) chat {
	const bertsRoom = "41771983423143941"
	s := discordtest.New(t)
	s.Limit(50, time.Second)
	s.AddChannel(discordtest.Channel{ID: bertsRoom, Type: 1, Recipients: []discordtest.User{s.Bert}})
	people, rooms := []discordtest.User{s.Ada, s.Bert}, []string{discordtest.DM, bertsRoom}
	return chat{
		values: []string{"api_url", s.URL}, secrets: []string{"token", s.Token},
		say: func(who, _ int, text string) error {
			s.Say(discordtest.Message{ChannelID: rooms[who], Author: people[who], Content: text})
			return nil
		},
		sent: func() (out []message) {
			for _, m := range s.Sent() {
				out = append(out, message{m.ChannelID, m.Content})
			}
			return out
		},
	}
}

// hooked gives a life an address at which networks can call it, and a way to call it.
func hooked(t *testing.T, l *life) *http.Client {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.listen = port.Addr().String()
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func taken(status int, err error) error {
	if err == nil && status != http.StatusOK {
		err = errNotYet
	}
	return err
}

func onWacli(t *testing.T, l *life) chat {
	w, post := whatsapptest.NewWacli(t), hooked(t, l)
	bob := whatsapptest.Chat{JID: "15550003333@s.whatsapp.net", Name: "Bob"}
	w.Change(func(s *whatsapptest.State) { s.Chats = append(s.Chats, bob) })
	people, told := []whatsapptest.Chat{whatsapptest.Ann, bob}, map[int]bool{}
	return chat{
		values: []string{"wacli_path", w.Path}, secrets: []string{"webhook_secret", "sesame"},
		say: func(who, n int, text string) error {
			m := whatsapptest.From(people[who], fmt.Sprint("in", n), text, time.Now())
			if !told[n] {
				told[n] = true
				w.Store(m)
			}
			body := whatsapptest.Event("incoming_message", people[who], m)
			return taken(whatsapptest.PostTo(post, "http://"+l.listen+"/comms/whatsapp", "sesame", body))
		},
		sent: func() (out []message) {
			for _, m := range w.Sent() {
				out = append(out, message{m.ChatJID, m.Content})
			}
			return out
		},
	}
}

func onCloud(t *testing.T, l *life) chat {
	people := []string{"15550002222", "15550003333"}
	g, post := whatsapptest.NewGraph(t, people...), hooked(t, l)
	return chat{
		values:  []string{"phone_number_id", whatsapptest.PhoneID, "api_url", g.URL},
		secrets: []string{"access_token", whatsapptest.Token, "app_secret", whatsapptest.AppSecret, "verify_token", whatsapptest.Verify},
		say: func(who, n int, text string) error {
			body := (&whatsapptest.Notice{}).Text(people[who], fmt.Sprint("wamid.", n), text).Body()
			return taken(whatsapptest.PostCloudTo(post, "http://"+l.listen+"/channels/whatsapp-cloud", body))
		},
		sent: func() (out []message) {
			for _, m := range g.Sent() {
				out = append(out, message{m.To, m.Text})
			}
			return out
		},
	}
}

// add is the request that adds the channel.
func (n network) add(c chat) wire.ChannelAddRequest {
	req := wire.ChannelAddRequest{Kind: n.kind}
	for i := 0; i < len(c.values); i += 2 {
		req.Values = append(req.Values, wire.ChannelValue{Name: c.values[i], Value: c.values[i+1]})
	}
	for i := 0; i < len(c.secrets); i += 2 {
		req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: c.secrets[i], Value: []byte(c.secrets[i+1])})
	}
	return req
}

// connected waits until the channel works.
func (l *life) connected(n network) {
	l.t.Helper()
	insist(l, "the channel works", func(ctx context.Context) (bool, error) {
		got, err := l.client.ChannelShow(ctx, wire.ChannelRequest{Name: n.kind})
		if err == nil && got.Channel.State != "working" {
			err = errNotYet
		}
		return true, err
	})
}
