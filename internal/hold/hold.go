// Package hold keeps an instance that was restored from a backup from acting.
//
// A restored store believes it is the moment of its backup: what was queued then may
// have been sent since, what was under way may have been done. So it starts held:
// the engine of runs claims nothing and fires no timer, the outbox sends nothing and
// nobody's message is taken in; nothing is forgotten for its age. Reading goes on, and so
// does what only moves rows.
//
//	(none) ── restore, in the transaction that makes the store ──▶ held ── release ──▶ (none)
//
// The hold is a row of the store. It survives every crash and restart, and holds
// every node that uses the store.
package hold

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// key is where the store says that it is held, "" or nothing if it is not.
const key = "restore.held"

// Record says why an instance is held. Times are Unix microseconds.
type Record struct {
	Restore string `json:"restore"` // id of the restore
	Backup  string `json:"backup"`  // id of the backup
	At      int64  `json:"at"`      // when it was restored
	Made    int64  `json:"made"`    // when the backup was made
	Head    int64  `json:"head"`    // position of the event log in it
}

// Hold is the gate the engines ask. It is safe for concurrent use.
type Hold struct {
	db    *db.DB
	state atomic.Pointer[Record] // nil: not held
}

// Open reads whether the store is held.
func Open(ctx context.Context, d *db.DB) (*Hold, error) {
	h := &Hold{db: d}
	return h, h.Look(ctx)
}

// Read returns the record of a held store; false if it is not held.
func Read(ctx context.Context, q db.Q) (r Record, held bool, err error) {
	text, err := db.Meta(ctx, q, key)
	if err != nil || text == "" {
		return r, false, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, true, fault.New(fault.Verification, "the store is held, and why cannot be read: %w", err)
	}
	return r, true, nil
}

// Look reads it again: another node may have let go. A store that is not held when
// it is opened is never held later.
func (h *Hold) Look(ctx context.Context) error {
	var r Record
	var held bool
	err := h.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		r, held, err = Read(ctx, q)
		return err
	})
	switch {
	case err != nil:
		return err
	case held:
		h.state.Store(&r)
	default:
		h.state.Store(nil)
	}
	return nil
}

// Held reports whether nothing may be done.
func (h *Hold) Held() bool { return h.state.Load() != nil }

// Record returns why.
func (h *Hold) Record() (Record, bool) {
	if r := h.state.Load(); r != nil {
		return *r, true
	}
	return Record{}, false
}

// Refuse is what is told to who wants something done: nil if it may be done, else an
// error of class Waiting, since a person has to decide.
func (h *Hold) Refuse() error {
	r, held := h.Record()
	if !held {
		return nil
	}
	return fault.New(fault.Waiting, "this instance was restored from a backup of %s and is held: nothing is taken and nothing is done",
		time.UnixMicro(r.Made).Format("2006-01-02 15:04")).
		WithHint("ombud restore release shows what would happen, and lets go")
}

// SetTx makes the store held from the commit of tx on.
func SetTx(ctx context.Context, tx *db.Tx, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return db.SetMeta(ctx, tx, key, string(text))
}

// ReleaseTx lets go when tx commits. Conflict if it is not held, or held by another
// restore than the one that was looked at.
func (h *Hold) ReleaseTx(ctx context.Context, tx *db.Tx, restore string) error {
	r, held, err := Read(ctx, tx)
	if err != nil {
		return err
	}
	if !held {
		return fault.New(fault.Conflict, "this instance is not held")
	}
	if r.Restore != restore {
		return fault.New(fault.Conflict, "it is held by restore %s, not by %s", r.Restore, restore)
	}
	tx.AfterCommit(func() { h.state.Store(nil) })
	return db.SetMeta(ctx, tx, key, "")
}
