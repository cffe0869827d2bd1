package run

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Busy says what becomes of a run whose key is taken when it arrives.
type Busy string

// What to do with a run whose key is taken.
const (
	Queue    Busy = ""         // it waits its turn; never dropped
	Coalesce Busy = "coalesce" // it becomes one with a run of its kind that still waits for its turn
	Skip     Busy = "skip"     // it is not started: StartTx returns an empty id
)

// maxAncestors bounds how deep runs may start runs.
const maxAncestors = 16

// Spec describes a run to start.
type Spec struct {
	ID         string // optional; made if empty
	Kind       string // must be registered
	Name       string // for people
	Definition string // what it was started from, pinned for its life
	Key        string // orders runs that share it; "" for none
	Width      int    // how many of Key at once; default 1
	Busy       Busy
	Parent     string // the run that starts it
	Cause      string // the event that caused it
	Actor      string
	Input      any
	At         int64 // not before, Unix microseconds; 0 for now; not with a Key
}

// StartTx creates a run in the caller's transaction, so that what caused it and
// the run are one commit. It returns the run's id: a new one, that of a waiting
// run it was joined with, or "" if it was skipped.
func (e *Engine) StartTx(ctx context.Context, tx *db.Tx, s Spec) (string, error) {
	if _, ok := e.kinds.get(s.Kind); !ok {
		return "", fault.New(fault.Invalid, "no run kind %q", s.Kind)
	}
	input, err := json.Marshal(s.Input)
	if err != nil {
		return "", fault.New(fault.Invalid, "input of a %s run: %w", s.Kind, err)
	}
	if s.Key != "" && s.At > 0 {
		return "", fault.New(fault.Invalid, "a %s run with a key starts when its turn comes, not at a time", s.Kind)
	}
	if s.ID == "" {
		s.ID = id.New("run")
	}
	s.Width = max(s.Width, 1)
	slot, inherits, err := e.place(ctx, tx, s)
	if err != nil {
		return "", err
	}
	free := s.Key == "" || inherits || slot != nil
	if !free && s.Busy != Queue {
		joined, err := e.joinWaiting(ctx, tx, s)
		if err != nil || joined != "" || s.Busy == Skip {
			return joined, err
		}
	}
	return s.ID, e.insert(ctx, tx, s, input, slot, free)
}

// place finds the run a slot under its key. A child of a run that holds the key
// works in its ancestor's place: waiting for it would never end.
func (e *Engine) place(ctx context.Context, tx *db.Tx, s Spec) (slot *int64, inherits bool, err error) {
	if s.Key == "" {
		return nil, false, nil
	}
	for parent, depth := s.Parent, 0; parent != ""; depth++ {
		if depth == maxAncestors {
			return nil, false, fault.New(fault.Invalid, "runs may be started %d deep, not more", maxAncestors)
		}
		var key, up string
		var state State
		err := tx.QueryRow(ctx, "SELECT key, parent, state FROM runs WHERE id = $1", parent).Scan(&key, &up, &state)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, false, fault.New(fault.NotFound, "no parent run %s", parent)
		}
		if err != nil {
			return nil, false, err
		}
		if key == s.Key && state.holdsKey() {
			return nil, true, nil
		}
		parent = up
	}
	slot, err = e.freeSlot(ctx, tx, s.Key, s.Width)
	return slot, false, err
}

func (e *Engine) joinWaiting(ctx context.Context, tx *db.Tx, s Spec) (string, error) {
	if s.Busy != Coalesce {
		return "", nil
	}
	var found string
	err := tx.QueryRow(ctx, joinable, s.Key, s.Kind).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return found, err
}

func (e *Engine) insert(ctx context.Context, tx *db.Tx, s Spec, input []byte, slot *int64, free bool) error {
	seq, err := tx.Next(ctx, "runs")
	if err != nil {
		return err
	}
	evs, err := e.log.AppendTx(ctx, tx, eventlog.New{
		Stream: streamOf(s.ID), Kind: evCreated, Actor: s.Actor, Cause: s.Cause, Trace: s.ID, Expect: 0,
		Data: createdData{
			Kind: s.Kind, Name: s.Name, Definition: s.Definition, Key: s.Key, Width: s.Width, Parent: s.Parent, Seq: seq,
			InputMAC: e.vault.MAC("run.input", []byte(s.ID), input),
		},
	})
	if err != nil {
		return err
	}
	var v view
	if err := v.fold(evs[0]); err != nil {
		return err
	}
	v.NextAt = never
	if free {
		v.NextAt = max(s.At, e.soon(tx))
		tx.Notify(topic)
	}
	v.Input, v.slot = input, slot
	r := &v.Record
	_, err = tx.Exec(ctx, `INSERT INTO runs (`+runColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
			$14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)`,
		r.ID, r.Kind, r.Name, r.Definition, r.Key, r.Width, nullSlot(r.slot), r.State, r.Wait, r.WaitRef, r.Owner, r.Fence,
		r.Attempt, r.Crashes, r.NextAt, r.Seq, r.Parent, r.Cause, r.Actor, r.Created, r.Started, r.Resumed, r.Ended, r.Spent,
		r.Cost, flag(r.CostKnown), r.Version, r.Head[:], r.ErrorClass, e.seal(vault.RunInput, r.ID, input), nil, nil, nil)
	return err
}

// Start creates a run in a transaction of its own.
func (e *Engine) Start(ctx context.Context, s Spec) (id string, err error) {
	err = e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		id, err = e.StartTx(ctx, tx, s)
		return err
	})
	return id, err
}

// contentMAC stands for a content in an event: it proves what the content was and
// tells nothing about it.
func (e *Engine) contentMAC(run, step string, content []byte) []byte {
	if content == nil {
		return nil
	}
	sum := sha256.Sum256(content)
	return e.vault.MAC("run.content", []byte(run), []byte(step), sum[:])
}
