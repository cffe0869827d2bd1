package run

import (
	"context"
	"database/sql"

	"github.com/ombud-run/ombud/internal/db"
)

// placeInLine gives a run's place under its key to the next in line when it lets
// go of it, and takes a place again for a run that comes back.
func (e *Engine) placeInLine(ctx context.Context, tx *db.Tx, before Record, v *view) error {
	if v.State == Queued || v.State == Waiting || v.State.Ended() || v.State == Cancelling {
		tx.Notify(topic)
	}
	if v.Key == "" {
		return nil
	}
	switch {
	case before.slot != nil && !v.State.holdsKey():
		v.slot = nil
		return e.promote(ctx, tx, &v.Record, *before.slot)
	case (before.State == Uncertain || before.State == Failed) && v.State == Queued:
		slot, inherits, err := e.place(ctx, tx, Spec{Key: v.Key, Width: v.Width, Parent: v.Parent})
		if err != nil {
			return err
		}
		if v.slot = slot; slot == nil && !inherits {
			v.NextAt = never
		}
	}
	return nil
}

// promote hands a freed slot on: to a run that worked in the place of the one that
// leaves, if it goes on without it, else to the run of that key which arrived first.
func (e *Engine) promote(ctx context.Context, tx *db.Tx, leaving *Record, slot int64) error {
	if _, err := tx.Exec(ctx, "UPDATE runs SET slot = NULL WHERE id = $1", leaving.ID); err != nil {
		return err
	}
	heir, err := e.heir(ctx, tx, leaving)
	if err != nil {
		return err
	}
	if heir != "" {
		_, err := tx.Exec(ctx, "UPDATE runs SET slot = $1 WHERE id = $2", slot, heir)
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE runs SET slot = $3, next_at = $4 WHERE id = ("+nextOfKey+")", leaving.Key, leaving.ID, slot, e.soon(tx))
	return err
}

// relative is what heir needs to know of a run.
type relative struct {
	id, parent, key string
	state           State
	slot            sql.NullInt64
	nextAt          int64
}

// maxRelatives bounds the search for an heir.
const maxRelatives = 1000

// heir finds a live run of the leaving one's family that has no place of its own
// under the key and none of an ancestor's any more; "" if there is none.
func (e *Engine) heir(ctx context.Context, tx *db.Tx, leaving *Record) (string, error) {
	root := leaving.ID
	for parent, depth := leaving.Parent, 0; parent != "" && depth < maxAncestors; depth++ {
		root = parent
		if err := tx.QueryRow(ctx, "SELECT parent FROM runs WHERE id = $1", parent).Scan(&parent); err != nil {
			return "", err
		}
	}
	covered := map[string]bool{} // by id: it or an ancestor of it holds the key
	for next := []string{root}; len(next) > 0 && len(covered) < maxRelatives; next = next[1:] {
		children, err := db.All(ctx, tx, func(r *db.Rows) (c relative, err error) {
			err = r.Scan(&c.id, &c.parent, &c.key, &c.state, &c.slot, &c.nextAt)
			return c, err
		}, "SELECT id, parent, key, state, slot, next_at FROM runs WHERE parent = $1 AND parent <> '' ORDER BY seq LIMIT $2", next[0], int64(maxRelatives))
		if err != nil {
			return "", err
		}
		for _, c := range children {
			holds := c.key == leaving.Key && c.state.holdsKey() && c.id != leaving.ID
			inLine := c.state == Queued && c.nextAt == never
			if holds && !c.slot.Valid && !inLine && !covered[c.parent] {
				return c.id, nil
			}
			covered[c.id] = covered[c.parent] || holds && !inLine
			next = append(next, c.id)
		}
	}
	return "", nil
}

// The store is told what its partial indexes leave out: it cannot know of a parameter
// that it is not empty, and would look at every run there ever was.
const (
	slotsOfKey = "SELECT slot FROM runs WHERE key = $1 AND key <> '' AND slot IS NOT NULL ORDER BY slot"
	nextOfKey  = "SELECT id FROM runs WHERE key = $1 AND key <> '' AND ended = 0 AND state = 'queued' AND slot IS NULL AND id <> $2 ORDER BY seq LIMIT 1"
	joinable   = "SELECT id FROM runs WHERE key = $1 AND key <> '' AND ended = 0 AND kind = $2 AND state = 'queued' AND started = 0 ORDER BY seq DESC LIMIT 1"
)

// freeSlot returns a place under key, or nil if all are taken or somebody stands
// in line already.
func (e *Engine) freeSlot(ctx context.Context, tx *db.Tx, key string, width int) (*int64, error) {
	taken, err := db.All(ctx, tx, db.Column[int64], slotsOfKey, key)
	if err != nil {
		return nil, err
	}
	var slot int64
	for _, t := range taken {
		if t == slot {
			slot++
		}
	}
	if slot >= int64(width) {
		return nil, nil
	}
	return &slot, nil
}
