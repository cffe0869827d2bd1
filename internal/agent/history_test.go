package agent

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
)

// TestAnEntryIsReadAsItWasWritten: labels are read once each, and each entry gets its own.
func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	labels := []label.Label{{}, label.Of(label.Operator, label.OperatorOnly), label.Of(label.Own, label.Anyone),
		label.Join(label.Of(label.Untrusted("web"), label.Anyone), label.Of(label.Own, label.Conversation("cnv_1")))}
	x := reader{labels: map[string]label.Label{}}
	for i := range 3 * len(labels) {
		want := entryBody{Text: "täxt\n\"x\"", From: "Ann", Tools: []string{"a", "b"}, Label: labels[i%len(labels)]}
		if i%2 == 0 {
			want.From, want.Tools = "", nil
		}
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.body(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if len(x.labels) != len(labels) {
		t.Errorf("%d labels were read, there are %d", len(x.labels), len(labels))
	}
	for _, bad := range []string{``, `{`, `[]`, `{"label":7}`, `{"text":"x","label":{"sources":"operator"}}`, `{"text":7}`} {
		if got, err := x.body([]byte(bad)); err == nil || got.Text != "" || len(got.Label.Sources) > 0 {
			t.Errorf("%s is read as %+v, %v", bad, got, err)
		}
	}
	if got, err := x.body([]byte(`{"text":"of old"}`)); err != nil || got.Text != "of old" || len(got.Label.Sources) > 0 {
		t.Errorf("without a label: %+v, %v", got, err)
	}
}

// TestAContextThatWasJustMadeIsWhatIsReadBackOfIt: a turn uses it as it made it, and after a
// crash as it is recorded.
func TestAContextThatWasJustMadeIsWhatIsReadBackOfIt(t *testing.T) {
	t.Parallel()
	each(t, setup{}, func(t *testing.T, b *bench) {
		got := b.tell("main", "remember that the boiler code is 4711 \u2028 <b>\"é\"")
		b.wait(got.Run)
		snap, err := b.snapshot(t.Context(), TurnInput{
			Conversation: got.Conversation, Text: "what is the boiler code? 😀", SenderName: "Ann", Source: label.Untrusted("Ann"), Audience: label.OperatorOnly, At: b.db.Time(),
		}, Identity{Name: "main", Instructions: "Be kind."})
		if err != nil || len(snap.Messages) < 3 {
			t.Fatalf("%+v, %v", snap, err)
		}
		raw, err := json.Marshal(snap)
		if err != nil {
			t.Fatal(err)
		}
		var back Snapshot
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(snap, back) {
			t.Errorf("made\n%#v\nread back\n%#v", snap, back)
		}
	})
}

// BenchmarkContext is what a turn of a long conversation begins with: its context, from rows
// to what is recorded, and that taken up.
func BenchmarkContext(b *testing.B) {
	h := open(b, dbtest.SQLite(b), setup{idle: true})
	at, err := h.Intake(b.Context(), inbound("main", "hello"))
	if err != nil {
		b.Fatal(err)
	}
	for range 600 {
		err := h.db.InTx(b.Context(), func(ctx context.Context, tx *db.Tx) error {
			return h.addHistoryTx(ctx, tx, at.Conversation, at.Run,
				entry{Role: roleUser, Body: entryBody{Text: "echo number 123", Label: label.Of(label.Operator, label.OperatorOnly)}},
				entry{Role: roleAssistant, Body: entryBody{Text: "number 123", Label: label.Of(label.Own, label.OperatorOnly)}})
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	in := TurnInput{Conversation: at.Conversation, Text: "hello", Source: label.Operator, Audience: label.OperatorOnly, At: h.db.Time()}
	for b.Loop() {
		snap, err := h.snapshot(b.Context(), in, Identity{Name: "main"})
		if err != nil || len(snap.Messages) < 1000 {
			b.Fatal(len(snap.Messages), err)
		}
		if _, err := json.Marshal(snap); err != nil {
			b.Fatal(err)
		}
	}
}
