package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestNothingIsHiddenInWhatTheOperatorIsTold(t *testing.T) {
	t.Parallel()
	var cause, text string
	r, invoker := tool.NewRegistry(slog.New(slog.DiscardHandler))
	err := New(func(_ context.Context, _ *db.Tx, c, s string) error { cause, text = c, s; return nil }).Register(r)
	if err != nil {
		t.Fatal(err)
	}
	store := dbtest.SQLite(t)
	err = store.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := invoker.Call(ctx, Name, tool.Invocation{
			Subject: "tool:boiler", Key: "run_1/send", Tx: tx, Input: json.RawMessage(`{"subject":"cold\nday","message":"the \u001b[31mboiler\u202e"}`),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if cause != "run_1/send" || text != "🔔 tool:boiler: cold day\nthe ␛[31mboiler⟦U+202E⟧" {
		t.Errorf("%q: %q", cause, text)
	}
	if err := r.Validate(Name, json.RawMessage(`{}`)); err == nil {
		t.Error("an empty notice is taken")
	}
	d, err := r.Get(Name)
	if err != nil {
		t.Fatal(err)
	}
	if to := d.Destination(nil); to.Readers != "operator" {
		t.Errorf("%+v", to)
	}
}
