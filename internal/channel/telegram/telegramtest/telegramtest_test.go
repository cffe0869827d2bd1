package telegramtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what a call was answered.
type answer struct {
	Status      int
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  parameters      `json:"parameters"`
}

func (s *Server) ask(ctx context.Context, token, method, body string) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/bot"+token+"/"+method, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // so that no connection outlives its test
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.Status = resp.StatusCode
	return a, json.Unmarshal(data, &a)
}

func (s *Server) mustAsk(t *testing.T, method, body string) answer {
	t.Helper()
	a, err := s.ask(t.Context(), s.Token, method, body)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	if a.OK != (a.Status == 200) || !a.OK && a.Code != a.Status {
		t.Errorf("%s: status %d and %+v", method, a.Status, a)
	}
	return a
}

func TestATokenIsLookedAt(t *testing.T) {
	t.Parallel()
	s := New(t)
	for token, want := range map[string]int{s.Token: 200, "7000000001:AAwrong": 401, "notoken": 404} {
		a, err := s.ask(t.Context(), token, "getMe", "")
		if err != nil || a.Status != want {
			t.Errorf("%s: %+v %v, want %d", token, a, err, want)
		}
	}
	s.Revoke()
	if a, err := s.ask(t.Context(), s.Token, "sendMessage", `{"chat_id":1,"text":"x"}`); err != nil || a.Status != 401 || a.Description != "Unauthorized" {
		t.Errorf("a replaced token: %+v %v", a, err)
	}
}

func TestEveryCallIsCheckedAsTelegramDoes(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann := s.Say(Words{Text: "hello"})
	group := TheGroup()
	s.Say(Words{Chat: group, Text: "in a topic", Thread: 7})
	s.Meet(Chat{ID: 5, Type: Private})
	s.Block(5)
	s.Upgrade(Chat{ID: -6, Type: Group, Title: "g"}, Chat{ID: -1006, Type: Supergroup, Title: "g"})
	emoji := strings.Repeat("😀", 2048)
	for name, c := range map[string]struct{ method, body, want string }{
		"sent":                      {"sendMessage", `{"chat_id":1001,"text":"hi"}`, ""},
		"an id as a string":         {"sendMessage", `{"chat_id":"1001","text":"hi"}`, ""},
		"no chat":                   {"sendMessage", `{"text":"hi"}`, "Bad Request: chat_id is empty"},
		"an unknown chat":           {"sendMessage", `{"chat_id":99,"text":"hi"}`, "Bad Request: chat not found"},
		"empty":                     {"sendMessage", `{"chat_id":1001,"text":" \n"}`, "Bad Request: message text is empty"},
		"4096":                      {"sendMessage", `{"chat_id":1001,"text":"` + strings.Repeat("x", 4096) + `"}`, ""},
		"4097":                      {"sendMessage", `{"chat_id":1001,"text":"` + strings.Repeat("x", 4097) + `"}`, "Bad Request: message is too long"},
		"2048 emoji":                {"sendMessage", `{"chat_id":1001,"text":"` + emoji + `"}`, ""},
		"2048 emoji and a letter":   {"sendMessage", `{"chat_id":1001,"text":"` + emoji + `x"}`, "Bad Request: message is too long"},
		"bold":                      {"sendMessage", `{"chat_id":1001,"text":"😀ab","entities":[{"type":"bold","offset":2,"length":2}]}`, ""},
		"bold beyond the end":       {"sendMessage", `{"chat_id":1001,"text":"😀ab","entities":[{"type":"bold","offset":2,"length":3}]}`, "Bad Request: entity beginning at UTF-16 offset 2 ends after the end of the text at UTF-16 offset 5"},
		"bold from inside an emoji": {"sendMessage", `{"chat_id":1001,"text":"😀ab","entities":[{"type":"bold","offset":1,"length":2}]}`, "Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset 1"},
		"bold up to inside one":     {"sendMessage", `{"chat_id":1001,"text":"a😀b","entities":[{"type":"bold","offset":0,"length":2}]}`, "Bad Request: entity ends in a middle of a UTF-16 symbol at byte offset 2"},
		"a type that is none":       {"sendMessage", `{"chat_id":1001,"text":"ab","entities":[{"type":"loud","offset":0,"length":2}]}`, "Bad Request: can't parse MessageEntity: Unsupported type specified"},
		"entities that are none":    {"sendMessage", `{"chat_id":1001,"text":"ab","entities":"x"}`, "Bad Request: can't parse entities JSON object"},
		"HTML":                      {"sendMessage", `{"chat_id":1001,"text":"<b>x</b>","parse_mode":"HTML"}`, ""},
		"HTML that does not end":    {"sendMessage", `{"chat_id":1001,"text":"<b>x","parse_mode":"HTML"}`, `Bad Request: can't parse entities: Can't find end tag corresponding to start tag "b"`},
		"a reserved character":      {"sendMessage", `{"chat_id":1001,"text":"1.","parse_mode":"MarkdownV2"}`, `Bad Request: can't parse entities: Character '.' is reserved and must be escaped with the preceding '\'`},
		"one escaped":               {"sendMessage", `{"chat_id":1001,"text":"1\\.","parse_mode":"MarkdownV2"}`, ""},
		"half bold":                 {"sendMessage", `{"chat_id":1001,"text":"*x","parse_mode":"Markdown"}`, "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 0"},
		"a mode that is none":       {"sendMessage", `{"chat_id":1001,"text":"x","parse_mode":"TeX"}`, "Bad Request: unsupported parse_mode"},
		"an answer":                 {"sendMessage", `{"chat_id":1001,"text":"x","reply_parameters":{"message_id":1}}`, ""},
		"an answer to nothing":      {"sendMessage", `{"chat_id":1001,"text":"x","reply_parameters":{"message_id":77}}`, "Bad Request: message to be replied not found"},
		"one that may be none":      {"sendMessage", `{"chat_id":1001,"text":"x","reply_parameters":{"message_id":77,"allow_sending_without_reply":true}}`, ""},
		"a topic":                   {"sendMessage", `{"chat_id":-1001234567890,"text":"x","message_thread_id":7}`, ""},
		"an unknown topic":          {"sendMessage", `{"chat_id":-1001234567890,"text":"x","message_thread_id":8}`, "Bad Request: message thread not found"},
		"64 bytes of data":          {"sendMessage", `{"chat_id":1001,"text":"x","reply_markup":{"inline_keyboard":[[{"text":"b","callback_data":"` + strings.Repeat("d", 64) + `"}]]}}`, ""},
		"65 bytes of data":          {"sendMessage", `{"chat_id":1001,"text":"x","reply_markup":{"inline_keyboard":[[{"text":"b","callback_data":"` + strings.Repeat("d", 65) + `"}]]}}`, "Bad Request: BUTTON_DATA_INVALID"},
		"a button that does nothing": {"sendMessage", `{"chat_id":1001,"text":"x","reply_markup":{"inline_keyboard":[[{"text":"b"}]]}}`,
			"Bad Request: can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"},
		"blocked":               {"sendMessage", `{"chat_id":5,"text":"x"}`, "Forbidden: bot was blocked by the user"},
		"a group of before":     {"sendMessage", `{"chat_id":-6,"text":"x"}`, "Bad Request: group chat was upgraded to a supergroup chat"},
		"an edit of nothing":    {"editMessageText", `{"chat_id":1001,"message_id":7777,"text":"x"}`, "Bad Request: message to edit not found"},
		"an edit of Ann's":      {"editMessageText", `{"chat_id":1001,"message_id":1,"text":"x"}`, "Bad Request: message can't be edited"},
		"typing":                {"sendChatAction", `{"chat_id":1001,"action":"typing"}`, ""},
		"no action":             {"sendChatAction", `{"chat_id":1001}`, "Bad Request: wrong parameter action in request"},
		"an answer to no press": {"answerCallbackQuery", `{"callback_query_id":"1"}`, "Bad Request: query is too old and response timeout expired or query ID is invalid"},
		"no such method":        {"sendTelepathy", `{}`, "Not Found: method not found"},
		"another spelling":      {"GETME", `{}`, ""},
	} {
		if a := s.mustAsk(t, c.method, c.body); a.Description != c.want {
			t.Errorf("%s: %q, want %q", name, a.Description, c.want)
		}
	}
	if a := s.mustAsk(t, "sendMessage", `{"chat_id":-6,"text":"x"}`); a.Parameters.MigrateTo != -1006 {
		t.Errorf("where the group went: %+v", a.Parameters)
	}
	if ann.ID != 1 || ann.Chat.ID != 1001 {
		t.Errorf("said was %+v", ann)
	}
}

func TestOnlyTheFirst100EntitiesAreHonoured(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Meet(Direct(Ann()))
	entities := make([]Entity, 101)
	for i := range entities {
		entities[i] = Entity{Type: "bold", Offset: i, Length: 1}
	}
	s.mustAsk(t, "sendMessage", `{"chat_id":1001,"text":"`+strings.Repeat("x", 101)+`","entities":`+string(mustJSON(entities))+`}`)
	if got := s.Sent(); len(got) != 1 || len(got[0].Entities) != 100 {
		t.Errorf("sent are %+v", got)
	}
}

func TestAMessageIsChangedAndItsButtonsGoAway(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Meet(Direct(Ann()))
	s.mustAsk(t, "sendMessage", `{"chat_id":1001,"text":"sure?","link_preview_options":{"is_disabled":true},"reply_markup":{"inline_keyboard":[[{"text":"Yes","callback_data":"y"}]]}}`)
	same := `{"chat_id":1001,"message_id":1,"text":"sure?","reply_markup":{"inline_keyboard":[[{"text":"Yes","callback_data":"y"}]]}}`
	if a := s.mustAsk(t, "editMessageText", same); !strings.HasPrefix(a.Description, "Bad Request: message is not modified") {
		t.Errorf("the same again: %+v", a)
	}
	press := s.Press(Ann(), 1001, 1, "Yes")
	if press == "" || s.Press(Ann(), 1001, 1, "No") != "" || s.Answered(press) {
		t.Error("the buttons are others")
	}
	if a := s.mustAsk(t, "answerCallbackQuery", `{"callback_query_id":"`+press+`"}`); !a.OK || !s.Answered(press) {
		t.Errorf("answered: %+v", a)
	}
	s.mustAsk(t, "editMessageText", `{"chat_id":1001,"message_id":1,"text":"done"}`)
	got := s.Sent()
	if len(got) != 1 || got[0].Text != "done" || got[0].Edits != 1 || got[0].Buttons != nil || s.Texts()[0] != "done" {
		t.Errorf("after the edit: %+v", got)
	}
	if s.Press(Ann(), 1001, 1, "Yes") != "" {
		t.Error("a button that is gone can be pressed")
	}
}

// ids are those of the updates of an answer.
func ids(t *testing.T, a answer) (out []int64) {
	t.Helper()
	var list []Update
	if err := json.Unmarshal(a.Result, &list); err != nil {
		t.Fatalf("%v in %s", err, a.Result)
	}
	for _, u := range list {
		out = append(out, u.ID)
	}
	return out
}

func TestAnOffsetConfirmsWhatIsBeforeIt(t *testing.T) {
	t.Parallel()
	s := New(t)
	for range 4 {
		s.Say(Words{Text: "x"})
	}
	expect := func(body string, want ...int64) {
		t.Helper()
		got := ids(t, s.mustAsk(t, "getUpdates", body))
		if len(got) != len(want) || len(want) > 0 && (got[0] != want[0] || got[len(got)-1] != want[len(want)-1]) {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
	expect(`{}`, 1000, 1001, 1002, 1003)
	expect(`{}`, 1000, 1001, 1002, 1003) // nothing is confirmed yet
	expect(`{"limit":2}`, 1000, 1001)
	expect(`{"offset":1001}`, 1001, 1002, 1003)
	expect(`{}`, 1001, 1002, 1003)
	expect(`{"offset":-1}`, 1003)
	expect(`{}`, 1003) // the rest was forgotten
	expect(`{"offset":1004}`)
	if s.Waiting() != 0 {
		t.Errorf("%d wait", s.Waiting())
	}
	s.Renumber(77) // after a week of silence
	s.Say(Words{Text: "after the holidays"})
	expect(`{"offset":1004}`, 77) // an offset far ahead is not believed
	s.Advance(25 * time.Hour)
	expect(`{"offset":1004}`) // and nothing is kept for more than a day
}

func TestAllowedUpdatesAreRemembered(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.mustAsk(t, "getUpdates", `{"allowed_updates":["message"]}`)
	s.Say(Words{Chat: Chat{ID: -1002, Type: Channel, Title: "c"}, Text: "a post"})
	s.Say(Words{Text: "a message"})
	s.Say(Words{Text: "better", Edited: true, Message: 1})
	if a := s.mustAsk(t, "getUpdates", `{}`); len(ids(t, a)) != 1 {
		t.Errorf("got %s", a.Result)
	}
}

func TestTwoPollsAtOnceAndAWebhookAreConflicts(t *testing.T) {
	t.Parallel()
	s := New(t)
	first := make(chan answer, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		a, err := s.ask(t.Context(), s.Token, "getUpdates", `{"timeout":30}`)
		if err != nil {
			t.Error(err)
		}
		first <- a
	})
	if !s.Until(t.Context(), s.Polling) {
		t.Fatal("nobody polls")
	}
	if a := s.mustAsk(t, "getUpdates", `{}`); !a.OK {
		t.Errorf("a short poll beside a long one: %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { _, _ = s.ask(ctx, s.Token, "getUpdates", `{"timeout":30}`) }) // it is cancelled
	if a := <-first; a.Status != 409 || !strings.HasPrefix(a.Description, "Conflict: terminated by other getUpdates request") {
		t.Errorf("the first poll: %+v", a)
	}
	cancel()
	wg.Wait()
	if !s.Until(t.Context(), func() bool { return !s.Polling() }) {
		t.Error("a poll outlives its connection")
	}
	s.mustAsk(t, "setWebhook", `{"url":"https://example.com/hook"}`)
	if a := s.mustAsk(t, "getUpdates", `{}`); a.Status != 409 || !strings.Contains(a.Description, "webhook is active") {
		t.Errorf("beside a webhook: %+v", a)
	}
	if a := s.mustAsk(t, "getWebhookInfo", ``); !strings.Contains(string(a.Result), "example.com") {
		t.Errorf("the webhook is %s", a.Result)
	}
	s.mustAsk(t, "deleteWebhook", ``)
	if a := s.mustAsk(t, "getUpdates", `{}`); !a.OK {
		t.Errorf("without the webhook: %+v", a)
	}
}

func TestAChatTakesSoManyMessagesInATime(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Meet(Direct(Ann()))
	s.Meet(TheGroup())
	s.Limit(Flood{Messages: 2, In: 30 * time.Second})
	send := func(chat string) answer { return s.mustAsk(t, "sendMessage", `{"chat_id":`+chat+`,"text":"x"}`) }
	for range 2 {
		if !send("1001").OK {
			t.Error("the first are refused")
		}
	}
	if a := send("1001"); a.Status != 429 || a.Parameters.RetryAfter < 29 || a.Parameters.RetryAfter > 30 {
		t.Errorf("one too many: %+v", a)
	}
	if !send("-1001234567890").OK {
		t.Error("another chat has to wait too")
	}
	s.Advance(31 * time.Second)
	if !send("1001").OK {
		t.Error("the flood does not end")
	}
	if n := len(s.Sent()); n != 4 {
		t.Errorf("%d were sent", n)
	}
}

func TestFaultsComeAsOftenAsTheyAreSet(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Meet(Direct(Ann()))
	const body = `{"chat_id":1001,"text":"x"}`
	send := func() (answer, error) { return s.ask(t.Context(), s.Token, "sendMessage", body) }
	for name, c := range map[string]struct {
		fault  Fault
		status int // 0: no answer
		done   int
	}{
		"401":           {Unauthorized(), 401, 0},
		"403":           {Forbidden(), 403, 0},
		"429":           {RetryAfter(33), 429, 0},
		"500":           {Status(500, "Internal Server Error: sorry"), 500, 0},
		"502, and done": {Fault{Done: true, reply: Status(502, "Bad Gateway").reply}, 502, 1},
		"garbage":       {Garbage(), 0, 1},
		"cut":           {Cut(), 0, 1},
		"lost before":   {LostBefore(), 0, 0},
		"lost after":    {LostAfter(), 0, 1},
	} {
		before := len(s.Sent())
		s.Fault("sendMessage", 1, c.fault)
		a, err := send()
		if (err != nil) != (c.status == 0) || err == nil && a.Status != c.status {
			t.Errorf("%s: %+v %v", name, a, err)
		}
		if got := len(s.Sent()) - before; got != c.done {
			t.Errorf("%s: %d were sent", name, got)
		}
		if a, err := send(); err != nil || !a.OK {
			t.Errorf("the call after %s: %+v %v", name, a, err)
		}
	}
	s.Fault("sendMessage", 1, Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := s.ask(ctx, s.Token, "sendMessage", body); err == nil {
		t.Errorf("a call that hangs is answered %+v", a)
	}
	s.Fault("sendMessage", 5, Hang())
	s.Mend()
	if a, err := send(); err != nil || !a.OK {
		t.Errorf("after all is mended: %+v %v", a, err)
	}
}

func TestWhatTelegramFindsInATextByItself(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"@ombud_test_bot hi":       `[{"type":"mention","offset":0,"length":15}]`,
		"😀 @ombud_test_bot2":       `[{"type":"mention","offset":3,"length":16}]`,
		"mail me@ombud_test_bot":   `null`,
		"/help@ombud_test_bot now": `[{"type":"bot_command","offset":0,"length":20}]`,
		"see /help":                `[{"type":"bot_command","offset":4,"length":5}]`,
		"and/or":                   `null`,
		"https://x.org/a@b_c":      `[{"type":"url","offset":0,"length":19}]`,
	} {
		if got := string(mustJSON(Entities(text))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// The shapes are the real ones as far as a library knows them that others wrote: it reads
// every field of every kind of update.
func TestTheShapesAreThoseOfTheBotAPI(t *testing.T) {
	t.Parallel()
	s := New(t)
	group, channel := TheGroup(), Chat{ID: -1002, Type: Channel, Title: "News"}
	said := s.Say(Words{Text: "hi @ombud_test_bot"})
	s.Say(Words{Chat: group, Thread: 3, Text: "in a topic"})
	s.Say(Words{Chat: channel, Text: "a post"})
	s.Say(Words{Text: "better", Edited: true, Message: said.ID})
	s.Say(Words{Text: "an answer", ReplyTo: &said})
	s.Say(Words{Text: "look", Photo: true})
	s.Say(Words{Voice: 12})
	s.Say(Words{Document: "a.pdf", Text: "/file it"})
	s.Say(Words{Text: "said by another", Forward: &Origin{Type: "user", Date: 1, User: &User{ID: 9, FirstName: "Bob"}}})
	s.Say(Words{Chat: group, As: &group, Text: "as the group"})
	s.Join(Ann(), group, "member")
	s.Upgrade(Chat{ID: -6, Type: Group, Title: "g"}, Chat{ID: -1006, Type: Supergroup, Title: "g"})
	s.mustAsk(t, "sendMessage", `{"chat_id":1001,"text":"sure?","reply_markup":{"inline_keyboard":[[{"text":"Yes","callback_data":"y"}]]}}`)
	s.Press(Ann(), 1001, s.Sent()[0].MessageID, "Yes")
	var raw []json.RawMessage
	if err := json.Unmarshal(s.mustAsk(t, "getUpdates", `{}`).Result, &raw); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, one := range raw {
		d := json.NewDecoder(bytes.NewReader(one))
		d.DisallowUnknownFields()
		var u models.Update
		if err := d.Decode(&u); err != nil {
			t.Errorf("%v in %s", err, one)
		}
		switch {
		case u.Message != nil:
			kinds["message"] = true
		case u.EditedMessage != nil:
			kinds["edited_message"] = true
		case u.ChannelPost != nil:
			kinds["channel_post"] = true
		case u.CallbackQuery != nil:
			kinds["callback_query"] = u.CallbackQuery.Message.Message.ID > 0
		case u.MyChatMember != nil:
			kinds["my_chat_member"] = true
		default:
			t.Errorf("nothing is known in %s", one)
		}
	}
	if len(raw) != 14 || len(kinds) != 5 {
		t.Errorf("%d updates of kinds %v", len(raw), kinds)
	}
}

// A client that others wrote works with it, by multipart forms.
func TestALibraryWorksWithIt(t *testing.T) {
	t.Parallel()
	s := New(t)
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b, err := bot.New(s.Token, bot.WithServerURL(s.URL), bot.WithHTTPClient(5*time.Second, client), bot.WithDefaultHandler(
		func(ctx context.Context, b *bot.Bot, u *models.Update) {
			_, err := b.SendMessage(ctx, &bot.SendMessageParams{ChatID: u.Message.Chat.ID, Text: "echo: " + u.Message.Text,
				ReplyParameters: &models.ReplyParameters{MessageID: u.Message.ID}})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.Start(ctx) })
	s.Say(Words{Text: "hello"})
	if !s.Until(t.Context(), func() bool { return len(s.Sent()) == 1 }) {
		t.Error("no answer")
	}
	if got := s.Sent(); len(got) != 1 || got[0].Text != "echo: hello" || got[0].ReplyTo != 1 {
		t.Errorf("sent are %+v", got)
	}
	cancel()
	wg.Wait()
}

func TestItIsUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Meet(Direct(Ann()))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				s.Say(Words{Text: "x"})
				if a, err := s.ask(t.Context(), s.Token, "sendMessage", `{"chat_id":1001,"text":"x"}`); err != nil || !a.OK {
					t.Errorf("%+v %v", a, err)
				}
				if a, err := s.ask(t.Context(), s.Token, "getUpdates", `{"limit":1}`); err != nil || !a.OK {
					t.Errorf("%+v %v", a, err)
				}
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, m := range s.Sent() {
		seen[m.MessageID] = true
	}
	if len(seen) != 80 || s.Waiting() != 80 || s.Count("sendMessage") != 80 {
		t.Errorf("%d sent, %d wait, %d calls", len(seen), s.Waiting(), s.Count("sendMessage"))
	}
}
