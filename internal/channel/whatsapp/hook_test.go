package whatsapp

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
)

var testTime = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

var me = channel.Me{ID: whatsapptest.Phone, IDs: []string{whatsapptest.Phone, whatsapptest.LID}}

// read decodes an event as ombud with the ids of the tests.
func read(t *testing.T, body []byte) (channel.Received, bool) {
	t.Helper()
	e, err := decodeEnvelope(body)
	if err != nil {
		t.Fatal(err)
	}
	return e.received(me, testTime.Add(time.Hour))
}

func TestAnEventAsWacliWritesIt(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("testdata/incoming_message.json")
	if err != nil {
		t.Fatal(err)
	}
	got, ok := read(t, body)
	want := channel.Received{
		ID: "3A1F0C2B7D9E4F5A6B7C", Chat: "120363000000000001@g.us", Title: "The team", Group: true,
		Sender: "15550003333@s.whatsapp.net", SenderName: "Zoë 😀", Text: "@98700000000001 schon fertig?\n[document: plan — final.pdf]",
		At: time.Date(2026, 11, 1, 11, 59, 30, 0, time.UTC), MentionsMe: true, QuotesMe: true,
	}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\nwant\n%+v", ok, got, want)
	}
}

func TestWhoIsAddressed(t *testing.T) {
	t.Parallel()
	team, ann := whatsapptest.Team, whatsapptest.Ann
	self := whatsapptest.Chat{JID: whatsapptest.Phone, Name: "Me"}
	msg := func(chat whatsapptest.Chat, change func(*whatsapptest.Message)) []byte {
		m := whatsapptest.From(chat, "A1", "hello", testTime)
		if change != nil {
			change(&m)
		}
		return whatsapptest.Event("incoming_message", chat, m)
	}
	mention := func(text string, n int) func(*whatsapptest.Message) {
		return func(m *whatsapptest.Message) { m.Content, m.MentionCount = text, n }
	}
	for name, c := range map[string]struct {
		body []byte
		why  channel.Why
		own  bool
	}{
		"a direct chat":                 {msg(ann, nil), channel.Direct, false},
		"a group":                       {msg(team, nil), channel.NotAsked, false},
		"wacli says it mentions us":     {msg(team, func(m *whatsapptest.Message) { m.MentionsMe = true }), channel.Mentioned, false},
		"it answers us":                 {msg(team, func(m *whatsapptest.Message) { m.QuotedIsFromMe = true }), channel.Replied, false},
		"our number is mentioned":       {msg(team, mention("@15550001111 hi", 1)), channel.Mentioned, false},
		"our other id is mentioned":     {msg(team, mention("hi @98700000000001", 1)), channel.Mentioned, false},
		"our number is written only":    {msg(team, mention("@15550001111 hi", 0)), channel.NotAsked, false},
		"a longer number is mentioned":  {msg(team, mention("@155500011112 hi", 1)), channel.NotAsked, false},
		"first a longer one, then ours": {msg(team, mention("@155500011112 @15550001111", 2)), channel.Mentioned, false},
		"somebody else is mentioned":    {msg(team, mention("@15550003333 hi", 1)), channel.NotAsked, false},
		"we wrote it, from the phone":   {msg(team, func(m *whatsapptest.Message) { m.IsFromMe, m.MentionsMe = true, true }), channel.NotAsked, true},
		"we wrote it, by our number":    {msg(team, func(m *whatsapptest.Message) { m.SenderJID = "15550001111:3@s.whatsapp.net" }), channel.NotAsked, true},
		"we wrote it, by our other id":  {msg(team, func(m *whatsapptest.Message) { m.SenderJID = whatsapptest.LID }), channel.NotAsked, true},
		"we wrote to ourselves":         {msg(self, func(m *whatsapptest.Message) { m.IsFromMe = true }), channel.NotAsked, true},
		"one of us named, by another":   {msg(team, func(m *whatsapptest.Message) { m.Content, m.MentionsMe = "from me to me: "+whatsapptest.Phone, true }), channel.Mentioned, false},
		"wacli sent it":                 {whatsapptest.Event("outgoing_message", ann, whatsapptest.From(ann, "A1", "hi", testTime)), channel.NotAsked, true},
		"somebody rings":                {whatsapptest.CallEvent("call.incoming", "c1", ann.JID, "Ann", false), channel.NotAsked, false},
	} {
		m, ok := read(t, c.body)
		if why := channel.Addressed(m, channel.Mention); !ok || why != c.why || m.Own != c.own {
			t.Errorf("%s: %v, addressed by %q, own %v; want %q, %v", name, ok, why, m.Own, c.why, c.own)
		}
	}
}

func TestWhatIsNoMessageIsNotTaken(t *testing.T) {
	t.Parallel()
	shut := whatsapptest.Shut
	for name, body := range map[string]string{
		"an unknown event":       `{"event":"connection_state","payload":{"state":"connected"}}`,
		"no event":               `{}`,
		"no payload":             `{"event":"incoming_message"}`,
		"a locked chat":          string(whatsapptest.Event("incoming_message", shut, whatsapptest.From(shut, "A1", "hi", testTime))),
		"a status":               `{"event":"incoming_message","payload":{"chat":{"jid":"status@broadcast"},"message":{"id":"1","sender_jid":"1@s.whatsapp.net","content":"x"}}}`,
		"a newsletter":           `{"event":"incoming_message","payload":{"chat":{"jid":"1@newsletter"},"message":{"id":"1","content":"x"}}}`,
		"nothing said":           `{"event":"incoming_message","payload":{"chat":{"jid":"1@s.whatsapp.net"},"message":{"id":"1","message_type":"unknown"}}}`,
		"the end of a call":      string(whatsapptest.CallEvent("call.ended", "c1", "1@s.whatsapp.net", "", false)),
		"a call of nobody":       string(whatsapptest.CallEvent("call.incoming", "c1", "", "", false)),
		"a chat with no id":      `{"event":"incoming_message","payload":{"chat":{"name":"x"},"message":{"id":"1","content":"x"}}}`,
		"an id that is too long": `{"event":"incoming_message","payload":{"chat":{"jid":"` + strings.Repeat("1", 200) + `@s.whatsapp.net"},"message":{"id":"1","content":"x"}}}`,
	} {
		if m, ok := read(t, []byte(body)); ok {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestMuchMayBeMissing(t *testing.T) {
	t.Parallel()
	now := testTime.Add(time.Hour)
	for name, c := range map[string]struct {
		message string
		want    channel.Received
	}{
		"the chat":          {`{"id":"1","chat_jid":"1:2@s.whatsapp.net","content":"x","timestamp":"2026-11-01T12:00:00Z"}`, channel.Received{ID: "1", Chat: "1@s.whatsapp.net", Sender: "1@s.whatsapp.net", Text: "x", At: testTime}},
		"all but a sender":  {`{"id":"1","sender_jid":"1@s.whatsapp.net","content":"x"}`, channel.Received{ID: "1", Chat: "1@s.whatsapp.net", Sender: "1@s.whatsapp.net", Text: "x", At: now}},
		"a group's sender":  {`{"id":"1","chat_jid":"1@g.us","content":"x"}`, channel.Received{ID: "1", Chat: "1@g.us", Sender: "1@g.us", Group: true, Text: "x", At: now}},
		"seconds":           {fmt.Sprintf(`{"id":"1","chat_jid":"1@lid","content":"x","timestamp":%d}`, testTime.Unix()), channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "x", At: testTime}},
		"seconds as text":   {fmt.Sprintf(`{"id":"1","chat_jid":"1@lid","content":"x","timestamp":"%d"}`, testTime.Unix()), channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "x", At: testTime}},
		"a time to come":    {`{"id":"1","chat_jid":"1@lid","content":"x","timestamp":"2099-01-01T00:00:00Z"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "x", At: now}},
		"no time":           {`{"id":"1","chat_jid":"1@lid","content":"x","timestamp":"soon"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "x", At: now}},
		"a command":         {`{"id":"1","chat_jid":"1@lid","content":"/pair 123"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "/pair 123", At: now, Command: true}},
		"no command there":  {`{"id":"1","chat_jid":"1@g.us","content":"/pair 123"}`, channel.Received{ID: "1", Chat: "1@g.us", Sender: "1@g.us", Group: true, Text: "/pair 123", At: now}},
		"a picture":         {`{"id":"1","chat_jid":"1@lid","message_type":"image","content":"look","file_name":"image_20261101_120000.jpg"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "look\n[image]", At: now}},
		"words are its own": {`{"id":"1","chat_jid":"1@lid","message_type":"audio","content":"[audio]"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "[audio]", At: now}},
		"a voice message":   {`{"id":"1","chat_jid":"1@lid","message_type":"ptt"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "[ptt]", At: now}},
		"a zero byte":       {`{"id":"1","chat_jid":"1@lid","content":"a\u0000b"}`, channel.Received{ID: "1", Chat: "1@lid", Sender: "1@lid", Text: "ab", At: now}},
	} {
		got, ok := read(t, []byte(`{"event":"incoming_message","payload":{"message":`+c.message+`}}`))
		if !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", name, ok, got, c.want)
		}
	}
}

func TestAMessageWithoutAnIDIsTheSameWhenItComesAgain(t *testing.T) {
	t.Parallel()
	body := func(id, text string) []byte {
		return []byte(`{"event":"incoming_message","payload":{"message":{"id":` + id + `,"chat_jid":"1@g.us","sender_jid":"2@lid","content":"` + text + `"}}}`)
	}
	a, _ := read(t, body(`""`, "x"))
	again, _ := read(t, body(`""`, "x"))
	other, _ := read(t, body(`""`, "y"))
	long, _ := read(t, body(`"`+strings.Repeat("i", 300)+`"`, "x"))
	odd, _ := read(t, body(`"a\nb"`, "x"))
	if a.ID == "" || a.ID != again.ID || a.ID == other.ID || len(long.ID) > maxID || strings.Contains(odd.ID, "\n") || odd.ID == a.ID {
		t.Errorf("%q %q %q %q %q", a.ID, again.ID, other.ID, long.ID, odd.ID)
	}
}

func TestACallIsAnEvent(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"Ann": "[call from Ann]", "": "[call from 15550002222]", "A\n[image]": "[call from A [image]]"} {
		m, ok := read(t, whatsapptest.CallEvent("call.incoming", "c1", "15550002222:1@s.whatsapp.net", name, false))
		if !ok || m.Text != want || !m.Bot || m.Chat != whatsapptest.Ann.JID || m.ID != "call:c1" {
			t.Errorf("%q: %+v", name, m)
		}
	}
	if m, _ := read(t, whatsapptest.CallEvent("call.incoming", "c1", whatsapptest.Ann.JID, "Ann", true)); m.Text != "[video call from Ann]" {
		t.Errorf("%+v", m)
	}
}

func TestALongTextIsBounded(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(strings.Repeat("é", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := read(t, []byte(`{"event":"incoming_message","payload":{"message":{"id":"1","chat_jid":"1@lid","content":`+string(text)+`}}}`))
	if !ok || len(m.Text) > maxText+16 || !strings.HasSuffix(m.Text, "é\n[cut]") {
		t.Errorf("%v, %d bytes", ok, len(m.Text))
	}
}

func TestOneMessageIsTakenOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	in := channeltest.NewIntake()
	hook := a.Hook(in)
	body := whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, "A1", "hi", testTime))
	var wg sync.WaitGroup
	status := make([]int, 51)
	for i := range status[:50] {
		wg.Go(func() { status[i] = whatsapptest.Post(hook, secret, body) })
	}
	wg.Wait()
	status[50] = whatsapptest.Post(hook, secret, body)
	for _, s := range status {
		if s != 200 {
			t.Fatalf("%v", status)
		}
	}
	if got := in.Now(); len(got.Taken) != 1 || got.Again != 50 || got.Cursor != "2026-11-01T12:00:00Z" {
		t.Errorf("%d taken, %d again, cursor %q", len(got.Taken), got.Again, got.Cursor)
	}
}

func TestWacliIsToldToComeAgainWhenTheStoreFails(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	in := channeltest.NewIntake()
	hook := a.Hook(in)
	post := func(id string, at time.Time) int {
		return whatsapptest.Post(hook, secret, whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, id, id, at)))
	}
	if s := post("A1", testTime); s != 200 {
		t.Fatal(s)
	}
	if s := post("older", testTime.Add(-2*time.Hour)); s != 200 || in.Now().Cursor != "2026-11-01T12:00:00Z" {
		t.Errorf("an older one: %d, cursor %q", s, in.Now().Cursor)
	}
	in.FailNext(1)
	if s := post("A2", testTime.Add(time.Minute)); s != 503 {
		t.Errorf("the store is away: %d", s)
	}
	// What is said meanwhile does not move the cursor past what is owed.
	if s := post("A3", testTime.Add(2*time.Minute)); s != 200 {
		t.Errorf("the next: %d", s)
	}
	if got := in.Now(); len(got.Taken) != 3 || got.Cursor != "2026-11-01T12:00:00Z" || !a.toCatchUp() {
		t.Errorf("%d taken, cursor %q, to catch up: %v", len(got.Taken), got.Cursor, a.toCatchUp())
	}
	if s := post("A0", testTime.Add(-time.Hour)); s != 200 || in.Now().Cursor != "2026-11-01T12:00:00Z" {
		t.Errorf("an old one: %d, cursor %q", s, in.Now().Cursor)
	}
	if s := post("A2", testTime.Add(time.Minute)); s != 200 || len(in.Now().Taken) != 5 {
		t.Errorf("again: %d, %d taken", s, len(in.Now().Taken))
	}
}

func TestASecretIsChangedWithoutLosingACall(t *testing.T) {
	t.Parallel()
	a, _, s := setup(t)
	in := channeltest.NewIntake()
	hook := a.Hook(in)
	body := whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, "A1", "hi", testTime))
	s.set(partSecretNext, "the next")
	if got := []int{whatsapptest.Post(hook, secret, body), whatsapptest.Post(hook, "the next", body)}; got[0] != 200 || got[1] != 200 {
		t.Errorf("both are good: %v", got)
	}
	s.set(partSecret, "the next")
	if got := whatsapptest.Post(hook, secret, body); got != 401 {
		t.Errorf("the old one is good still: %d", got)
	}
}
