package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
)

// forms are what the calls of some tools have filled in. With n that of t.form is long.
var forms = map[string]func(json.RawMessage) json.RawMessage{
	"t.form": func(input json.RawMessage) json.RawMessage {
		if strings.Contains(string(input), `"n":1`) {
			return json.RawMessage(`{"properties":{"full name":{"type":"string"},"size":{"type":"integer","default":3}},"required":["full name","size"]}`)
		}
		return json.RawMessage(`{"properties":{"name":{"type":"string","title":"Your [name](http://bad)"}},"required":["name"]}`)
	},
	"t.confirm": func(json.RawMessage) json.RawMessage {
		return json.RawMessage(`{"properties":{"sure":{"type":"boolean","default":true}}}`)
	},
}

func TestAFormIsFilledInByAMessage(t *testing.T) {
	t.Parallel()
	each(t, setup{main: told("t.form")}, func(t *testing.T, b *bench) {
		for message, want := range map[string]string{
			"approve 1 name=Ada":                            `said {"name":"Ada"}`,
			"Approve 2 Ada Lovelace":                        `said {"name":"Ada Lovelace"}`,
			"/approve 3 name=\"Ada  Lovelace!\"":            `said {"name":"Ada  Lovelace!"}`,
			"approve name=Ada=Eva.":                         `said {"name":"Ada=Eva."}`,
			"approve ID \u201cname\u201d=\u201cAda B\u201d": `said {"name":"Ada B"}`,
		} {
			turn := b.tell("main", "do it")
			q := b.parked(turn.Run)
			n := b.number(q)
			message = strings.NewReplacer("1", n, "2", n, "3", n, "ID", q.ID).Replace(message)
			got := b.tell("main", message)
			if got.Run != "" || got.Notice != "Approved: "+q.Summary {
				t.Fatalf("%s: %+v", message, got)
			}
			if a := b.answer(turn.Run); a.Outcome != Completed || a.Reply != want {
				t.Errorf("%s: %q, want %q", message, a.Reply, want)
			}
		}
	})
}

// number is what a question is called in its conversation.
func (b *bench) number(q approval.Approval) (n string) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, r db.Q) error {
		i, err := b.Approvals.Number(ctx, r, q)
		n = string(rune('0' + i))
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestAPlainYesToAFormSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	each(t, setup{main: told("t.form")}, func(t *testing.T, b *bench) {
		turn := b.tell("main", "do it")
		q := b.parked(turn.Run)
		for _, message := range []string{"yes", "approve", "approve 1", "approve 1 nmae=Ada", `approve 1 name=a name=b`} {
			got := b.tell("main", message)
			if got.Run != "" || !strings.HasPrefix(got.Notice, "Nothing was decided") || !strings.Contains(got.Notice, "name: text, required") ||
				!strings.Contains(got.Notice, "`approve 1 name=TEXT`") {
				t.Errorf("%s: %+v", message, got)
			}
		}
		// What a stranger wrote is no link there.
		if got := b.tell("main", "yes"); !strings.Contains(got.Notice, "```\nname: text, required — Your [name](http://bad)\n```") {
			t.Errorf("%q", got.Notice)
		}
		for _, message := range []string{"approve it name=Ada", "approve 2 name=Ada"} { // of no question there is
			if got := b.tell("main", message); got.Run == "" {
				t.Errorf("%s: %+v", message, got)
			}
		}
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			notice, err := b.PressTx(ctx, tx, q.ID, true, "operator")
			if !strings.Contains(notice, "name is missing") {
				t.Errorf("a button: %q", notice)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if now := b.approval(q.ID); now.State != approval.Pending || b.did("t.form") != 0 {
			t.Fatalf("it is %s", now.State)
		}
		b.tell("main", "deny 1")
		if a := b.answer(turn.Run); !strings.Contains(a.Reply, "refused") || b.did("t.form") != 0 {
			t.Errorf("%+v", a)
		}
	})
}

func TestAPlainYesWillDoWhereNothingIsMissing(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: told("t.confirm")}, func(t *testing.T, b *bench) {
		turn := b.tell("main", "do it")
		b.parked(turn.Run)
		b.tell("main", "yes")
		if a := b.answer(turn.Run); a.Reply != `said {"sure":true}` {
			t.Errorf("%+v", a)
		}
		again := b.tell("main", "do it")
		b.parked(again.Run)
		b.tell("main", "approve sure=no")
		if a := b.answer(again.Run); a.Reply != `said {"sure":false}` {
			t.Errorf("%+v", a)
		}
	})
}

func TestWordsForAQuestionWithoutAFormAreAMessage(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: once("t.ask")}, func(t *testing.T, b *bench) {
		turn := b.tell("main", "do it")
		q := b.parked(turn.Run)
		if got := b.tell("main", "approve 1 name=Ada"); got.Run == "" || b.approval(q.ID).State != approval.Pending {
			t.Errorf("%+v", got)
		}
		b.tell("main", "no")
		b.answer(turn.Run)
	})
}

// A stranger in the conversation fills in nothing: their words are no control message.
func TestAStrangerFillsInNothing(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: told("t.form")}, func(t *testing.T, b *bench) {
		turn := b.tell("main", "do it")
		q := b.parked(turn.Run)
		in := inbound("main", "approve 1 name=Eve")
		in.Source, in.Control = label.Untrusted("far"), false
		if got, err := b.Intake(t.Context(), in); err != nil || got.Run == "" || b.approval(q.ID).State != approval.Pending {
			t.Errorf("%+v, %v", got, err)
		}
		b.tell("main", "approve 1 name=Ada")
		if a := b.answer(turn.Run); a.Reply != `said {"name":"Ada"}` {
			t.Errorf("%+v", a)
		}
	})
}

func TestAQuestionInAChatShowsItsForm(t *testing.T) {
	t.Parallel()
	q := approval.Approval{Ask: approval.Ask{ID: "apr_1", Summary: "ask you"}}
	if got := askedText(q, 2); got != "May I? ask you\nAnswer yes or no here (or: approve 2, deny 2). At the machine: `ombud approve apr_1`" {
		t.Error(got)
	}
	q.Form = forms["t.form"](json.RawMessage(`{"n":1}`))
	want := "May I? ask you\n```\nfull name: text, required\nsize: a whole number, else 3\n```\n" +
		"Answer here: `approve 2 'full name'=TEXT` (or: deny 2). At the machine: `ombud approve apr_1 'full name'=TEXT`"
	if got := askedText(q, 2); got != want {
		t.Error(got)
	}
	var fields []string
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		fields = append(fields, `"`+string(c)+`":{"type":"string","description":"`+strings.Repeat("long ", 60)+`"}`)
	}
	q.Form = json.RawMessage(`{"properties":{` + strings.Join(fields, ",") + `}}`)
	if got := askedText(q, 2); len(got) > maxFormText+400 || !strings.Contains(got, "more, which ombud inbox shows\n```\nAnswer yes or no here") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
