package eventlog

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Last returns the newest event of a kind in a stream; NotFound if there is none.
func (l *Log) Last(ctx context.Context, stream, kind string) (Event, error) {
	var r row
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		r, err = scanRow(q.QueryRow(ctx, `SELECT `+columns+` FROM events WHERE stream = $1 AND kind = $2 ORDER BY version DESC LIMIT 1`, stream, kind))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Event{}, fault.New(fault.NotFound, "stream %s has no %s", stream, kind)
	}
	if err != nil {
		return Event{}, err
	}
	return l.open(r)
}

// HeadIn is Head as the caller's transaction sees it, with what it has appended.
func (l *Log) HeadIn(ctx context.Context, tx *db.Tx) (int64, error) { return newest(ctx, tx) }

// HeaderIn returns an event without its payload, as the caller's transaction or snapshot
// sees it; NotFound if there is none.
func (l *Log) HeaderIn(ctx context.Context, q db.Q, eventID string) (Event, error) {
	r, err := scanRow(q.QueryRow(ctx, `SELECT `+columns+` FROM events WHERE id = $1`, eventID))
	if errors.Is(err, sql.ErrNoRows) {
		return Event{}, fault.New(fault.NotFound, "no event %s", eventID)
	}
	return r.Event, err
}
