package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"pgregory.net/rapid"
)

// Conform holds a provider to what model.Provider promises, whatever the network
// does. open returns the provider under test as it speaks to s, with Key.
func Conform(t *testing.T, open func(t testing.TB, s *Server) model.Provider) {
	t.Helper()
	c := conform{open: open}
	for _, sub := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"text is streamed and complete", c.text},
		{"tools are called by their canonical names", c.tools},
		{"malformed arguments never become an input", c.malformed},
		{"an unknown tool is told as it was called", c.unknownTool},
		{"two hundred calls at once", c.manyCalls},
		{"a cut answer is taken for cut, with calls that cannot run", c.maxTokens},
		{"errors have their class", c.classes},
		{"a refused key is told clearly and not tried again", c.refusedKey},
		{"429 is waited for as long as told", c.rateLimit},
		{"529 and then an answer", c.overloaded},
		{"a stream that ends early is never an answer", c.cut},
		{"an error inside the stream has its class", c.inBand},
		{"a deadline ends a slow stream", c.deadline},
		{"a server gone wild is stopped", c.endless},
		{"a key does not follow a redirect", c.redirect},
		{"an unreachable server is unavailable", c.unreachable},
		{"dirty text is cleaned before it leaves", c.dirty},
		{"any history is accepted", c.anyHistory},
		{"many at once", c.concurrent},
	} {
		t.Run(sub.name, func(t *testing.T) {
			t.Parallel()
			sub.run(t)
		})
	}
}

type conform struct {
	open func(t testing.TB, s *Server) model.Provider
}

func ask(text string) model.Request {
	return model.Request{
		System: "be brief", Messages: []model.Message{model.Text(model.User, text)}, MaxTokens: 100,
		Tools: []model.ToolSpec{
			{Name: "fs.read", Description: "read a file", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)},
			{Name: "time.now"},
		},
	}
}

func (c conform) generate(t testing.TB, s *Server) (model.Response, error) {
	t.Helper()
	return c.open(t, s).Generate(t.Context(), ask("hello"), nil)
}

func (c conform) text(t *testing.T) {
	for _, shred := range []bool{false, true} {
		s := New(t, Step{Text: "Grüße, 世界 🙂!", Usage: Usage{Input: 100, Output: 9, CacheRead: 30}})
		s.Shred = shred
		var streamed strings.Builder
		out, err := c.open(t, s).Generate(t.Context(), ask("hello"), func(d model.Delta) { streamed.WriteString(d.Text) })
		if err != nil {
			t.Fatalf("%v, after %s", err, refusals(s))
		}
		if out.Text != "Grüße, 世界 🙂!" || streamed.String() != out.Text || out.Stop != model.StopEnd || len(out.Calls) != 0 {
			t.Errorf("answer %+v, streamed %q", out, streamed.String())
		}
		if want := (model.Usage{Input: 70, Output: 9, CacheRead: 30}); out.Usage != want {
			t.Errorf("usage %+v, want %+v", out.Usage, want)
		}
		if out.Model == "" || out.Provider == "" {
			t.Errorf("who answered: %q of %q", out.Model, out.Provider)
		}
	}
}

func (c conform) tools(t *testing.T) {
	s := New(t,
		Step{Text: "Let me look.", Calls: []Call{{"fs_read", `{"path": "ä.txt"}`}, {"time_now", ""}}},
		Step{Text: "It is noon."})
	p := c.open(t, s)
	req := ask("what is in ä.txt?")
	out, err := p.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatalf("%v, after %s", err, refusals(s))
	}
	if out.Text != "Let me look." || out.Stop != model.StopCalls || len(out.Calls) != 2 {
		t.Fatalf("answer %+v", out)
	}
	read, now := out.Calls[0], out.Calls[1]
	if read.Name != "fs.read" || string(read.Input) != `{"path":"ä.txt"}` || now.Name != "time.now" || string(now.Input) != "{}" || read.ID == now.ID {
		t.Fatalf("calls %+v", out.Calls)
	}
	req.Messages = append(req.Messages, out.Message(),
		model.Results(model.ToolResult{CallID: now.ID, Text: "12:00"}, model.ToolResult{CallID: read.ID, Text: "no such file", IsError: true}),
		model.Text(model.User, "hurry"))
	if out, err = p.Generate(t.Context(), req, nil); err != nil || out.Text != "It is noon." {
		t.Fatalf("%+v, %v, after %s", out, err, refusals(s))
	}
	last := string(s.Requests()[1].Body)
	for _, want := range []string{read.ID, "12:00", "no such file", "hurry", "fs_read"} {
		if !strings.Contains(last, want) {
			t.Errorf("%q did not reach the model: %s", want, last)
		}
	}
}

func (c conform) malformed(t *testing.T) {
	for _, args := range []string{`{"path": "a`, `{"path": }`, `[1]`, `"a"`, `null`, `{}{}`} {
		out, err := c.generate(t, New(t, Step{Calls: []Call{{"fs_read", args}}}))
		if err != nil || len(out.Calls) != 1 {
			t.Fatalf("%s: %+v, %v", args, out, err)
		}
		if call := out.Calls[0]; call.Input != nil || call.BadInput != args {
			t.Errorf("%s: input %s, bad %q", args, call.Input, call.BadInput)
		}
	}
}

func (c conform) unknownTool(t *testing.T) {
	out, err := c.generate(t, New(t, Step{Calls: []Call{{"rm_everything", `{"sure":true}`}}}))
	if err != nil || len(out.Calls) != 1 || out.Calls[0].Name != "rm_everything" {
		t.Errorf("%+v, %v", out, err)
	}
}

func (c conform) manyCalls(t *testing.T) {
	var step Step
	for i := range 200 {
		step.Calls = append(step.Calls, Call{"fs_read", fmt.Sprintf(`{"path":"%d"}`, i)})
	}
	out, err := c.generate(t, New(t, step))
	if err != nil || len(out.Calls) != 200 {
		t.Fatalf("%d calls, %v", len(out.Calls), err)
	}
	ids := map[string]bool{}
	for i, call := range out.Calls {
		ids[call.ID] = true
		if string(call.Input) != fmt.Sprintf(`{"path":"%d"}`, i) {
			t.Fatalf("call %d has input %s", i, call.Input)
		}
	}
	if len(ids) != 200 {
		t.Errorf("%d different IDs", len(ids))
	}
}

func (c conform) maxTokens(t *testing.T) {
	for _, stop := range []string{"max_tokens", "length"} { // each API has its own word
		out, err := c.generate(t, New(t, Step{Text: "so", Calls: []Call{{"fs_read", `{"pa`}}, Stop: stop}))
		if err != nil || len(out.Calls) != 1 || out.Calls[0].Input != nil {
			t.Fatalf("%+v, %v", out, err)
		}
		if out.Stop == model.StopMaxTokens {
			return
		}
	}
	t.Error("no stop reason of either API became max_tokens")
}

func (c conform) classes(t *testing.T) {
	for _, e := range []struct {
		status     int
		kind, body string
		want       fault.Class
	}{
		{400, "invalid_request_error", "", fault.Invalid},
		{403, "permission_error", "", fault.Denied},
		{404, "not_found_error", "", fault.NotFound},
		{413, "request_too_large", "", fault.Invalid},
		{429, "rate_limit_error", "", fault.Unavailable},
		{429, "insufficient_quota", "", fault.Unavailable},
		{500, "api_error", "", fault.Unavailable},
		{529, "overloaded_error", "", fault.Unavailable},
		{502, "", "<html>bad gateway</html>", fault.Unavailable},
		{503, "", "\x00\xff", fault.Unavailable},
		{500, "", strings.Repeat("x", 1<<20), fault.Unavailable},
		{401, "", "{}", fault.Denied},
	} {
		out, err := c.generate(t, New(t, Step{Fault: Refuse, Status: e.status, Kind: e.kind, Body: e.body}))
		if fault.ClassOf(err) != e.want || out.Text != "" {
			t.Errorf("%d %s: %s, want %s: %v", e.status, e.kind, fault.ClassOf(err), e.want, err)
		}
		if err != nil && (len(err.Error()) > 1000 || strings.ContainsRune(err.Error(), 0)) {
			t.Errorf("%d %s: the error text is %d bytes of what the server sent", e.status, e.kind, len(err.Error()))
		}
		api, ok := errors.AsType[*model.APIError](err)
		if !ok || api.Status != e.status || e.kind != "" && api.Kind != e.kind {
			t.Errorf("%d %s: cause %+v", e.status, e.kind, api)
		}
	}
}

func (c conform) refusedKey(t *testing.T) {
	s := New(t, Step{Fault: Refuse, Status: 401, Kind: "authentication_error"}, Step{Text: "too late"})
	_, err := model.Retrying(c.open(t, s), model.RetryPolicy{}, nil).Generate(t.Context(), ask("hello"), nil)
	if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || len(s.Requests()) != 1 {
		t.Errorf("%v (hint %q) after %d requests", err, fault.HintOf(err), len(s.Requests()))
	}
	if strings.Contains(err.Error()+fault.HintOf(err), Key) {
		t.Errorf("the error holds the key: %v", err)
	}
	c.repeatedKey(t)
}

// repeatedKey: some servers and most proxies say which key it was they refused.
func (c conform) repeatedKey(t *testing.T) {
	for _, said := range []string{
		`{"type":"error","error":{"type":"authentication_error","message":"no such key: Bearer ` + Key + `"}}`,
		`{"type":"error","error":{"type":"` + Key + `","message":"?","code":"` + Key + `"}}`,
		strings.Repeat("x", 190) + Key, // where a long text is cut
	} {
		s := New(t, Step{Fault: Refuse, Status: 401, Body: said, Header: map[string]string{"x-request-id": Key, "request-id": Key}})
		_, err := c.generate(t, s)
		if !fault.Is(err, fault.Denied) || strings.Contains(err.Error()+fault.HintOf(err), Key[:10]) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

// waits is a sleep that only notes what was asked of it.
func waits(into *[]time.Duration) func(context.Context, time.Duration) error {
	return func(_ context.Context, d time.Duration) error {
		*into = append(*into, d)
		return nil
	}
}

func (c conform) rateLimit(t *testing.T) {
	refuse := func(name, value string) Step {
		return Step{Fault: Refuse, Status: 429, Kind: "rate_limit_error", Header: map[string]string{name: value}}
	}
	s := New(t, refuse("retry-after", "11"), refuse("retry-after-ms", "1500"), Step{Text: "at last"})
	var slept []time.Duration
	out, err := model.Retrying(c.open(t, s), model.RetryPolicy{}, waits(&slept)).Generate(t.Context(), ask("hello"), nil)
	if err != nil || out.Text != "at last" || len(s.Requests()) != 3 {
		t.Fatalf("%+v, %v after %d requests", out, err, len(s.Requests()))
	}
	if len(slept) != 2 || slept[0] < 11*time.Second || slept[0] > 13*time.Second || slept[1] < 1500*time.Millisecond || slept[1] > 2*time.Second {
		t.Errorf("waited %v, was told 11s and 1.5s", slept)
	}
}

func (c conform) overloaded(t *testing.T) {
	s := New(t, Step{Fault: Refuse, Status: 529, Kind: "overloaded_error"}, Step{Text: "half", Fault: Cut, After: 3}, Step{Text: "here"})
	var slept []time.Duration
	var restarts int
	sink := func(d model.Delta) {
		if d.Restart {
			restarts++
		}
	}
	out, err := model.Retrying(c.open(t, s), model.RetryPolicy{}, waits(&slept)).Generate(t.Context(), ask("hello"), sink)
	if err != nil || out.Text != "here" || len(slept) != 2 || restarts != 2 || len(s.Requests()) != 3 {
		t.Errorf("%+v, %v, waits %v, restarts %d", out, err, slept, restarts)
	}
}

func (c conform) cut(t *testing.T) {
	whole := Step{Text: "a longer text", Calls: []Call{{"fs_read", `{"path":"a"}`}}}
	for _, f := range []Fault{Cut, End} {
		failed := 0
		for after := range 40 {
			step := whole
			step.Fault, step.After = f, after
			out, err := c.generate(t, New(t, step))
			if err == nil { // only the last words of a stream may be missing
				if out.Text != whole.Text || len(out.Calls) != 1 || string(out.Calls[0].Input) != `{"path":"a"}` {
					t.Fatalf("fault %d after %d events: a part was taken for the whole: %+v", f, after, out)
				}
				continue
			}
			failed++
			if !fault.Is(err, fault.Unavailable) || out.Text != "" || out.Calls != nil {
				t.Errorf("fault %d after %d events: %+v, %v", f, after, out, err)
			}
		}
		if failed < 8 {
			t.Errorf("fault %d: only %d early ends were noticed", f, failed)
		}
	}
	if _, err := c.generate(t, New(t, Step{Fault: Garbage})); !fault.Is(err, fault.Unavailable) {
		t.Errorf("garbage: %v", err)
	}
}

func (c conform) inBand(t *testing.T) {
	for kind, want := range map[string]fault.Class{
		"overloaded_error": fault.Unavailable, "server_error": fault.Unavailable, "rate_limit_error": fault.Unavailable,
		"invalid_request_error": fault.Invalid, "authentication_error": fault.Denied,
	} {
		out, err := c.generate(t, New(t, Step{Text: "hello", Fault: InBand, After: 3, Kind: kind}))
		if !fault.Is(err, want) || out.Text != "" {
			t.Errorf("%s: %+v, %v", kind, out, err)
		}
	}
}

func (c conform) deadline(t *testing.T) {
	for _, step := range []Step{{Fault: Silence}, {Text: "tick tock", Fault: Hold, After: 4}} {
		p := c.open(t, New(t, step, step))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 150*time.Millisecond, errors.New("the turn took its 120 s"))
		_, err := model.Retrying(p, model.RetryPolicy{}, nil).Generate(ctx, ask("hello"), nil)
		cancel()
		if !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "the turn took its 120 s") {
			t.Errorf("fault %d: %v", step.Fault, err)
		}

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err = p.Generate(ctx, ask("hello"), nil); !fault.Is(err, fault.Cancelled) {
			t.Errorf("fault %d cancelled: %v", step.Fault, err)
		}
		cancel()
	}
}

func (c conform) endless(t *testing.T) {
	if out, err := c.generate(t, New(t, Step{Fault: Endless})); !fault.Is(err, fault.Invalid) || out.Text != "" {
		t.Errorf("%d bytes of answer, %v", len(out.Text), err)
	}
}

func (c conform) redirect(t *testing.T) {
	s := New(t, Step{Fault: Redirect})
	if _, err := c.generate(t, s); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

func (c conform) unreachable(t *testing.T) {
	s := New(t)
	s.Close()
	if _, err := c.generate(t, s); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

func (c conform) dirty(t *testing.T) {
	s := New(t, Step{Text: "fine"})
	req := ask("a\x00b\xed\xa0\x80c\xff")
	req.System = "sys\x00tem\xff"
	req.Tools[0].Description = "\x00"
	req.Messages = append(req.Messages,
		model.Message{Role: model.Assistant, Parts: []model.Part{{Call: &model.ToolCall{ID: "1", Name: "fs.read", Input: json.RawMessage(`{"path":"\ud800\u0000"}`)}}}},
		model.Results(model.ToolResult{CallID: "1", Text: "\x00\x00\xff"}))
	if out, err := c.open(t, s).Generate(t.Context(), req, nil); err != nil || out.Text != "fine" {
		t.Errorf("%+v, %v, after %s", out, err, refusals(s))
	}
	s = New(t, Step{Text: "a\x00b", Calls: []Call{{"fs_read", `{"path":"\ud800\u0000"}`}}})
	out, err := c.generate(t, s)
	if err != nil || strings.ContainsRune(out.Text, 0) || string(out.Calls[0].Input) != `{"path":"\ufffd\ufffd"}` {
		t.Errorf("what came back was not cleaned: %+v, %v", out, err)
	}
}

func (c conform) anyHistory(t *testing.T) {
	steps := make([]Step, 2000)
	for i := range steps {
		steps[i].Text = "ok"
	}
	s := New(t, steps...)
	p := c.open(t, s)
	rapid.Check(t, func(rt *rapid.T) {
		req := ask("")
		req.Messages = append(history(rt), model.Text(model.User, "and now?"))
		if rapid.Bool().Draw(rt, "no tools") {
			req.Tools = nil
		}
		if out, err := p.Generate(t.Context(), req, nil); err != nil || out.Text != "ok" {
			raw, _ := json.Marshal(req.Messages)
			rt.Fatalf("%v: history %s\nsent %s", err, raw, refusals(s))
		}
	})
}

// history draws messages as bad as rows can get.
func history(t *rapid.T) []model.Message {
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	var out []model.Message
	for range rapid.IntRange(0, 6).Draw(t, "messages") {
		m := model.Message{Role: rapid.SampledFrom([]model.Role{model.User, model.Assistant, model.Tool}).Draw(t, "role")}
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			id := pick("id", "1", "2", "", "toolu_1", "ü")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				m.Parts = append(m.Parts, model.Part{Text: pick("text", "", " ", "hi", "\x00", "\xff")})
			case 1:
				m.Parts = append(m.Parts, model.Part{Call: &model.ToolCall{ID: id, Name: pick("tool", "fs.read", "gone.tool", ""), Input: json.RawMessage(pick("input", "", "{}", "[", `{"a":"\udc00"}`))}})
			case 2:
				m.Parts = append(m.Parts, model.Part{Result: &model.ToolResult{CallID: id, Text: pick("result", "", "x", "\x00"), IsError: rapid.Bool().Draw(t, "failed")}})
			}
		}
		out = append(out, m)
	}
	return out
}

func (c conform) concurrent(t *testing.T) {
	steps := make([]Step, 64)
	for i := range steps {
		steps[i] = Step{Text: "one of many", Calls: []Call{{"fs_read", `{"path":"a"}`}}}
	}
	s := New(t, steps...)
	p := c.open(t, s)
	var wg sync.WaitGroup
	for range steps {
		wg.Go(func() {
			out, err := p.Generate(t.Context(), ask("hello"), nil)
			if err != nil || out.Text != "one of many" || len(out.Calls) != 1 {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	wg.Wait()
}

// refusals tells which requests the server refused, for failure messages.
func refusals(s *Server) string {
	var b strings.Builder
	for _, r := range s.Requests() {
		if r.Status >= http.StatusBadRequest {
			_, _ = fmt.Fprintf(&b, "%d: %s\n", r.Status, r.Body)
		}
	}
	if b.Len() == 0 {
		_, _ = io.WriteString(&b, "no refusal")
	}
	return b.String()
}
