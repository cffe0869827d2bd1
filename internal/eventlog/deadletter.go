package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// KindCritical is the kind of events that tell of a failure a person should see.
const KindCritical = "system.critical"

// Critical is the payload of KindCritical when something became a dead letter.
type Critical struct {
	Error        string `json:"error"`
	Source       string `json:"source"` // "eventlog", "run", "delivery"
	DeadLetter   string `json:"dead_letter"`
	Name         string `json:"name"` // the subscription, the kind of the run, the channel
	Ref          string `json:"ref"`  // id of the event, run or delivery
	Subscription string `json:"subscription,omitempty"`
	Event        string `json:"event,omitempty"`
}

// Source is what gave something up.
type Source string

// The sources of dead letters.
const (
	FromSubscription Source = "subscription" // an event no retry could handle
	FromRun          Source = "run"          // a run that failed after its last attempt
	FromDelivery     Source = "delivery"     // a message that failed for good, or may have been sent
)

// LetterState is what became of a dead letter.
type LetterState string

// The states of a dead letter. One that is given up again after a replay waits again.
//
//	(none)   -- given up --> waiting
//	waiting  -- replay   --> replayed
//	waiting  -- drop     --> dropped
//	replayed -- given up --> waiting
const (
	LetterWaiting  LetterState = "waiting"
	LetterReplayed LetterState = "replayed"
	LetterDropped  LetterState = "dropped"
)

// DeadLetter is something that was given up. Times are Unix microseconds.
type DeadLetter struct {
	ID       string
	Source   Source
	Name     string // by whom: the subscription, the kind of the run, the channel
	Ref      string // what: the id of the event, run or delivery
	Title    string // of it, for people
	Position int64  // of an event
	Stream   string // of an event
	Cause    string // the event that led to it, if any
	Class    fault.Class
	Error    string // of the last attempt
	Attempts int64
	First    int64 // when it first failed
	Last     int64 // when it was given up
	State    LetterState
	Replays  int64
	Settled  int64  // when it was replayed or dropped, 0: it was not
	By       string // by whom
	Run      string // the run that the last replay began
}

// BuryTx makes a dead letter in the transaction that gives something up, leaves an
// event and tells Options.OnDead. What was given up before under the same source, name
// and ref is that letter again, with its attempts added.
func (l *Log) BuryTx(ctx context.Context, tx *db.Tx, d DeadLetter) (DeadLetter, error) {
	d.State, d.Last = LetterWaiting, tx.Now()
	if d.First <= 0 {
		d.First = d.Last
	}
	var attempts int64
	err := tx.QueryRow(ctx, `SELECT id, attempts, first_at, replays FROM dead_letters WHERE source = $1 AND name = $2 AND ref = $3`,
		d.Source, d.Name, d.Ref).Scan(&d.ID, &attempts, &d.First, &d.Replays)
	if errors.Is(err, sql.ErrNoRows) {
		d.ID, err = id.New("dead"), nil
	}
	if err != nil {
		return d, err
	}
	d.Attempts += attempts
	d.Error = fault.Cut(d.Error, maxError)
	_, err = tx.Exec(ctx, `INSERT INTO dead_letters (`+letterColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, '', '')
		ON CONFLICT (id) DO UPDATE SET position = excluded.position, stream = excluded.stream, class = excluded.class,
			attempts = excluded.attempts, last_at = excluded.last_at, error = excluded.error, state = excluded.state, settled_at = 0, settled_by = ''`,
		d.ID, d.Source, d.Name, d.Ref, d.Title, d.Position, d.Stream, d.Cause, d.Class, d.Attempts, d.First, d.Last,
		l.vault.Seal(vault.DeadLetterError, d.ID, []byte(d.Error)), d.State, d.Replays)
	if err != nil {
		return d, fmt.Errorf("make a dead letter of %s: %w", d.Ref, err)
	}
	l.log.Error("given up: a dead letter", "source", d.Source, "name", d.Name, "ref", d.Ref, "dead_letter", d.ID, "class", d.Class)
	if err := l.eventOfDead(ctx, tx, d); err != nil || l.onDead == nil {
		return d, err
	}
	err = tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return l.onDead(ctx, tx, d) })
	if err == nil || fault.Is(err, fault.Unavailable) {
		return d, err
	}
	l.log.Error("tell of a dead letter", "dead_letter", d.ID, "error", err) // it is one all the same
	return d, nil
}

// eventOfDead leaves the event that tells of a dead letter; the failure of a handler of
// such events leaves no further one.
func (l *Log) eventOfDead(ctx context.Context, tx *db.Tx, d DeadLetter) error {
	if d.Source == FromSubscription && d.Title == KindCritical {
		return nil
	}
	told := Critical{Error: d.Error, Source: string(d.Source), DeadLetter: d.ID, Name: d.Name, Ref: d.Ref}
	trace := d.Ref
	if d.Source == FromSubscription {
		told.Source, told.Subscription, told.Event, trace = "eventlog", d.Name, d.Ref, ""
	}
	_, err := l.AppendTx(ctx, tx, New{
		Stream: "system", Kind: KindCritical, Actor: told.Source, Cause: d.Ref, Trace: trace, Expect: Any, Data: told,
	})
	return err
}

// bury makes a dead letter of an event.
func (r *reader) bury(ctx context.Context, tx *db.Tx, e Event, attempts, since int64, failure error) error {
	_, err := r.log.BuryTx(ctx, tx, DeadLetter{
		Source: FromSubscription, Name: r.sub.Name, Ref: e.ID, Title: e.Kind, Position: e.Position, Stream: e.Stream, Cause: e.Cause,
		Class: fault.ClassOf(failure), Error: errorText(failure), Attempts: attempts, First: since,
	})
	return err
}

const letterColumns = `id, source, name, ref, title, position, stream, cause, class, attempts, first_at, last_at, error, state, replays,
	settled_at, settled_by, run`

func (l *Log) scanLetter(r interface{ Scan(...any) error }) (DeadLetter, error) {
	var d DeadLetter
	var sealed []byte
	err := r.Scan(&d.ID, &d.Source, &d.Name, &d.Ref, &d.Title, &d.Position, &d.Stream, &d.Cause, &d.Class, &d.Attempts, &d.First, &d.Last,
		&sealed, &d.State, &d.Replays, &d.Settled, &d.By, &d.Run)
	if err != nil {
		return d, err
	}
	text, err := l.vault.Open(vault.DeadLetterError, d.ID, sealed)
	d.Error = string(text)
	return d, err
}

// LetterFilter narrows DeadLetters. Zero fields do not narrow.
type LetterFilter struct {
	Source Source
	Name   string
	State  LetterState
	Class  fault.Class
	Since  int64  // given up at or after
	After  string // id, to go on behind
	Limit  int    // default 100, at most 1000
}

// DeadLetters returns dead letters, the oldest first.
func (l *Log) DeadLetters(ctx context.Context, f LetterFilter) (out []DeadLetter, err error) {
	where, args := []string{"id > $1"}, []any{f.After}
	for _, c := range []struct{ column, value string }{
		{"source", string(f.Source)}, {"name", f.Name}, {"state", string(f.State)}, {"class", string(f.Class)},
	} {
		if c.value != "" {
			args = append(args, c.value)
			where = append(where, c.column+" = $"+strconv.Itoa(len(args)))
		}
	}
	if f.Since > 0 {
		args = append(args, f.Since)
		where = append(where, "last_at >= $"+strconv.Itoa(len(args)))
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	args = append(args, int64(min(f.Limit, 1000)))
	err = l.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (DeadLetter, error) { return l.scanLetter(r) },
			`SELECT `+letterColumns+` FROM dead_letters WHERE `+strings.Join(where, " AND ")+` ORDER BY id LIMIT $`+strconv.Itoa(len(args)), args...)
		return err
	})
	return out, err
}

// DeadLetterIn returns the one dead letter whose id begins with prefix. Errors:
// NotFound, Invalid if several do.
func (l *Log) DeadLetterIn(ctx context.Context, q db.Q, prefix string) (DeadLetter, error) {
	found, err := db.All(ctx, q, func(r *db.Rows) (DeadLetter, error) { return l.scanLetter(r) },
		`SELECT `+letterColumns+` FROM dead_letters WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 2`, prefix, id.Behind(prefix))
	switch {
	case err != nil:
		return DeadLetter{}, err
	case len(found) == 0 || prefix == "":
		return DeadLetter{}, fault.New(fault.NotFound, "no dead letter %s", prefix).WithHint("ombud dlq list --all shows those there are")
	case len(found) > 1:
		return DeadLetter{}, fault.New(fault.Invalid, "several dead letters begin with %s", prefix).WithHint("give more of the id")
	}
	return found[0], nil
}

// Pile is the dead letters of one source and name that wait.
type Pile struct {
	Source         Source
	Name           string
	Count          int64
	Oldest, Newest int64 // when they were given up, Unix microseconds
}

// Piles returns what waits, by source and name.
func (l *Log) Piles(ctx context.Context) (out []Pile, err error) {
	err = l.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (p Pile, err error) {
			err = r.Scan(&p.Source, &p.Name, &p.Count, &p.Oldest, &p.Newest)
			return p, err
		}, `SELECT source, name, count(*), min(last_at), max(last_at) FROM dead_letters WHERE state = 'waiting'
			GROUP BY source, name ORDER BY source, name`)
		return err
	})
	return out, err
}

// SettleLetterTx moves a waiting dead letter to replayed or dropped. runID is the run
// that does it again, if there is one. Conflict if it does not wait.
func (l *Log) SettleLetterTx(ctx context.Context, tx *db.Tx, letter string, to LetterState, by, runID string) error {
	n, err := tx.Exec(ctx, `UPDATE dead_letters SET state = $2, settled_at = $3, settled_by = $4, run = CASE WHEN $5 = '' THEN run ELSE $5 END,
			replays = replays + CASE WHEN $2 = 'replayed' THEN 1 ELSE 0 END
		WHERE id = $1 AND state = 'waiting'`, letter, to, tx.Now(), by, runID)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "dead letter %s does not wait any more", letter)
	}
	return err
}

// SettleRefTx settles the waiting letter of something that went on without it, if there
// is one.
func (l *Log) SettleRefTx(ctx context.Context, tx *db.Tx, source Source, name, ref string, to LetterState, by string) error {
	_, err := tx.Exec(ctx, `UPDATE dead_letters SET state = $4, settled_at = $5, settled_by = $6,
			replays = replays + CASE WHEN $4 = 'replayed' THEN 1 ELSE 0 END
		WHERE source = $1 AND name = $2 AND ref = $3 AND state = 'waiting'`, source, name, ref, to, tx.Now(), by)
	return err
}

// ForgetLetters removes dead letters for their age (Unix microseconds): settled ones
// last moved before settled, and, unless waiting is 0, those that wait since before it.
func (l *Log) ForgetLetters(ctx context.Context, settled, waiting int64) (removed int64, err error) {
	err = l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		removed, err = tx.Exec(ctx, `DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters
			WHERE state <> 'waiting' AND last_at < $1 AND settled_at < $1 OR state = 'waiting' AND last_at < $2 ORDER BY id LIMIT 1000)`, settled, waiting)
		return err
	})
	return removed, err
}
