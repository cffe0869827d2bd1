package budget

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Level is how far one window is used up.
type Level struct {
	Node     string
	Window   string // "day", "month", "run"
	Limit    Limit
	Spent    int64
	Reserved int64
	Possible int64
	Unknown  int64 // calls whose cost nobody knows
}

// Left is what the window still allows; 0 if it is passed. It means nothing if
// Limit is not set.
func (l Level) Left() int64 { return max(0, l.Limit.MicroUSD-l.Spent-l.Reserved-l.Possible) }

// Headroom is what a call may cost now.
type Headroom struct {
	Limited bool
	Left    int64 // of the tightest window; 0 unless Limited
	Levels  []Level
}

// Left returns what an agent may still spend today. root is the run at the root of
// what it works on, "" for none.
func (b *Budget) Left(ctx context.Context, q db.Q, agent, root string) (Headroom, error) {
	var out Headroom
	for _, w := range b.windows(agent, root, b.day(b.db.Time())) {
		l := Level{Node: w.node, Window: w.kind, Limit: w.limit}
		err := q.QueryRow(ctx, "SELECT spent, reserved, possible, unknown FROM budget_totals WHERE node = $1 AND period = $2",
			w.node, w.period).Scan(&l.Spent, &l.Reserved, &l.Possible, &l.Unknown)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return out, err
		}
		out.Levels = append(out.Levels, l)
		if !l.Limit.Set {
			continue
		}
		if !out.Limited || l.Left() < out.Left {
			out.Left = l.Left()
		}
		out.Limited = true
	}
	return out, nil
}

// UsedUp is the refusal of whatever would cost something, nil while something is left.
func (h Headroom) UsedUp() error {
	for _, l := range h.Levels {
		if l.Limit.Set && l.Left() == 0 {
			return fault.New(fault.Denied, "over budget: %s may spend %s a %s; %s is spent, %s reserved, %s possibly spent, and nothing is left",
				l.Node, USD(l.Limit.MicroUSD), l.Window, USD(l.Spent), USD(l.Reserved), USD(l.Possible)).WithHint("%s", wayOut(l.Window))
		}
	}
	return nil
}

// Line is what one agent spent on one model on one day.
type Line struct {
	Agent    string
	Provider string // "" for what is not a model
	Model    string
	Spent    int64 // millionths of a US dollar
	Possible int64
	Reserved int64 // of calls under way
	Calls    int64
	Unknown  int64 // of the calls, those whose cost nobody knows; Spent is a lower bound if there are any
	Tokens   Tokens
}

// Day is what was spent on one day of the budget's zone.
type Day struct {
	Date  string // YYYY-MM-DD
	Lines []Line // dearest first
}

// maxDays bounds a report.
const maxDays = 366

// Report tells what was spent on each of so many days up to today, newest first.
// Days without calls are left out.
func (b *Budget) Report(ctx context.Context, days int) ([]Day, error) {
	if days < 1 || days > maxDays {
		return nil, fault.New(fault.Invalid, "a report is over 1 to %d days, not %d", maxDays, days)
	}
	today := time.UnixMicro(b.db.Time()).In(b.cfg.Zone)
	noon := time.Date(today.Year(), today.Month(), today.Day(), 12, 0, 0, 0, time.UTC) // every date has one
	var out []Day
	for back := range days {
		d := Day{Date: noon.AddDate(0, 0, -back).Format(time.DateOnly)}
		err := b.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			d.Lines, err = db.All(ctx, q, scanLine, `SELECT agent, provider, model,
					CAST(SUM(actual) AS BIGINT), CAST(SUM(possible) AS BIGINT),
					CAST(SUM(CASE WHEN state = 'open' THEN amount ELSE 0 END) AS BIGINT),
					CAST(SUM(calls) AS BIGINT), CAST(SUM(unknown) AS BIGINT), CAST(SUM(tokens_in) AS BIGINT),
					CAST(SUM(tokens_out) AS BIGINT), CAST(SUM(tokens_cache_read) AS BIGINT), CAST(SUM(tokens_cache_write) AS BIGINT)
				FROM budget_reservations WHERE day = $1 GROUP BY agent, provider, model
				HAVING SUM(calls) > 0 ORDER BY 4 DESC, agent, provider, model`, d.Date)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(d.Lines) > 0 {
			out = append(out, d)
		}
	}
	return out, nil
}

func scanLine(r *db.Rows) (l Line, err error) {
	err = r.Scan(&l.Agent, &l.Provider, &l.Model, &l.Spent, &l.Possible, &l.Reserved, &l.Calls, &l.Unknown,
		&l.Tokens.Input, &l.Tokens.Output, &l.Tokens.CacheRead, &l.Tokens.CacheWrite)
	return l, err
}
