package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// duePage is how many blocked streams one pass retries.
const duePage = 64

// blockedStream is a stream a subscription has to come back to. from is the first
// position not yet handled; attempts count the failures of the event there.
type blockedStream struct {
	stream   string
	from     int64
	attempts int64
	since    int64 // when the event at from first failed
}

// retry goes through the blocked streams that are due.
func (r *reader) retry(ctx context.Context) error {
	if r.loaded && (r.retryAt == 0 || r.retryAt > r.log.now().UnixMicro()) {
		return nil
	}
	due, err := r.due(ctx)
	if err != nil {
		return err
	}
	for _, b := range due {
		err := r.try(ctx, func(m mode) error { return r.catchUp(ctx, b, m) })
		if err != nil {
			return err
		}
	}
	if len(due) == 0 {
		return nil
	}
	_, err = r.due(ctx) // when to come back
	return err
}

// due returns the blocked streams to retry now, and notes when the next one is.
func (r *reader) due(ctx context.Context) ([]blockedStream, error) {
	var out []blockedStream
	var next *int64
	err := r.log.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if err := q.QueryRow(ctx, `SELECT min(next_at) FROM blocked WHERE subscription = $1`, r.sub.Name).Scan(&next); err != nil || next == nil {
			return err
		}
		out, err = db.All(ctx, q, func(rows *db.Rows) (b blockedStream, err error) {
			err = rows.Scan(&b.stream, &b.from, &b.attempts, &b.since)
			return b, err
		}, `SELECT stream, from_position, attempts, since FROM blocked WHERE subscription = $1 AND next_at <= $2
			ORDER BY next_at, stream LIMIT $3`, r.sub.Name, r.log.now().UnixMicro(), int64(duePage))
		return err
	})
	if err != nil {
		return nil, err
	}
	r.loaded, r.retryAt = true, 0
	if next != nil {
		r.retryAt = *next
	}
	return out, nil
}

// catchUp handles a blocked stream from where it stopped. It ends at the next
// failure, after a page, or where the subscription is; there the stream is free.
func (r *reader) catchUp(ctx context.Context, b blockedStream, m mode) error {
	upTo := r.position
	rows, err := r.behind(ctx, b, upTo)
	if err != nil {
		return err
	}
	items := r.log.items(rows)
	return r.log.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		b := b // this function may run twice
		for _, it := range items {
			err := r.handle(ctx, tx, it, m)
			failure, ok := errors.AsType[*handlerError](err)
			switch {
			case err == nil:
			case !ok || m == together:
				return err
			default:
				attempts, since := int64(1), tx.Now()
				if it.Position == b.from && b.attempts > 0 {
					attempts, since = attempts+b.attempts, b.since
				}
				if err := r.free(ctx, tx, b); err != nil {
					return err
				}
				next, err := r.failed(ctx, tx, it.Event, attempts, since, failure)
				if err != nil || next > 0 {
					return err
				}
				b = blockedStream{stream: b.stream, from: it.Position + 1}
				if err := r.block(ctx, tx, b, tx.Now(), nil); err != nil {
					return err
				}
			}
		}
		if err := r.free(ctx, tx, b); err != nil {
			return err
		}
		return r.stillBehind(ctx, tx, b, items, upTo)
	})
}

// stillBehind blocks the stream again, due at once, if there is more of it than
// was read: the page was full, or another node moved the position meanwhile.
func (r *reader) stillBehind(ctx context.Context, tx *db.Tx, b blockedStream, items []item, upTo int64) error {
	var position int64
	err := tx.QueryRow(ctx, `SELECT position FROM subscriptions WHERE name = $1`, r.sub.Name).Scan(&position)
	if err != nil {
		return err
	}
	from := upTo + 1
	if len(items) == page {
		from = items[page-1].Position + 1
	} else if position == upTo {
		return nil
	}
	return r.block(ctx, tx, blockedStream{stream: b.stream, from: from}, tx.Now(), nil)
}

func (r *reader) behind(ctx context.Context, b blockedStream, upTo int64) (rows []row, err error) {
	err = r.log.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		cond, args := r.sub.filter(ctx).where(`stream = $1 AND position >= $2 AND position <= $3`, []any{b.stream, b.from, upTo, int64(page)})
		rows, err = db.All(ctx, q, scanRows, `SELECT `+columns+` FROM events WHERE `+cond+` ORDER BY version LIMIT $4`, args...)
		return err
	})
	return rows, err
}

// failed records the failure of one event: its stream is blocked until the time
// returned, or, after the last retry, the event is a dead letter and 0 is
// returned: its stream goes on. If the store took the transaction with it, that
// is the error, and nothing is recorded.
func (r *reader) failed(ctx context.Context, tx *db.Tx, e Event, attempts, since int64, failure error) (next int64, err error) {
	if attempts > int64(len(r.log.retries)) {
		err = r.bury(ctx, tx, e, attempts, since, failure)
	} else {
		next = tx.Now() + r.log.retries[attempts-1].Microseconds()
		err = r.block(ctx, tx, blockedStream{stream: e.Stream, from: e.Position, attempts: attempts, since: since}, next, failure)
		r.log.log.Warn("handler failed", "subscription", r.sub.Name, "event", e.ID, "stream", e.Stream, "attempts", attempts, "error", failure)
	}
	if err != nil && fault.Is(failure, fault.Unavailable) {
		err = fmt.Errorf("handle event %s: %w", e.ID, failure)
	}
	return next, err
}

func (r *reader) block(ctx context.Context, tx *db.Tx, b blockedStream, next int64, why error) error {
	_, err := tx.Exec(ctx, `INSERT INTO blocked (subscription, stream, from_position, attempts, next_at, since, error)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, r.sub.Name, b.stream, b.from, b.attempts, next, b.since,
		r.log.vault.Seal(vault.BlockedError, blockedRow(r.sub.Name, b.stream), []byte(errorText(why))))
	if err != nil {
		return fmt.Errorf("block stream %q: %w", b.stream, err)
	}
	return nil
}

// free removes the row exactly as it was read; if it is not so any more, another
// node has retried the stream.
func (r *reader) free(ctx context.Context, tx *db.Tx, b blockedStream) error {
	n, err := tx.Exec(ctx, `DELETE FROM blocked WHERE subscription = $1 AND stream = $2 AND from_position = $3 AND attempts = $4`,
		r.sub.Name, b.stream, b.from, b.attempts)
	if err != nil {
		return fmt.Errorf("free stream %q: %w", b.stream, err)
	}
	return staleIf(n == 0)
}

func blockedRow(subscription, stream string) string { return subscription + "/" + stream }

// maxError is how much is kept of the text of an error.
const maxError = 4096

// errorText is what is kept of an error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return fault.Cut(err.Error(), maxError)
}
