package eventlog

import (
	"context"
	"database/sql"

	"github.com/ombud-run/ombud/internal/db"
)

// Keep reports whether the events of a stream are still needed, for example
// because its run is not finished. It is asked inside the transaction that
// removes them.
type Keep func(ctx context.Context, tx *db.Tx, stream string) (bool, error)

// Prune removes events older than before (Unix microseconds) and returns how
// many. It never removes
//   - what a subscription, running or not, has not passed, or has blocked;
//   - the event of a dead letter that waits;
//   - the newest event of a stream, so that versions never start again;
//   - what keep asks for. A nil keep asks for nothing.
//
// An id whose event was removed can be used again: whoever relies on ids to find
// repeats keeps them as long as it needs to.
func (l *Log) Prune(ctx context.Context, before int64, keep Keep) (removed int64, err error) {
	for after := int64(0); ; {
		rows, err := l.prunable(ctx, after, before)
		if err != nil || len(rows) == 0 {
			return removed, err
		}
		n, err := l.prunePage(ctx, rows, keep)
		removed += n
		if err != nil {
			return removed, err
		}
		after = rows[len(rows)-1].position
	}
}

type oldEvent struct {
	position int64
	stream   string
}

// prunable returns a page of candidates. What keeps an event from being one only
// ever shrinks: positions and the starts of blocked streams do not move back, and
// a dead letter comes from a blocked or unpassed event.
func (l *Log) prunable(ctx context.Context, after, before int64) (out []oldEvent, err error) {
	err = l.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		var passed, blocked sql.NullInt64
		if err := q.QueryRow(ctx, `SELECT min(position) FROM subscriptions`).Scan(&passed); err != nil {
			return err
		}
		if err := q.QueryRow(ctx, `SELECT min(from_position) FROM blocked`).Scan(&blocked); err != nil {
			return err
		}
		last, err := head(ctx, q)
		if err != nil {
			return err
		}
		if passed.Valid {
			last = min(last, passed.Int64)
		}
		if blocked.Valid {
			last = min(last, blocked.Int64-1)
		}
		out, err = db.All(ctx, q, func(r *db.Rows) (o oldEvent, err error) {
			err = r.Scan(&o.position, &o.stream)
			return o, err
		}, `SELECT position, stream FROM events e WHERE position > $1 AND position <= $2 AND at < $3
			AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.position = e.position AND d.position > 0 AND d.state = 'waiting')
			AND version < (SELECT max(version) FROM events n WHERE n.stream = e.stream)
			ORDER BY position LIMIT $4`, after, last, before, int64(page))
		return err
	})
	return out, err
}

func (l *Log) prunePage(ctx context.Context, rows []oldEvent, keep Keep) (removed int64, err error) {
	err = l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		removed = 0
		kept := map[string]bool{}
		for _, o := range rows {
			k, asked := kept[o.stream]
			if !asked && keep != nil {
				var err error
				if k, err = keep(ctx, tx, o.stream); err != nil {
					return err
				}
			}
			kept[o.stream] = k
			if k {
				continue
			}
			n, err := tx.Exec(ctx, `DELETE FROM events WHERE position = $1`, o.position)
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}
