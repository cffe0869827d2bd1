package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/wire"
)

// talker is one person's direct chat with ombud on a network of the test's own.
type talker struct {
	add  wire.ChannelAddRequest
	say  func(text string)
	said func() []string // what ombud said in the chat, the first first
	yes  func()          // presses the button of the last question; nil: there are none
}

// TestAConversationOnEachNetwork goes from nothing to a first answer, and to a question that
// is answered in the chat, on every network against a fake that enforces its rules.
func TestAConversationOnEachNetwork(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, h *heard) talker{
		"slack": onSlack, "discord": onDiscord, "whatsapp": onWacli, "whatsapp-cloud": onCloud,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := listen(t)
			c := wire.NewClient(h.d.o.Instance.Socket())
			p := begin(t, h)
			if _, err := c.ChannelAdd(t.Context(), p.add); err != nil {
				t.Fatal(err)
			}
			until(t, "the channel works", func() bool {
				got, err := c.ChannelShow(t.Context(), wire.ChannelRequest{Name: name})
				return err == nil && got.Channel.State == "working"
			})
			hears := func(part string) {
				t.Helper()
				until(t, "the chat has "+part, func() bool {
					said := p.said()
					return len(said) > 0 && strings.Contains(said[len(said)-1], part)
				})
			}
			p.say("help") // a stranger is not answered
			code, err := c.PairStart(t.Context(), wire.PairStartRequest{Channel: name})
			if err != nil {
				t.Fatal(err)
			}
			p.say("pair " + code.Code)
			hears("you are the operator")
			if said := p.said(); len(said) != 1 {
				t.Errorf("a stranger was answered: %q", said)
			}
			p.say("remember that the wifi code is 4711")
			hears("May I?")
			if p.yes != nil {
				p.yes()
			} else {
				p.say("approve 1")
			}
			until(t, "it was approved", func() bool {
				got, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{State: "all"})
				return err == nil && len(got.Approvals) == 1 && got.Approvals[0].Resolver == "operator@"+name
			})
			until(t, "the turn has ended", func() bool { return len(p.said()) >= 4 })
			before := len(p.said())
			p.say("what is the wifi code?")
			until(t, "it is answered", func() bool { return len(p.said()) > before })
			hears("4711")
			explained(t, c, "what is the wifi code?", "direct chat", "4711", `"channel":"`+name+`"`)
		})
	}
}

func parts(list ...string) (out []wire.ChannelSecret) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, wire.ChannelSecret{Part: list[i], Value: []byte(list[i+1])})
	}
	return out
}

func values(list ...string) (out []wire.ChannelValue) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, wire.ChannelValue{Name: list[i], Value: list[i+1]})
	}
	return out
}

func onSlack(t *testing.T, _ *heard) talker {
	s := slacktest.New(t)
	ann := s.User("ann")
	dm := s.Direct(ann)
	return talker{
		add: wire.ChannelAddRequest{Kind: "slack", Secrets: parts("app_token", s.AppToken, "bot_token", s.BotToken), Values: values("api_url", s.URL)},
		say: func(text string) { s.Say(dm, ann, text) },
		said: func() (out []string) {
			for _, m := range s.Sent() {
				if m.Channel == dm {
					out = append(out, m.Text)
				}
			}
			return out
		},
		yes: func() {
			sent := s.Sent()
			if !s.Press(sent[len(sent)-1].TS, ann, "ombud_approve") {
				t.Errorf("there is no button: %+v", sent[len(sent)-1])
			}
		},
	}
}

func onDiscord(t *testing.T, _ *heard) talker {
	s := discordtest.New(t)
	return talker{
		add: wire.ChannelAddRequest{Kind: "discord", Secrets: parts("token", s.Token), Values: values("api_url", s.URL)},
		say: func(text string) { s.Write(discordtest.DM, text) },
		said: func() (out []string) {
			for _, m := range s.Sent() {
				if m.ChannelID == discordtest.DM {
					out = append(out, m.Content)
				}
			}
			return out
		},
		yes: func() {
			sent := s.Sent()
			m := sent[len(sent)-1]
			id := m.Content[strings.Index(m.Content, "apr_"):]
			id = strings.FieldsFunc(id, func(r rune) bool { return r != '_' && (r < '0' || r > '9' && r < 'a' || r > 'z') })[0]
			s.Press(s.Ada, m, "ombud:"+id+":y")
		},
	}
}

func onWacli(t *testing.T, h *heard) talker {
	w := whatsapptest.NewWacli(t)
	n := 0
	return talker{
		add: wire.ChannelAddRequest{Kind: "whatsapp", Secrets: parts("webhook_secret", "sesame"), Values: values("wacli_path", w.Path)},
		say: func(text string) {
			n++
			m := whatsapptest.From(whatsapptest.Ann, fmt.Sprint("in", n), text, time.Now())
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			status, err := whatsapptest.PostTo(client, "http://"+h.addr+"/comms/whatsapp", "sesame", whatsapptest.Event("incoming_message", whatsapptest.Ann, m))
			if err != nil || status != http.StatusOK {
				t.Errorf("%d %v", status, err)
			}
		},
		said: func() (out []string) {
			for _, m := range w.Sent() {
				if m.ChatJID == whatsapptest.Ann.JID {
					out = append(out, m.Content)
				}
			}
			return out
		},
	}
}

func onCloud(t *testing.T, h *heard) talker {
	const ann = "15550002222"
	g := whatsapptest.NewGraph(t, ann)
	n := 0
	post := func(notice *whatsapptest.Notice) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		status, err := whatsapptest.PostCloudTo(client, "http://"+h.addr+"/channels/whatsapp-cloud", notice.Body())
		if err != nil || status != http.StatusOK {
			t.Errorf("%d %v", status, err)
		}
	}
	next := func() string { n++; return fmt.Sprint("wamid.", n) }
	return talker{
		add: wire.ChannelAddRequest{
			Kind: "whatsapp-cloud", Values: values("phone_number_id", whatsapptest.PhoneID, "api_url", g.URL),
			Secrets: parts("access_token", whatsapptest.Token, "app_secret", whatsapptest.AppSecret, "verify_token", whatsapptest.Verify),
		},
		say: func(text string) {
			g.Wrote(ann)
			post((&whatsapptest.Notice{}).Text(ann, next(), text))
		},
		said: func() (out []string) {
			for _, m := range g.Sent() {
				out = append(out, m.Text)
			}
			return out
		},
		yes: func() {
			sent := g.Sent()
			m := sent[len(sent)-1]
			if len(m.Buttons) != 2 {
				t.Fatalf("there is no button: %+v", m)
			}
			post((&whatsapptest.Notice{}).Press(ann, next(), m.Buttons[0].ID, m.Buttons[0].Title, m.ID))
		},
	}
}
