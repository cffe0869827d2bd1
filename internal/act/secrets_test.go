package act

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const sekret = "s3kr3t-value/0001"

func hiding(t *testing.T, b *bench) {
	t.Helper()
	r := redact.New()
	r.Register("known", []byte(sekret))
	b.act.Hide = r
	b.audit = audit.New(b.db, b.vault, "hiding", nil, audit.Hide(r.String))
	if err := b.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.act.Audit = b.audit
}

// spotless checks that nothing of the run shows the secret: results, steps, events,
// audit.
func spotless(t *testing.T, b *bench, results []Result) {
	t.Helper()
	r := b.act.Hide
	all, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	evs, err := b.log.Read(t.Context(), 0, 1000, eventlog.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range evs {
		all = append(append(all, e.Data...), e.Stream...)
	}
	var export bytes.Buffer
	if err := b.audit.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	all = append(all, export.Bytes()...)
	if name := r.Find(all); name != "" || bytes.Contains(all, []byte(sekret)) {
		t.Errorf("the secret is in %s", all)
	}
}

func TestNoResultHoldsASecret(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	hiding(t, b)
	wrapped := base64.StdEncoding.EncodeToString([]byte("user:" + sekret))
	b.add(define("t.text"), text("it is "+sekret))
	b.add(define("t.json"), func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{JSON: json.RawMessage(`{"basic":"` + wrapped + `"}`)}, nil
	})
	long := define("t.long")
	b.add(long, func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{Reader: io.NopCloser(strings.NewReader(strings.Repeat("filler and "+sekret+" and "+wrapped+"\n", 4000)))}, nil
	})
	b.add(define("t.fails"), func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{}, fault.New(fault.Unavailable, "the server says %s", sekret).WithHint("not %s", sekret)
	})
	b.add(define("t.panics"), func(context.Context, tool.Invocation) (tool.Output, error) { panic("with " + sekret) })
	local := define("t.local")
	local.Kind = tool.Local
	b.add(local, text(sekret))
	res := b.do(to("1", "t.text", `{"as":"free"}`), to("2", "t.json", `{"as":"free"}`), to("3", "t.long", `{"as":"free"}`),
		to("4", "t.fails", `{"as":"free"}`), to("5", "t.panics", `{"as":"free"}`), to("6", "t.local", `{"as":"free"}`))
	for i, want := range []Status{OK, OK, OK, Failed, Unclear, OK} {
		if res[i].Status != want || !strings.Contains(res[i].Text, "[secret:known]") {
			t.Errorf("%d: %s %s", i, res[i].Status, res[i].Text)
		}
	}
	spotless(t, b, res)
	whole, err := b.blobs.Open(t.Context(), res[2].Blob)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	kept, err := io.ReadAll(whole)
	if err != nil || b.act.Hide.Find(kept) != "" || bytes.Count(kept, []byte("[secret:known]")) != 8000 {
		t.Errorf("the blob holds it: %d bytes, %v", len(kept), err)
	}
}

func TestAnInputThatHoldsASecretIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	hiding(t, b)
	b.add(define("t.text"), text("done"))
	escaped := strings.ReplaceAll(sekret, "/", "%2F")
	res := b.do(to("1", "t.text", `{"as":"`+sekret+`"}`), to("2", "t.text", `{"as":"`+escaped+`"}`), to("3", "t.text", `no JSON `+sekret),
		to("4", sekret, `{}`), to("5", "t.text", `{"as":"free","more":"`+base64.StdEncoding.EncodeToString([]byte(sekret))+`"}`), to("6", "t.text", `{"as":"free"}`))
	for i, r := range res[:5] {
		if r.Status != Refused || r.Summary != "" || len(r.Scopes) > 0 || i != 3 && !strings.Contains(r.Text, "the secret known") {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if res[5].Status != OK || b.called("t.text") != 1 {
		t.Errorf("%+v, %d calls", res[5], b.called("t.text"))
	}
	spotless(t, b, res)
}

// What was begun goes on as it was begun, whatever is secret since.
func TestAValueThatBecomesSecretDoesNotHoldUpWhatWasBegun(t *testing.T) {
	t.Parallel()
	def := define("t.send")
	def.Repeat = tool.Repeatable
	_, _, got := interrupted(t, def, func(b *bench) {
		r := redact.New()
		r.Register("input", []byte(`{"as":"free"}`))
		b.act.Hide = r
	})
	expect(t, got, OK, "again")
}

type someSecrets map[string]bool

func (s someSecrets) Check(_ context.Context, name string) error {
	if s[name] {
		return nil
	}
	return fault.New(fault.NotFound, "there is no secret %s", name).WithHint("ombud secret set %s", name)
}

func TestASecretThatIsMissingIsToldBeforeAnybodyIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	def := define("t.send")
	def.Scopes = func(json.RawMessage) ([]scope.Scope, error) {
		return []scope.Scope{scope.Must("tool:ask"), scope.Must("secret:api")}, nil
	}
	b.add(def, text("sent"))
	c := to("1", "t.send", `{"as":"x"}`)
	expect(t, b.do(c)[0], Refused, "there is no secret api")
	b.act.Secrets = someSecrets{}
	expect(t, b.do(c)[0], Refused, "there is no secret api (ombud secret set api)")
	if list := b.entries("call.refused"); len(list) != 2 || b.called("t.send") != 0 {
		t.Errorf("%+v", list)
	}
	b.act.Secrets = someSecrets{"api": true}
	id := b.start(c)
	if apr := b.asked(id); len(apr.Scopes) != 2 {
		t.Errorf("%+v", apr)
	}
}
