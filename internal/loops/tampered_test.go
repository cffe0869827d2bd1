package loops

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// A row that was changed behind ombud's back is named when it is read.
func TestATamperedRowOfALoopIsNamed(t *testing.T) {
	t.Parallel()
	writes := loop("writes", func(ctx context.Context, k *Kit) error {
		if err := k.ShortSet(ctx, "set", "g", "k", "v", time.Hour); err != nil {
			return err
		}
		return k.Log(ctx, "log", Info, "a line")
	})
	each(t, setup{loops: []Loop{writes}}, func(t *testing.T, h *house) {
		h.do("writes")
		n := NewIntegrations(h.db, h.d.Vault, nil, func(context.Context) ([]Probe, error) {
			return []Probe{{Name: "x", Kind: "test", Look: func(context.Context) (Health, string) { return Failing, "why" }}}, nil
		})
		if _, err := n.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		for column, read := range map[string]func() error{
			"loop_notes.body": func() error {
				return h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
					_, err := h.d.loadNotes(ctx, q, "loop:writes", "g", nil)
					return err
				})
			},
			"loop_logs.text":      func() error { _, err := h.d.Lines(t.Context(), "loop:writes", "", 0, 9); return err },
			"integrations.reason": func() error { _, err := n.List(t.Context()); return err },
		} {
			if err := read(); err != nil {
				t.Fatalf("%s before: %v", column, err)
			}
			table, name, _ := strings.Cut(column, ".")
			err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE "+table+" SET "+name+" = $1", []byte("not what was kept"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := read(); !fault.Is(err, fault.Verification) {
				t.Errorf("%s: %v", column, err)
			}
		}
	})
}
