package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"pgregory.net/rapid"
)

func TestMalformedArgumentsNeverBecomeAnInput(t *testing.T) {
	t.Parallel()
	for _, args := range []string{`{"a":`, `[1]`, `"x"`, `null`, `7`, `{"a":1}}`, `{a:1}`, "\x00"} {
		if call := NewCall("id", "fs.read", args); call.Input != nil || call.BadInput == "" {
			t.Errorf("%q: input %s, bad %q", args, call.Input, call.BadInput)
		}
	}
	for args, want := range map[string]string{"": "{}", " \n": "{}", ` { "a" : 1 } `: `{"a":1}`, `{"a":"\u0000\ud800"}`: `{"a":"\ufffd\ufffd"}`} {
		if call := NewCall("id", "fs.read", args); string(call.Input) != want || call.BadInput != "" {
			t.Errorf("%q: input %s, bad %q, want %s", args, call.Input, call.BadInput, want)
		}
	}
	if call := NewCall("id", "x", strings.Repeat("ä", maxBadInput)); len(call.BadInput) > maxBadInput || !utf8.ValidString(call.BadInput) {
		t.Errorf("bad input of %d bytes, valid %v", len(call.BadInput), utf8.ValidString(call.BadInput))
	}
}

func TestPartsSurviveJSON(t *testing.T) {
	t.Parallel()
	r := Response{
		Text: "hi", Opaque: []Opaque{{Provider: "p", Data: json.RawMessage(`{"s":1}`)}},
		Calls: []ToolCall{NewCall("1", "a.b", `{"x":1}`)},
	}
	raw, err := json.Marshal(r.Message())
	if err != nil {
		t.Fatal(err)
	}
	var back Message
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, r.Message()) {
		t.Errorf("%v: %+v became %s", err, r.Message(), raw)
	}
	if len(back.Parts) != 3 || back.Parts[0].Opaque == nil || back.Text() != "hi" {
		t.Errorf("parts: %s", raw)
	}
}

func TestNamesAreOneToOneAndPlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.OneOf(
			rapid.StringMatching(`[ab._]{1,3}`), rapid.StringMatching(`(a\.|a_){30,40}[bc]?`), rapid.String(),
		), 1, 20).Draw(t, "names")
		var tools, reversed []ToolSpec
		for i := range names {
			tools = append(tools, ToolSpec{Name: names[i]})
			reversed = append(reversed, ToolSpec{Name: names[len(names)-1-i]})
		}
		n, same := NewNames(tools), NewNames(reversed)
		seen := map[string]string{}
		for _, name := range names {
			wire := n.Wire(name)
			if name == "" {
				continue
			}
			if !plainID(wire) {
				t.Fatalf("%q became %q, which providers refuse", name, wire)
			}
			if other, ok := seen[wire]; ok && other != name {
				t.Fatalf("%q and %q are both %q", name, other, wire)
			}
			seen[wire] = name
			if back := n.Canonical(wire); back != name {
				t.Fatalf("%q became %q and then %q", name, wire, back)
			}
			if same.Wire(name) != wire {
				t.Fatalf("%q depends on the order of tools: %q, %q", name, wire, same.Wire(name))
			}
		}
	})
	n := NewNames([]ToolSpec{{Name: "fs.read"}})
	if n.Wire("fs.read") != "fs_read" || n.Canonical("fs_read") != "fs.read" || n.Canonical("rm_rf") != "rm_rf" || n.Wire("old.tool") != "old_tool" {
		t.Error("plain names are not mapped as documented")
	}
}

// drawMessages makes histories as bad as rows can get.
func drawMessages(t *rapid.T) []Message {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", " ", "hello", "a\x00b", "\xed\xa0\x80", "\xff"}))
	id := rapid.SampledFrom([]string{"", "1", "2", "3", "ä", strings.Repeat("x", 80), "call_1"})
	input := rapid.SampledFrom([]string{"", "{}", `{"a":"\ud800"}`, `{"a":"\u0000"}`, `[1]`, `{"a"`, "null"})
	part := rapid.Custom(func(t *rapid.T) Part {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return Part{Call: &ToolCall{ID: id.Draw(t, "id"), Name: rapid.SampledFrom([]string{"fs.read", "gone.tool", "", "\x00"}).Draw(t, "tool"), Input: json.RawMessage(input.Draw(t, "input"))}}
		case 1:
			return Part{Result: &ToolResult{CallID: id.Draw(t, "id"), Text: text.Draw(t, "result"), IsError: rapid.Bool().Draw(t, "failed")}}
		case 2:
			return Part{}
		case 3:
			data := rapid.SampledFrom([]string{`{"s": 1}`, `{"s":"\u0000"}`, `{`, ""}).Draw(t, "opaque")
			return Part{Opaque: &Opaque{Provider: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "provider"), Data: json.RawMessage(data)}}
		}
		return Part{Text: text.Draw(t, "text")}
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Message {
		return Message{Role: rapid.SampledFrom([]Role{User, Assistant, Tool}).Draw(t, "role"), Parts: rapid.SliceOfN(part, 0, 4).Draw(t, "parts")}
	}), 0, 8).Draw(t, "messages")
}

func TestPrepareMakesEveryHistoryAcceptable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		req := Request{System: rapid.String().Draw(t, "system"), Messages: append(drawMessages(t), Text(User, "and now?"))}
		if rapid.Bool().Draw(t, "tools") {
			req.Tools = []ToolSpec{{Name: "fs.read", Schema: json.RawMessage(`{}`)}}
		}
		out, err := Prepare("p", req)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		checkShape(t, out)
		again, err := Prepare("p", out)
		if err != nil || !reflect.DeepEqual(again, out) {
			t.Fatalf("a prepared request changes when prepared again (%v):\n%+v\n%+v", err, out, again)
		}
	})
}

func checkShape(t *rapid.T, req Request) {
	raw, err := json.Marshal(req)
	if err != nil {
		t.Fatalf("no JSON: %v", err)
	}
	if clean, ok := cleanJSON(raw); !ok || string(clean) != string(raw) {
		t.Fatalf("unclean: %s", raw)
	}
	open, used := map[string]bool{}, map[string]bool{}
	for i, m := range req.Messages {
		if len(m.Parts) == 0 || i == 0 && m.Role != User || i > 0 && req.Messages[i-1].Role == m.Role {
			t.Fatalf("message %d does not fit: %s", i, raw)
		}
		if m.Role != Tool && len(open) > 0 {
			t.Fatalf("calls %v are not answered before message %d: %s", open, i, raw)
		}
		for _, p := range m.Parts {
			switch {
			case p.Call != nil:
				if len(req.Tools) == 0 || m.Role != Assistant || used[p.Call.ID] || !plainID(p.Call.ID) || p.Call.Input[0] != '{' {
					t.Fatalf("call does not fit: %s", raw)
				}
				open[p.Call.ID], used[p.Call.ID] = true, true
			case p.Result != nil:
				if m.Role != Tool || !open[p.Result.CallID] || p.Result.Text == "" {
					t.Fatalf("result does not fit: %s", raw)
				}
				delete(open, p.Result.CallID)
			case p.Opaque != nil:
				if p.Opaque.Provider != "p" || !says(m) {
					t.Fatalf("opaque part does not fit: %s", raw)
				}
			case strings.TrimSpace(p.Text) == "":
				t.Fatalf("blank text: %s", raw)
			}
		}
	}
}

func TestPrepareKeepsWhatIsFine(t *testing.T) {
	t.Parallel()
	req := Request{
		System: "be brief", Model: "m", MaxTokens: 7,
		Messages: []Message{
			Text(User, "read it"),
			{Role: Assistant, Parts: []Part{{Text: "yes"}, {Call: &ToolCall{ID: "c1", Name: "fs.read", Input: json.RawMessage(`{"path":"a"}`)}}}},
			Results(ToolResult{CallID: "c1", Text: "content"}),
			Text(User, "and?"),
		},
		Tools: []ToolSpec{{Name: "fs.read", Description: "read", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
	if out, err := Prepare("p", req); err != nil || !reflect.DeepEqual(out, req) {
		t.Errorf("%v: %+v", err, out)
	}
}

func TestPrepareAnswersWhatNobodyAnswered(t *testing.T) {
	t.Parallel()
	call := func(id string) Part { return Part{Call: &ToolCall{ID: id, Name: "a.b", Input: json.RawMessage(`{}`)}} }
	req := Request{
		Messages: []Message{Text(User, "go"), {Role: Assistant, Parts: []Part{call("1"), call("2")}}, Results(ToolResult{CallID: "2", Text: " "}, ToolResult{CallID: "9", Text: "stray"})},
		Tools:    []ToolSpec{{Name: "a.b"}},
	}
	out, err := Prepare("p", req)
	if err != nil {
		t.Fatal(err)
	}
	answers := out.Messages[2].Parts
	if len(answers) != 2 || answers[0].Result.Text != emptyResult || answers[1].Result.CallID != "1" || !answers[1].Result.IsError {
		t.Errorf("answers: %+v", answers)
	}
	if last := out.Messages[3]; last.Role != User || !strings.Contains(last.Text(), "stray") {
		t.Errorf("a stray result became %+v", last)
	}
}

func TestPrepareRefusesWhatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]Request{
		"no message":         {},
		"ends in an answer":  {Messages: []Message{Text(User, "a"), Text(Assistant, "b")}},
		"unknown role":       {Messages: []Message{Text("robot", "a")}},
		"schema is a list":   {Messages: []Message{Text(User, "a")}, Tools: []ToolSpec{{Name: "x", Schema: json.RawMessage(`[]`)}}},
		"input is no object": {Messages: []Message{Text(User, "a")}, Tools: []ToolSpec{{Name: "x", Schema: json.RawMessage(`{"type":"string"}`)}}},
		"tool without name":  {Messages: []Message{Text(User, "a")}, Tools: []ToolSpec{{}}},
	} {
		if _, err := Prepare("p", req); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCleanJSON(f *testing.F) {
	for _, s := range []string{`{"a":"\ud83d\ude00"}`, `"\ud800"`, `"\\ud800"`, `"\udc00\ud800"`, `"\u0000"`, `["\ud800\u0041",1.50,{"b":null}]`, "\"\x00\"", `"\ud800\\u"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out, ok := cleanJSON([]byte(s))
		if !ok {
			return
		}
		var v any
		if err := json.Unmarshal(out, &v); err != nil || !utf8.Valid(out) {
			t.Fatalf("%q became %q: %v", s, out, err)
		}
		again, ok := cleanJSON(out)
		if !ok || string(again) != string(out) {
			t.Fatalf("%q is not clean: %q", out, again)
		}
		if strings.ContainsRune(fmt.Sprint(v), 0) {
			t.Fatalf("NUL left in %q", out)
		}
		var before any
		if utf8.ValidString(s) && json.Unmarshal([]byte(s), &before) == nil && !strings.Contains(s, `\u`) && !reflect.DeepEqual(before, v) {
			t.Fatalf("%q changed its meaning: %q", s, out)
		}
	})
}
