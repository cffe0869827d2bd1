package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// never is the next_at of a run that something else must wake: its turn for the
// key, a person, a signal.
const never = math.MaxInt64

// noFence lets a writer other than the owner move a run.
const noFence = -1

func streamOf(id string) string { return "run:" + id }

func idOfStream(stream string) (string, bool) { return strings.CutPrefix(stream, "run:") }

const runColumns = `id, kind, name, definition, key, width, slot, state, wait, wait_ref, owner, fence,
	attempt, crashes, next_at, seq, parent, cause, actor, created, started, resumed, ended, spent, cost,
	cost_known, version, head, error_class, input, result, error, progress`

func (e *Engine) scanRun(scan func(...any) error) (Record, error) {
	var r Record
	var slot sql.NullInt64
	var costKnown int64
	var head, input, result, failure, progress []byte
	err := scan(&r.ID, &r.Kind, &r.Name, &r.Definition, &r.Key, &r.Width, &slot, &r.State, &r.Wait, &r.WaitRef,
		&r.Owner, &r.Fence, &r.Attempt, &r.Crashes, &r.NextAt, &r.Seq, &r.Parent, &r.Cause, &r.Actor, &r.Created,
		&r.Started, &r.Resumed, &r.Ended, &r.Spent, &r.Cost, &costKnown, &r.Version, &head, &r.ErrorClass,
		&input, &result, &failure, &progress)
	if err != nil {
		return r, err
	}
	if slot.Valid {
		r.slot = &slot.Int64
	}
	r.CostKnown = costKnown == 1
	copy(r.Head[:], head)
	in, err1 := e.open(vault.RunInput, r.ID, input)
	res, err2 := e.open(vault.RunResult, r.ID, result)
	text, err3 := e.open(vault.RunError, r.ID, failure)
	r.Input, r.Result, r.Error = in, res, string(text)
	var err4 error
	r.Progress, err4 = e.openProgress(r.ID, progress)
	return r, errors.Join(err1, err2, err3, err4)
}

func (e *Engine) open(f vault.Field, row string, sealed []byte) (json.RawMessage, error) {
	if sealed == nil {
		return nil, nil
	}
	return e.vault.Open(f, row, sealed)
}

// seal keeps the absence of a value visible: nil stays NULL.
func (e *Engine) seal(f vault.Field, row string, plain []byte) []byte {
	if plain == nil {
		return nil
	}
	return e.vault.Seal(f, row, plain)
}

func (e *Engine) load(ctx context.Context, q db.Q, id string) (Record, error) {
	r, err := e.scanRun(q.QueryRow(ctx, "SELECT "+runColumns+" FROM runs WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.NotFound, "no run %s", id)
	}
	return r, err
}

const stepColumns = `name, seq, kind, policy, state, repeats, timeout, opened, closed, cost, cost_known,
	error_class, audit_chain, audit_seq, audit_hash, input_mac, result, error`

func (e *Engine) scanStep(run string, scan func(...any) error) (*Step, error) {
	var s Step
	var timeout, costKnown int64
	var result, failure []byte
	err := scan(&s.Name, &s.Seq, &s.Kind, &s.Policy, &s.State, &s.Repeats, &timeout, &s.Opened, &s.Closed, &s.Cost,
		&costKnown, &s.ErrorClass, &s.Audit.Chain, &s.Audit.Seq, &s.Audit.Hash, &s.InputMAC, &result, &failure)
	if err != nil {
		return nil, err
	}
	s.Timeout = time.Duration(timeout) * time.Microsecond
	s.CostKnown = costKnown == 1
	res, err1 := e.open(vault.StepResult, run+"/"+s.Name, result)
	text, err2 := e.open(vault.StepError, run+"/"+s.Name, failure)
	s.Result, s.Error = res, string(text)
	return &s, errors.Join(err1, err2)
}

func (e *Engine) loadSteps(ctx context.Context, q db.Q, id string) ([]*Step, error) {
	return db.All(ctx, q, func(r *db.Rows) (*Step, error) { return e.scanStep(id, r.Scan) },
		"SELECT "+stepColumns+" FROM steps WHERE run = $1 ORDER BY seq", id)
}

func (e *Engine) loadStep(ctx context.Context, q db.Q, id, name string) (*Step, error) {
	s, err := e.scanStep(id, q.QueryRow(ctx, "SELECT "+stepColumns+" FROM steps WHERE run = $1 AND name = $2", id, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// change is one event to append to a run, with the contents its row keeps sealed.
type change struct {
	kind   string
	data   any
	actor  string
	step   string          // the step it is about
	result json.RawMessage // of the step or of the run
	nextAt int64           // for a run that will be claimed again
}

// advance appends events to a run and projects them, in the caller's
// transaction. With a fence it refuses a caller who is no longer the owner. It is
// the only code that writes runs and steps, so no state moves without its event.
func (e *Engine) advance(ctx context.Context, tx *db.Tx, id string, fence int64, changes ...change) (Record, error) {
	rec, err := e.load(ctx, tx, id)
	if err != nil {
		return rec, err
	}
	if fence != noFence && (rec.Owner != e.node || rec.Fence != fence) {
		return rec, errLost
	}
	v := view{Record: rec, steps: map[string]*Step{}}
	err = e.apply(ctx, tx, &v, changes, func(name string) (*Step, error) { return e.loadStep(ctx, tx, id, name) })
	return v.Record, err
}

// apply is advance from what v says of the run; stepOf gives a step of it, nil if
// there is none. If v is not what the row says, the error is errMoved.
func (e *Engine) apply(ctx context.Context, tx *db.Tx, v *view, changes []change, stepOf func(name string) (*Step, error)) error {
	before := v.Record
	for _, c := range changes {
		if c.step != "" && v.steps[c.step] == nil {
			s, err := stepOf(c.step)
			if err != nil {
				return err
			}
			if s != nil {
				v.steps[c.step] = s
			}
		}
		if err := e.project(ctx, tx, v, c); err != nil {
			return err
		}
	}
	if err := e.placeInLine(ctx, tx, before, v); err != nil {
		return err
	}
	return e.save(ctx, tx, before, &v.Record, changes)
}

// errMoved says that somebody else has moved the run since it was looked at.
var errMoved = errors.New("it was moved by somebody else")

func moved(id string) error { return fault.New(fault.Conflict, "run %s: %w", id, errMoved) }

func (e *Engine) project(ctx context.Context, tx *db.Tx, v *view, c change) error {
	if _, ok := next(v.State, c.kind); !ok {
		if v.State == Cancelling {
			return errCancelled
		}
		return fault.New(fault.Conflict, "run %s is %s: %s is not possible", v.ID, v.State, c.kind)
	}
	evs, err := e.log.AppendTx(ctx, tx, eventlog.New{ // save proves the version
		Stream: streamOf(v.ID), Kind: c.kind, Actor: c.actor, Cause: v.Cause, Trace: v.ID, Data: c.data, Expect: v.Version, Proved: true,
	})
	if err != nil {
		return err
	}
	if err := v.fold(evs[0]); err != nil {
		return err
	}
	v.lastEvent = evs[0].ID
	v.NextAt = never
	if v.State == Queued || v.State == Waiting {
		v.NextAt = c.nextAt
	}
	if c.step == "" {
		if c.result != nil {
			v.Result = c.result
		}
		return nil
	}
	return e.saveStep(ctx, tx, v, c)
}

func (e *Engine) saveStep(ctx context.Context, tx *db.Tx, v *view, c change) error {
	s, ok := v.steps[c.step]
	if !ok { // to be begun afresh
		_, err := tx.Exec(ctx, "DELETE FROM steps WHERE run = $1 AND name = $2", v.ID, c.step)
		return err
	}
	if c.result != nil {
		s.Result = c.result
	}
	row := v.ID + "/" + s.Name
	return tx.Later(ctx, nil, `INSERT INTO steps (run, `+stepColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (run, name) DO UPDATE SET state = excluded.state, repeats = excluded.repeats,
			opened = excluded.opened, closed = excluded.closed, cost = excluded.cost, cost_known = excluded.cost_known,
			error_class = excluded.error_class, audit_chain = excluded.audit_chain, audit_seq = excluded.audit_seq,
			audit_hash = excluded.audit_hash, result = excluded.result, error = excluded.error`,
		v.ID, s.Name, s.Seq, s.Kind, s.Policy, s.State, s.Repeats, s.Timeout.Microseconds(), s.Opened, s.Closed, s.Cost,
		flag(s.CostKnown), s.ErrorClass, s.Audit.Chain, s.Audit.Seq, s.Audit.Hash, s.InputMAC,
		e.seal(vault.StepResult, row, s.Result), e.seal(vault.StepError, row, textOrNil(s.Error)))
}

func textOrNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// save writes the row back if nobody else moved it meanwhile: its head stands for
// all events so far, and its slot may have been given to it by a run that left. A step
// changes few columns, none of them in an index.
func (e *Engine) save(ctx context.Context, tx *db.Tx, before Record, r *Record, changes []change) error {
	if onlySteps(changes) {
		return tx.Later(ctx, moved(r.ID), `UPDATE runs SET cost = $1, cost_known = $2, version = $3, head = $4
			WHERE id = $5 AND version = $6 AND head = $7`,
			r.Cost, flag(r.CostKnown), r.Version, r.Head[:], r.ID, before.Version, before.Head[:])
	}
	held := before.slot
	if !r.State.holdsKey() {
		held = nil // given on
	}
	return tx.Later(ctx, moved(r.ID), `UPDATE runs SET state = $1, wait = $2, wait_ref = $3, owner = $4, fence = $5, attempt = $6,
				crashes = $7, next_at = $8, started = $9, resumed = $10, ended = $11, spent = $12, cost = $13, cost_known = $14,
				version = $15, head = $16, error_class = $17, result = $18, error = $19, slot = $20
			WHERE id = $21 AND version = $22 AND head = $23 AND COALESCE(slot, -1) = $24`,
		r.State, r.Wait, r.WaitRef, r.Owner, r.Fence, r.Attempt, r.Crashes, r.NextAt, r.Started, r.Resumed, r.Ended, r.Spent,
		r.Cost, flag(r.CostKnown), r.Version, r.Head[:], r.ErrorClass, e.seal(vault.RunResult, r.ID, r.Result),
		e.seal(vault.RunError, r.ID, textOrNil(r.Error)), nullSlot(r.slot), r.ID, before.Version, before.Head[:], slotOrNone(held))
}

func onlySteps(changes []change) bool {
	return !slices.ContainsFunc(changes, func(c change) bool {
		return c.kind != evStepOpened && c.kind != evStepReopened && c.kind != evStepClosed
	})
}

func slotOrNone(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

func nullSlot(p *int64) sql.NullInt64 {
	if p == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: *p, Valid: true}
}
