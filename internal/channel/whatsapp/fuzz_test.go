package whatsapp

import (
	"os"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
)

// holds is what everybody behind an adapter relies on.
func holds(t *testing.T, m channel.Received, now time.Time) {
	t.Helper()
	for name, text := range map[string]string{"id": m.ID, "chat": m.Chat, "sender": m.Sender, "title": m.Title, "name": m.SenderName} {
		if len(text) > 512 || !utf8.ValidString(text) || line(text) != text {
			t.Errorf("%s is %q", name, text)
		}
	}
	if m.ID == "" || m.Chat == "" || m.Sender == "" || m.Text == "" || len(m.Text) > maxText+1024 || !utf8.ValidString(m.Text) {
		t.Errorf("%+v", m)
	}
	if m.At.IsZero() || m.At.After(now) {
		t.Errorf("at %s", m.At)
	}
}

func FuzzEventOfWacli(f *testing.F) {
	if body, err := os.ReadFile("testdata/incoming_message.json"); err == nil {
		f.Add(body)
	}
	f.Add(whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, "A1", "hi", testTime)))
	f.Add(whatsapptest.CallEvent("call.incoming", "c1", "1@s.whatsapp.net", "Ann", true))
	f.Add([]byte(`{"event":"incoming_message","payload":{"message":{"chat_jid":"+1","content":"@1","timestamp":1e10,"mention_count":1}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decodeEnvelope(body)
		if err != nil {
			return
		}
		m, ok := e.received(me, testTime)
		if !ok {
			return
		}
		holds(t, m, testTime)
		if again, _ := e.received(me, testTime.Add(time.Hour)); again.ID != m.ID || again.Chat != m.Chat {
			t.Errorf("the same again is %q in %q, was %q in %q", again.ID, again.Chat, m.ID, m.Chat)
		}
		if m.Sender == whatsapptest.Phone && !m.Own && !m.Bot {
			t.Errorf("ours, and not said so: %+v", m)
		}
		if _, err := target(m.Chat); err != nil {
			t.Errorf("it cannot be answered: %v", err)
		}
	})
}

func FuzzNoticeOfMeta(f *testing.F) {
	n := new(whatsapptest.Notice).Text(customer, "wamid.1", "née").Reply(customer, "wamid.2", "x", "wamid.0").
		Media(customer, "wamid.3", "document", "", "a.pdf").Press(customer, "wamid.4", "a:q1:y", "Approve", "wamid.0").
		React(customer, "wamid.5", "👍", "wamid.0").Status("failed", "wamid.0", "k", 131047)
	f.Add(n.Body())
	f.Add([]byte(`{"entry":[{"changes":[{"value":{"messages":[{"id":"1","from":"+1","type":"button","button":{"payload":"a::y"}}]}}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := decodeNotice(body)
		if err != nil {
			return
		}
		for _, e := range n.Entry {
			for _, c := range e.Changes {
				for _, r := range c.Value.Messages {
					m, ok := r.received(c.Value, testTime)
					if !ok {
						continue
					}
					holds(t, m, testTime)
					if m.Press != nil && m.Press.Approval == "" || m.Group {
						t.Errorf("%+v", m)
					}
				}
			}
		}
	})
}
