package fakeapi

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestEachAPIAnswersAndTakesOnlyItsRunsKey(t *testing.T) {
	t.Parallel()
	for name, q := range ask {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(t)
			run, other := s.Run(Plain()), s.Run(Says("something else"))
			if status, body := post(t, run, q.path, run.Key, q.header, q.body); status != 200 || !strings.Contains(body, Text) {
				t.Errorf("%d %s", status, body)
			}
			for _, key := range []string{"", "wrong", other.Key} {
				if status, body := post(t, run, q.path, key, q.header, q.body); status != 401 || !strings.Contains(strings.ToLower(body), "auth") {
					t.Errorf("key %q: %d %s", key, status, body)
				}
			}
			if status, body := post(t, other, q.path, other.Key, q.header, q.body); status != 200 || !strings.Contains(body, "something else") {
				t.Errorf("the other run: %d %s", status, body)
			}
			if n := len(other.Requests()); n != 1 {
				t.Errorf("%d requests stand in the other run", n)
			}
			if got := run.Turns(); len(got) != 1 || got[0].API != name || got[0].Model != "m" || !slices.Equal(got[0].Prompts, []string{"hi"}) {
				t.Errorf("kept %+v", got)
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

func TestAKeyIsNeverKept(t *testing.T) {
	t.Parallel()
	for name, q := range ask {
		run := begin(t, Plain())
		body := strings.Replace(q.body, `"hi"`, `"my key is `+run.Key+`"`, 1)
		post(t, run, q.path, run.Key, q.header, body)
		got := run.Requests()[0]
		if strings.Contains(string(got.Body), run.Key) || strings.Contains(strings.Join(got.Header.Values(q.header), ""), run.Key) {
			t.Errorf("%s: kept %s %v", name, got.Body, got.Header)
		}
		if !got.Leaked {
			t.Errorf("%s: it does not say that the key was in the body", name)
		}
	}
}

func TestAWrongShapeIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ api, what, body string }{
		{"anthropic", "no JSON", `{`},
		{"anthropic", "no model", `{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`},
		{"anthropic", "no max_tokens", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"anthropic", "no messages", `{"model":"m","max_tokens":9,"messages":[]}`},
		{"anthropic", "another role", `{"model":"m","max_tokens":9,"messages":[{"role":"tool","content":"hi"}]}`},
		{"anthropic", "empty text", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":" "}]}]}`},
		{"anthropic", "no blocks", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[]}]}`},
		{"anthropic", "prefill", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"no"}]}`},
		{"anthropic", "a result without its call", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"a"}]}]}`},
		{"anthropic", "a call without its result", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"n","input":{}}]},{"role":"user","content":"b"}]}`},
		{"anthropic", "input that is no dictionary", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"n","input":"a"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`},
		{"anthropic", "two tools of one name", `{"model":"m","max_tokens":9,"tools":[{"name":"a"},{"name":"a"}],"messages":[{"role":"user","content":"hi"}]}`},
		{"anthropic", "a name with a space", `{"model":"m","max_tokens":9,"tools":[{"name":"a b"}],"messages":[{"role":"user","content":"hi"}]}`},
		{"responses", "no input", `{"model":"m"}`},
		{"responses", "another role", `{"model":"m","input":[{"type":"message","role":"tool","content":"hi"}]}`},
		{"responses", "an item without a type", `{"model":"m","input":[{}]}`},
		{"responses", "an answer that was not kept", `{"model":"m","input":"hi","previous_response_id":"resp_1"}`},
		{"responses", "a result without its call", `{"model":"m","input":[{"type":"function_call_output","call_id":"x","output":"a"}]}`},
		{"responses", "a call without its result", `{"model":"m","input":[{"type":"function_call","call_id":"x","name":"n","arguments":"{}"},{"type":"message","role":"user","content":"hi"}]}`},
		{"chat", "no messages", `{"model":"m"}`},
		{"chat", "another role", `{"model":"m","messages":[{"role":"function","content":"hi"}]}`},
		{"chat", "a result without its call", `{"model":"m","messages":[{"role":"tool","tool_call_id":"x","content":"a"}]}`},
		{"gemini", "no contents", `{"contents":[]}`},
		{"gemini", "another role", `{"contents":[{"role":"assistant","parts":[{"text":"a"}]}]}`},
		{"gemini", "no parts", `{"contents":[{"role":"user","parts":[]}]}`},
		{"gemini", "a result without its call", `{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"n","response":{}}}]}]}`},
	} {
		q := ask[c.api]
		run := begin(t, Plain())
		if status, body := post(t, run, q.path, run.Key, q.header, c.body); status != 400 || !strings.Contains(body, "error") {
			t.Errorf("%s, %s: %d %s", c.api, c.what, status, body)
		}
		if len(run.Turns()) != 0 {
			t.Errorf("%s, %s: it counts as a turn", c.api, c.what)
		}
	}
}

func TestGeminiIsLedThroughAToolAndDeclined(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"functionDeclarations":[{"name":"run_shell"}]}],`
	const user = `{"role":"user","parts":[{"text":"go"}]}`
	run := begin(t, UseTool("shell", map[string]string{"command": "ls"}))
	const path = "/v1beta/models/flash:streamGenerateContent?alt=sse"
	_, body := post(t, run, path, run.Key, "x-goog-api-key", `{`+tools+`"contents":[`+user+`]}`)
	if !strings.Contains(body, `"functionCall":{"args":{"command":"ls"},"name":"run_shell"}`) || !strings.Contains(body, `"cachedContentTokenCount":20`) || strings.Contains(body, "event:") {
		t.Errorf("%s", body)
	}
	_, body = post(t, run, path, run.Key, "x-goog-api-key", `{`+tools+`"contents":[`+user+`,{"role":"model","parts":[{"functionCall":{"name":"run_shell","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"run_shell","response":{"output":"a.txt"}}}]}]}`)
	if strings.Contains(body, "functionCall") || !strings.Contains(body, `"finishReason":"STOP"`) {
		t.Errorf("%s", body)
	}
	if got := run.Turns(); len(got) != 2 || !slices.Equal(got[1].Results, []string{`{"output":"a.txt"}`}) {
		t.Errorf("kept %+v", got)
	}
	run = begin(t, Declines())
	if _, body := post(t, run, path, run.Key, "x-goog-api-key", `{"contents":[`+user+`]}`); !strings.Contains(body, `"finishReason":"SAFETY"`) {
		t.Errorf("%s", body)
	}
	_, body = post(t, run, "/v1beta/models/flash:generateContent", run.Key, "x-goog-api-key", `{"generationConfig":{"responseJsonSchema":{"properties":{"next_speaker":{}}}},"contents":[`+user+`]}`)
	if !strings.Contains(body, `next_speaker\":\"user`) {
		t.Errorf("%s", body)
	}
}

func TestToolsAreCalledOneAfterTheOther(t *testing.T) {
	t.Parallel()
	sc := UseTools(CallOf("^a$", 1), CallOf("^b$", 2))
	tools := []Offer{{Name: "b"}, {Name: "a"}}
	user, said := Message{Role: "user", Text: "go"}, Message{Role: "assistant", Text: "Step."}
	call := func(id string) Message { return Message{Role: "assistant", Call: id} }
	result := func(id string) Message { return Message{Role: "tool", Call: id, Text: "result of " + id} }
	for i, c := range []struct {
		so   []Message
		want string
	}{
		{[]Message{user}, "a"},
		{[]Message{user, said, call("1"), result("1")}, "b"},
		{[]Message{user, said, call("1"), result("1"), said, call("2"), result("2")}, ""},
		{[]Message{user, call("1"), result("1"), call("2"), result("2"), said, user}, "a"}, // the next turn of a conversation
		{[]Message{user, call("1"), result("1"), {Role: "user", Text: "a reminder"}}, "b"},
	} {
		turn := &Turn{Model: "m", Tools: tools, Messages: c.so}
		if bad := turn.check(); bad != nil {
			t.Fatalf("%d: %v", i, bad)
		}
		turn.digest()
		got := ""
		if r := turn.settle(sc.Answer(*turn)); r.call != nil {
			got = r.call.Name
		}
		if got != c.want {
			t.Errorf("%d: calls %q, not %q", i, got, c.want)
		}
	}
	if r := (&Turn{Tools: tools}).settle(Answer{Call: CallOf("^c$", 1)}); r.call != nil || !strings.Contains(r.Text, "NO TOOL MATCHES ^c$ IN b,a") {
		t.Errorf("%+v", r)
	}
	r := (&Turn{}).settle(Answer{Call: Call{Name: "mcp__lab__echo"}})
	if r.call == nil || r.call.space != "mcp__lab" || r.call.local != "echo" {
		t.Errorf("%+v", r.call)
	}
}

func TestADialogueAnswersWhatCameLast(t *testing.T) {
	t.Parallel()
	sc := Dialogue(Line{When: "denied", Answer: Answer{Text: "a pity"}}, Line{When: "first", Answer: Answer{Text: "one"}}, Line{When: "second", Answer: Answer{Text: "two"}})
	for _, c := range []struct {
		prompts, results []string
		want             string
	}{
		{[]string{"the first"}, nil, "one"},
		{[]string{"the second"}, nil, "two"},
		{[]string{"the first"}, []string{"denied by rule"}, "a pity"},
		{[]string{"the third"}, nil, ""},
	} {
		if got := sc.Answer(Turn{Prompts: c.prompts, Results: c.results}).Text; got != c.want {
			t.Errorf("%v %v: %q, not %q", c.prompts, c.results, got, c.want)
		}
	}
}

func TestNamespacesAndTextsOfResponses(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"namespace","name":"mcp__lab","tools":[{"type":"function","name":"echo"}]},{"type":"custom","name":"apply_patch"},{"type":"tool_search"}]`
	for _, c := range []struct {
		call Call
		want []string
	}{
		{CallOf("echo", map[string]string{"text": "a"}), []string{`"namespace":"mcp__lab"`, `"name":"echo"`, `"type":"function_call"`}},
		{CallOf("patch", "*** Begin Patch"), []string{`"input":"*** Begin Patch"`, `"type":"custom_tool_call"`}},
		{CallOf("search", map[string]string{"query": "a"}), []string{`"type":"tool_search_call"`, `"arguments":{"query":"a"}`}},
	} {
		run := begin(t, UseTools(c.call))
		_, body := post(t, run, "/v1/responses", run.Key, "authorization", `{"model":"m","stream":true,"input":"hi",`+tools+`}`)
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%+v: no %s in %s", c.call, want, body)
			}
		}
	}
}

func TestWhatIsAskedBesides(t *testing.T) {
	t.Parallel()
	run := begin(t, Fails(500, 0, 0))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodHead, run.URL+"/api/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Errorf("hello: %d", a.StatusCode)
	}
	if status, body := post(t, run, "/v1/messages/count_tokens", run.Key, "x-api-key", `{}`); status != 200 || body != `{"input_tokens":100}` {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := post(t, run, "/v1/nothing", run.Key, "authorization", `{}`); status != 404 {
		t.Errorf("%d", status)
	}
	if got := run.Requests(); len(got) != 3 || got[0].Method != http.MethodHead || got[0].Path != "/api/hello" || len(run.Turns()) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestABodyMayBePacked(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]int{"gzip": 200, "zstd": 400} {
		run := begin(t, Plain())
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(ask["anthropic"].body)); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, run.URL+"/v1/messages", &b)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("content-encoding", encoding)
		q.Header.Set("x-api-key", run.Key)
		q.Header.Set("anthropic-version", "1")
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %d", encoding, a.StatusCode)
		}
	}
}
