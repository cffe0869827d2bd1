package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestShortMemoryForgetsByItselfAndIsBounded(t *testing.T) {
	t.Parallel()
	each(t, setup{}, func(t *testing.T, h *house) {
		set := func(group, key, value string, expires int64) error {
			return h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
					return h.d.setNote(ctx, tx, "loop:x", note{Group: group, Key: key, Value: value}, expires)
				})
			})
		}
		rows := func() (n int) {
			err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT COUNT(*) FROM loop_notes").Scan(&n)
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		load := func(group string) (out string) {
			err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				list, err := h.d.loadNotes(ctx, q, "loop:x", group, nil)
				for _, n := range list {
					out += n.Key + "=" + n.Value + ";"
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		hour := h.db.Time() + time.Hour.Microseconds()
		for _, err := range []error{set("g", "a", "1", 1), set("g", "b", "2", 0), set("g", "c ", "3", hour), set("g", "c", "4", hour), set("h", "a", "5", 1), set("g", "b", "6", 0)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		// What is over is gone from its group with the next that is kept there, and from the
		// others when they are swept, whatever stands beside it.
		if got := load("g"); got != "b=6;c=4;c =3;" || load("h") != "" || rows() != 4 {
			t.Errorf("%q, %q, %d rows", got, load("h"), rows())
		}
		if n, err := h.d.sweepNotes(t.Context()); n != 1 || err != nil || rows() != 3 {
			t.Errorf("swept %d, %v, %d rows", n, err, rows())
		}
		if err := set("g", "big", strings.Repeat("x", maxNotesSize), 0); !fault.Is(err, fault.Invalid) || load("g") != "b=6;c=4;c =3;" {
			t.Errorf("%v, %q", err, load("g"))
		}
	})
}

// A run that looks up one entry keeps that one, not all that stands beside it.
func TestALookIntoShortMemoryRecordsWhatItFound(t *testing.T) {
	t.Parallel()
	looks := loop("looks", func(ctx context.Context, k *Kit) error {
		for i := range 20 {
			if err := k.ShortSet(ctx, fmt.Sprint("set", i), "g", fmt.Sprint(i), strings.Repeat("x", 1000), 0); err != nil {
				return err
			}
		}
		if err := k.ShortForget(ctx, "forget", "g", "3"); err != nil {
			return err
		}
		for i, want := range map[string]bool{"7": true, "3": false} {
			if value, found, err := k.ShortGet(ctx, "get"+i, "g", i); err != nil || found != want || len(value) != map[bool]int{true: 1000}[want] {
				return fmt.Errorf("%s: %t %d %w", i, found, len(value), err)
			}
		}
		all, err := k.ShortAll(ctx, "all", "g")
		if err == nil && (len(all) != 19 || all[0].Key != "0" || all[1].Key != "1" || all[2].Key != "10") {
			err = fmt.Errorf("%d", len(all))
		}
		return err
	})
	each(t, setup{loops: []Loop{looks}}, func(t *testing.T, h *house) {
		rec := h.do("looks")
		_, steps, err := h.runs.Get(t.Context(), rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if strings.HasPrefix(s.Name, "get") && len(s.Result) > 1500 {
				t.Errorf("%s has recorded %d bytes", s.Name, len(s.Result))
			}
		}
	})
}
