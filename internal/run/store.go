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
	"github.com/ombud-run/ombud/internal/id"
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
	_, err = tx.Exec(ctx, "UPDATE runs SET slot = $3, next_at = $4 WHERE id = ("+nextOfKey+")", leaving.Key, leaving.ID, slot, tx.Now())
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

// Get returns a run and its steps in order.
func (e *Engine) Get(ctx context.Context, id string) (rec Record, steps []*Step, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		if rec, err = e.load(ctx, q, id); err != nil {
			return err
		}
		steps, err = e.loadSteps(ctx, q, id)
		return err
	})
	return rec, steps, err
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	State  State
	Live   bool // every state that can still change
	Kind   string
	Key    string
	Parent string
	Cause  string
	Before int64 // Seq, exclusive; 0 for the newest
	Limit  int   // default 50, at most 1000
}

// List returns runs, the newest first.
func (e *Engine) List(ctx context.Context, f Filter) (out []Record, err error) {
	where, args := []string{"seq < $1"}, []any{int64(never)}
	if f.Before > 0 {
		args[0] = f.Before
	}
	for column, value := range map[string]string{"state": string(f.State), "kind": f.Kind, "key": f.Key, "parent": f.Parent, "cause": f.Cause} {
		if value != "" {
			args = append(args, value)
			where = append(where, column+" = $"+itoa(len(args))+" AND "+column+" <> ''")
		}
	}
	if f.Live {
		where = append(where, "ended = 0")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	args = append(args, min(limit, 1000))
	query := "SELECT " + runColumns + " FROM runs WHERE " + strings.Join(where, " AND ") + " ORDER BY seq DESC LIMIT $" + itoa(len(args))
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Record, error) { return e.scanRun(r.Scan) }, query, args...)
		return err
	})
	return out, err
}

// beginning finds runs by the beginning of their id.
const beginning = "SELECT id FROM runs WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 2"

// Find returns the id of the one run whose id begins with prefix. Errors: NotFound,
// Invalid if several do.
func (e *Engine) Find(ctx context.Context, prefix string) (string, error) {
	var ids []string
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], beginning, prefix, id.Behind(prefix))
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0 || prefix == "":
		return "", fault.New(fault.NotFound, "no run %q", prefix)
	case len(ids) > 1:
		return "", fault.New(fault.Invalid, "several runs begin with %q", prefix).WithHint("give more of the id")
	}
	return ids[0], nil
}

// CausedIn reports whether an event has started a run of a name, other than as the child
// of another.
func (e *Engine) CausedIn(ctx context.Context, q db.Q, name, cause string) (bool, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT count(*) FROM runs WHERE cause = $1 AND cause <> '' AND name = $2 AND parent = ''", cause, name).Scan(&n)
	return n > 0, err
}

// Counts is how many runs are in each live state.
func (e *Engine) Counts(ctx context.Context) (map[State]int64, error) {
	out := map[State]int64{}
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := q.Query(ctx, "SELECT state, count(*) FROM runs WHERE ended = 0 GROUP BY state")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err below tells what went wrong
		for rows.Next() {
			var s State
			var n int64
			if err := rows.Scan(&s, &n); err != nil {
				return err
			}
			out[s] = n
		}
		return rows.Err()
	})
	return out, err
}

// StepCounts is how many steps each of some runs has recorded.
func (e *Engine) StepCounts(ctx context.Context, runs []Record) (map[string]int, error) {
	out := map[string]int{}
	if len(runs) == 0 {
		return out, nil
	}
	var marks []string
	var args []any
	for i, r := range runs {
		marks, args = append(marks, "$"+itoa(i+1)), append(args, r.ID)
	}
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := q.Query(ctx, "SELECT run, count(*) FROM steps WHERE run IN ("+strings.Join(marks, ", ")+") GROUP BY run", args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err below tells what went wrong
		for rows.Next() {
			var id string
			var n int
			if err := rows.Scan(&id, &n); err != nil {
				return err
			}
			out[id] = n
		}
		return rows.Err()
	})
	return out, err
}
