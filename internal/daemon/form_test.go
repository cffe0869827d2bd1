//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/wire"
)

// addAsking adds a tool whose calls are allowed and have something filled in.
func addAsking(t *testing.T, d *Daemon) {
	t.Helper()
	err := d.tools.Add(tool.Definition{
		Name: "time.form", Description: "asks a person", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 16, Source: label.Own,
		Input:   json.RawMessage(`{"type":"object"}`),
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("time.read")}, nil },
		Summary: func(json.RawMessage) string { return "ask you" },
		Form: func(json.RawMessage) json.RawMessage {
			return json.RawMessage(`{"properties":{"name":{"type":"string","title":"Who\u202e you are"},"colour":{"oneOf":[{"const":"r","title":"Red"}],"default":"r"}},"required":["name"]}`)
		},
	}, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		return tool.Output{Text: "said " + string(in.Said)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAQuestionIsFilledInOverTheSocket(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			store := ""
			if kind == dbtest.KindPostgres {
				store = fmt.Sprintf("store: %q\n", dbtest.PostgresDSN(t))
			}
			o := options(t, store+obeys(t, `{tool: time.form, input: {}}`))
			within(t, o, func(d *Daemon) { addAsking(t, d) })
			filledIn(t, wire.NewClient(o.Instance.Socket()))
		})
	}
}

func filledIn(t *testing.T, c *wire.Client) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.SecretSet(ctx, wire.SecretSetRequest{Name: "api", Value: []byte("s3kr3t-value-0001"), Hosts: []string{"example.org"}}); err != nil {
		t.Fatal(err)
	}
	sent, err := c.MessageSend(ctx, wire.MessageSendRequest{Text: "do it"})
	if err != nil {
		t.Fatal(err)
	}
	var told wire.TurnApproval
	found := errors.New("found")
	_, err = c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: sent.RunID}, func(n wire.TurnNote) error {
		a, is := n.(wire.TurnApproval)
		if told = a; is {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) || told.Form == nil || len(told.Form.Fields) != 2 {
		t.Fatalf("%+v, %v", told, err)
	}
	q := waiting(t, c, sent.RunID)
	if q.Form == nil || q.Answer != nil || len(q.Form.Fields) != 2 || !json.Valid(q.Form.Schema) {
		t.Fatalf("%+v", q)
	}
	name, colour := q.Form.Fields[0], q.Form.Fields[1]
	if name.Name != "name" || !name.Required || strings.Contains(name.Title, "\u202e") || colour.Type != "text" || len(colour.Choices) != 1 || string(colour.Default) != `"r"` {
		t.Errorf("%+v", q.Form.Fields)
	}
	answer := json.RawMessage(`{"name":"Ada"}`)
	for what, bad := range map[string]struct {
		req   wire.ApprovalsResolveRequest
		class fault.Class
		says  string
	}{
		"a plain yes":     {wire.ApprovalsResolveRequest{Decision: wire.Approve}, fault.Invalid, "name is missing"},
		"an unknown one":  {wire.ApprovalsResolveRequest{Decision: wire.Approve, Answer: json.RawMessage(`{"nmae":"Ada"}`)}, fault.Invalid, "no field"},
		"a no filled in":  {wire.ApprovalsResolveRequest{Decision: wire.Deny, Answer: answer}, fault.Invalid, "no answer"},
		"a yes for later": {wire.ApprovalsResolveRequest{Decision: wire.Approve, Standing: wire.StandingAlways}, fault.Invalid, "each time"},
		"both":            {wire.ApprovalsResolveRequest{Decision: wire.Approve, Standing: wire.StandingAlways, Answer: answer}, fault.Invalid, "this call alone"},
		"a secret":        {wire.ApprovalsResolveRequest{Decision: wire.Approve, Answer: json.RawMessage(`{"name":"s3kr3t-value-0001"}`)}, fault.Denied, "the secret api"},
	} {
		bad.req.ID = q.ID
		if _, err := c.ApprovalsResolve(ctx, bad.req); !fault.Is(err, bad.class) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v, want %s with %q", what, err, bad.class, bad.says)
		}
	}
	got, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: q.ID, Decision: wire.Approve, Answer: answer})
	const want = `{"colour":"r","name":"Ada"}`
	if err != nil || string(got.Approval.Answer) != want {
		t.Fatalf("%+v, %v", got, err)
	}
	done(t, c, got.RunID)
	e, err := c.Explain(ctx, wire.ExplainRequest{ID: sent.EventID})
	if err != nil || len(e.Approvals) != 1 || string(e.Approvals[0].Answer) != want {
		t.Errorf("%+v, %v", e.Approvals, err)
	}
	why, err := c.CapsWhy(ctx, wire.CapsWhyRequest{Subject: "agent:main", Tool: "time.form"})
	if err != nil || why.Decision != "ask" || why.Decided.Code != "form" {
		t.Errorf("%+v, %v", why, err)
	}
}
