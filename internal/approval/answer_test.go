package approval

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
)

const sizeForm = `{"type":"object","properties":{"size":{"type":"integer","minimum":1},"name":{"type":"string","default":"Ada"}},"required":["size"]}`

// formAsk is a question with a form.
func formAsk(step, form string) Ask {
	q := call(step)
	q.Form = json.RawMessage(form)
	return q
}

func TestAYesToAFormComesWithAnAnswerThatFits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		var told []Approval
		b := setup(t, kind, Options{OnResolved: func(_ context.Context, _ *db.Tx, a Approval) error { told = append(told, a); return nil }})
		a, err := b.ask(formAsk("tool/1.0", sizeForm))
		if err != nil {
			t.Fatal(err)
		}
		for answer, class := range map[string]fault.Class{
			`{"name":"Eva"}`: fault.Invalid, `{"size":0}`: fault.Invalid, `{"size":1,"more":2}`: fault.Invalid, `[]`: fault.Invalid, ``: fault.Invalid,
		} {
			_, err := b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Answer: json.RawMessage(answer)}, "operator")
			wants(t, answer, err, class)
		}
		_, err = b.Resolve(t.Context(), a.ID, Reply{Decision: Approve}, "operator")
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "size is missing") {
			t.Errorf("a plain yes: %v", err)
		}
		if got, err := b.Get(t.Context(), a.ID); err != nil || got.State != Pending || got.Answer != nil || len(told) != 0 || string(got.Form) != sizeForm {
			t.Fatalf("it is %+v, %v, and told %d", got, err, len(told))
		}
		got, err := b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Answer: json.RawMessage(` {"size": 2.0}`)}, "operator")
		const want = `{"name":"Ada","size":2}`
		if err != nil || string(got.Answer) != want || len(told) != 1 || string(told[0].Answer) != want {
			t.Fatalf("answered: %+v, %v", got, err)
		}
		_, err = b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Answer: json.RawMessage(`{"size":3}`)}, "operator")
		wants(t, "answered twice", err, fault.Conflict)
		if err := b.use(a.ID, a.CallHash); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Get(t.Context(), a.ID); err != nil || string(got.Answer) != want {
			t.Errorf("once used it is %s, %v", got.Answer, err)
		}
		if k := b.kinds(a.ID); !slices.Equal(k, []string{KindAsked, KindResolved}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestANoAndAQuestionWithoutAFormHaveNoAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		asked, err := b.ask(formAsk("tool/1.0", sizeForm))
		if err != nil {
			t.Fatal(err)
		}
		plain := b.mustAsk("tool/2.0")
		some := json.RawMessage(`{"size":1}`)
		_, err = b.Resolve(t.Context(), asked.ID, Reply{Decision: Deny, Answer: some}, "operator")
		wants(t, "a no with an answer", err, fault.Invalid)
		_, err = b.Resolve(t.Context(), plain.ID, Reply{Decision: Approve, Answer: some}, "operator")
		wants(t, "an answer to nothing", err, fault.Invalid)
		if b.state(asked.ID) != Pending || b.state(plain.ID) != Pending {
			t.Error("something was decided")
		}
		if got, err := b.Resolve(t.Context(), asked.ID, Reply{Decision: Deny, Note: "no"}, "operator"); err != nil || got.State != Denied || got.Answer != nil {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := b.Resolve(t.Context(), plain.ID, Reply{Decision: Approve}, "operator"); err != nil || got.State != Approved || got.Answer != nil {
			t.Errorf("%+v, %v", got, err)
		}
		empty, err := b.ask(formAsk("tool/3.0", `{"type":"object","properties":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Resolve(t.Context(), empty.ID, Reply{Decision: Approve}, "operator"); err != nil || string(got.Answer) != "{}" {
			t.Errorf("a plain question: %+v, %v", got, err)
		}
		_, err = b.ask(formAsk("tool/4.0", `{"type":"array"}`))
		wants(t, "a form that nobody could fill in", err, fault.Invalid)
	})
}

func TestAnAnswerHoldsNoSecret(t *testing.T) {
	t.Parallel()
	hide := redact.New()
	hide.Register("api", []byte("s3kr3t-value-0001"))
	b := setup(t, dbtest.KindSQLite, Options{Hide: hide})
	a, err := b.ask(formAsk("tool/1.0", sizeForm))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Answer: json.RawMessage(`{"size":1,"name":"it is s3kr3t-value-0001"}`)}, "operator")
	if !fault.Is(err, fault.Denied) || strings.Contains(err.Error(), "s3kr3t") || b.state(a.ID) != Pending {
		t.Errorf("%v, and it is %s", err, b.state(a.ID))
	}
}

// TestAnAnswerOutlivesWhatItWasGivenFor also flips a bit of it: it is sealed to its row.
func TestAnAnswerOutlivesWhatItWasGivenFor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{Good: time.Minute})
		a, err := b.ask(formAsk("tool/1.0", sizeForm))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Resolve(t.Context(), a.ID, Reply{Decision: Approve, Answer: json.RawMessage(`{"size":1}`)}, "operator"); err != nil {
			t.Fatal(err)
		}
		b.pass(time.Hour)
		if _, err := b.ExpireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Get(t.Context(), a.ID); err != nil || got.State != Expired || string(got.Answer) != `{"name":"Ada","size":1}` {
			t.Errorf("%+v, %v", got, err)
		}
		err = b.tx(func(ctx context.Context, tx *db.Tx) error {
			var sealed []byte
			if err := tx.QueryRow(ctx, "SELECT answer FROM approvals WHERE id = $1", a.ID).Scan(&sealed); err != nil {
				return err
			}
			sealed[len(sealed)-1] ^= 1
			_, err := tx.Exec(ctx, "UPDATE approvals SET answer = $1 WHERE id = $2", sealed, a.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Get(t.Context(), a.ID)
		if !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "approvals.answer") || !strings.Contains(err.Error(), a.ID) {
			t.Errorf("tampered with: %v", err)
		}
	})
}
