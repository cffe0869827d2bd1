package wasmloop

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// Every host function, as the described system's own kit spells its requests, and what
// becomes of it: what the host did, and the answer.
func TestEveryHostFunction(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	b.kit.answer = "done"
	tried := map[string]bool{}
	for _, c := range []struct{ name, req, did, answer string }{
		{FnTrigger, "", "", `{"loop":"guest","kind":"event","payload":{"steps":`},
		{FnConfig, "wacli", "", `{"value":"set:wacli"}`},
		{FnHostTool, "wacli", "", `{"value":"/bin/wacli"}`},
		{FnOperators, "", "", `{"chats":null}`},
		{FnRecall, `{"query":"q","limit":0}`, "recall q 5", `{"hits":["hit"]}`},
		{FnRemember, `{"fact":"f"}`, "remember f", ""},
		{FnNotify, `{"title":"t","body":"b"}`, "notify t b", ""},
		{FnAsk, `{"prompt":"p"}`, "ask p", `{"answer":"done"}`},
		{FnHarness, `{"prompt":"p"}`, "harness p", `{"answer":"h"}`},
		{FnGateway, `{"prompt":"p","lend":["wacli"]}`, "gateway p [wacli]", `{"answer":"g"}`},
		{FnSummarize, `{"prompt":"p"}`, "summarize p", `{"answer":"s"}`},
		{FnPropose, `{"Title":"t","Summary":"s","Action":"a"}`, "propose t s a", ""},
		{FnRemind, `{"Title":"t","Due":"d","Notes":"n"}`, "remind t d n", ""},
		{FnHTTP, `{"method":"","url":"https://api.example.com/x","headers":null,"body":"b"}`, "http GET https://api.example.com/x map[] b", `{"status":201,"body":"body"}`},
		{FnTool, `{"name":"calendar.add","input":{"a":1}}`, "tool calendar.add map[a:1]", `{"output":"out","error":""}`},
		{FnShortSet, `{"Group":"g","Key":"k","Value":"v","ttl_seconds":60}`, "set g k v 60", ""},
		{FnShortGet, `{"Group":"g","Key":"k"}`, "get g k", `{"value":"v","found":true}`},
		{FnShortAll, `{"Group":"g"}`, "all g", `{"entries":[{"key":"k","value":"v"}]}`},
		{FnShortForget, `{"Group":"g","Key":"k"}`, "forget g k", ""},
		{FnChatGet, `{"JID":"j"}`, "chat j", `{"found":true,"summary":{"jid":"j",`},
		{FnChatSave, `{"jid":"j","own_count":3}`, "save j 3", ""},
		{FnRunLoop, "other", "run other", ""},
		{FnLog, "hello", "", ""},
	} {
		tried[c.name] = true
		said, err := b.run(t, call(c.name, c.req))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		answer := said[len(said)-1]
		if !strings.Contains(answer, c.answer) || strings.Contains(answer, " -") {
			t.Errorf("%s answered %q", c.name, answer)
		}
		if did := b.kit.take(); did != c.did {
			t.Errorf("%s did %q", c.name, did)
		}
	}
	for name := range hostFuncs {
		if _, described := reach[name]; !described || !tried[name] {
			t.Errorf("%s: described %v, tried %v", name, described, tried[name])
		}
	}
	if len(reach) != len(hostFuncs)+len(ownFuncs) {
		t.Errorf("%d are described and %d are there", len(reach), len(hostFuncs)+len(ownFuncs))
	}
}

func TestCodesOfRefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Manifest, *Options)
		kitErr error
		step   step
		want   string
	}{
		"not declared":           {func(m *Manifest, _ *Options) { m.Host = []string{FnTrigger, FnLog} }, nil, call(FnAsk, `{"prompt":"p"}`), "ask -2"},
		"no such function":       {func(m *Manifest, _ *Options) { m.Host = append(m.Host, "fly") }, nil, call("fly", ""), "fly -2"},
		"no tool of the list":    {nil, nil, call(FnTool, `{"name":"shell.exec"}`), "tool -2"},
		"a tool without a name":  {nil, nil, call(FnTool, `{}`), "tool -5"},
		"a request that is none": {nil, nil, call(FnAsk, `{`), "ask -1"},
		"not granted":            {func(_ *Manifest, o *Options) { o.Grants = only{} }, nil, call(FnAsk, `{"prompt":"p"}`), "ask -3"},
		"no grants at all":       {func(_ *Manifest, o *Options) { o.Grants = nil }, nil, call(FnAsk, `{"prompt":"p"}`), "ask -3"},
		"a tool not granted":     {func(_ *Manifest, o *Options) { o.Grants = only{} }, nil, call(FnTool, `{"name":"calendar.add"}`), "tool -3"},
		"read is not write":      {func(_ *Manifest, o *Options) { o.Grants = only{"memory:nexus"} }, nil, call(FnRemember, `{"fact":"f"}`), "remember -3"},
		"read":                   {func(_ *Manifest, o *Options) { o.Grants = only{"memory:nexus"} }, nil, call(FnRecall, `{"query":"f"}`), "recall 1"},
		"write":                  {func(_ *Manifest, o *Options) { o.Grants = only{"memory:nexus:write"} }, nil, call(FnRemember, `{"fact":"f"}`), "remember 0"},
		"the usual memory": {func(m *Manifest, o *Options) {
			m.Capabilities, o.Grants = nil, only{"memory:main"}
		}, nil, call(FnRecall, `{"query":"f"}`), "recall 1"},
		"a host not named":   {nil, nil, call(FnHTTP, `{"url":"https://example.com/"}`), "http -1"},
		"a host not granted": {func(_ *Manifest, o *Options) { o.Grants = only{} }, nil, call(FnHTTP, `{"url":"https://api.example.com/"}`), "http -1"},
		"no URL":             {nil, nil, call(FnHTTP, `{"url":"/x"}`), "http -1"},
		"the host failed":    {nil, errors.New("down"), call(FnAsk, `{"prompt":"p"}`), "ask -1"},
		"the host refused":   {nil, ErrRefused, call(FnAsk, `{"prompt":"p"}`), "ask -3"},
		"a tool failed":      {nil, errors.New("no calendar"), call(FnTool, `{"name":"calendar.add"}`), `tool 38 {"output":"out","error":"no calendar"}`},
		"a request too long": {nil, nil, call(FnLog, strings.Repeat("x", 64<<10+1)), "log -5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := guest(t, c.change)
			b.kit.err = c.kitErr
			said, err := b.run(t, c.step)
			if err != nil || len(said) != 1 || !strings.HasPrefix(said[0], c.want) {
				t.Errorf("said %q, %v", said, err)
			}
			if strings.Contains(c.want, "-2") || strings.Contains(c.want, "-5") {
				if did := b.kit.take(); did != "" {
					t.Errorf("it did %q", did)
				}
			}
		})
	}
}

// An answer that is too long for the buffer is kept: the call is made once.
func TestAnAnswerThatDoesNotFitIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	b.kit.answer = strings.Repeat("a", 100<<10)
	ask := func(prompt string, size int) step {
		return step{Do: "call", Name: FnAsk, Req: `{"prompt":"` + prompt + `"}`, Cap: size}
	}
	said, err := b.run(t, ask("p", 32<<10), ask("p", 64<<10), ask("p", 256<<10))
	if err != nil || !strings.HasPrefix(said[0], "ask -4") || !strings.HasPrefix(said[1], "ask -4") || !strings.HasPrefix(said[2], "ask 102413 ") {
		t.Errorf("%.40q %v", said, err)
	}
	if did := b.kit.take(); did != "ask p" {
		t.Errorf("it did %q", did)
	}
	if _, err = b.run(t, ask("p", 1), ask("q", 1), ask("p", 256<<10), ask("p", 256<<10)); err != nil {
		t.Fatal(err)
	}
	if did := b.kit.take(); did != "ask p; ask q; ask p; ask p" {
		t.Errorf("an answer is kept for the identical next call only: %q", did)
	}
}

func TestEachRunIsFreshAndRandomnessIsReal(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	seen := map[string]bool{}
	for range 5 {
		said, err := b.run(t, step{Do: "runs"}, step{Do: "random"})
		if err != nil || said[0] != "runs 1" {
			t.Fatalf("%q %v", said, err)
		}
		if seen[said[1]] {
			t.Errorf("the same randomness twice: %s", said[1])
		}
		seen[said[1]] = true
	}
}

func wat(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/guests/wat/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func plain(m *Manifest, _ *Options) { m.Provides = nil }

func TestAModuleThatDoesNotFitIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		module []byte
		change func(*Manifest, *Options)
		says   string
	}{
		"no wasm":                   {[]byte("no wasm"), plain, "WebAssembly"},
		"foreign imports":           {wat(t, "foreign"), plain, `"env"."abort"`},
		"no run":                    {wat(t, "norun"), plain, `"run"`},
		"no memory":                 {wat(t, "nomemory"), plain, "memory"},
		"more memory than it says":  {wat(t, "hungry"), plain, "memory"},
		"provides without exports":  {wat(t, "trap"), nil, `"karmax_alloc"`},
		"more memory than there is": {wat(t, "trap"), func(m *Manifest, _ *Options) { m.MemoryMB = 5000 }, "4096"},
		"memory below nothing":      {wat(t, "trap"), func(m *Manifest, _ *Options) { m.MemoryMB = -1 }, "4096"},
	} {
		if _, err := newGuest(t, c.module, c.change); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAModuleThatMisbehavesEndsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		module string // of wat; "" for the scripted one
		step   step
		want   error
	}{
		"traps": {"trap", step{}, ErrTrapped}, "recurses": {"recurse", step{}, ErrTrapped}, "spins": {"spin", step{}, ErrTimeout},
		"takes all memory": {"grow", step{}, ErrTrapped},
		"recurses in Go":   {"", step{Do: "recurse"}, ErrTrapped},
		"allocates in Go":  {"", step{Do: "allocate"}, ErrTrapped},
		"spins in Go":      {"", step{Do: "spin"}, ErrTimeout},
		"panics in Go":     {"", step{Do: "panic"}, ErrTrapped},
		"exits with 3":     {"", step{Do: "exit", N: 3}, ErrTrapped},
		"exits with 0":     {"", step{Do: "exit", N: 0}, nil},
		"calls for ever":   {"", step{Do: "call", Name: FnConfig, Cap: 100, N: 1 << 30}, ErrTrapped},
		"calls in bounds":  {"", step{Do: "call", Name: FnConfig, Cap: 100, N: 9_990}, nil},
		"asks out of time": {"", call(FnAsk, `{"prompt":"wait"}`), ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *guestBench
			if c.module == "" {
				b = guest(t, func(m *Manifest, _ *Options) { m.MemoryMB = 16 })
			} else {
				b = guestOf(t, wat(t, c.module), plain)
			}
			b.kit.onAsk = func(ctx context.Context) string { <-ctx.Done(); return "" }
			b.kit.err = nil
			limit := time.Hour        // what fails does so by what it does, however slow the machine is
			if c.want == ErrTimeout { //nolint:errorlint // of the table
				limit = 300 * time.Millisecond
			}
			err := b.RunTriggered(t.Context(), limit, "event", steps(c.step))
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.module == "" { // the next run knows nothing of it
				if said, err := b.run(t, step{Do: "runs"}); err != nil || said[0] != "runs 1" {
					t.Errorf("after it: %q %v", said, err)
				}
			}
		})
	}
}

// The guest traps at the first code that is not the one it wants.
func TestPointersOutsideOfTheMemoryAreRefused(t *testing.T) {
	t.Parallel()
	b := guestOf(t, wat(t, "outside"), plain)
	if err := b.Run(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	b := guest(t, func(_ *Manifest, o *Options) { o.Limits.Output = 10_000 })
	said, err := b.run(t, step{Do: "print", N: 5000}, call(FnLog, strings.Repeat("l", 4000)), step{Do: "print", N: 5000}, call(FnLog, "more"))
	if err != nil || len(said) != 2 { // the third is too much
		t.Fatalf("%d lines, %v", len(said), err)
	}
	for _, line := range said {
		if len(line) > maxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

func TestProvidedTools(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	if got := b.ProvidedTools(); len(got) != 2 || got[0].Name != "look" {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]string{"look": `look 7 17 {"value":"set:k"}`, "json": `{"error":"no"}`} {
		if got, err := b.InvokeTool(t.Context(), name, map[string]any{"x": 7}, time.Minute); err != nil || got != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, err := b.InvokeTool(t.Context(), "other", nil, time.Minute); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
	for _, name := range []string{"liar", "lost"} {
		x := guestOf(t, wat(t, name), nil)
		if _, err := x.InvokeTool(t.Context(), "look", nil, time.Minute); !errors.Is(err, ErrTrapped) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An ask whose agent calls the loop's own tool does not wait for itself.
func TestAnAskMayCallTheLoopsOwnTool(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	b.kit.onAsk = func(ctx context.Context) string {
		got, err := b.InvokeTool(ctx, "look", map[string]any{"x": 1}, 10*time.Second)
		if err != nil {
			return err.Error()
		}
		return got
	}
	said, err := b.run(t, call(FnAsk, `{"prompt":"p"}`))
	if err != nil || !strings.Contains(said[0], `look 1 17`) {
		t.Errorf("%q %v", said, err)
	}
}

// A host that records answers gives them back in a second run, and nothing is done again.
func TestCallsCanBeRecordedAndReplayed(t *testing.T) {
	t.Parallel()
	record := map[int]string{}
	b := guest(t, func(_ *Manifest, o *Options) {
		o.Around = func(ctx context.Context, c Call, do func(context.Context, []byte) ([]byte, error)) ([]byte, error) {
			if got, there := record[c.N]; there {
				return []byte(got), nil
			}
			got, err := do(ctx, c.Request)
			record[c.N] = string(got)
			return got, err
		}
	})
	b.kit.answer = "first"
	do := []step{call(FnAsk, `{"prompt":"p"}`), call(FnNotify, `{"title":"t"}`)}
	once, err := b.run(t, do...)
	if err != nil || b.kit.take() != "ask p; notify t " {
		t.Fatal(once, err)
	}
	b.kit.answer = "second"
	twice, err := b.run(t, do...)
	if err != nil || strings.Join(once, "|") != strings.Join(twice, "|") || b.kit.take() != "" {
		t.Errorf("%q, then %q %v", once, twice, err)
	}
}
