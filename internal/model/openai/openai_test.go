package openai

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/sashabaranov/go-openai"
	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, s *modeltest.Server) model.Provider {
	t.Helper()
	return with(t, Config{Key: modeltest.Key, BaseURL: s.URL + "/v1", Model: "test-model"})
}

func with(t testing.TB, c Config) *Provider {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestConforms(t *testing.T) {
	t.Parallel()
	modeltest.Conform(t, open)
}

func ask() model.Request {
	return model.Request{Messages: []model.Message{model.Text(model.User, "hi")}, Tools: []model.ToolSpec{{Name: "time.now"}}}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]model.StopReason{
		"stop": model.StopEnd, "length": model.StopMaxTokens, "content_filter": model.StopRefusal,
	} {
		out, err := open(t, modeltest.New(t, modeltest.Step{Text: "x", Stop: wire})).Generate(t.Context(), ask(), nil)
		if err != nil || out.Stop != want {
			t.Errorf("%s: %s, %v", wire, out.Stop, err)
		}
	}
	s := modeltest.New(t, modeltest.Step{Calls: []modeltest.Call{{Name: "time_now"}}, Stop: "stop"})
	if out, err := open(t, s).Generate(t.Context(), ask(), nil); err != nil || out.Stop != model.StopCalls {
		t.Errorf("calls with stop: %+v, %v", out, err)
	}
}

func TestUsageThatIsNotReportedIsEstimated(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Step{Text: strings.Repeat("word ", 30), NoUsage: true})
	out, err := open(t, s).Generate(t.Context(), ask(), nil)
	if err != nil || !out.Usage.Estimated || out.Usage.Input < 10 || out.Usage.Output < 30 {
		t.Errorf("%+v, %v", out.Usage, err)
	}
}

func TestEachServerIsToldTheLimitInItsOwnWord(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"llama3.2": `"max_tokens":77`, "gpt-5.4": `"max_completion_tokens":77`, "o3": `"max_completion_tokens":77`} {
		s := modeltest.New(t, modeltest.Step{Text: "x"})
		req := ask()
		req.Model, req.MaxTokens = name, 77
		if _, err := open(t, s).Generate(t.Context(), req, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if body := string(s.Requests()[0].Body); !strings.Contains(body, want) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t)
	p := with(t, Config{Name: "ollama", BaseURL: s.URL + "/v1", Model: "x"})
	if got, err := p.Models(t.Context()); err != nil || !slices.Equal(got, []string{"big", "small"}) {
		t.Errorf("%v, %v", got, err)
	}
	s.Close()
	if _, err := p.Models(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a server: %v", err)
	}
}

func TestAServerWithoutAKeyIsSentNone(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t)
	_, err := with(t, Config{Name: "ollama", BaseURL: s.URL + "/v1", Model: "x"}).Generate(t.Context(), ask(), nil)
	if !fault.Is(err, fault.Denied) || s.Requests()[0].Header.Get("authorization") != "" {
		t.Errorf("%v, sent %v", err, s.Requests()[0].Header)
	}
}

func index(i int) *int { return &i }

func TestFragmentsOfCallsAreJoinedAsServersMeanThem(t *testing.T) {
	t.Parallel()
	f := func(i *int, id, name, args string) sdk.ToolCall {
		return sdk.ToolCall{Index: i, ID: id, Function: sdk.FunctionCall{Name: name, Arguments: args}}
	}
	for name, c := range map[string]struct {
		in   []sdk.ToolCall
		want []string
	}{
		"by index":            {[]sdk.ToolCall{f(index(0), "a", "x", ""), f(index(0), "", "", `{"n":`), f(index(1), "b", "y", "{}"), f(index(0), "", "", `1}`)}, []string{`a x {"n":1}`, `b y {}`}},
		"index 0 for all":     {[]sdk.ToolCall{f(index(0), "a", "x", `{"n":1}`), f(index(0), "b", "x", `{"n":2}`)}, []string{`a x {"n":1}`, `b x {"n":2}`}},
		"no index":            {[]sdk.ToolCall{f(nil, "a", "x", `{"n":1}`), f(nil, "b", "y", `{}`)}, []string{`a x {"n":1}`, `b y {}`}},
		"no index, no ID":     {[]sdk.ToolCall{f(nil, "", "x", `{"n":`), f(nil, "", "", `1}`), f(nil, "", "y", `{}`)}, []string{`call_1 x {"n":1}`, `call_2 y {}`}},
		"one ID for all":      {[]sdk.ToolCall{f(index(0), "a", "x", `{}`), f(index(1), "a", "y", `{}`)}, []string{`a x {}`, `call_2 y {}`}},
		"ID repeated":         {[]sdk.ToolCall{f(index(0), "a", "x", `{"n"`), f(index(0), "a", "", `:1}`)}, []string{`a x {"n":1}`}},
		"arguments broken":    {[]sdk.ToolCall{f(index(0), "a", "x", `{"n"`)}, []string{`a x `}},
		"no arguments at all": {[]sdk.ToolCall{f(index(0), "a", "x", ``)}, []string{`a x {}`}},
	} {
		var a answer
		for _, tc := range c.in {
			a.call(tc)
		}
		var got []string
		for _, call := range a.response(model.NewNames(nil)).Calls {
			got = append(got, call.ID+" "+call.Name+" "+string(call.Input))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Model: "m"}, {Key: "k"}, {Model: "m", BaseURL: "127.0.0.1:11434"}, {Model: "m", BaseURL: "ftp://x"}} {
		if _, err := New(c); !fault.Is(err, fault.Config) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzStripper(f *testing.F) {
	f.Add(": a\n\ndata: b\n\n: c", uint8(3))
	f.Add("data: :\r\n:\n:\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, s string, step uint8) {
		var want []string
		for _, line := range strings.SplitAfter(s, "\n") {
			if !strings.HasPrefix(line, ":") {
				want = append(want, line)
			}
		}
		r := &stripper{ReadCloser: io.NopCloser(strings.NewReader(s)), lineStart: true}
		var got strings.Builder
		buf := make([]byte, int(step%16)+1)
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{r}, buf); err != nil {
			t.Fatal(err)
		}
		if got.String() != strings.Join(want, "") {
			t.Fatalf("%q became %q, want %q", s, got.String(), strings.Join(want, ""))
		}
	})
}

func FuzzCalls(f *testing.F) {
	f.Add("a\x01x\x01{}\x020", int8(1))
	f.Fuzz(func(t *testing.T, s string, n int8) {
		var a answer
		for i, part := range strings.Split(s, "\x02") {
			fields := append(strings.Split(part, "\x01"), "", "", "")
			tc := sdk.ToolCall{ID: fields[0], Function: sdk.FunctionCall{Name: fields[1], Arguments: fields[2]}}
			if n%3 != 0 {
				tc.Index = index(i % int(max(n, 1)))
			}
			a.call(tc)
		}
		seen := map[string]bool{}
		for _, c := range a.response(model.NewNames(nil)).Calls {
			if (c.Input == nil) == (c.BadInput == "") || seen[c.ID] {
				t.Fatalf("call %+v", c)
			}
			seen[c.ID] = true
		}
	})
}

func TestAnAnswerThatIsNoneIsToldInWholeCharacters(t *testing.T) {
	t.Parallel()
	for lead := range 4 {
		said := strings.Repeat("a", lead) + strings.Repeat("😀", 100)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(said))
		}))
		_, err := with(t, Config{Key: modeltest.Key, BaseURL: s.URL + "/v1", Model: "test-model"}).Generate(t.Context(), ask(), nil)
		s.Close()
		if err == nil || !strings.Contains(err.Error(), "😀😀") || strings.Contains(err.Error(), `\x`) || strings.ContainsRune(err.Error(), utf8.RuneError) {
			t.Errorf("%v", err)
		}
	}
}
