package slack

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
)

var self = channel.Me{ID: "U0BOT", Name: "@ombud", IDs: []string{"U0BOT", "B0BOT"}, Names: []string{"ombud"}}

func someNames() names {
	return names{
		user: func(id string) string { return map[string]string{"U1": "ann", "U2": "bob <b>"}[id] },
		room: func(id string) string { return map[string]string{"C1": "general"}[id] },
	}
}

func decoded(t *testing.T, ev string) message {
	t.Helper()
	var m message
	if err := json.Unmarshal([]byte(ev), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Payloads as Slack sends them.
func TestWhatAMessageIsAndWhomItAddresses(t *testing.T) {
	t.Parallel()
	const ts = "1732700000.000100"
	at := time.UnixMicro(1732700000000100).UTC()
	for name, c := range map[string]struct {
		ev   string
		want channel.Received
		why  channel.Why // in a group that is set to mention
	}{
		"direct": {
			`{"client_msg_id":"6f1b","type":"message","text":"hello","user":"U1","ts":"1732700000.000100","blocks":[{"type":"rich_text","block_id":"Xq","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"hello"}]}]}],"team":"T1","channel":"D1","event_ts":"1732700000.000100","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "U1", SenderName: "ann", Text: "hello"}, channel.Direct,
		},
		"direct in a thread": {
			`{"type":"message","text":"more","user":"U1","ts":"1732700000.000100","thread_ts":"1732600000.000100","parent_user_id":"U0BOT","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Thread: "1732600000.000100", Sender: "U1", SenderName: "ann", Text: "more", QuotesMe: true}, channel.Direct,
		},
		"direct command": {
			`{"type":"message","text":" /status now","user":"U1","ts":"1732700000.000100","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "U1", SenderName: "ann", Text: "/status now", Command: true}, channel.Direct,
		},
		"channel, nobody named": {
			`{"type":"message","text":"hello all","user":"U1","ts":"1732700000.000100","team":"T1","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "hello all"}, channel.NotAsked,
		},
		"mention": {
			`{"type":"message","text":"<@U0BOT> what &amp; why?","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@ombud what & why?", MentionsMe: true}, channel.Mentioned,
		},
		"mention by app_mention": {
			`{"user":"U1","type":"app_mention","ts":"1732700000.000100","client_msg_id":"6f1b","text":"<@U0BOT> what?","team":"T1","channel":"C1","event_ts":"1732700000.000100"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@ombud what?", MentionsMe: true}, channel.Mentioned,
		},
		"mention with a name in it": {
			`{"type":"message","text":"well, <@U0BOT|ombud>?","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"group"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "well, @ombud?", MentionsMe: true}, channel.Mentioned,
		},
		"mention in blocks alone": {
			`{"type":"message","text":"","user":"U1","ts":"1732700000.000100","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_list","elements":[{"type":"rich_text_section","elements":[{"type":"user","user_id":"U0BOT"}]}]}]}],"channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U1", SenderName: "ann", MentionsMe: true}, channel.Mentioned,
		},
		"mention in a thread": {
			`{"type":"message","text":"<@U0BOT> and now?","user":"U1","ts":"1732700000.000100","thread_ts":"1732600000.000100","parent_user_id":"U2","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: "1732600000.000100", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@ombud and now?", MentionsMe: true}, channel.Mentioned,
		},
		"reply to a message of ombud's": {
			`{"type":"message","text":"yes","user":"U1","ts":"1732700000.000100","thread_ts":"1732600000.000100","parent_user_id":"U0BOT","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: "1732600000.000100", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "yes", QuotesMe: true}, channel.Replied,
		},
		"the root of a thread, in a history": {
			`{"type":"message","text":"root","user":"U1","ts":"1732700000.000100","thread_ts":"1732700000.000100","reply_count":2,"latest_reply":"1732700001.000100","channel":"C1"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "root"}, channel.NotAsked,
		},
		"shown in the channel too": {
			`{"type":"message","subtype":"thread_broadcast","text":"news","user":"U1","ts":"1732700000.000100","thread_ts":"1732600000.000100","root":{"user":"U2"},"channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: "1732600000.000100", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "news"}, channel.NotAsked,
		},
		"command in a group": {
			`{"type":"message","text":"<@U0BOT>: /status","user":"U1","ts":"1732700000.000100","channel":"G1","channel_type":"mpim"}`,
			channel.Received{Chat: "G1", Thread: ts, Group: true, Sender: "U1", SenderName: "ann", Text: "/status", MentionsMe: true, Command: true}, channel.Commanded,
		},
		"command to nobody in a group": {
			`{"type":"message","text":"/status","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "/status"}, channel.NotAsked,
		},
		"command to another": {
			`{"type":"message","text":"<@U2> /status <@U0BOT>","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@bob <b> /status @ombud", MentionsMe: true}, channel.Mentioned,
		},
		"id of another that begins alike": {
			`{"type":"message","text":"<@U0BOTX> hi","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@U0BOTX hi"}, channel.NotAsked,
		},
		"mention in code, which Slack escapes": {
			`{"type":"message","text":"type ` + "`&lt;@U0BOT&gt;`" + `","user":"U1","ts":"1732700000.000100","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"<@U0BOT>","style":{"code":true}}]}]}],"channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "type `<@U0BOT>`"}, channel.NotAsked,
		},
		"name as text alone": {
			`{"type":"message","text":"@ombud U0BOT","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "U1", SenderName: "ann", Text: "@ombud U0BOT"}, channel.NotAsked,
		},
		"files": {
			`{"type":"message","subtype":"file_share","text":"look","files":[{"id":"F1","name":"holiday.jpg","mimetype":"image/jpeg","mode":"hosted"},{"id":"F2","name":"a]\n[file: b.txt","mimetype":"text/plain"},{"id":"F3","mode":"tombstone"},7],"upload":false,"user":"U1","ts":"1732700000.000100","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "U1", SenderName: "ann", Text: "look\n[image: holiday.jpg]\n[file: a] [file: b.txt]\n[file: without a name]\n[file: without a name]"}, channel.Direct,
		},
		"me message": {
			`{"type":"message","subtype":"me_message","text":"waves","user":"U1","ts":"1732700000.000100","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "U1", SenderName: "ann", Text: "waves"}, channel.Direct,
		},
		"another app": {
			`{"type":"message","subtype":"bot_message","text":"","username":"ci","bot_id":"B9","attachments":[{"fallback":"build &lt;7&gt; failed","id":1}],"ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Title: "general", Group: true, Sender: "B9", SenderName: "ci", Text: "build <7> failed", Bot: true}, channel.NotAsked,
		},
		"another app that names ombud": {
			`{"type":"message","text":"<@U0BOT> deploy","user":"U9","bot_id":"B9","app_id":"A9","bot_profile":{"id":"B9","name":"ci"},"ts":"1732700000.000100","channel":"C1","channel_type":"channel"}`,
			channel.Received{Chat: "C1", Thread: ts, Title: "general", Group: true, Sender: "U9", Text: "@ombud deploy", Bot: true, MentionsMe: true}, channel.NotAsked,
		},
		"Slack itself": {
			`{"type":"message","text":"welcome","user":"USLACKBOT","ts":"1732700000.000100","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "USLACKBOT", Text: "welcome", Bot: true}, channel.NotAsked,
		},
		"ombud": {
			`{"type":"message","text":"done","user":"U0BOT","bot_id":"B0BOT","app_id":"A1","ts":"1732700000.000100","channel":"D1","channel_type":"im"}`,
			channel.Received{Chat: "D1", Sender: "U0BOT", Text: "done", Own: true, Bot: true}, channel.NotAsked,
		},
		"a direct chat in a history": {
			`{"type":"message","text":"hi","user":"U1","ts":"1732700000.000100","channel":"D1"}`,
			channel.Received{Chat: "D1", Sender: "U1", SenderName: "ann", Text: "hi"}, channel.Direct,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := decoded(t, c.ev)
			if !m.written() {
				t.Fatal("it is not taken for a message")
			}
			c.want.ID, c.want.At = ts, at
			got := m.received(self, someNames())
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if why := channel.Addressed(got, channel.Mention); why != c.why {
				t.Errorf("addressed: %q, want %q", why, c.why)
			}
		})
	}
}

func TestWhatSlacksEntitiesMean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                    "",
		"a &lt;b&gt; &amp; c":                 "a <b> & c",
		"&amp;lt;":                            "&lt;",
		"&amp;amp; &quot;":                    "&amp; &quot;",
		"<@U1>":                               "@ann",
		"<@U2> <@U3> <@W4|dora>, <@U1|other>": "@bob <b> @U3 @dora, @other",
		"<#C1|general> <#C1> <#C2> <#C2|>":    "#general #general #C2 #C2",
		"<!here> <!channel> <!everyone> <!here|@here>": "@here @channel @everyone @here",
		"<!subteam^S1|@team> <!subteam^S1>":            "@team @group",
		"<!date^1392734382^{date}|February 18, 2014>":  "February 18, 2014",
		"<https://a.example/x?a=1&amp;b=2>":            "https://a.example/x?a=1&b=2",
		"<https://a.example|the &lt;page&gt;>":         "the <page> (https://a.example)",
		"<http://a.example|a.example>":                 "http://a.example",
		"<https://a.example|https://a.example>":        "https://a.example",
		"<mailto:a@b.example|a@b.example>":             "a@b.example",
		"<tel:+123|+123>":                              "+123",
		"a < b":                                        "a < b",
		"<":                                            "<",
		"<>":                                           "<>",
		"<a\nb>":                                       "<a\nb>",
		"<<@U1>":                                       "<@ann",
		"<@U1":                                         "<@U1",
		"*bold* _it_ ~no~ `code` > q":                  "*bold* _it_ ~no~ `code` > q",
		"\xff<@U1>":                                    "\uFFFD@ann",
	} {
		if got := plain(in, someNames().user, someNames().room); got != want {
			t.Errorf("%q means %q, want %q", in, got, want)
		}
	}
}

func TestAPressOfAButton(t *testing.T) {
	t.Parallel()
	const body = `{"type":"block_actions","user":{"id":"U1","username":"ann","name":"ann","team_id":"T1"},"api_app_id":"A1","token":"x","container":{"type":"message","message_ts":"1732700000.000100","channel_id":"C1","is_ephemeral":false,"thread_ts":"1732600000.000100"},"trigger_id":"1.2.3","team":{"id":"T1","domain":"d"},"enterprise":null,"channel":{"id":"C1","name":"general"},"message":{"type":"message","user":"U0BOT","bot_id":"B0BOT","ts":"1732700000.000100","thread_ts":"1732600000.000100","text":"May I?"},"state":{"values":{}},"response_url":"https://hooks.slack.com/x","actions":[{"action_id":"ombud_deny","block_id":"b","text":{"type":"plain_text","text":"Deny","emoji":true},"value":"ap_1","style":"danger","type":"button","action_ts":"1732700009.000100"}]}`
	var p pressed
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	got, ok := p.received()
	want := channel.Received{ID: "press:1732700000.000100:1732700009.000100", Chat: "C1", Thread: "1732600000.000100", Title: "general", Group: true,
		Sender: "U1", SenderName: "ann", Text: "Deny", At: time.UnixMicro(1732700009000100).UTC(),
		Press: &channel.Press{Approval: "ap_1", Ref: "1732700000.000100"}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for from, to := range map[string]string{
		"block_actions": "view_submission", `"ombud_deny"`: `"other_button"`, `"ap_1"`: `""`, `"1732700009.000100"`: `"now"`, `"id":"U1"`: `"id":""`,
	} {
		var p pressed
		if err := json.Unmarshal([]byte(strings.Replace(body, from, to, 1)), &p); err != nil {
			t.Fatal(err)
		}
		if r, ok := p.received(); ok {
			t.Errorf("with %s for %s it is %+v", to, from, r)
		}
	}
}

func TestACursorIsBoundAndReadBack(t *testing.T) {
	t.Parallel()
	c := readCursor("")
	for i := range int64(maxChannels + 10) {
		ch := "C" + strings.ToUpper(stampID(i))
		c = c.after(ch, "1700000000.000001", stamp(1700000000000000+i))
	}
	if len(c.Channels) != maxChannels || len(c.Threads) != maxThreads {
		t.Errorf("%d channels, %d threads", len(c.Channels), len(c.Threads))
	}
	if c.Channels["C"+stampID(9)] != "" || c.Channels["C"+stampID(maxChannels+9)] == "" {
		t.Error("the newest had to make room")
	}
	if back := readCursor(c.String()); !reflect.DeepEqual(back, c) {
		t.Error("it is read back as another")
	}
	if got := c.after("C"+stampID(20), "", "1600000000.000001"); !reflect.DeepEqual(got, c) {
		t.Error("it went back")
	}
	for _, bad := range []string{"", "null", "{", "[]", "7", `{"c":{"C1":"x","":"1700000000.000001"},"t":{"C1/x":"1700000000.000001"}}`} {
		if c := readCursor(bad); len(c.Channels)+len(c.Threads) != 0 || c.Channels == nil || c.Threads == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
	d := readCursor("").after("C1", "1700000000.000001", "1700000005.000000").after("C1", "1700000000.000002", "1700000006.000000").after("C2", "1700000000.000003", "1700000007.000000")
	if got := d.threads("C1", "", 5); !reflect.DeepEqual(got, []string{"1700000000.000002", "1700000000.000001"}) {
		t.Errorf("threads are %q", got)
	}
	if got := d.threads("C1", "1700000005.000000", 5); len(got) != 1 {
		t.Errorf("threads are %q", got)
	}
}

func stampID(i int64) string { return strings.ReplaceAll(stamp(i), ".", "X") }

func TestATimestamp(t *testing.T) {
	t.Parallel()
	for ts, want := range map[string]int64{
		"1732700000.000100": 1732700000000100, "1.000000": 1000000, "0.000001": 1,
		"": 0, "1": 0, "1.1": 0, "-1.000000": 0, "1.0000001": 0, "1e5.000000": 0, "0.000000": 0, "9999999999999.000000": 0, "1732700000.00010a": 0, "+1.000000": 0,
	} {
		got, ok := micros(ts)
		if ok != (want != 0) || ok && (got != want || stamp(got) != ts) {
			t.Errorf("%q is %d, %v", ts, got, ok)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"type":"message","text":"<@U0BOT> hi","user":"U1","ts":"1732700000.000100","channel":"C1","channel_type":"channel","files":[{"name":"a"}],"blocks":[{"type":"rich_text","elements":[{"type":"user","user_id":"U0BOT"}]}]}`))
	f.Add([]byte(`{"type":"message","bot_id":"B1","attachments":[{"fallback":"a"}],"ts":"1.000000","channel":"D1","thread_ts":"1.000000"}`))
	f.Add([]byte(`{"type":"block_actions","user":{"id":"U1"},"channel":{"id":"C1"},"message":{"ts":"1.000000"},"actions":[{"action_id":"ombud_deny","value":"a","action_ts":"2.000000"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m message
		if json.Unmarshal(data, &m) == nil && m.written() {
			r := m.received(self, someNames())
			if r.ID == "" || r.Chat == "" || r.Sender == "" || r.At.IsZero() || !utf8.ValidString(r.Text) {
				t.Errorf("%s becomes %+v", data, r)
			}
			if r.Own && channel.Addressed(r, channel.Always) != channel.NotAsked {
				t.Errorf("%s addresses itself", data)
			}
		}
		var p pressed
		if json.Unmarshal(data, &p) == nil {
			if r, ok := p.received(); ok && (r.Press == nil || r.Press.Approval == "" || r.Sender == "" || r.Chat == "") {
				t.Errorf("%s becomes %+v", data, r)
			}
		}
		_ = readCursor(string(data)).String()
	})
}

func FuzzEntities(f *testing.F) {
	for _, s := range []string{"a &lt;b&gt;", "<@U1|x> <#C1> <!date^1^x|y>", "<https://a|b>", "<<>", "<@U0BOT>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := plain(s, someNames().user, someNames().room)
		if !utf8.ValidString(out) {
			t.Errorf("%q means %q", s, out)
		}
		if utf8.ValidString(s) && !strings.ContainsAny(s, "<&") && out != s {
			t.Errorf("%q means %q", s, out)
		}
		// What a person types is escaped, and means itself.
		if typed := escaped(s); utf8.ValidString(s) && plain(typed, someNames().user, someNames().room) != s {
			t.Errorf("typed as %q it means something else", s)
		}
		mentioned(escaped(s), func(id, _ string) { t.Errorf("%q names %s as text", s, id) })
		if got := withoutName(s, self.Is); len(got) > len(s) {
			t.Errorf("%q grows to %q", s, got)
		}
	})
}
