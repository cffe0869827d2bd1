package audit

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// What must not be shown is not recorded either, because what is recorded is signed.
func TestHiddenTextIsNotRecorded(t *testing.T) {
	t.Parallel()
	d, v := dbtest.SQLite(t), newVault(t, 1)
	a := New(d, v, "node-1", nil, Hide(func(s string) string { return strings.ReplaceAll(s, "sekret", "[hidden]") }))
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := a.AppendTx(ctx, tx, Entry{
			Kind: "k sekret", Actor: "a sekret", Subject: "s sekret", Tool: "t sekret", Scopes: []string{"sekret", "net.fetch:sekret"},
			Outcome: "o sekret", Reason: "r sekret", Run: "sekret", Step: "sekret",
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "sekret") || strings.Count(b.String(), "[hidden]") != 9 {
		t.Error(b.String())
	}
	if _, err := Verify(t.Context(), d, v.Keys()); err != nil {
		t.Error(err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
