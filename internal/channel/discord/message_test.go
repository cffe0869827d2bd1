package discord

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
)

// names are a guild's, of which ombud has two roles.
type names struct{}

func (names) roleName(guild, id string) string {
	return map[string]string{"9/91": "ombud", "9/92": "admins", "9/93": "others"}[guild+"/"+id]
}

func (names) roomName(guild, id string) string {
	return map[string]string{"9/5": "general"}[guild+"/"+id]
}

func (names) isMine(guild, role string) bool { return guild == "9" && (role == "91" || role == "92") }

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// ombud is who ombud is in these tables.
var ombud = channel.Me{ID: "1", Name: "@ombud", IDs: []string{"1"}, Names: []string{"ombud", "Ombud"}}

const (
	ada   = `{"id":"2","username":"ada_l","avatar":"c5a0","discriminator":"0","public_flags":0,"flags":0,"global_name":"Ada","clan":null,"primary_guild":null}`
	botme = `{"id":"1","username":"ombud","avatar":null,"discriminator":"0","global_name":null,"bot":true}`
	base  = `"channel_id":"5","timestamp":"2024-03-01T10:00:00.000000+00:00","edited_timestamp":null,"tts":false,"mention_everyone":false,"attachments":[],"embeds":[],"components":[],"pinned":false,"flags":0`
	guild = `"guild_id":"9","member":{"roles":["93"],"nick":null,"joined_at":"2024-02-03T04:05:06.000000+00:00","mute":false,"deaf":false,"flags":0}`
)

func TestWhetherOmbudIsAddressed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload string
		want    channel.Why // in a group that is set to mention
	}{
		"direct": {`{"id":"100","type":0,` + base + `,"author":` + ada + `,"content":"hi","mentions":[],"mention_roles":[]}`, channel.Direct},
		"group":  {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada + `,"content":"hi","mentions":[],"mention_roles":[]}`, channel.NotAsked},
		"named by its id": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@1> hi","mentions":[` + botme + `],"mention_roles":[]}`, channel.Mentioned},
		"named by text alone": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"@ombud hi, ` + "`<@1>`" + `","mentions":[],"mention_roles":[]}`, channel.NotAsked},
		"another is named": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@2> hi","mentions":[` + ada + `],"mention_roles":[]}`, channel.NotAsked},
		"its managed role": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@&91> hi","mentions":[],"mention_roles":["91"]}`, channel.Mentioned},
		"a role it was given": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@&92> hi","mentions":[],"mention_roles":["92"]}`, channel.Mentioned},
		"a role it does not have": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@&93> hi","mentions":[],"mention_roles":["93"]}`, channel.NotAsked},
		"everyone": {`{"id":"100","type":0,` + strings.Replace(base, `"mention_everyone":false`, `"mention_everyone":true`, 1) + `,` + guild + `,"author":` + ada +
			`,"content":"@everyone hi","mentions":[],"mention_roles":[]}`, channel.NotAsked},
		"a reply to it without a ping": {`{"id":"100","type":19,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"why?","mentions":[],"mention_roles":[],"message_reference":{"type":0,"message_id":"99","channel_id":"5","guild_id":"9"},` +
			`"referenced_message":{"id":"99","type":0,` + base + `,"author":` + botme + `,"content":"because","mentions":[],"mention_roles":[]}}`, channel.Replied},
		"a reply to it with a ping": {`{"id":"100","type":19,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"why?","mentions":[` + botme + `],"mention_roles":[],"message_reference":{"message_id":"99"},` +
			`"referenced_message":{"id":"99","type":0,` + base + `,"author":` + botme + `,"content":"because"}}`, channel.Mentioned},
		"a reply to another": {`{"id":"100","type":19,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"why?","mentions":[` + ada + `],"referenced_message":{"id":"99","type":0,` + base + `,"author":` + ada + `,"content":"because"}}`, channel.NotAsked},
		"a reply to what was deleted": {`{"id":"100","type":19,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"why?","mentions":[],"referenced_message":null}`, channel.NotAsked},
		"a reply in a component nobody knows": {`{"id":"100","type":19,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"why?","mentions":[],"referenced_message":{"id":"99","components":[{"type":99,"x":1}],"author":` + botme + `}}`, channel.Replied},
		"a command after its mention": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada +
			`,"content":"<@1> /stop","mentions":[` + botme + `]}`, channel.Commanded},
		"a command to nobody": {`{"id":"100","type":0,` + base + `,` + guild + `,"author":` + ada + `,"content":"/stop","mentions":[]}`, channel.NotAsked},
		"another bot":         {`{"id":"100","type":0,` + base + `,"author":{"id":"3","username":"ci","bot":true},"content":"<@1>","mentions":[` + botme + `]}`, channel.NotAsked},
		"a webhook": {`{"id":"100","type":0,` + base + `,` + `"guild_id":"9","webhook_id":"77","author":{"id":"77","username":"hook"},"content":"<@1>","mentions":[` + botme + `]}`,
			channel.NotAsked},
		"itself": {`{"id":"100","type":0,` + base + `,"author":` + botme + `,"content":"hi","nonce":"x"}`, channel.NotAsked},
	} {
		m := decode[message](t, c.payload)
		r := received(m, ombud, room{ID: m.ChannelID, GuildID: m.GuildID, Name: "general"}, names{})
		if got := channel.Addressed(r, channel.Mention); got != c.want {
			t.Errorf("%s: %q, want %q: %+v", name, got, c.want, r)
		}
	}
}

func TestWhatAMessageSays(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`"content":" hello \n"`: "hello",
		`"content":"<@2> <@!2> <@1> <@4>","mentions":[` + ada + `]`:                                                                                 "@Ada @Ada @ombud <@4>",
		`"content":"<@&92> <@&94> <#5> <#6>"`:                                                                                                       "@admins <@&94> #general <#6>",
		`"content":"<:party_parrot:123> <a:wave:45> <t:1700000000:R>"`:                                                                              ":party_parrot: :wave: <t:1700000000:R>",
		`"content":"see","attachments":[{"id":"1","filename":"a b.pdf","size":3}]`:                                                                  "see\n[file: a b.pdf]",
		`"content":"","attachments":[{"filename":"h.jpg","content_type":"image/jpeg"},{"filename":"voice-message.ogg","content_type":"audio/ogg"}]`: "[image: h.jpg]\n[audio: voice-message.ogg]",
		`"content":"","attachments":[{"filename":"a]\n[file: b"}]`:                                                                                  "[file: a) (file: b]",
		`"content":"","sticker_items":[{"id":"1","name":"Wave","format_type":1}]`:                                                                   "[sticker: Wave]",
		`"content":"","poll":{"question":{"text":"Tea?"},"answers":[]}`:                                                                             "[poll: Tea?]",
		`"content":"","embeds":[{"type":"rich","title":"Build","description":"red"}]`:                                                               "[embed: Build: red]",
		`"content":"https://x.org","embeds":[{"title":"X"}]`:                                                                                        "https://x.org",
		`"content":"","message_reference":{"type":1},"message_snapshots":[{"message":{"content":"old","attachments":[{"filename":"f"}]}}]`:          "[forwarded message]\nold\n[file: f]",
	} {
		m := decode[message](t, `{"id":"100","author":`+ada+`,`+payload+`}`)
		if got := textOf(m, ombud, "9", names{}); got != want {
			t.Errorf("%s\n got %q\nwant %q", payload, got, want)
		}
	}
}

func TestCommandsAreKnownByTheirFirstWord(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]struct{ direct, group string }{ // "": it is none
		"/stop now":        {"/stop now", ""},
		" /stop":           {"/stop", ""},
		"<@1> /stop":       {"/stop", "/stop"},
		"<@!1>/stop <@1>":  {"/stop @ombud", "/stop @ombud"},
		"<@2> /stop":       {"", ""},
		"say /stop":        {"", ""},
		"<@1> say /stop":   {"", ""},
		"<@1 /stop":        {"", ""},
		"<@1> <@1> /stop":  {"", ""},
		"`<@1>` /stop":     {"", ""},
		"pair ABCD-EFGH":   {"", ""},
		"/pair ABCD-EFGH ": {"/pair ABCD-EFGH", ""},
	} {
		for guild, want := range map[string]string{"": want.direct, "9": want.group} {
			m := message{ID: "100", Author: user{ID: "2"}, body: body{Content: content}}
			r := received(m, ombud, room{ID: "5", GuildID: guild}, names{})
			if r.Command != (want != "") || r.Command && r.Text != want {
				t.Errorf("%q in guild %q: %v %q, want %q", content, guild, r.Command, r.Text, want)
			}
		}
	}
}

func TestWhoWroteAndWhere(t *testing.T) {
	t.Parallel()
	m := decode[message](t, `{"id":"175928847299117063","type":0,`+base+`,"guild_id":"9","member":{"nick":"The Countess","roles":[]},"author":`+ada+`,"content":"hi"}`)
	r := received(m, ombud, room{ID: "5", GuildID: "9", Name: "general"}, names{})
	want := channel.Received{ID: "175928847299117063", Chat: "5", Title: "#general", Group: true, Sender: "2", SenderName: "The Countess", Text: "hi",
		At: time.Date(2016, 4, 30, 11, 18, 25, 796e6, time.UTC)}
	if r != want {
		t.Errorf("%+v\nwant %+v", r, want)
	}
	m.Member, m.GuildID = nil, ""
	if r := received(m, ombud, room{ID: "5"}, names{}); r.SenderName != "Ada" || r.Title != "Ada" || r.Group {
		t.Errorf("direct: %+v", r)
	}
}

func TestPressesOfOmbudsButtons(t *testing.T) {
	t.Parallel()
	whole := `{"id":"200","application_id":"1","type":3,"token":"t","version":1,"channel_id":"5","message":{"id":"150"},"data":{"custom_id":"%","component_type":2}`
	direct := `,"user":` + ada + `}`
	group := `,"guild_id":"9","member":{"nick":"Countess","roles":[],"user":` + ada + `}}`
	long := strings.Repeat("a", 90)
	for name, c := range map[string]struct {
		id, rest string
		want     *channel.Press
		sender   string
	}{
		"yes":         {"ombud:appr_1:y", direct, &channel.Press{Approval: "appr_1", Yes: true, Ref: "150"}, "Ada"},
		"no":          {"ombud:appr_1:n", group, &channel.Press{Approval: "appr_1", Ref: "150"}, "Countess"},
		"colons":      {"ombud:a:b:y", direct, &channel.Press{Approval: "a:b", Yes: true, Ref: "150"}, "Ada"},
		"longest":     {customID(long, false), direct, &channel.Press{Approval: long, Ref: "150"}, "Ada"},
		"another's":   {"other:appr_1:y", direct, nil, ""},
		"no answer":   {"ombud:appr_1", direct, nil, ""},
		"no approval": {"ombud::y", direct, nil, ""},
		"nobody":      {"ombud:appr_1:y", `}`, nil, ""},
	} {
		p := decode[press](t, strings.Replace(whole, "%", c.id, 1)+c.rest)
		r, ok := pressed(p, room{ID: "5"})
		if ok != (c.want != nil) || ok && (*r.Press != *c.want || r.SenderName != c.sender || r.ID != "200" || r.Group != (p.GuildID != "")) {
			t.Errorf("%s: %v %+v %+v", name, ok, r, r.Press)
		}
	}
}

func TestTheCursorIsBoundedAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	c := parseCursor(`{"5":"100","x":"1","6":"y"}`).with("5", "99").with("7", "1000")
	if got := c.String(); got != `{"5":"100","7":"1000"}` {
		t.Errorf("%s", got)
	}
	if got := parseCursor("garbage").String(); got != "{}" {
		t.Errorf("garbage: %s", got)
	}
	for n := range maxChannels + 20 {
		c = c.with(fmt.Sprint(1000+n), fmt.Sprint(5000+n))
	}
	if len(c.last) != maxChannels || c.last["5"] != "" {
		t.Errorf("%d channels, the oldest is %q", len(c.last), c.last["5"])
	}
	if again := parseCursor(c.String()); again.String() != c.String() {
		t.Errorf("%d channels were read back", len(again.last))
	}
}
