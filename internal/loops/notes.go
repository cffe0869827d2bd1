package loops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// Bounds of short memory.
const (
	maxNotes     = 1000      // entries of one group
	maxNotesSize = 256 << 10 // bytes of one group
	usualGroup   = "default"
)

// note is one entry of short memory.
type note struct {
	Value   string      `json:"value"`
	Label   label.Label `json:"label"`
	Expires int64       `json:"expires,omitempty"`
}

// group is the sealed body of a row.
type group struct {
	Name  string          `json:"name"`
	Notes map[string]note `json:"notes"`
}

// Entry is one entry of short memory, as it is told.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ShortSet keeps a value for ttl, for good if that is 0. It has the label of all the run
// has read. Short memory is the loop's own: no agent sees it.
func (k *Kit) ShortSet(ctx context.Context, step, group, key, value string, ttl time.Duration) error {
	return k.rows(ctx, step, func(ctx context.Context, tx *db.Tx) error {
		n := note{Value: guard.CleanText(value), Label: label.Join(k.Label(), own())}
		if ttl > 0 {
			n.Expires = tx.Now() + ttl.Microseconds()
		}
		return k.d.changeNotes(ctx, tx, k.who.Subject, group, func(notes map[string]note) { notes[key] = n })
	})
}

// ShortForget drops a value.
func (k *Kit) ShortForget(ctx context.Context, step, group, key string) error {
	return k.rows(ctx, step, func(ctx context.Context, tx *db.Tx) error {
		return k.d.changeNotes(ctx, tx, k.who.Subject, group, func(notes map[string]note) { delete(notes, key) })
	})
}

// ShortGet returns a value that was kept, if it is there still.
func (k *Kit) ShortGet(ctx context.Context, step, group, key string) (value string, found bool, err error) {
	notes, err := k.notes(ctx, step, group)
	n, found := notes[key]
	if found {
		k.saw(n.Label, n.Value)
	}
	return n.Value, found, err
}

// ShortAll returns all that is kept in a group, in order of the keys.
func (k *Kit) ShortAll(ctx context.Context, step, group string) (out []Entry, err error) {
	notes, err := k.notes(ctx, step, group)
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		k.saw(notes[key].Label, notes[key].Value)
		out = append(out, Entry{key, notes[key].Value})
	}
	return out, err
}

// notes reads a group as a step: what it was then it stays for the run.
func (k *Kit) notes(ctx context.Context, step, group string) (notes map[string]note, err error) {
	err = k.each(step, func(step string) error {
		spec := run.StepSpec{Name: step, Kind: "rows", Policy: run.Policy{Kind: run.Repeatable}, Lazy: true}
		out, err := k.r.Do(ctx, spec, func(ctx context.Context) run.Outcome {
			var found map[string]note
			err := k.d.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
				found, _, err = k.d.loadNotes(ctx, q, k.who.Subject, group)
				return err
			})
			maps.DeleteFunc(found, func(_ string, n note) bool { return n.over(k.d.DB.Time()) })
			if err != nil {
				return run.Fail(err)
			}
			raw, err := json.Marshal(found)
			if err != nil {
				return run.Fail(err)
			}
			return run.Succeed(raw)
		})
		if err == nil {
			err = out.Err
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(out.Result, &notes)
	})
	return notes, err
}

func (n note) over(now int64) bool { return n.Expires > 0 && n.Expires <= now }

func (d Deps) groupKey(subject, group string) []byte {
	if group == "" {
		group = usualGroup
	}
	return d.Vault.Blind(vault.LoopNotesGroup, subject+"\x00"+group)
}

// loadNotes returns the entries of a group, those too whose time is over, and its row.
func (d Deps) loadNotes(ctx context.Context, q db.Q, subject, name string) (notes map[string]note, row string, err error) {
	var sealed []byte
	err = q.QueryRow(ctx, "SELECT id, body FROM loop_notes WHERE grp = $1", d.groupKey(subject, name)).Scan(&row, &sealed)
	if errors.Is(err, sql.ErrNoRows) {
		return map[string]note{}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	plain, err := d.Vault.Open(vault.LoopNotesBody, row, sealed)
	if err != nil {
		return nil, row, err
	}
	var g group
	if err := json.Unmarshal(plain, &g); err != nil {
		return nil, row, fault.New(fault.Verification, "read the short memory of %s: %w", subject, err)
	}
	return g.Notes, row, nil
}

// changeNotes changes a group and drops what is over. A group that becomes too large is
// refused.
func (d Deps) changeNotes(ctx context.Context, tx *db.Tx, subject, name string, change func(map[string]note)) error {
	if name == "" {
		name = usualGroup
	}
	notes, row, err := d.loadNotes(ctx, tx, subject, name)
	if err != nil {
		return err
	}
	maps.DeleteFunc(notes, func(_ string, n note) bool { return n.over(tx.Now()) })
	change(notes)
	raw, err := json.Marshal(group{name, notes})
	switch {
	case err != nil:
		return fault.New(fault.Internal, "short memory of %s: %w", subject, err)
	case len(notes) > maxNotes || len(raw) > maxNotesSize:
		return fault.New(fault.Invalid, "group %q of %s's short memory would have %d entries and %d bytes; at most %d and %d fit",
			name, subject, len(notes), len(raw), maxNotes, maxNotesSize).WithHint("give entries a time after which they are dropped")
	case len(notes) == 0:
		_, err := tx.Exec(ctx, "DELETE FROM loop_notes WHERE id = $1", row)
		return err
	}
	expires := int64(0)
	for _, n := range notes {
		if n.Expires == 0 {
			expires = 0
			break
		}
		expires = max(expires, n.Expires)
	}
	if row == "" {
		row = id.New("note")
	}
	_, err = tx.Exec(ctx, `INSERT INTO loop_notes (id, subject, grp, body, expires) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET body = excluded.body, expires = excluded.expires`,
		row, subject, d.groupKey(subject, name), d.Vault.Seal(vault.LoopNotesBody, row, raw), expires)
	return err
}

// SweepNotes drops the groups of short memory of which every entry is over, and returns
// how many.
func (d Deps) SweepNotes(ctx context.Context) (int64, error) {
	const over = "DELETE FROM loop_notes WHERE id IN (SELECT id FROM loop_notes WHERE expires > 0 AND expires <= $1 ORDER BY expires LIMIT 1000)"
	return d.removeAll(ctx, over, d.DB.Time())
}
