package scripted

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const example = `
turns:
  - match: boiler
    steps:
      - text: let me look
        calls: [{tool: memory.recall, input: {query: boiler, n: 2}}, {tool: time.now}]
      - text: it is 4711
  - regexp: '^wait \d+$'
    steps:
      - {delay: 2s, text: here I am}
  - match: fail
    steps:
      - error: {class: unavailable, message: overloaded, retry_after: 3s}
  - match: stuck
    steps: [{hang: true}]
  - match: broken
    steps: [{calls: [{tool: fs.read, raw: '{"path":'}]}]
  - steps: [{text: first}]
  - steps: [{text: second and later}]
`

func parse(t testing.TB, text string) *Provider {
	t.Helper()
	p, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(messages ...model.Message) model.Request { return model.Request{Messages: messages} }

func user(text string) model.Message { return model.Text(model.User, text) }

func TestTheRequestAloneSaysWhichStepIsDue(t *testing.T) {
	t.Parallel()
	first, err := parse(t, example).Generate(t.Context(), ask(user("the boiler?")), nil)
	if err != nil || len(first.Calls) != 2 || first.Stop != model.StopCalls || first.Text != "let me look" {
		t.Fatalf("%+v, %v", first, err)
	}
	if c := first.Calls; c[0].Name != "memory.recall" || string(c[0].Input) != `{"n":2,"query":"boiler"}` || string(c[1].Input) != "{}" || c[0].ID == c[1].ID {
		t.Errorf("calls %+v", c)
	}
	history := []model.Message{user("the boiler?"), first.Message(), model.Results(model.ToolResult{CallID: first.Calls[0].ID, Text: "4711"}, model.ToolResult{CallID: first.Calls[1].ID, Text: "noon"})}
	for range 2 { // a new process each time, and asked again for the same
		out, err := parse(t, example).Generate(t.Context(), ask(history...), nil)
		if err != nil || out.Text != "it is 4711" || out.Stop != model.StopEnd {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	history = append(history, model.Text(model.Assistant, "it is 4711"), user("the boiler again"))
	again, err := parse(t, example).Generate(t.Context(), ask(history...), nil)
	if err != nil || again.Text != "let me look" || again.Calls[0].ID == first.Calls[0].ID {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestTurnsWithoutAPatternAnswerInOrder(t *testing.T) {
	t.Parallel()
	p := parse(t, example)
	history := []model.Message{}
	for i, want := range []string{"first", "second and later", "second and later"} {
		history = append(history, user("x"))
		var streamed strings.Builder
		out, err := p.Generate(t.Context(), ask(history...), func(d model.Delta) { streamed.WriteString(d.Text) })
		if err != nil || out.Text != want || streamed.String() != want {
			t.Errorf("message %d: %+v, streamed %q, %v", i, out, streamed.String(), err)
		}
		history = append(history, out.Message())
	}
}

func TestWhatTheScriptDoesNotHaveIsInvalid(t *testing.T) {
	t.Parallel()
	p := parse(t, "turns: [{match: a, steps: [{text: b}]}]")
	for _, messages := range [][]model.Message{nil, {user("x")}, {user("a"), model.Text(model.Assistant, "b")}} {
		if _, err := p.Generate(t.Context(), ask(messages...), nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", messages, err)
		}
	}
}

func TestErrorsDelaysAndHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, start := parse(t, example), time.Now()
		out, err := p.Generate(t.Context(), ask(user("wait 5")), nil)
		if err != nil || out.Text != "here I am" || time.Since(start) != 2*time.Second {
			t.Errorf("%+v after %v, %v", out, time.Since(start), err)
		}
		_, err = p.Generate(t.Context(), ask(user("fail")), nil)
		if after, ok := model.RetryAfter(err); !fault.Is(err, fault.Unavailable) || !ok || after != 3*time.Second || !strings.Contains(err.Error(), "overloaded") {
			t.Errorf("%v, retry after %v", err, after)
		}
		for _, text := range []string{"stuck", "wait 5"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start = time.Now()
			if _, err = p.Generate(ctx, ask(user(text)), nil); !fault.Is(err, fault.Timeout) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", text, err, time.Since(start))
			}
			cancel()
			if _, err = p.Generate(ctx, ask(user(text)), nil); err == nil {
				t.Errorf("%s: answered after the end", text)
			}
		}
	})
	out, err := parse(t, example).Generate(t.Context(), ask(user("broken")), nil)
	if err != nil || out.Calls[0].Input != nil || out.Calls[0].BadInput != `{"path":` {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestTheLogCountsEveryRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "script.yaml")
	if err := os.WriteFile(path, []byte("log: asked.log\nturns: [{match: a, steps: [{text: b}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 { // as many processes
		wg.Go(func() {
			p, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err = p.Generate(t.Context(), ask(user("a\nb")), nil); err != nil {
				t.Error(err)
			}
			if _, err = p.Generate(t.Context(), ask(user("x")), nil); err == nil {
				t.Error("an unknown message was answered")
			}
		})
	}
	wg.Wait()
	raw, err := os.ReadFile(filepath.Join(dir, "asked.log"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		count[line]++
	}
	if len(count) != 2 || count["1 1 \"a\\nb\"\n"] != 20 || count["0 1 \"x\"\n"] != 20 {
		t.Errorf("%v", count)
	}
}

func TestAWrongScriptIsToldWhereAndWhy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "no turns",
		"turns: []":                         "no turns",
		"turns: [{steps: []}]":              "turn 1: it has no steps",
		"turns:\n- steps:\n  - txet: hello": "[3:5] unknown field \"txet\"",
		"turn: [":                           "[1:",
		"turns: [{match: a, regexp: b, steps: [{text: x}]}]":            "turn 1: match and regexp exclude each other",
		"turns: [{regexp: '(', steps: [{text: x}]}]":                    "turn 1: regexp: ",
		"turns: [{steps: [{text: x}, {}]}]":                             "turn 1: step 2: it needs one of",
		"turns: [{steps: [{text: x, hang: true}]}]":                     "step 1: it needs one of",
		"turns: [{steps: [{text: x, delay: 5}]}]":                       "delay: \"5\" is no duration",
		"turns: [{steps: [{text: x, delay: -5s}]}]":                     "is no duration",
		"turns: [{steps: [{calls: [{input: {}}]}]}]":                    "call 1: it names no tool",
		"turns: [{steps: [{calls: [{tool: a, input: [1]}]}]}]":          "the input of a is not a mapping",
		"turns: [{steps: [{calls: [{tool: a, input: {}, raw: x}]}]}]":   "input and raw exclude each other",
		"turns: [{steps: [{error: {class: busy}}]}]":                    "no class \"busy\"; there are invalid, ",
		"turns: [{steps: [{error: {class: timeout, retry_after: x}}]}]": "retry_after: \"x\" is no duration",
	} {
		if _, err := Parse([]byte(text)); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.yaml")); !fault.Is(err, fault.Config) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("turns: [{steps: [{calls: [{tool: a, input: {1: {x: .inf}}}]}]}]")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse([]byte(s))
		if err != nil {
			if !fault.Is(err, fault.Config) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		p.script.Log = ""
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if out, err := p.Generate(ctx, ask(user("boiler")), nil); err == nil || out.Text != "" {
			t.Fatalf("%q: answered after the end: %+v", s, out)
		}
	})
}
