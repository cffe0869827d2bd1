package loop

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// script is a host that expects one call and has an answer to it.
type script struct {
	name    string
	request string
	status  int32
	answer  []byte
}

func (s *script) Call(name string, request []byte) (int32, []byte) {
	s.name, s.request = name, string(request)
	return s.status, s.answer
}

func (s *script) Now() time.Time { return time.Unix(1, 0) }

// same reads a request as its host does, and compares it.
func same[T any](t *testing.T, s *script, want T) {
	t.Helper()
	var got T
	dec := json.NewDecoder(bytes.NewReader([]byte(s.request)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s is %+v, %v; want %+v", s.name, s.request, got, err, want)
	}
}

// What a method says is what the host reads, and what the host answers is what it returns.
func TestTheKitAndTheHostUseTheSameWords(t *testing.T) {
	t.Parallel()
	odd := "ü \"quoted\"\n<b> \\"
	s := &script{}
	k := &Kit{host: s}
	answers := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		s.answer = raw
	}
	is := func(name string, got, want any, err error) {
		t.Helper()
		if err != nil || s.name != name || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it called %s and returned %#v, %v; want %#v", name, s.name, got, err, want)
		}
	}
	answers(abi.Hits{Hits: []string{odd, ""}})
	hits, err := k.Recall(odd, 7)
	is("recall", hits, []string{odd, ""}, err)
	same(t, s, abi.Recall{Query: odd, Limit: 7})

	answers(abi.Value{Value: odd})
	value, err := k.Config("key")
	is("config", value+s.request, odd+"key", err)
	value, err = k.HostTool("tool")
	is("hosttool", value+s.request, odd+"tool", err)

	for name, ask := range map[string]func(string) (string, error){"ask": k.Ask, "harness": k.Harness, "summarize": k.Summarize} {
		answers(abi.Answer{Answer: odd})
		said, err := ask(odd)
		is(name, said, odd, err)
		same(t, s, abi.Prompt{Prompt: odd})
	}
	said, err := k.Gateway(odd, "a", "b")
	is("gateway", said, odd, err)
	same(t, s, abi.Prompt{Prompt: odd, Lend: []string{"a", "b"}})

	answers(abi.Response{Status: 404, Body: odd})
	resp, err := k.HTTP(Request{Method: "PUT", URL: "https://a", Headers: map[string]string{"B": odd, "A": "1"}, Body: odd})
	is("http", resp, Response{Status: 404, Body: odd}, err)
	same(t, s, Request{Method: "PUT", URL: "https://a", Headers: map[string]string{"B": odd, "A": "1"}, Body: odd})

	answers(abi.ToolResult{Output: odd})
	out, err := k.Tool("t", map[string]int{"n": 1})
	is("tool", out, odd, err)
	same(t, s, abi.ToolCall{Name: "t", Input: json.RawMessage(`{"n":1}`)})
	answers(abi.ToolResult{Output: "half", Error: "torn"})
	if out, err := k.Tool("t", nil); out != "half" || err == nil || err.Error() != "t: torn" {
		t.Error(out, err)
	}

	answers(abi.Kept{Value: odd, Found: true})
	value, found, err := k.Kept("g", "k")
	is("short_get", []any{value, found}, []any{odd, true}, err)
	same(t, s, abi.NoteKey{Group: "g", Key: "k"})
	answers(abi.Entries{Entries: []abi.ShortMemory{{Key: "a", Value: odd}, {Key: "b"}}})
	all, err := k.AllKept("g")
	is("short_all", all, map[string]string{"a": odd, "b": ""}, err)
	same(t, s, abi.Group{Group: "g"})

	answers(abi.Fenced{Text: odd})
	value, err = k.Fence(odd, "them")
	is("fence", value, odd, err)
	same(t, s, abi.Foreign{Text: odd, From: "them"})
	answers(abi.Signal{Payload: json.RawMessage(`{"a":[1,2]}`)})
	payload, err := k.WaitSignal("go", time.Second)
	is("wait_signal", string(payload), `{"a":[1,2]}`, err)
	same(t, s, abi.WaitSignal{Name: "go", Milliseconds: 1000})
	answers(abi.Chats{Chats: []string{"a"}})
	chats, err := k.OperatorChats()
	is("operator_chats", chats, []string{"a"}, err)
	answers(abi.Chats{})
	chats, err = k.OperatorChats()
	is("operator_chats", len(chats), 0, err)
	answers(abi.Summary{Found: true, Summary: &ChatSummary{ChatJID: "j", Summary: odd}})
	sum, err := k.ChatSummary("j")
	is("chat_summary_get", sum, &ChatSummary{ChatJID: "j", Summary: odd}, err)
	same(t, s, abi.Chat{JID: "j"})
	answers(abi.Trigger{Loop: "l", Kind: "event", Payload: json.RawMessage(`{"n":[1]}`)})
	var in struct{ N []int }
	err = k.Payload(&in)
	is("trigger", k.Trigger().Loop+k.Trigger().Kind, "levent", err)
	if !slices.Equal(in.N, []int{1}) {
		t.Errorf("payload %+v", in)
	}

	s.answer = nil
	for _, c := range []struct {
		name string
		do   func() error
		same func()
	}{
		{"remember", func() error { return k.Remember(odd) }, func() { same(t, s, abi.Fact{Fact: odd}) }},
		{"notify", func() error { return k.Notify(odd, "b") }, func() { same(t, s, abi.Notice{Title: odd, Body: "b"}) }},
		{"propose", func() error { return k.Propose("a", odd, "c") }, func() { same(t, s, abi.Proposal{Title: "a", Summary: odd, Action: "c"}) }},
		{"remind", func() error { return k.Remind("a", "b", odd) }, func() { same(t, s, abi.Reminder{Title: "a", Due: "b", Notes: odd}) }},
		{"short_set", func() error { return k.Keep("g", "k", odd, time.Millisecond) }, func() { same(t, s, abi.Note{Group: "g", Key: "k", Value: odd, TTLSeconds: 1}) }},
		{"short_forget", func() error { return k.Forget("g", "k") }, func() { same(t, s, abi.NoteKey{Group: "g", Key: "k"}) }},
		{"sleep", func() error { return k.Sleep(time.Minute) }, func() { same(t, s, abi.Sleep{Milliseconds: 60_000}) }},
		{"after", func() error { return k.After("i", time.Minute, []int{1}) }, func() { same(t, s, abi.After{ID: "i", Milliseconds: 60_000, Payload: json.RawMessage("[1]")}) }},
		{"cancel_after", func() error { return k.CancelAfter("i") }, func() { same(t, s, abi.CancelAfter{ID: "i"}) }},
		{"chat_summary_save", func() error { return k.SaveChatSummary(ChatSummary{ChatJID: "j"}) }, func() { same(t, s, ChatSummary{ChatJID: "j"}) }},
		{"run_loop", func() error { return k.RunLoop("other") }, func() {
			if s.request != "other" {
				t.Error(s.request)
			}
		}},
		{"write_log", func() error { k.Log(Warn, odd, "k", odd, "odd one out"); return nil }, func() {
			same(t, s, abi.Line{Level: "warn", Text: odd, Fields: map[string]string{"k": odd}})
		}},
		{"progress", func() error { k.Progress(odd, -1, 2); return nil }, func() { same(t, s, abi.Progress{Text: odd, Done: -1, Total: 2}) }},
	} {
		err := c.do()
		is(c.name, nil, nil, err)
		c.same()
	}

	answers(abi.StepBegun{Done: true, Result: json.RawMessage(`{"a":"b"}`)})
	got, err := Once(k, "s", func() (map[string]string, error) { return nil, errors.New("it is done") })
	is("step_begin", got, map[string]string{"a": "b"}, err)
	same(t, s, abi.StepBegin{Name: "s", Once: true})
	answers(abi.StepBegun{})
	got, err = Step(k, "s", func() (map[string]string, error) { return map[string]string{"c": odd}, nil })
	is("step_end", got, map[string]string{"c": odd}, err)
	if raw, err := json.Marshal(got); err != nil {
		t.Error(err)
	} else {
		same(t, s, abi.StepEnd{Name: "s", Result: raw})
	}
}

func TestAStatusIsAnError(t *testing.T) {
	t.Parallel()
	for status, want := range map[int32]error{1: nil, 2: ErrUndeclared, 3: ErrRefused, 5: nil, 6: ErrUnknown} {
		k := &Kit{host: &script{status: status, answer: []byte("why")}}
		err := k.Notify("a", "b")
		if err == nil || want != nil && !errors.Is(err, want) || errors.Is(err, ErrRefused) != (status == 2 || status == 3) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	k := &Kit{host: &script{answer: []byte(`{"value":`)}}
	if _, err := k.Config("a"); err == nil {
		t.Error("half an answer is one")
	}
}
