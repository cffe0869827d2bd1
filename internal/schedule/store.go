package schedule

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// topic is notified when a schedule may be due earlier than before.
const topic = "schedules"

const columns = `id, seq, owner, body, state, created, rule, anchor, settled, next_at, fire_at,
	outcome, instant, at, run, error, fired, missed, version`

// body is the sealed part of a row.
type body struct {
	Name    string  `json:"name"`
	When    string  `json:"when"`
	Zone    string  `json:"zone"`
	Starts  Starts  `json:"starts"`
	Missed  Missed  `json:"missed"`
	GraceUS int64   `json:"grace_us"`
	Overlap Overlap `json:"overlap"`
	Jitter  int64   `json:"jitter_us"`
}

func bodyOf(s Spec) ([]byte, error) {
	return json.Marshal(body{
		Name: s.Name, When: s.When, Zone: s.Zone, Starts: s.Starts, Missed: s.Missed, GraceUS: s.Grace.Microseconds(),
		Overlap: s.Overlap, Jitter: s.Jitter.Microseconds(),
	})
}

// scan reads a row. What is sealed and cannot be opened is the Problem of that schedule,
// so that the others go on.
func (s *Schedules) scan(scan func(...any) error) (x Schedule, err error) {
	var sealed, failure []byte
	err = scan(&x.ID, &x.seq, &x.Owner, &sealed, &x.State, &x.Created, &x.rule, &x.Anchor, &x.Settled, &x.Next, &x.FireAt,
		&x.Last.Outcome, &x.Last.Instant, &x.Last.At, &x.Last.Run, &failure, &x.FiredCount, &x.MissedCount, &x.version)
	if err != nil {
		return x, err
	}
	var b body
	plain, err1 := s.vault.Open(vault.ScheduleBody, x.ID, sealed)
	text, err2 := s.vault.Open(vault.ScheduleError, x.ID, failure)
	x.Last.Error = string(text)
	if x.Problem = errors.Join(err1, err2); x.Problem == nil {
		if err := json.Unmarshal(plain, &b); err != nil {
			x.Problem = fault.New(fault.Verification, "read schedule %s: %w", x.ID, err)
		}
	}
	micro := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	owner := x.Owner
	x.Spec = Spec{
		Owner: owner, Name: b.Name, When: b.When, Zone: b.Zone, Starts: b.Starts, Missed: b.Missed, Grace: micro(b.GraceUS),
		Overlap: b.Overlap, Jitter: micro(b.Jitter),
	}
	return x, nil
}

func (s *Schedules) query(ctx context.Context, q db.Q, where string, args ...any) ([]Schedule, error) {
	return db.All(ctx, q, func(r *db.Rows) (Schedule, error) { return s.scan(r.Scan) }, "SELECT "+columns+" FROM schedules WHERE "+where, args...)
}

// key is what a schedule is unique by.
func (s *Schedules) key(owner, name string) []byte {
	return s.vault.Blind(vault.ScheduleKey, owner+"\x00"+name)
}

func (s *Schedules) insert(ctx context.Context, tx *db.Tx, x *Schedule) (err error) {
	if x.seq, err = tx.Next(ctx, "schedules"); err != nil {
		return err
	}
	raw, err := bodyOf(x.Spec)
	if err != nil {
		return err
	}
	x.version = 1
	_, err = tx.Exec(ctx, `INSERT INTO schedules (id, seq, owner, key, body, state, created, rule, anchor, settled, next_at, fire_at,
			outcome, instant, at, run, error, fired, missed, version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', 0, 0, '', $13, 0, 0, 1)`,
		x.ID, x.seq, x.Owner, s.key(x.Owner, x.Name), s.vault.Seal(vault.ScheduleBody, x.ID, raw), x.State, x.Created, x.rule, x.Anchor,
		x.Settled, x.Next, x.FireAt, s.vault.Seal(vault.ScheduleError, x.ID, nil))
	tx.Notify(topic)
	return err
}

// save writes a schedule back if nobody else has moved it since it was read; Conflict if
// somebody has.
func (s *Schedules) save(ctx context.Context, tx *db.Tx, x *Schedule) error {
	tx.Notify(topic)
	raw, err := bodyOf(x.Spec)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE schedules SET key = $1, body = $2, state = $3, rule = $4, anchor = $5, settled = $6, next_at = $7,
			fire_at = $8, outcome = $9, instant = $10, at = $11, run = $12, error = $13, fired = $14, missed = $15, version = version + 1
		WHERE id = $16 AND version = $17`,
		s.key(x.Owner, x.Name), s.vault.Seal(vault.ScheduleBody, x.ID, raw), x.State, x.rule, x.Anchor, x.Settled, x.Next, x.FireAt,
		x.Last.Outcome, x.Last.Instant, x.Last.At, x.Last.Run, s.vault.Seal(vault.ScheduleError, x.ID, []byte(x.Last.Error)),
		x.FiredCount, x.MissedCount, x.ID, x.version)
	if err == nil && n == 0 {
		err = moved(x.ID)
	}
	x.version++
	return err
}

// step takes a schedule to another state or instant, if nobody else has moved it.
func (s *Schedules) step(ctx context.Context, tx *db.Tx, x *Schedule) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE schedules SET state = $1, settled = $2, next_at = $3, fire_at = $4, version = version + 1
		WHERE id = $5 AND version = $6`, x.State, x.Settled, x.Next, x.FireAt, x.ID, x.version)
	x.version++
	return n > 0, err
}

// note writes what the instants of a step came to.
func (s *Schedules) note(ctx context.Context, tx *db.Tx, x *Schedule) error {
	_, err := tx.Exec(ctx, `UPDATE schedules SET outcome = $1, instant = $2, at = $3, run = $4, error = $5, fired = $6, missed = $7
		WHERE id = $8`, x.Last.Outcome, x.Last.Instant, x.Last.At, x.Last.Run, s.vault.Seal(vault.ScheduleError, x.ID, []byte(x.Last.Error)),
		x.FiredCount, x.MissedCount, x.ID)
	return err
}

func moved(id string) error {
	return fault.New(fault.Conflict, "schedule %s was changed by somebody else at the same time", id).WithHint("try again")
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	Owner string
	After string // the id of a schedule: those added after it
	Limit int    // default and most 1000
}

// List returns schedules in the order they were added.
func (s *Schedules) List(ctx context.Context, f Filter) (out []Schedule, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = s.ListIn(ctx, q, f)
		return err
	})
	return out, err
}

// ListIn is List inside a transaction or snapshot of the caller.
func (s *Schedules) ListIn(ctx context.Context, q db.Q, f Filter) ([]Schedule, error) {
	if f.Limit <= 0 || f.Limit > 1000 {
		f.Limit = 1000
	}
	var from int64
	if f.After != "" {
		x, err := s.get(ctx, q, f.After)
		if err != nil {
			return nil, err
		}
		from = x.seq
	}
	if f.Owner != "" {
		return s.query(ctx, q, "owner = $1 AND seq > $2 ORDER BY seq LIMIT $3", f.Owner, from, f.Limit)
	}
	return s.query(ctx, q, "seq > $1 ORDER BY seq LIMIT $2", from, f.Limit)
}

// Get returns one schedule by its id, by an unambiguous beginning of that, or by its
// name: plain for the operator's, OWNER/NAME for others.
func (s *Schedules) Get(ctx context.Context, name string) (x Schedule, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		x, err = s.GetIn(ctx, q, name)
		return err
	})
	return x, err
}

// GetIn is Get inside a transaction or snapshot of the caller.
func (s *Schedules) GetIn(ctx context.Context, q db.Q, name string) (Schedule, error) {
	if id.Valid("sch", name) {
		return s.get(ctx, q, name)
	}
	owner, short := splitName(name)
	found, err := s.query(ctx, q, "key = $1", s.key(owner, short))
	if err == nil && len(found) == 0 && len(name) > len("sch_") && name[:4] == "sch_" {
		found, err = s.query(ctx, q, "id >= $1 AND id < $2 ORDER BY id LIMIT 2", name, id.Behind(name))
	}
	switch {
	case err != nil:
		return Schedule{}, err
	case len(found) == 0:
		return Schedule{}, fault.New(fault.NotFound, "no schedule %q", name).WithHint("ombud schedule list shows them")
	case len(found) > 1:
		return Schedule{}, fault.New(fault.Invalid, "several schedules begin with %q", name).WithHint("give more of the id")
	}
	return found[0], nil
}

func (s *Schedules) get(ctx context.Context, q db.Q, id string) (Schedule, error) {
	x, err := s.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM schedules WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.New(fault.NotFound, "no schedule %s", id).WithHint("ombud schedule list shows them")
	}
	return x, err
}

// Counts says how many schedules there are and how many of them are active.
func (s *Schedules) Counts(ctx context.Context) (all, active int64, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*), count(CASE WHEN state = 'active' THEN 1 END) FROM schedules").Scan(&all, &active)
	})
	return all, active, err
}
