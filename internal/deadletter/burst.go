package deadletter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// burst is the letters of one source and name that came together.
type burst struct {
	source  eventlog.Source
	name    string
	since   int64 // when its first letter came
	total   int64 // letters in all
	untold  int64 // of them since the last notice
	notices int64
	pause   int64 // until the next notice, µs
	due     int64 // when that is
}

const burstColumns = `source, name, since, total, untold, notices, pause, due`

func scanBurst(scan func(...any) error) (b burst, err error) {
	err = scan(&b.source, &b.name, &b.since, &b.total, &b.untold, &b.notices, &b.pause, &b.due)
	return b, err
}

func (l *Letters) burstOf(ctx context.Context, q db.Q, source eventlog.Source, name string) (burst, error) {
	return scanBurst(q.QueryRow(ctx, `SELECT `+burstColumns+` FROM letter_bursts WHERE source = $1 AND name = $2`, source, name).Scan)
}

func (b *burst) save(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO letter_bursts (`+burstColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (source, name) DO UPDATE SET since = excluded.since, total = excluded.total, untold = excluded.untold,
			notices = excluded.notices, pause = excluded.pause, due = excluded.due`,
		b.source, b.name, b.since, b.total, b.untold, b.notices, b.pause, b.due)
	return err
}

// OnDead tells the operator of the first letter of a burst and counts the others. It is
// for eventlog.Options: it joins the transaction that makes the letter.
func (l *Letters) OnDead(ctx context.Context, tx *db.Tx, d eventlog.DeadLetter) error {
	b, err := l.burstOf(ctx, tx, d.Source, d.Name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	now := tx.Now()
	if err == nil && (b.untold > 0 || b.due > now) {
		b.total, b.untold = b.total+1, b.untold+1
		return b.save(ctx, tx)
	}
	pause := l.opt.Pause.Microseconds()
	b = burst{source: d.Source, name: d.Name, since: now, total: 1, notices: 1, pause: pause, due: l.wall(tx) + pause}
	if err := b.save(ctx, tx); err != nil { // first: a notice that becomes a dead letter itself is counted, not told
		return err
	}
	return l.Tell(ctx, tx, fmt.Sprintf("%s/%d", d.ID, d.Attempts), firstText(d, l.opt.Pause))
}

// TellDue tells of what came since the last notices, where their pause is over, and ends
// the bursts of which nothing came.
func (l *Letters) TellDue(ctx context.Context) error {
	if l.Held() != nil {
		return nil //nolint:nilerr // nothing is told while all is held
	}
	var due []burst
	err := l.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		due, err = db.All(ctx, q, func(r *db.Rows) (burst, error) { return scanBurst(r.Scan) },
			`SELECT `+burstColumns+` FROM letter_bursts WHERE due <= $1 ORDER BY due, source, name LIMIT 64`, l.DB.Time())
		return err
	})
	for _, b := range due {
		if err == nil {
			err = l.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return l.tellTx(ctx, tx, b.source, b.name) })
		}
	}
	return err
}

// wall is the time by the clock that TellDue looks at, which goes back where the time of a
// transaction does not.
func (l *Letters) wall(tx *db.Tx) int64 { return min(tx.Now(), l.DB.Time()) }

func (l *Letters) tellTx(ctx context.Context, tx *db.Tx, source eventlog.Source, name string) error {
	b, err := l.burstOf(ctx, tx, source, name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil || b.due > tx.Now(): // another node has told
		return err
	case b.untold == 0:
		_, err := tx.Exec(ctx, `DELETE FROM letter_bursts WHERE source = $1 AND name = $2`, source, name)
		return err
	}
	text := moreText(b)
	b.untold, b.notices, b.pause = 0, b.notices+1, min(4*b.pause, l.opt.MaxPause.Microseconds())
	b.due = l.wall(tx) + b.pause
	if err := b.save(ctx, tx); err != nil {
		return err
	}
	return l.Tell(ctx, tx, fmt.Sprintf("dead/%s/%s/%d/%d", b.source, b.name, b.since, b.notices), text)
}

// firstText is the notice of the first letter of a burst.
func firstText(d eventlog.DeadLetter, pause time.Duration) string {
	return fmt.Sprintf("Given up: %s. %s\n`ombud dlq show %s` says how to go on. More of the same within %s are told together.",
		what(d), oneLine(d.Error), d.ID, short(pause))
}

func what(d eventlog.DeadLetter) string {
	switch d.Source {
	case eventlog.FromSubscription:
		return fmt.Sprintf("the event %s, which %q could not handle", d.Ref, d.Name)
	case eventlog.FromDelivery:
		if d.Class == fault.Unknown || d.Title == "uncertain" {
			return fmt.Sprintf("a message to %q, which may or may not have been sent", d.Name)
		}
		return fmt.Sprintf("a message to %q, which could not be sent", d.Name)
	case eventlog.FromRun:
	}
	if d.Title != "" && d.Title != d.Name {
		return fmt.Sprintf("the %s run %q (%s), which failed", d.Name, oneLine(d.Title), d.Ref)
	}
	return fmt.Sprintf("the %s run %s, which failed", d.Name, d.Ref)
}

// moreText tells of those that came after it.
func moreText(b burst) string {
	of := map[eventlog.Source]string{
		eventlog.FromSubscription: "events that %q could not handle", eventlog.FromRun: "%s runs that failed", eventlog.FromDelivery: "messages to %q",
	}[b.source]
	if of == "" {
		of = "of %s"
	}
	return fmt.Sprintf("Given up since the last notice: %d more, %s; %d in all since %s.\n`ombud dlq list --source %s --name %s` shows them.",
		b.untold, fmt.Sprintf(of, b.name), b.total, time.UnixMicro(b.since).Format("2006-01-02 15:04"), b.source, b.name)
}

// short writes a length without its empty parts.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// oneLine is the beginning of a text that others may have written.
func oneLine(s string) string {
	const most = 300
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + " …"
	}
	return s
}
