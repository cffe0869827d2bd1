package eventlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// Topic is notified by every append; see db.Watch. A hint only.
const Topic = "log"

// counter names the counter of positions, whose row every write batch holds on
// PostgreSQL: that makes position order commit order.
const counter = "log"

// Options of a Log.
type Options struct {
	Now     func() time.Time // default time.Now; must be the store's own
	Poll    time.Duration    // how often to look when nobody gives a hint; default 1s
	Retries []time.Duration  // waits before each retry of a failed event; default 1, 5 and 25 s
	// OnDead joins the transaction that makes a dead letter: the place to tell somebody.
	// Its error is logged and keeps nothing from being given up. It may run twice.
	OnDead func(ctx context.Context, tx *db.Tx, d DeadLetter) error
}

// Log is the event log of one store. It is safe for concurrent use.
type Log struct {
	db      *db.DB
	vault   *vault.Vault
	log     *slog.Logger
	now     func() time.Time
	poll    time.Duration
	retries []time.Duration
	onDead  func(ctx context.Context, tx *db.Tx, d DeadLetter) error
	loops   loops
	recent  recent
}

// NewLog returns the log of d. It does nothing until it is used.
func NewLog(d *db.DB, v *vault.Vault, log *slog.Logger, o Options) *Log {
	l := &Log{db: d, vault: v, log: log, now: o.Now, poll: o.Poll, retries: o.Retries, onDead: o.OnDead}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.poll <= 0 {
		l.poll = time.Second
	}
	if l.retries == nil {
		l.retries = []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}
	}
	return l
}

// Append is AppendTx in a transaction of its own.
func (l *Log) Append(ctx context.Context, events ...New) ([]Event, error) {
	var out []Event
	err := l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = l.AppendTx(ctx, tx, events...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// AppendTx appends the events in order, as part of tx, and returns them as
// stored; their Data must not be changed. An event whose id is already in the log with the same stream, kind and
// payload is returned as it was first stored, with Repeated set. After an error
// the transaction must not be committed.
//
// Errors: Conflict if the id belongs to another event or the stream is not at the
// version expected, Invalid if the event cannot be stored.
func (l *Log) AppendTx(ctx context.Context, tx *db.Tx, events ...New) ([]Event, error) {
	out := make([]Event, 0, len(events))
	for i := range events {
		e, err := l.appendOne(ctx, tx, &events[i])
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	fresh := slices.DeleteFunc(slices.Clone(out), func(e Event) bool { return e.Repeated })
	if len(fresh) > 0 {
		tx.AfterCommit(func() { l.recent.add(fresh) })
		tx.Notify(Topic)
	}
	return out, nil
}

func (l *Log) appendOne(ctx context.Context, tx *db.Tx, n *New) (Event, error) {
	if err := n.check(); err != nil {
		return Event{}, err
	}
	data, err := canonical(n.Data)
	if err != nil {
		return Event{}, fault.New(fault.Invalid, "append event %q: payload: %w", n.Kind, err)
	}
	if len(data) > MaxData {
		return Event{}, fault.New(fault.Invalid, "append event %q: the payload has %d bytes, the limit is %d", n.Kind, len(data), MaxData)
	}
	e := Event{
		ID: n.ID, Stream: n.Stream, Kind: n.Kind, Format: max(n.Format, 1), At: tx.Now(),
		Actor: n.Actor, Cause: n.Cause, Trace: n.Trace, Data: data,
	}
	if n.ID == "" {
		e.ID = id.New("evt")
	} else if first, err := l.repeated(ctx, tx, &e); err != nil || first.Position > 0 {
		return first, err
	}
	if err := expect(ctx, tx, n); err != nil {
		return Event{}, err
	}
	if n.Expect != Any {
		e.Version = n.Expect + 1
	}
	if err := l.insert(ctx, tx, &e); err != nil {
		return Event{}, fmt.Errorf("append event %q to %q: %w", e.Kind, e.Stream, err)
	}
	return e, nil
}

// repeated returns the event that already has e's id, the zero Event if none has.
// A payload that was erased cannot be compared and must not come back, so then
// stream and kind decide.
func (l *Log) repeated(ctx context.Context, tx *db.Tx, e *Event) (Event, error) {
	first, err := l.byID(ctx, tx, e.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return Event{}, nil
	}
	if err != nil {
		return Event{}, err
	}
	same := first.Stream == e.Stream && first.Kind == e.Kind && first.Format == e.Format
	if !same || !first.Erased && !bytes.Equal(first.Data, e.Data) {
		return Event{}, fault.New(fault.Conflict, "event %s is already in the log with other content", e.ID)
	}
	first.Repeated = true
	return first, nil
}

// expect compares the stream's version before a position is taken, so that a
// refused event leaves no gap even if its caller goes on.
func expect(ctx context.Context, tx *db.Tx, n *New) error {
	if n.Expect == Any || n.Proved {
		return nil
	}
	var have int64
	err := tx.QueryRow(ctx, `SELECT COALESCE(max(version), 0) FROM events WHERE stream = $1`, n.Stream).Scan(&have)
	if err != nil {
		return fmt.Errorf("read the version of stream %q: %w", n.Stream, err)
	}
	if have != n.Expect {
		return fault.New(fault.Conflict, "stream %q is at version %d, not %d", n.Stream, have, n.Expect)
	}
	return nil
}

func (l *Log) insert(ctx context.Context, tx *db.Tx, e *Event) (err error) {
	plain := make([]byte, saltSize, saltSize+len(e.Data))
	if _, err := rand.Read(plain); err != nil {
		return err
	}
	e.Leaf = leafOf(plain, e)
	plain = append(plain, e.Data...)
	if e.Position, err = tx.Next(ctx, counter); err != nil {
		return err
	}
	sealed := l.vault.Seal(vault.EventData, e.ID, plain)
	if e.Version > 0 {
		return tx.Later(ctx, nil, `INSERT INTO events (position, id, stream, version, kind, format, at, actor, cause, trace, data, leaf)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			e.Position, e.ID, e.Stream, e.Version, e.Kind, e.Format, e.At, e.Actor, e.Cause, e.Trace, sealed, e.Leaf[:])
	}
	return tx.QueryRow(ctx, `INSERT INTO events (position, id, stream, version, kind, format, at, actor, cause, trace, data, leaf)
		VALUES ($1, $2, $3, (SELECT COALESCE(max(version), 0) + 1 FROM events WHERE stream = $3), $4, $5, $6, $7, $8, $9, $10, $11)
		RETURNING version`,
		e.Position, e.ID, e.Stream, e.Kind, e.Format, e.At, e.Actor, e.Cause, e.Trace,
		sealed, e.Leaf[:]).Scan(&e.Version)
}

// Erase removes the payload and salt of an event and keeps its leaf, so that
// receipts still add up. Erasing twice is fine; NotFound if there is no such
// event. Copies in backups and in freed pages of the file remain until those are
// overwritten; they are sealed.
func (l *Log) Erase(ctx context.Context, eventID string) error {
	return l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE events SET data = NULL WHERE id = $1`, eventID)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "no event %s", eventID)
		}
		tx.AfterCommit(l.recent.forget)
		return err
	})
}
