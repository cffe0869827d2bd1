package loops

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

// Bounds of short memory.
const (
	maxNotes     = 1000      // entries of one group
	maxNotesSize = 256 << 10 // bytes of one group, as they are kept
	usualGroup   = "default"
)

// note is one entry of short memory: the sealed body of a row.
type note struct {
	Group string      `json:"group"`
	Key   string      `json:"key"`
	Value string      `json:"value"`
	Label label.Label `json:"label"`
}

// Entry is one entry of short memory, as it is told.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ShortSet keeps a value for ttl, for good if that is 0. It has the label of all the run
// has read. Short memory is the loop's own: no agent sees it.
func (k *Kit) ShortSet(ctx context.Context, step, group, key, value string, ttl time.Duration) error {
	return k.plain(ctx, step, toolNote, noteInput{Group: group, Key: key, Value: value, TTL: max(0, ttl.Microseconds())})
}

// ShortForget drops a value.
func (k *Kit) ShortForget(ctx context.Context, step, group, key string) error {
	return k.plain(ctx, step, toolNote, noteInput{Group: group, Key: key, Forget: true})
}

// ShortGet returns a value that was kept, if it is there still.
func (k *Kit) ShortGet(ctx context.Context, step, group, key string) (value string, found bool, err error) {
	notes, err := k.notes(ctx, step, notesInput{Group: group, Key: &key})
	for _, n := range notes {
		value = n.Value
	}
	return value, len(notes) > 0, err
}

// ShortAll returns all that is kept in a group, in order of the keys.
func (k *Kit) ShortAll(ctx context.Context, step, group string) (out []Entry, err error) {
	notes, err := k.notes(ctx, step, notesInput{Group: group})
	for _, n := range notes {
		out = append(out, Entry{n.Key, n.Value})
	}
	return out, err
}

// noteKeys are what a group and an entry of it are found by. Quoted, keys that differ in
// the white space around them are two.
func (d Deps) noteKeys(subject, group, key string) (grp, entry []byte) {
	of := subject + "\x00" + cmp.Or(group, usualGroup)
	return d.Vault.Blind(vault.LoopNoteGroup, of), d.Vault.Blind(vault.LoopNoteEntry, of+"\x00"+strconv.Quote(key))
}

// loadNotes returns the entry of a group with a key, or all of it in order of the keys.
// What is over is not there.
func (d Deps) loadNotes(ctx context.Context, q db.Q, subject, group string, key *string) ([]note, error) {
	query, args := "SELECT id, body FROM loop_notes WHERE grp = $1 AND (expires = 0 OR expires > $2)", []any{nil, d.DB.Time()}
	if key == nil {
		args[0], _ = d.noteKeys(subject, group, "")
	} else {
		var entry []byte
		args[0], entry = d.noteKeys(subject, group, *key)
		query, args = query+" AND entry = $3", append(args, entry)
	}
	list, err := db.All(ctx, q, func(r *db.Rows) (n note, err error) {
		var row string
		var sealed []byte
		if err := r.Scan(&row, &sealed); err != nil {
			return n, err
		}
		plain, err := d.Vault.Open(vault.LoopNoteBody, row, sealed)
		if err == nil && json.Unmarshal(plain, &n) != nil {
			err = fault.New(fault.Verification, "the short memory of %s cannot be read", subject)
		}
		return n, err
	}, query, args...)
	slices.SortFunc(list, func(a, b note) int { return strings.Compare(a.Key, b.Key) })
	return list, err
}

// setNote keeps an entry and drops what is over in its group. A group that becomes too
// large is refused.
func (d Deps) setNote(ctx context.Context, tx *db.Tx, subject string, n note, expires int64) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return fault.New(fault.Internal, "short memory of %s: %w", subject, err)
	}
	grp, entry := d.noteKeys(subject, n.Group, n.Key)
	if _, err := tx.Exec(ctx, "DELETE FROM loop_notes WHERE grp = $1 AND expires > 0 AND expires <= $2", grp, tx.Now()); err != nil {
		return err
	}
	row := id.New("note")
	_, err = tx.Exec(ctx, `INSERT INTO loop_notes (id, subject, grp, entry, body, expires) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (grp, entry) DO UPDATE SET id = excluded.id, body = excluded.body, expires = excluded.expires`,
		row, subject, grp, entry, d.Vault.Seal(vault.LoopNoteBody, row, raw), expires)
	if err != nil {
		return err
	}
	var entries, size int64
	err = tx.QueryRow(ctx, "SELECT COUNT(*), SUM(LENGTH(body)) FROM loop_notes WHERE grp = $1", grp).Scan(&entries, &size)
	if err == nil && (entries > maxNotes || size > maxNotesSize) {
		err = fault.New(fault.Invalid, "group %q of %s's short memory would have %d entries and %d bytes; at most %d and %d fit",
			cmp.Or(n.Group, usualGroup), subject, entries, size, maxNotes, maxNotesSize).WithHint("give entries a time after which they are dropped")
	}
	return err
}

// sweepNotes drops the entries of short memory whose time is over, and returns how many.
func (d Deps) sweepNotes(ctx context.Context) (int64, error) {
	const over = "DELETE FROM loop_notes WHERE id IN (SELECT id FROM loop_notes WHERE expires > 0 AND expires <= $1 ORDER BY expires LIMIT 1000)"
	return d.DB.Drain(ctx, over, d.DB.Time())
}
