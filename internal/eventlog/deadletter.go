package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// KindCritical is the kind of events that tell of a failure a person should see.
const KindCritical = "system.critical"

// Critical is the payload of KindCritical when a subscription gave up.
type Critical struct {
	Error        string `json:"error"`
	Source       string `json:"source"` // "eventlog"
	DeadLetter   string `json:"dead_letter"`
	Subscription string `json:"subscription"`
	Event        string `json:"event"`
}

// DeadLetter is an event a subscription gave up on.
type DeadLetter struct {
	ID           string
	Subscription string
	Position     int64
	Event        string
	Stream       string
	At           int64 // when it was given up
	Attempts     int64
	Error        string // of the last attempt
	ReplayedAt   int64  // 0: not replayed
}

// bury makes a dead letter of e and says so in the log. The failure of a handler
// of KindCritical is not told by another such event.
func (r *reader) bury(ctx context.Context, tx *db.Tx, e Event, attempts int64, failure error) error {
	letter := id.New("dead")
	_, err := tx.Exec(ctx, `INSERT INTO dead_letters (id, subscription, position, event, stream, at, attempts, error, replayed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`,
		letter, r.sub.Name, e.Position, e.ID, e.Stream, tx.Now(), attempts,
		r.log.vault.Seal(vault.DeadLetterError, letter, []byte(errorText(failure))))
	if err != nil {
		return fmt.Errorf("make a dead letter of %s: %w", e.ID, err)
	}
	r.log.log.Error("event is a dead letter", "subscription", r.sub.Name, "event", e.ID, "dead_letter", letter, "error", failure)
	if e.Kind == KindCritical {
		return nil
	}
	_, err = r.log.AppendTx(ctx, tx, New{
		Stream: "system", Kind: KindCritical, Actor: "eventlog", Cause: e.ID, Trace: e.Trace, Expect: Any,
		Data: Critical{Error: errorText(failure), Source: "eventlog", DeadLetter: letter, Subscription: r.sub.Name, Event: e.ID},
	})
	return err
}

const letterColumns = `id, subscription, position, event, stream, at, attempts, error, replayed_at`

func (l *Log) scanLetter(r interface{ Scan(...any) error }) (DeadLetter, error) {
	var d DeadLetter
	var sealed []byte
	err := r.Scan(&d.ID, &d.Subscription, &d.Position, &d.Event, &d.Stream, &d.At, &d.Attempts, &sealed, &d.ReplayedAt)
	if err != nil {
		return d, err
	}
	text, err := l.vault.Open(vault.DeadLetterError, d.ID, sealed)
	d.Error = string(text)
	return d, err
}

// DeadLetters returns dead letters, the oldest first, after the one with the
// given id ("" for the first), at most limit (default and most: 256).
func (l *Log) DeadLetters(ctx context.Context, after string, limit int) ([]DeadLetter, error) {
	if limit <= 0 || limit > page {
		limit = page
	}
	var out []DeadLetter
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, func(r *db.Rows) (DeadLetter, error) { return l.scanLetter(r) },
			`SELECT `+letterColumns+` FROM dead_letters WHERE id > $1 ORDER BY id LIMIT $2`, after, int64(limit))
		return err
	})
	return out, err
}

// Replay gives a dead letter to its handler once more, marked as out of order,
// because later events of its stream were handled long ago. The subscription must
// run here. A failure is returned and noted in the dead letter, which stays.
//
// Errors: NotFound, Conflict if it was replayed already, Unavailable if the
// subscription does not run here, else the handler's.
func (l *Log) Replay(ctx context.Context, letterID string) error {
	var d DeadLetter
	var raw row
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if d, err = l.scanLetter(q.QueryRow(ctx, `SELECT `+letterColumns+` FROM dead_letters WHERE id = $1`, letterID)); err != nil {
			return err
		}
		raw, err = scanRow(q.QueryRow(ctx, `SELECT `+columns+` FROM events WHERE position = $1`, d.Position))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.NotFound, "no dead letter %s", letterID)
	}
	if err != nil {
		return err
	}
	r := l.running(d.Subscription)
	if r == nil {
		return fault.New(fault.Unavailable, "subscription %q does not run here", d.Subscription)
	}
	return r.replay(ctx, d, r.log.items([]row{raw})[0])
}

func (r *reader) replay(ctx context.Context, d DeadLetter, it item) error {
	it.OutOfOrder = true
	err := r.log.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE dead_letters SET replayed_at = $2 WHERE id = $1 AND replayed_at = 0`, d.ID, tx.Now())
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.Conflict, "dead letter %s was replayed already", d.ID)
		}
		return r.handle(ctx, tx, it, together)
	})
	failure, ok := errors.AsType[*handlerError](err)
	if !ok {
		return err
	}
	note := r.log.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE dead_letters SET attempts = attempts + 1, error = $2 WHERE id = $1`, d.ID,
			r.log.vault.Seal(vault.DeadLetterError, d.ID, []byte(errorText(failure))))
		return err
	})
	return errors.Join(fmt.Errorf("replay %s: %w", d.ID, failure.err), note)
}

// Blocked is a stream that waits for a retry.
type Blocked struct {
	Subscription string
	Stream       string
	From         int64 // first position not handled
	Attempts     int64
	NextAt       int64
	Error        string
}

// Blocked returns the streams that wait, the first due first, at most 256.
func (l *Log) Blocked(ctx context.Context) ([]Blocked, error) {
	var out []Blocked
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, func(r *db.Rows) (b Blocked, err error) {
			var sealed []byte
			if err := r.Scan(&b.Subscription, &b.Stream, &b.From, &b.Attempts, &b.NextAt, &sealed); err != nil {
				return b, err
			}
			text, err := l.vault.Open(vault.BlockedError, blockedRow(b.Subscription, b.Stream), sealed)
			b.Error = string(text)
			return b, err
		}, `SELECT subscription, stream, from_position, attempts, next_at, error FROM blocked
			ORDER BY next_at, subscription, stream LIMIT $1`, int64(page))
		return err
	})
	return out, err
}
