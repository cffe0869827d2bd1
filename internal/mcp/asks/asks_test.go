package asks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

var name = client.Asked{Kind: client.AskForm, Message: "who are you?\u202e", Schema: json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`)}

func (b *bench) reply(a approval.Approval, r approval.Reply) error {
	b.t.Helper()
	_, err := b.approvals.Resolve(b.t.Context(), a.ID, r, "operator")
	return err
}

func TestAJobOfAQuestionHoldsNothingElse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		b.may("mcp.call:py/*", "fs.read:/**", "mcp.call:other/*")
		id := b.begin(name)
		a := b.open()
		if a.Tool != ElicitTool || a.Subject != "mcp_server:py" || a.Conversation != "conv_1" || !slices.Equal(a.Scopes, []string{"mcp.call:py/greet"}) || a.Form == nil {
			t.Errorf("%+v", a)
		}
		if want := `the MCP server py asks, in its own words: "who are you?\u202e"`; a.Summary != want {
			t.Errorf("%q, want %q", a.Summary, want)
		}
		if !a.Label.Tainted() {
			t.Errorf("the question carries %s", a.Label)
		}
		if err := b.reply(a, approval.Reply{Decision: approval.Approve}); err == nil {
			t.Error("it was answered with nothing")
		}
		if err := b.reply(a, approval.Reply{Decision: approval.Approve, Answer: json.RawMessage(`{"name":"Ada"}`)}); err != nil {
			t.Fatal(err)
		}
		if got := b.end(id); got.Action != client.Accept || string(got.Content) != `{"name":"Ada"}` {
			t.Errorf("%+v", got)
		}
		calls, err := b.runs.List(t.Context(), run.Filter{Parent: id, Kind: job.CallKind})
		if err != nil || len(calls) != 1 || calls[0].State != run.Completed {
			t.Errorf("%+v, %v", calls, err)
		}
		if n, err := b.jobs.Sweep(t.Context()); err != nil || n != 0 {
			t.Errorf("%d jobs were left open, %v", n, err)
		}
	})
}

func TestANoIsADecline(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	id := b.begin(name)
	if err := b.reply(b.open(), approval.Reply{Decision: approval.Deny, Note: "not now"}); err != nil {
		t.Fatal(err)
	}
	if got := b.end(id); got.Action != client.Decline || !strings.Contains(got.Why, "operator refused") {
		t.Errorf("%+v", got)
	}
	// A rule says no before anybody is asked.
	b.may("mcp.call:py/*", "!mcp.ask:py/elicit")
	if got := b.end(b.begin(name)); got.Action != client.Decline || !strings.Contains(got.Why, "mcp.ask:py/elicit") {
		t.Errorf("%+v", got)
	}
	b.may("mcp.call:py/*", "!mcp.ask:other/elicit")
	id = b.begin(client.Asked{Kind: client.AskURL, URL: "https://example.com/x", Message: "log in", Before: true})
	a := b.open()
	for _, part := range []string{"wants you to open a page of example.com: https://example.com/x", "say yes when you are done there", "its own words: log in"} {
		if !strings.Contains(a.Summary, part) {
			t.Errorf("%q does not say %q", a.Summary, part)
		}
	}
	if err := b.reply(a, approval.Reply{Decision: approval.Approve}); err != nil {
		t.Fatal(err)
	}
	if got := b.end(id); got.Action != client.Accept || got.Content != nil {
		t.Errorf("%+v", got)
	}
}

func TestWhereNobodyWaitsNobodyIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.mu.Lock()
	b.auth.Unattended = true
	b.mu.Unlock()
	if got := b.end(b.begin(name)); got.Action != client.Cancel || !strings.Contains(got.Why, "nobody waits") {
		t.Errorf("%+v", got)
	}
}

func TestTheValueOfASecretIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.hide.Register("ours", []byte("open sesame please"))
	id := b.begin(name)
	a := b.open()
	answer := approval.Reply{Decision: approval.Approve, Answer: json.RawMessage(`{"name":"open sesame please"}`)}
	if err := b.reply(a, answer); err == nil {
		t.Error("it was taken")
	}
	if err := b.reply(a, approval.Reply{Decision: approval.Deny}); err != nil {
		t.Fatal(err)
	}
	b.end(id)
	// One that became known after it was filled in is not sent either.
	out, err := b.elicit(t.Context(), said("open sesame please"))
	if err == nil || out.JSON != nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%s, %v", out.JSON, err)
	}
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	id := b.begin(name)
	a := b.open()
	if err := b.runs.Cancel(t.Context(), id, "operator", "/stop"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.runs.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(patience)
	for {
		got, err := b.approvals.Get(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State == approval.Expired {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("the question is %s", got.State)
		}
	}
}

func TestAModelIsAskedWithLeaveForBoth(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	think := client.Asked{Kind: client.AskSample, Sample: client.Sample{System: "be short", MaxTokens: 50, Messages: []client.Saying{
		{Role: "user", Text: "think of a number"}, {Role: "assistant", Text: "which?"}, {Role: "user", Text: "any"},
	}}}
	for _, may := range [][]string{{"mcp.call:py/*"}, {"mcp.call:py/*", "llm.call"}, {"mcp.call:py/*", "mcp.ask:py/sample"}, {"mcp.call:py/*", "mcp.ask:other/sample", "llm.call"}} {
		b.may(may...)
		if got := b.end(b.begin(think)); got.Action != client.Decline || got.Why == "" || len(b.asked) != 0 {
			t.Errorf("with %v: %+v", may, got)
		}
	}
	b.may("mcp.call:py/*", "mcp.ask:py/sample", "llm.call:main")
	got := b.end(b.begin(think))
	if got.Action != client.Accept || got.Text != "seven" || got.Model != "a-model" || got.Stop != "endTurn" || got.CostMicroUSD != 12 {
		t.Errorf("%+v", got)
	}
	q := b.asked[0]
	if q.Agent != "main" || q.Role != "main" || q.MaxTokens != 50 || !strings.HasSuffix(q.System, "\n\nbe short") || len(q.Messages) != 3 || q.Messages[1].Role != model.Assistant {
		t.Errorf("%+v", q)
	}
	b.mu.Lock()
	b.said = model.Response{Text: strings.Repeat("\u202eé<", 4096), Model: "m", Stop: model.StopMaxTokens}
	b.mu.Unlock()
	if got := b.end(b.begin(think)); got.Action != client.Accept || got.Stop != "maxTokens" || len(got.Text) < maxAnswer-16 || !strings.HasPrefix(got.Text, "⟦U+202E⟧é<") {
		t.Errorf("a long answer: %s %s %d", got.Action, got.Stop, len(got.Text))
	}
}

// TestAQuestionHoldsAtMostWhatItsCallDid: whatever is allowed, a job of a question is
// given nothing that its call was denied.
func TestAQuestionHoldsAtMostWhatItsCallDid(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.may("mcp.call:py/*", "mcp.ask:py/sample", "llm.call")
	auth := b.authority()
	q := client.Asked{Server: "py", Tool: "greet", Kind: client.AskSample, Sample: client.Sample{MaxTokens: 1, Messages: []client.Saying{{Role: "user", Text: "x"}}}}
	for _, effect := range []policy.Effect{policy.Deny, policy.Ask, policy.Allow} {
		q.Call.Judge = judged(effect)
		_, _, rules, why, err := b.plan(q, auth)
		if err != nil || (why == "") != (effect != policy.Deny) {
			t.Errorf("%s: %q, %v", effect, why, err)
		}
		for _, r := range rules {
			if r.Effect != effect {
				t.Errorf("%s: it is given %s", effect, r)
			}
		}
	}
	q.Call.Judge = func(scope.Scope) policy.Decision {
		return policy.Decision{Effect: policy.Ask, Reasons: []policy.Reason{{Effect: policy.Ask, Code: policy.CodeLevel}}}
	}
	if _, _, rules, _, err := b.plan(q, auth); err != nil || len(rules) != 2 || rules[0].Effect != policy.Allow {
		t.Errorf("what the level asks about: %v, %v", rules, err)
	}
}

func TestWhatIsShownOfAQuestion(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://example.com/x": "example.com", "https://example.com:8443/x": "example.com port 8443", "http://example.com": "example.com (not encrypted)",
		"https://\u0430pple.com/":   "xn--pple-43d.com (shown as \u0430pple.com, in letters that can look like others)",
		"https://xn--pple-43d.com/": "xn--pple-43d.com (shown as xn--pple-43d.com, in letters that can look like others)",
		"https://a_b.example/":      "a_b.example",
		"https://[::1]:8443/x":      "::1 port 8443",
	} {
		if got := host(address); !strings.HasPrefix(got, want) {
			t.Errorf("%s leads to %q, want %q", address, got, want)
		}
	}
	fields := func(names ...string) json.RawMessage {
		var props []string
		for _, n := range names {
			props = append(props, `"`+n+`":{"type":"string"}`)
		}
		return json.RawMessage(`{"type":"object","properties":{` + strings.Join(props, ",") + `}}`)
	}
	in := elicitInput{Server: "py", Message: "?", Schema: fields("password", "apiKey", "API_KEY", "access_token", "pin", "name", "spinning", "monkey", "tokyo")}
	got := in.secrets()
	slices.Sort(got)
	if !slices.Equal(got, []string{"API_KEY", "access_token", "apiKey", "password", "pin"}) {
		t.Errorf("secret are %q", got)
	}
	in.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","description":"The password of your account"},"b":{"type":"string"}}}`)
	if got := in.secrets(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("by its description, secret are %q", got)
	}
	in.Message = strings.Repeat("x", maxShown+7)
	if text := in.summary(); !strings.Contains(text, "[and 7 bytes or more that are NOT shown]") {
		t.Error(text)
	}
}
