package builtin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
)

// Wednesday, early afternoon.
var noon = time.Date(2026, 3, 4, 13, 0, 0, 0, time.FixedZone("CET", 3600))

// shared compiles the table once for all tests, as a daemon does.
var shared = New(func() time.Time { return noon })

func interpreter() *Interpreter { return shared }

var tools = func() []model.ToolSpec {
	var out []model.ToolSpec
	for _, name := range []string{
		"memory.remember", "memory.recall", "memory.forget", "remind.set", "remind.list", "remind.cancel",
		"fs.read", "fs.list", "fs.write", "fs.delete", "shell.exec", "web.fetch", "time.now", "calendar.add",
	} {
		out = append(out, model.ToolSpec{Name: name})
	}
	return out
}()

func ask(t testing.TB, text string) model.Response {
	t.Helper()
	out, err := interpreter().Generate(t.Context(), model.Request{Messages: []model.Message{model.Text(model.User, text)}, Tools: tools}, nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return out
}

const (
	remembered = `memory.remember {"text":"the boiler code is 4711"}`
	asked      = `memory.recall {"query":"boiler code"}`
	dropped    = `memory.forget {"query":"boiler code"}`
	lastOne    = `memory.forget {"last":true}`
	mum5       = `remind.set {"text":"call mum","in_seconds":300}`
	mum17      = `remind.set {"text":"call mum","at":"2026-03-04T17:00:00+01:00"}`
	mumNine    = `remind.set {"text":"call mum","at":"2026-03-05T09:00:00+01:00"}`
)

func TestParaphrases(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"remember that the boiler code is 4711":                  remembered,
		"Remember the boiler code is 4711":                       remembered,
		"remember: the boiler code is 4711":                      remembered,
		"please remember that the boiler code is 4711":           remembered,
		"Please note: the boiler code is 4711":                   remembered,
		"note that the boiler code is 4711":                      remembered,
		"note to self: the boiler code is 4711":                  remembered,
		"don't forget that the boiler code is 4711":              remembered,
		"Don’t forget the boiler code is 4711":                   remembered,
		"do not forget that the boiler code is 4711":             remembered,
		"never forget that the boiler code is 4711":              remembered,
		"Could you please remember that the boiler code is 4711": remembered,
		"can you remember that the boiler code is 4711?":         remembered,
		"keep in mind that the boiler code is 4711":              remembered,
		"make a note that the boiler code is 4711":               remembered,
		"take a note: the boiler code is 4711":                   remembered,
		"write down that the boiler code is 4711":                remembered,
		"memorise the boiler code is 4711":                       remembered,
		"FYI the boiler code is 4711":                            remembered,
		"for the record, the boiler code is 4711":                remembered,
		"ombud, remember that the boiler code is 4711, please":   remembered,
		"Remember that\nthe boiler code is 4711":                 remembered,
		"don't forget to buy milk":                               `memory.remember {"text":"to buy milk"}`,

		"what is the boiler code?":                asked,
		"What is the boiler code":                 asked,
		"what's my boiler code":                   asked,
		"what’s our boiler code?":                 asked,
		"whats the boiler code":                   asked,
		"do you know the boiler code":             asked,
		"Do you know what the boiler code is?":    asked,
		"do you remember the boiler code?":        asked,
		"can you remember the boiler code?":       asked,
		"do you still remember the boiler code?":  asked,
		"recall the boiler code":                  asked,
		"recall: boiler code":                     asked,
		"look up the boiler code":                 asked,
		"tell me the boiler code, please":         asked,
		"could you tell me the boiler code?":      asked,
		"can you please tell me the boiler code":  asked,
		"what do you know about the boiler code?": asked,
		"what did I say about the boiler code":    asked,
		"remind me what the boiler code is":       asked,
		"I forgot the boiler code":                asked,
		"I can't remember the boiler code":        asked,
		"I don't know what the boiler code is":    asked,
		"any idea what the boiler code is?":       asked,
		"search for the boiler code":              asked,
		"remember the boiler code?":               asked,
		"the boiler code?":                        asked,
		"where are my keys?":                      `memory.recall {"query":"keys"}`,
		"who is Anna Svensson?":                   `memory.recall {"query":"Anna Svensson"}`,
		"When is Anna's birthday":                 `memory.recall {"query":"Anna's birthday"}`,
		"how old is Anna?":                        `memory.recall {"query":"how old is Anna"}`,
		"does Anna like fish?":                    `memory.recall {"query":"does Anna like fish"}`,

		"forget the boiler code":                     dropped,
		"Forget about the boiler code.":              dropped,
		"please forget my boiler code":               dropped,
		"forget what the boiler code is":             dropped,
		"delete the boiler code from your memory":    dropped,
		"remove the boiler code from memory, please": dropped,
		"forget what I just said":                    lastOne,
		"Forget what I said.":                        lastOne,
		"forget that":                                lastOne,
		"forget it":                                  lastOne,
		"forget the last thing I said":               lastOne,
		"forget what I've just told you":             lastOne,
		"scratch that":                               lastOne,
		"undo":                                       lastOne,
		"forget everything":                          "",

		"remind me in 5 minutes to call mum":              mum5,
		"remind me to call mum in 5 minutes":              mum5,
		"Remind me to call mum in five minutes, please":   mum5,
		"in 5 minutes remind me to call mum":              mum5,
		"in 5 min, remind me to call mum":                 mum5,
		"can you remind me to call mum in 5m?":            mum5,
		"remind me in 300 seconds: call mum":              mum5,
		"set a reminder in 5 minutes to call mum":         mum5,
		"remind me to call mum 5 minutes from now":        mum5,
		"remind me to call mum in 1 hour and 30 minutes":  `remind.set {"text":"call mum","in_seconds":5400}`,
		"remind me in half an hour to call mum":           `remind.set {"text":"call mum","in_seconds":1800}`,
		"remind me in an hour to call mum":                `remind.set {"text":"call mum","in_seconds":3600}`,
		"remind me in 2 weeks about the rent":             `remind.set {"text":"the rent","in_seconds":1209600}`,
		"remind me at 17:00 to call mum":                  mum17,
		"remind me to call mum at 17:00":                  mum17,
		"remind me to call mum at 5 pm":                   mum17,
		"remind me at 5pm: call mum":                      mum17,
		"remind me to call mum at 5":                      mum17,
		"remind me today at 17:00 to call mum":            mum17,
		"set a reminder for 17:00 to call mum":            mum17,
		"don't forget to call mum at 17:00":               mum17,
		"remind me tomorrow at 9 to call mum":             mumNine,
		"remind me to call mum tomorrow at 9":             mumNine,
		"remind me to call mum tomorrow at 9am":           mumNine,
		"remind me to call mum at 9 tomorrow":             mumNine,
		"remind me tomorrow to call mum":                  mumNine,
		"remind me tomorrow morning to call mum":          mumNine,
		"tomorrow at 9 remind me to call mum":             mumNine,
		"remind me to call mum at 9:00":                   mumNine, // today is over
		"remind me on thursday at 09:00 to call mum":      mumNine,
		"remind me on 2026-03-05 to call mum":             mumNine,
		"remind me to call mum on wednesday at 10":        `remind.set {"text":"call mum","at":"2026-03-11T10:00:00+01:00"}`,
		"remind me the day after tomorrow at noon to eat": `remind.set {"text":"eat","at":"2026-03-06T12:00:00+01:00"}`,
		"remind me tonight to lock the door":              `remind.set {"text":"lock the door","at":"2026-03-04T19:00:00+01:00"}`,
		"remind me tonight at 9 to lock the door":         `remind.set {"text":"lock the door","at":"2026-03-04T21:00:00+01:00"}`,
		"remind me at midnight to sleep":                  `remind.set {"text":"sleep","at":"2026-03-05T00:00:00+01:00"}`,
		"remind me to buy 3 apples at 18:30":              `remind.set {"text":"buy 3 apples","at":"2026-03-04T18:30:00+01:00"}`,
		"set a timer for 10 minutes":                      `remind.set {"text":"set a timer for 10 minutes","in_seconds":600}`,
		"wake me at 7:15":                                 `remind.set {"text":"wake me at 7:15","at":"2026-03-05T07:15:00+01:00"}`,
		"remind me at 25:00 to call mum":                  "",
		"remind me at 13:77 to call mum":                  "",
		"remind me today at 9:00 to call mum":             "",
		"remind me on 2026-02-30 to call mum":             "",
		"remind me on 2020-01-01 to call mum":             "",
		"remind me in 900000 weeks to call mum":           "",
		"remind me in 0 minutes to call mum":              "",
		"remind me to call mum":                           "",
		"remind me at 17:00":                              "",
		"list reminders":                                  `remind.list {}`,
		"show me my reminders":                            `remind.list {}`,
		"what reminders do I have?":                       `remind.list {}`,
		"cancel reminder r_12":                            `remind.cancel {"id":"r_12"}`,
		"delete the reminder r_12.":                       `remind.cancel {"id":"r_12"}`,

		"read notes.txt":                        `fs.read {"path":"notes.txt"}`,
		"cat notes":                             `fs.read {"path":"notes"}`,
		"please read the file notes":            `fs.read {"path":"notes"}`,
		"show me the file \"my notes.txt\"":     `fs.read {"path":"my notes.txt"}`,
		"open docs/plan.md":                     `fs.read {"path":"docs/plan.md"}`,
		"what's in notes.txt?":                  `fs.read {"path":"notes.txt"}`,
		"list":                                  `fs.list {"path":"."}`,
		"ls":                                    `fs.list {"path":"."}`,
		"list files":                            `fs.list {"path":"."}`,
		"show me my files":                      `fs.list {"path":"."}`,
		"what files are there?":                 `fs.list {"path":"."}`,
		"list docs":                             `fs.list {"path":"docs"}`,
		"list the files in docs/old":            `fs.list {"path":"docs/old"}`,
		"write notes.txt: Hello there":          `fs.write {"path":"notes.txt","content":"Hello there"}`,
		"Write notes.txt:\nline <1>\n  line 2?": `fs.write {"path":"notes.txt","content":"line <1>\n  line 2?"}`,
		"write to file notes.txt: please":       `fs.write {"path":"notes.txt","content":"please"}`,
		"create a file a.txt with hello":        `fs.write {"path":"a.txt","content":"hello"}`,
		`write "hello you" to a.txt`:            `fs.write {"path":"a.txt","content":"hello you"}`,
		"save hello to a.txt":                   `fs.write {"path":"a.txt","content":"hello"}`,
		"save a.txt:":                           `fs.write {"path":"a.txt","content":""}`,
		"delete notes.txt":                      `fs.delete {"path":"notes.txt"}`,
		"rm the file notes":                     `fs.delete {"path":"notes"}`,
		"delete my account":                     "",

		"run ls -l":                           `shell.exec {"argv":["ls","-l"]}`,
		"run the command git log -1":          `shell.exec {"argv":["git","log","-1"]}`,
		`run grep "two words" 'a b' c\ d ""`:  `shell.exec {"argv":["grep","two words","a b","c d",""]}`,
		"$ uname -a":                          `shell.exec {"argv":["uname","-a"]}`,
		"execute `date -u`":                   `shell.exec {"argv":["date","-u"]}`,
		`run echo "open`:                      "",
		"fetch https://example.com/a?b=c":     `web.fetch {"url":"https://example.com/a?b=c"}`,
		"get me the page https://example.com": `web.fetch {"url":"https://example.com"}`,
		"open http://example.com.":            `web.fetch {"url":"http://example.com"}`,
		"fetch example.com":                   `web.fetch {"url":"https://example.com"}`,
		"https://example.com":                 `web.fetch {"url":"https://example.com"}`,

		"time":                              `time.now {}`,
		"what time is it?":                  `time.now {}`,
		"what's the time":                   `time.now {}`,
		"what is the date today?":           `time.now {}`,
		"what day is it today?":             `time.now {}`,
		"do you know what time it is?":      `time.now {}`,
		"time in Europe/Stockholm":          `time.now {"zone":"Europe/Stockholm"}`,
		"what time is it in Asia/Tokyo?":    `time.now {"zone":"Asia/Tokyo"}`,
		"call time.now":                     `time.now {}`,
		`call calendar.add {"a": [1, "<"]}`: `calendar.add {"a":[1,"<"]}`,
		`call calendar.add [1]`:             "",
		`call calendar.add {"a":`:           "",
		`call mail.send {}`:                 "",

		"help":                       "",
		"what can you do?":           "",
		"hello":                      "",
		"thanks!":                    "",
		"remember":                   "",
		"call mum":                   "",
		"make me a sandwich":         "",
		"the boiler code is 4711":    "",
		"I will never forgive you":   "",
		"":                           "",
		"   ":                        "",
		"\x00\xff":                   "",
		"sudo rm -rf /":              "",
		"transfer 500 euros to Anna": "",
	} {
		out := ask(t, text)
		got := ""
		for _, c := range out.Calls {
			got += c.Name + " " + string(c.Input)
		}
		if got != want {
			t.Errorf("%q:\n got %s %s\nwant %s", text, got, out.Text, want)
		}
		if (got == "") == (out.Text == "") || (got == "") != (out.Stop == model.StopEnd) {
			t.Errorf("%q: says %q, calls %q, stops with %s", text, out.Text, got, out.Stop)
		}
	}
}

func TestWhatIsNotUnderstoodIsSaid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"make me a sandwich", "the boiler code is 4711", "ändra allt", strings.Repeat("x", 1<<17)} {
		out := ask(t, text)
		if len(out.Calls) != 0 || !strings.Contains(out.Text, "did nothing") || !strings.Contains(out.Text, "builtin interpreter") {
			t.Errorf("%.40q: %+v", text, out)
		}
	}
}

func TestALongReminderIsToldToBeNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("in a ", 50_000), strings.Repeat("ä", 50_000)} {
		if out := ask(t, "remind me to "+text); len(out.Calls) != 0 || len(out.Text) > 500 || !strings.Contains(out.Text, "Nothing was set") {
			t.Errorf("%.300s, %v", out.Text, out.Calls)
		}
	}
}

func TestHelpPrintsTheWholeTable(t *testing.T) {
	t.Parallel()
	out := ask(t, "help").Text
	for _, v := range table() {
		if !strings.Contains(out, v.usage) || !strings.Contains(out, v.about) {
			t.Errorf("help does not tell %q", v.usage)
		}
	}
	for _, want := range []string{"not a language model", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "Ollama"} {
		if !strings.Contains(out, want) {
			t.Errorf("help does not say %q", want)
		}
	}
}

func TestAToolNobodyOffersIsNotCalled(t *testing.T) {
	t.Parallel()
	req := model.Request{Messages: []model.Message{model.Text(model.User, "run ls")}}
	out, err := interpreter().Generate(t.Context(), req, nil)
	if err != nil || len(out.Calls) != 0 || !strings.Contains(out.Text, "has no tools") {
		t.Errorf("%+v, %v", out, err)
	}
	req.Tools = tools[:2]
	if out, err = interpreter().Generate(t.Context(), req, nil); err != nil || len(out.Calls) != 0 || !strings.Contains(out.Text, "memory.recall") {
		t.Errorf("%+v, %v", out, err)
	}
}

func answer(t *testing.T, text string, result model.ToolResult) string {
	t.Helper()
	first := ask(t, text)
	if len(first.Calls) != 1 {
		t.Fatalf("%q: %+v", text, first)
	}
	result.CallID = first.Calls[0].ID
	var streamed strings.Builder
	out, err := interpreter().Generate(t.Context(), model.Request{
		Messages: []model.Message{model.Text(model.User, text), first.Message(), model.Results(result)}, Tools: tools,
	}, func(d model.Delta) { streamed.WriteString(d.Text) })
	if err != nil || len(out.Calls) != 0 || out.Stop != model.StopEnd || streamed.String() != out.Text {
		t.Fatalf("%q: %+v, streamed %q, %v", text, out, streamed.String(), err)
	}
	return out.Text
}

func TestResultsBecomeReplies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ask, result, want string
		failed            bool
	}{
		{"remember that the boiler code is 4711", "stored m_1", "I will remember: the boiler code is 4711", false},
		{"what is the boiler code?", "The boiler code is 4711", "The boiler code is 4711", false},
		{"what is the boiler code?", `[{"text":"The boiler code is 4711"},{"text":"b"}]`, "The boiler code is 4711\nb", false},
		{"what is the boiler code?", `{"facts":[{"id":1,"text":"The boiler code is 4711"}]}`, "The boiler code is 4711", false},
		{"what is the boiler code?", `{"facts":[]}`, "I know nothing about that.", false},
		{"what is the boiler code?", "[]", "I know nothing about that.", false},
		{"what is the boiler code?", " ", "I know nothing about that.", false},
		{"what is the boiler code?", "4711", "4711", false},
		{"forget the boiler code", "", "Forgotten.", false},
		{"forget the boiler code", "forgot 1 fact", "forgot 1 fact", false},
		{"remind me in 5 minutes to call mum", "r_1", "I will remind you in 5m0s: call mum", false},
		{"remind me tomorrow at 9 to call mum", "r_1", "I will remind you on Thursday 5 March 2026 at 09:00: call mum", false},
		{"read a.txt", "content\n", "content", false},
		{"read a.txt", "no such file", "That did not work: no such file", true},
		{"run ls", "", "That did not work: the tool did not say why", true},
		{"run ls", "", "Done.", false},
	} {
		if got := answer(t, c.ask, model.ToolResult{Text: c.result, IsError: c.failed}); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.ask, c.result, got, c.want)
		}
	}
	long := answer(t, "read a.txt", model.ToolResult{Text: strings.Repeat("ä", 1<<20)})
	if len(long) > maxReply+100 || !utf8.ValidString(long) || !strings.Contains(long, "more bytes are not shown") {
		t.Errorf("a long result is told in %d bytes, valid %v", len(long), utf8.ValidString(long))
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, messages := range [][]model.Message{nil, {model.Text(model.User, "a"), model.Text(model.Assistant, "b")}} {
		if _, err := interpreter().Generate(t.Context(), model.Request{Messages: messages}, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", messages, err)
		}
	}
	stray := []model.Message{model.Results(model.ToolResult{CallID: "x", Text: "hi"})}
	if out, err := interpreter().Generate(t.Context(), model.Request{Messages: stray}, nil); err != nil || out.Text != "hi" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestClocksAcrossASummerTimeChange(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Stockholm")
	if err != nil {
		t.Skip("no zone data on this machine")
	}
	b := New(func() time.Time { return time.Date(2026, 3, 28, 20, 0, 0, 0, zone) })
	a := b.understand("remind me tomorrow at 9 to call mum")
	if want := `{"text":"call mum","at":"2026-03-29T09:00:00+02:00"}`; string(a.input) != want {
		t.Errorf("%s, want %s", a.input, want)
	}
}

func FuzzUnderstand(f *testing.F) {
	for _, s := range []string{
		"remember that \xff", "remind me in 99999 weeks and 99999 weeks to x", "remind me at 0:0 am to", `call a.b {"x":"\ud800"}`, "run \\", "write a/b: \x00",
		"forget the", "what is the?", "please please please", "remind me on 0000-00-00 to x", "set a timer for", "in a s remind me x", "İ remind me at 5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := ask(t, s)
		if (len(out.Calls) == 0) == (out.Text == "") {
			t.Fatalf("%q: says %q and calls %v", s, out.Text, out.Calls)
		}
		for _, c := range out.Calls {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(c.Input, &object); err != nil || c.BadInput != "" {
				t.Fatalf("%q: input %s of %s: %v", s, c.Input, c.Name, err)
			}
			if !slices.ContainsFunc(tools, func(s model.ToolSpec) bool { return s.Name == c.Name }) {
				t.Fatalf("%q: calls %s", s, c.Name)
			}
			if c.Name == "remind.set" {
				var in struct {
					Text, At  string
					InSeconds int64 `json:"in_seconds"`
				}
				_ = json.Unmarshal(c.Input, &in)
				at, err := time.Parse(time.RFC3339, in.At)
				if in.InSeconds <= 0 && (err != nil || !at.After(noon)) || strings.TrimSpace(in.Text) == "" {
					t.Fatalf("%q: reminder %s", s, c.Input)
				}
			}
		}
	})
}

func FuzzSplitArgs(f *testing.F) {
	f.Add(`a "b c" 'd' \e ""`)
	f.Fuzz(func(t *testing.T, s string) {
		args, ok := splitArgs(s)
		if !ok {
			return
		}
		quoted := make([]string, len(args)) // what we split can be said again
		for i, a := range args {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		again, ok := splitArgs(strings.Join(quoted, " "))
		if !ok || !slices.Equal(args, again) && len(args) > 0 {
			t.Fatalf("%q: %q became %q", s, args, again)
		}
	})
}
