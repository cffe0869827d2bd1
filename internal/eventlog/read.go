package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// page is the most events one query returns.
const page = 256

// scan is how far a filtered query looks in one snapshot: a filter that matches
// little must not hold a snapshot over the whole log.
const scan = 8192

// Filter chooses events. The zero Filter chooses all.
type Filter struct {
	Kinds        []string // any of these; none means every kind
	StreamPrefix string
}

// Match reports whether the filter chooses e.
func (f Filter) Match(e Event) bool {
	return (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) && strings.HasPrefix(e.Stream, f.StreamPrefix)
}

func (f Filter) same(g Filter) bool {
	return slices.Equal(f.Kinds, g.Kinds) && f.StreamPrefix == g.StreamPrefix
}

// where adds the filter to a condition. The text depends on the number of kinds
// only, so that statements stay few.
func (f Filter) where(cond string, args []any) (string, []any) {
	var b strings.Builder
	b.WriteString(cond)
	if len(f.Kinds) > 0 {
		for i, k := range f.Kinds {
			b.WriteString([]string{" AND kind IN ($", ", $"}[min(i, 1)])
			args = append(args, k)
			b.WriteString(strconv.Itoa(len(args)))
		}
		b.WriteString(")")
	}
	if f.StreamPrefix != "" {
		args = append(args, utf8.RuneCountInString(f.StreamPrefix), f.StreamPrefix)
		fmt.Fprintf(&b, " AND substr(stream, 1, $%d) = $%d", len(args)-1, len(args))
	}
	return b.String(), args
}

const columns = `position, id, stream, version, kind, format, at, actor, cause, trace, data, leaf`

// row is an event whose payload is not yet opened.
type row struct {
	Event
	sealed  []byte
	badLeaf bool
}

func scanRow(r interface{ Scan(...any) error }) (row, error) {
	var e row
	var leaf []byte
	err := r.Scan(&e.Position, &e.ID, &e.Stream, &e.Version, &e.Kind, &e.Format, &e.At, &e.Actor, &e.Cause, &e.Trace, &e.sealed, &leaf)
	if err != nil {
		return row{}, err
	}
	copy(e.Leaf[:], leaf)
	e.badLeaf = len(leaf) != len(e.Leaf) // an error of this event, not of the page it is on
	return e, nil
}

func scanRows(r *db.Rows) (row, error) { return scanRow(r) }

// open decrypts the payload and holds it against the leaf.
func (l *Log) open(r row) (Event, error) {
	e := r.Event
	if r.badLeaf {
		return Event{}, fault.New(fault.Verification, "event %s has a leaf of another length", e.ID)
	}
	if r.sealed == nil {
		e.Erased = true
		return e, nil
	}
	plain, err := l.vault.Open(vault.EventData, e.ID, r.sealed)
	if err != nil {
		return Event{}, err
	}
	if len(plain) < saltSize {
		return Event{}, fault.New(fault.Verification, "event %s has no salt", e.ID)
	}
	e.Data = plain[saltSize:]
	if leafOf(plain[:saltSize], &e) != e.Leaf {
		return Event{}, fault.New(fault.Verification, "event %s was changed: its leaf does not match", e.ID)
	}
	return e, nil
}

func (l *Log) openAll(rows []row, err error) ([]Event, error) {
	if err != nil {
		return nil, err
	}
	out := make([]Event, 0, len(rows))
	for _, r := range rows {
		e, err := l.open(r)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (l *Log) byID(ctx context.Context, q db.Q, eventID string) (Event, error) {
	r, err := scanRow(q.QueryRow(ctx, `SELECT `+columns+` FROM events WHERE id = $1`, eventID))
	if err != nil {
		return Event{}, err
	}
	return l.open(r)
}

// ByID returns one event, or NotFound.
func (l *Log) ByID(ctx context.Context, eventID string) (Event, error) {
	var e Event
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		e, err = l.byID(ctx, q, eventID)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Event{}, fault.New(fault.NotFound, "no event %s", eventID)
	}
	return e, err
}

// Head returns the position of the newest event, 0 if there was never one.
func (l *Log) Head(ctx context.Context) (int64, error) {
	var n int64
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		n, err = head(ctx, q)
		return err
	})
	return n, err
}

func head(ctx context.Context, q db.Q) (n int64, err error) {
	err = q.QueryRow(ctx, `SELECT value FROM heads WHERE name = $1`, counter).Scan(&n)
	return n, err
}

// Read returns the events after a position that f chooses, in order, at most
// limit (default and most: 256). None means that there are none now.
func (l *Log) Read(ctx context.Context, after int64, limit int, f Filter) ([]Event, error) {
	if limit <= 0 || limit > page {
		limit = page
	}
	for {
		rows, upTo, head, err := l.readPage(ctx, after, limit, f)
		if err != nil || len(rows) > 0 || upTo >= head {
			return l.openAll(rows, err)
		}
		after = upTo
	}
}

// readPage returns at most limit chosen events after a position, up to where it
// has looked, and the head it saw.
func (l *Log) readPage(ctx context.Context, after int64, limit int, f Filter) (rows []row, upTo, top int64, err error) {
	err = l.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		if top, err = head(ctx, q); err != nil || top <= after {
			upTo = max(after, top)
			return err
		}
		upTo = min(top, after+scan)
		cond, args := f.where(`position > $1 AND position <= $2`, []any{after, upTo, int64(limit)})
		rows, err = db.All(ctx, q, scanRows, `SELECT `+columns+` FROM events WHERE `+cond+` ORDER BY position LIMIT $3`, args...)
		if len(rows) == limit {
			upTo = rows[limit-1].Position
		}
		return err
	})
	return rows, upTo, top, err
}

// Stream returns the events of one stream after a version, in order, at most
// limit (default and most: 256).
func (l *Log) Stream(ctx context.Context, stream string, afterVersion int64, limit int) ([]Event, error) {
	if limit <= 0 || limit > page {
		limit = page
	}
	var rows []row
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		rows, err = db.All(ctx, q, scanRows, `SELECT `+columns+` FROM events
			WHERE stream = $1 AND version > $2 ORDER BY version LIMIT $3`, stream, afterVersion, int64(limit))
		return err
	})
	return l.openAll(rows, err)
}
