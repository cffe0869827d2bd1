package telegram

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
)

func bot() channel.Me {
	return channel.Me{ID: "7000000001", Name: "@mybot", IDs: []string{"7000000001"}, Names: []string{"mybot"}}
}

// Payloads as Telegram sends them, without what is in all of them.
const (
	inPrivate    = `"message_id":42,"from":{"id":1001,"is_bot":false,"first_name":"Ann","last_name":"B","username":"ann_b","language_code":"en"},"chat":{"id":1001,"first_name":"Ann","last_name":"B","username":"ann_b","type":"private"},"date":1764500000`
	inGroup      = `"message_id":43,"from":{"id":1001,"is_bot":false,"first_name":"Ann"},"chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"date":1764500000`
	inBasicGroup = `"message_id":43,"from":{"id":1001,"is_bot":false,"first_name":"Ann"},"chat":{"id":-4567,"title":"The kitchen","type":"group","all_members_are_administrators":true},"date":1764500000`
	inTopic      = inGroup + `,"message_thread_id":7,"is_topic_message":true`
	topicRoot    = `"reply_to_message":{"message_id":7,"from":{"id":7000000001,"is_bot":true,"first_name":"Ombud","username":"mybot"},"chat":{"id":-1001234567890,"title":"The kitchen","is_forum":true,"type":"supergroup"},"date":1764400000,"message_thread_id":7,"forum_topic_created":{"name":"Dinner","icon_color":7322096},"is_topic_message":true}`
	mine         = `"reply_to_message":{"message_id":40,"from":{"id":7000000001,"is_bot":true,"first_name":"Ombud","username":"mybot"},"chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"date":1764499000,"text":"what else?"}`
	bobs         = `"reply_to_message":{"message_id":41,"from":{"id":1002,"is_bot":false,"first_name":"Bob"},"chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"date":1764499000,"text":"ask @mybot","entities":[{"offset":4,"length":6,"type":"mention"}]}`
)

func receive(t *testing.T, payload string) (channel.Received, bool) {
	t.Helper()
	u, err := decode([]byte(payload))
	if err != nil || u.broken != nil {
		t.Fatalf("%v, %v in %s", err, u.broken, payload)
	}
	return u.received(bot(), time.Unix(1764500100, 0))
}

func TestWhoIsAddressed(t *testing.T) {
	t.Parallel()
	const never, mention, always = channel.Never, channel.Mention, channel.Always
	for name, c := range map[string]struct {
		message string // the object, without its braces
		mode    channel.Mode
		want    channel.Why
	}{
		"a direct chat": {inPrivate + `,"text":"hello"`, mention, channel.Direct},
		"a direct chat, where a mode means nothing": {inPrivate + `,"text":"hello"`, never, channel.Direct},
		"a group":                          {inGroup + `,"text":"hello"`, mention, channel.NotAsked},
		"a basic group":                    {inBasicGroup + `,"text":"hello"`, mention, channel.NotAsked},
		"a group set to always":            {inGroup + `,"text":"hello"`, always, channel.EveryOne},
		"a group that is not set":          {inGroup + `,"text":"@mybot","entities":[{"offset":0,"length":6,"type":"mention"}]`, "", channel.NotAsked},
		"a group set to never":             {inGroup + `,"text":"@mybot","entities":[{"offset":0,"length":6,"type":"mention"}]`, never, channel.NotAsked},
		"a mention":                        {inGroup + `,"text":"@mybot hello","entities":[{"offset":0,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"in another case":                  {inGroup + `,"text":"@MyBot hello","entities":[{"offset":0,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"at the end":                       {inGroup + `,"text":"hello @mybot","entities":[{"offset":6,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"behind emoji":                     {inGroup + `,"text":"😀😀 @mybot","entities":[{"offset":5,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"the second of two":                {inGroup + `,"text":"@ann_b @mybot","entities":[{"offset":0,"length":6,"type":"mention"},{"offset":7,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"in a caption":                     {inGroup + `,"photo":[{"file_id":"A","file_unique_id":"B","width":9,"height":9}],"caption":"@mybot what is this?","caption_entities":[{"offset":0,"length":6,"type":"mention"}]`, mention, channel.Mentioned},
		"a longer name":                    {inGroup + `,"text":"@mybot2 hello","entities":[{"offset":0,"length":7,"type":"mention"}]`, mention, channel.NotAsked},
		"a name that goes on":              {inGroup + `,"text":"@mybot_test hello","entities":[{"offset":0,"length":11,"type":"mention"}]`, mention, channel.NotAsked},
		"a name before it":                 {inGroup + `,"text":"@my hello","entities":[{"offset":0,"length":3,"type":"mention"}]`, mention, channel.NotAsked},
		"text that is no mention":          {inGroup + `,"text":"mail x@mybot.org about @mybot"`, mention, channel.NotAsked},
		"code that is no mention":          {inGroup + `,"text":"@mybot","entities":[{"offset":0,"length":6,"type":"code"}]`, mention, channel.NotAsked},
		"bytes would fit, units do not":    {inGroup + `,"text":"äää@mybot","entities":[{"offset":6,"length":6,"type":"mention"}]`, mention, channel.NotAsked},
		"a mention beyond the end":         {inGroup + `,"text":"@mybot","entities":[{"offset":0,"length":7,"type":"mention"}]`, mention, channel.NotAsked},
		"a mention before the beginning":   {inGroup + `,"text":"@mybot","entities":[{"offset":-1,"length":7,"type":"mention"}]`, mention, channel.NotAsked},
		"a mention of enormous length":     {inGroup + `,"text":"@mybot","entities":[{"offset":9223372036854775807,"length":9223372036854775807,"type":"mention"}]`, mention, channel.NotAsked},
		"a mark with the bot's id":         {inGroup + `,"text":"Ombud, hello","entities":[{"offset":0,"length":5,"type":"text_mention","user":{"id":7000000001,"is_bot":true,"first_name":"Ombud"}}]`, mention, channel.Mentioned},
		"a mark with another's id":         {inGroup + `,"text":"mybot, hello","entities":[{"offset":0,"length":5,"type":"text_mention","user":{"id":1002,"is_bot":false,"first_name":"mybot"}}]`, mention, channel.NotAsked},
		"an answer to ombud":               {inGroup + `,"text":"yes",` + mine, mention, channel.Replied},
		"an answer to Bob, who named it":   {inGroup + `,"text":"yes",` + bobs, mention, channel.NotAsked},
		"in a topic":                       {inTopic + `,"text":"hello",` + mine, mention, channel.Replied},
		"in a topic of ombud's, to nobody": {inTopic + `,"text":"hello",` + topicRoot, mention, channel.NotAsked},
		"a command to it":                  {inGroup + `,"text":"/status@mybot now","entities":[{"offset":0,"length":13,"type":"bot_command"}]`, mention, channel.Commanded},
		"in another case too":              {inGroup + `,"text":"/status@MYBOT","entities":[{"offset":0,"length":13,"type":"bot_command"}]`, mention, channel.Commanded},
		"a command to another":             {inGroup + `,"text":"/status@otherbot","entities":[{"offset":0,"length":16,"type":"bot_command"}]`, mention, channel.NotAsked},
		"the same where all is heard":      {inGroup + `,"text":"/status@otherbot","entities":[{"offset":0,"length":16,"type":"bot_command"}]`, always, channel.NotAsked},
		"a command to a longer name":       {inGroup + `,"text":"/status@mybot2","entities":[{"offset":0,"length":14,"type":"bot_command"}]`, mention, channel.NotAsked},
		"a command to nobody in a group":   {inGroup + `,"text":"/status","entities":[{"offset":0,"length":7,"type":"bot_command"}]`, mention, channel.NotAsked},
		"a command to it, later":           {inGroup + `,"text":"try /status@mybot","entities":[{"offset":4,"length":13,"type":"bot_command"}]`, mention, channel.NotAsked},
		"another bot that names it":        {strings.Replace(inGroup, `"is_bot":false`, `"is_bot":true`, 1) + `,"text":"@mybot","entities":[{"offset":0,"length":6,"type":"mention"}]`, always, channel.NotAsked},
		"itself":                           {strings.Replace(inGroup, `"id":1001,"is_bot":false`, `"id":7000000001,"is_bot":true`, 1) + `,"text":"@mybot"`, always, channel.NotAsked},
		"an admin who hides": {`"message_id":43,"from":{"id":1087968824,"is_bot":true,"first_name":"Group","username":"GroupAnonymousBot"},"sender_chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"date":1764500000,"text":"@mybot","entities":[{"offset":0,"length":6,"type":"mention"}]`,
			mention, channel.Mentioned},
		"forwarded, with its name in it": {inGroup + `,"forward_origin":{"type":"user","sender_user":{"id":1002,"is_bot":false,"first_name":"Bob"},"date":1764400000},"text":"@mybot","entities":[{"offset":0,"length":6,"type":"mention"}]`, mention, channel.NotAsked},
	} {
		m, ok := receive(t, `{"update_id":1,"message":{`+c.message+`}}`)
		if !ok {
			t.Errorf("%s: nothing is received", name)
			continue
		}
		if got := channel.Addressed(m, c.mode); got != c.want {
			t.Errorf("%s: %q, want %q; %+v", name, got, c.want, m)
		}
	}
}

func TestACommandIsOneInItsChat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{ // in a direct chat, in a group
		"/start":              {true, false},
		"/start@mybot":        {true, true},
		"/start@MyBot with x": {true, true},
		"/start@other_bot":    {false, false},
		"/start@mybot_2":      {false, false},
		"please /start":       {false, false},
		"start":               {false, false},
	} {
		entities, err := json.Marshal(telegramtest.Entities(text))
		if err != nil {
			t.Fatal(err)
		}
		for i, where := range []string{inPrivate, inGroup} {
			m, ok := receive(t, fmt.Sprintf(`{"update_id":1,"message":{%s,"text":%q,"entities":%s}}`, where, text, entities))
			if !ok || m.Command != want[i] || m.Text != text {
				t.Errorf("%q in chat %d: %v %+v", text, i, ok, m)
			}
		}
	}
}

func TestWhatIsReceived(t *testing.T) {
	t.Parallel()
	at := time.Unix(1764500000, 0).UTC()
	kitchen := channel.Received{ID: "43", Chat: "-1001234567890", Title: "The kitchen", Group: true, Sender: "1001", SenderName: "Ann", Text: "hello", At: at}
	with := func(r channel.Received, change func(*channel.Received)) channel.Received {
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		payload string
		want    channel.Received
	}{
		"a direct chat": {`{"update_id":1,"message":{` + inPrivate + `,"text":"hello"}}`,
			channel.Received{ID: "42", Chat: "1001", Title: "Ann B", Sender: "1001", SenderName: "Ann B", Text: "hello", At: at}},
		"a group": {`{"update_id":1,"message":{` + inGroup + `,"text":"hello"}}`, kitchen},
		"a topic": {`{"update_id":1,"message":{` + inTopic + `,"text":"hello",` + topicRoot + `}}`,
			with(kitchen, func(r *channel.Received) { r.Thread = "7" })},
		"answers in a group without topics are one talk": {`{"update_id":1,"message":{` + inGroup + `,"message_thread_id":41,"text":"hello",` + bobs + `}}`, kitchen},
		"an answer": {`{"update_id":1,"message":{` + inGroup + `,"text":"hello",` + mine + `}}`,
			with(kitchen, func(r *channel.Received) { r.QuotesMe = true })},
		"by another bot": {`{"update_id":1,"message":{` + strings.Replace(inGroup, `"is_bot":false`, `"is_bot":true`, 1) + `,"text":"hello"}}`,
			with(kitchen, func(r *channel.Received) { r.Bot = true })},
		"by itself": {`{"update_id":1,"message":{` + strings.Replace(inGroup, `"id":1001,"is_bot":false`, `"id":7000000001,"is_bot":true`, 1) + `,"text":"hello"}}`,
			with(kitchen, func(r *channel.Received) { r.Bot, r.Own, r.Sender = true, true, "7000000001" })},
		"in the name of the group": {`{"update_id":1,"message":{"message_id":43,"from":{"id":1087968824,"is_bot":true,"first_name":"Group","username":"GroupAnonymousBot"},"author_signature":"boss","sender_chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"chat":{"id":-1001234567890,"title":"The kitchen","type":"supergroup"},"date":1764500000,"text":"hello"}}`,
			with(kitchen, func(r *channel.Received) { r.Sender, r.SenderName = "-1001234567890", "The kitchen boss" })},
		"a channel": {`{"update_id":1,"channel_post":{"message_id":5,"sender_chat":{"id":-1009,"title":"News","type":"channel"},"chat":{"id":-1009,"title":"News","type":"channel"},"date":1764500000,"text":"hello"}}`,
			channel.Received{ID: "5", Chat: "-1009", Title: "News", Group: true, Sender: "-1009", SenderName: "News", Text: "hello", At: at}},
		"a press": {`{"update_id":1,"callback_query":{"id":"4382","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"message":{` + inTopic + `,"text":"sure?"},"chat_instance":"-3","data":"a:apr_1:y"}}`,
			channel.Received{ID: "press:4382", Chat: "-1001234567890", Thread: "7", Title: "The kitchen", Group: true, Sender: "1001", SenderName: "Ann", Text: "Approve",
				At: time.Unix(1764500100, 0).UTC(), Press: &channel.Press{Approval: "apr_1", Yes: true, Ref: "43"}}},
		"a press at a message that is too old to see": {`{"update_id":1,"callback_query":{"id":"4382","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"message":{"chat":{"id":1001,"first_name":"Ann","type":"private"},"message_id":9,"date":0},"chat_instance":"-3","data":"a:apr_1:n"}}`,
			channel.Received{ID: "press:4382", Chat: "1001", Title: "Ann", Sender: "1001", SenderName: "Ann", Text: "Deny", At: time.Unix(1764500100, 0).UTC(),
				Press: &channel.Press{Approval: "apr_1", Ref: "9"}}},
	} {
		got, ok := receive(t, c.payload)
		if !ok {
			t.Errorf("%s: nothing", name)
			continue
		}
		if a, b := fmt.Sprintf("%+v", flat(got)), fmt.Sprintf("%+v", flat(c.want)); a != b {
			t.Errorf("%s:\n got %s\nwant %s", name, a, b)
		}
	}
}

// flat is a message with what it points to.
func flat(r channel.Received) (out struct {
	channel.Received
	P channel.Press
}) {
	if r.Press != nil {
		out.P = *r.Press
	}
	r.Press = nil
	out.Received = r
	return out
}

func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"a changed message":                          `{"update_id":1,"edited_message":{` + inPrivate + `,"edit_date":1764500050,"text":"better"}}`,
		"a changed post":                             `{"update_id":1,"edited_channel_post":{` + inPrivate + `,"text":"better"}}`,
		"somebody joins":                             `{"update_id":1,"message":{` + inGroup + `,"new_chat_members":[{"id":7000000001,"is_bot":true,"first_name":"Ombud","username":"mybot"}]}}`,
		"a new title":                                `{"update_id":1,"message":{` + inGroup + `,"new_chat_title":"The garden"}}`,
		"a group that moves":                         `{"update_id":1,"message":{` + inBasicGroup + `,"migrate_to_chat_id":-1001234567890}}`,
		"a membership":                               `{"update_id":1,"my_chat_member":{"chat":{"id":-4567,"title":"g","type":"group"},"from":{"id":1001,"is_bot":false,"first_name":"Ann"},"date":1764500000,"old_chat_member":{"user":{"id":7000000001,"is_bot":true,"first_name":"Ombud"},"status":"left"},"new_chat_member":{"user":{"id":7000000001,"is_bot":true,"first_name":"Ombud"},"status":"member"}}}`,
		"a button of another time":                   `{"update_id":1,"callback_query":{"id":"4382","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"message":{` + inPrivate + `},"chat_instance":"-3","data":"next-page"}}`,
		"a button with half a data":                  `{"update_id":1,"callback_query":{"id":"4382","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"message":{` + inPrivate + `},"chat_instance":"-3","data":"a::y"}}`,
		"a button of a message sent through another": `{"update_id":1,"callback_query":{"id":"4382","from":{"id":1001,"is_bot":false,"first_name":"Ann"},"inline_message_id":"x","chat_instance":"-3","data":"a:b:y"}}`,
		"a kind that is not known":                   `{"update_id":1,"telepathy":{"from":1001}}`,
	} {
		if got, ok := receive(t, payload); ok {
			t.Errorf("%s is received as %+v", name, got)
		}
	}
}

func TestWhatIsAttachedIsALine(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`"photo":[{"file_id":"A","file_unique_id":"B","width":9,"height":9}]`:                                   "[photo]",
		`"photo":[{"file_id":"A","file_unique_id":"B","width":9,"height":9}],"caption":"look"`:                  "look\n[photo]",
		`"voice":{"file_id":"A","file_unique_id":"B","duration":12,"mime_type":"audio/ogg"}`:                    "[voice 12 s]",
		`"document":{"file_id":"A","file_unique_id":"B","file_name":"name.pdf","mime_type":"application/pdf"}`:  "[file: name.pdf]",
		`"document":{"file_id":"A","file_unique_id":"B"}`:                                                       "[file]",
		`"document":{"file_id":"A","file_name":"a]\n[photo]\u202e\u0000b.pdf"}`:                                 "[file: a) (photo) b.pdf]",
		`"video":{"file_id":"A","duration":3,"width":1,"height":1}`:                                             "[video 3 s]",
		`"video_note":{"file_id":"A","duration":3,"length":1}`:                                                  "[video message 3 s]",
		`"animation":{"file_id":"A","duration":1},"document":{"file_id":"A","file_name":"x.mp4"}`:               "[animation]",
		`"audio":{"file_id":"A","duration":100,"performer":"X","title":"Song"}`:                                 "[audio: Song]",
		`"sticker":{"file_id":"A","emoji":"😀","width":1,"height":1}`:                                            "[sticker 😀]",
		`"location":{"latitude":52.52,"longitude":13.405}`:                                                      "[location 52.52000, 13.40500]",
		`"venue":{"location":{"latitude":1,"longitude":2},"title":"Café","address":"x"}`:                        "[place: Café]",
		`"contact":{"phone_number":"+491234","first_name":"Bob"}`:                                               "[contact: Bob +491234]",
		`"poll":{"id":"1","question":"Tea?","options":[]}`:                                                      "[poll: Tea?]",
		`"dice":{"emoji":"🎲","value":4}`:                                                                        "[dice 4]",
		`"story":{"id":1}`:                                                                                      "[story]",
		`"text":"hi","forward_origin":{"type":"hidden_user","sender_user_name":"Bob ]\n[operator","date":1}`:    "[forwarded from Bob ) (operator]\nhi",
		`"text":"hi","forward_origin":{"type":"channel","chat":{"id":-1,"title":"News"},"date":1}`:              "[forwarded from News]\nhi",
		`"text":"hi","forward_origin":{"type":"of_tomorrow","date":1}`:                                          "[forwarded]\nhi",
		`"text":"/pair 1234-5678","forward_origin":{"type":"user","sender_user":{"first_name":"Bob"},"date":1}`: "[forwarded from Bob]\n/pair 1234-5678",
		`"text":"a\u0000b"`: "ab",
	} {
		if got, ok := receive(t, `{"update_id":1,"message":{`+inPrivate+`,`+fields+`}}`); !ok || got.Text != want {
			t.Errorf("%s: %q, want %q", fields, got.Text, want)
		}
	}
}

func TestAPartOfATextIsFoundByItsUnits(t *testing.T) {
	t.Parallel()
	const text = "aé€😀z"
	for _, c := range []struct {
		offset, length int
		want           string
	}{
		{0, 1, "a"}, {0, 6, text}, {1, 2, "é€"}, {3, 2, "😀"}, {5, 1, "z"}, {3, 3, "😀z"},
		{4, 1, ""}, {3, 1, ""}, {5, 2, ""}, {6, 1, ""}, {-1, 2, ""}, {0, 0, ""}, {0, -1, ""}, {1 << 62, 1 << 62, ""},
	} {
		if got := span(text, c.offset, c.length); got != c.want {
			t.Errorf("%d+%d: %q, want %q", c.offset, c.length, got, c.want)
		}
	}
}

// Whatever comes is read or not, and nothing more; what is read can be kept.
func FuzzUpdate(f *testing.F) {
	for _, m := range []string{
		inPrivate + `,"text":"hello"`, inGroup + `,"text":"😀@mybot","entities":[{"offset":2,"length":6,"type":"mention"}]`, inTopic + `,"text":"x",` + topicRoot,
		inGroup + `,"text":"/a@mybot","entities":[{"offset":0,"length":8,"type":"bot_command"}],` + mine, inPrivate + `,"photo":[],"caption":"x"`,
		inPrivate + `,"document":{"file_name":"a"},"forward_origin":{"type":"user"}`,
	} {
		f.Add([]byte(`{"update_id":1,"message":{` + m + `}}`))
		f.Add([]byte(`{"update_id":1,"channel_post":{` + m + `}}`))
		f.Add([]byte(`{"update_id":1,"callback_query":{"id":"1","from":{"id":1},"message":{` + m + `},"data":"a:b:y"}}`))
	}
	f.Add([]byte(`{"update_id":2,"message":"x"}`))
	f.Add([]byte(`{"update_id":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := decode(data)
		if err != nil {
			return
		}
		m, ok := u.received(bot(), time.Unix(0, 0))
		if !ok {
			return
		}
		if m.ID == "" || m.Chat == "" || m.Sender == "" || m.Text == "" || strings.Contains(m.Text, "\x00") || len(m.Title) > maxName || len(m.SenderName) > maxName {
			t.Errorf("%s: %+v", data, m)
		}
		if m.Command && !marked(u, "bot_command") || m.MentionsMe && !marked(u, "mention", "text_mention") {
			t.Errorf("%s: %+v, and nothing is marked so", data, m)
		}
	})
}

func marked(u update, types ...string) bool {
	for _, m := range []*message{u.Message, u.Post} {
		if m == nil {
			continue
		}
		for _, e := range append(m.Entities, m.CaptionEntities...) {
			if slices.Contains(types, e.Type) {
				return true
			}
		}
	}
	return false
}
