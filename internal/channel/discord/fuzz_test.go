package discord

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/fault"
)

// nothingThere answers every call as if nothing existed.
type nothingThere struct{}

func (nothingThere) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"code":10003,"message":"Unknown Channel"}`))}, nil
}

// Whatever an event says, it is handled without harm: what is taken in has ids, is valid
// text, and moves the cursor to itself.
func FuzzEvent(f *testing.F) {
	f.Add("MESSAGE_CREATE", `{"id":"100","type":0,`+base+`,`+guild+`,"author":`+ada+`,"content":"<@1> <@&91> <#5> <a:x:1>","mentions":[`+botme+`],"mention_roles":["91"]}`)
	f.Add("MESSAGE_CREATE", `{"id":"100","type":19,"channel_id":"5","author":`+ada+`,"content":"\ud800","nonce":5,"attachments":[{"filename":"\n[x]"}],"referenced_message":{"author":`+botme+`}}`)
	f.Add("INTERACTION_CREATE", `{"id":"200","type":3,"token":"t/../x","channel_id":"5","message":{"id":"1"},"data":{"custom_id":"ombud:a:y"},"user":`+ada+`}`)
	f.Add("GUILD_CREATE", `{"id":"9","roles":[{"id":"91","tags":{"bot_id":"1"}}],"members":[{"user":`+botme+`,"roles":["92"]}],"channels":[{"id":"5","name":"x"}],"threads":[{"id":"6"}]}`)
	f.Add("GUILD_MEMBER_UPDATE", `{"guild_id":"9","user":`+botme+`,"roles":["92"]}`)
	f.Add("GUILD_ROLE_UPDATE", `{"guild_id":"9","role":{"id":"91","name":"x","tags":{"bot_id":"1"}}}`)
	f.Add("READY", `{"v":10,"user":`+botme+`,"session_id":"s","resume_gateway_url":"wss://x","guilds":[{"id":"9","unavailable":true}]}`)
	f.Add("THREAD_CREATE", `{"id":"6","guild_id":"9","name":"t"}`)
	f.Add("CHANNEL_DELETE", `{}`)
	f.Fuzz(func(t *testing.T, name, data string) {
		a, err := newAdapter(channel.Setup{Secret: nil, Values: map[string]string{}}, settings{})
		if err != nil {
			t.Fatal(err)
		}
		a.api.client = &http.Client{Transport: nothingThere{}}
		a.api.token = func(context.Context) (string, error) { return "t", nil }
		in := channeltest.NewIntake()
		r := &runner{Adapter: a, in: in, me: ombud, session: "s", cursor: parseCursor("")}
		err = r.event(t.Context(), frame{Name: name, Data: json.RawMessage(data)})
		r.callers.Wait()
		if err != nil && !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
		for _, m := range in.Now().Taken {
			if !snowflake(m.ID) || !snowflake(m.Chat) || !snowflake(m.Sender) || !utf8.ValidString(m.Text+m.SenderName+m.Title) || m.At.Before(time.UnixMilli(1420070400000)) {
				t.Errorf("%+v", m)
			}
			if m.Press == nil && parseCursor(m.Cursor).last[m.Chat] != m.ID {
				t.Errorf("cursor %s after %+v", m.Cursor, m)
			}
		}
	})
}

// A cursor that was read is one that is written the same.
func FuzzCursor(f *testing.F) {
	f.Add(`{"5":"100"}`)
	f.Add(`{"5":"x","y":"1"}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseCursor(text)
		if again := parseCursor(c.String()).String(); again != c.String() || len(c.last) > maxChannels {
			t.Errorf("%s, then %s", c, again)
		}
	})
}
