package loops

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/trigger"
)

// Spending tells how far the budget is used up.
type Spending interface {
	Left(ctx context.Context, q db.Q, agent, root string) (budget.Headroom, error)
}

var _ Spending = (*budget.Budget)(nil)

// marks are the shares of a limit, in percent, of which the operator is told.
var marks = []int64{100, 80}

// BudgetWatch tells the operator when 80 and 100 percent of the day's or the month's
// budget are used up, once each, and what that comes to if it goes on.
func BudgetWatch(s Spending, zone *time.Location) Loop {
	return Loop{
		Name: "budget-watch", Description: "tells you when 80 and 100 percent of the day's or month's budget are used up",
		On: []trigger.On{{Schedule: &trigger.Schedule{When: "@every 15m", Missed: "skip"}}, {Manual: true}},
		Run: func(ctx context.Context, k *Kit) error {
			var head budget.Headroom
			now := time.UnixMicro(k.d.DB.Time()).In(zone)
			err := k.d.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
				head, err = s.Left(ctx, q, "", "")
				return err
			})
			if err != nil {
				return err
			}
			for _, l := range head.Levels {
				if err := watchLevel(ctx, k, l, now); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// watchLevel tells of the highest mark a window has passed, unless it was told already.
func watchLevel(ctx context.Context, k *Kit, l budget.Level, now time.Time) error {
	held := l.Spent + l.Reserved + l.Possible
	if !l.Limit.Set || l.Limit.MicroUSD == 0 {
		return nil
	}
	for _, mark := range marks {
		if held*100 < l.Limit.MicroUSD*mark {
			continue
		}
		period, share := windowOf(l.Window, now)
		key := period + " " + strconv.FormatInt(mark, 10)
		if _, told, err := k.ShortGet(ctx, "was "+key, "told", key); told || err != nil {
			return err
		}
		if err := k.ShortSet(ctx, "note "+key, "told", key, "1", 40*24*time.Hour); err != nil {
			return err
		}
		return k.Notify(ctx, "tell "+key, fmt.Sprintf("%d%% of the %s's budget", mark, l.Window), spendingText(l, held, share))
	}
	return nil
}

// windowOf names a window that is under way and says how much of it has passed.
func windowOf(window string, now time.Time) (period string, share float64) {
	begin := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	end, period := begin.AddDate(0, 0, 1), now.Format(time.DateOnly)
	if window == "month" {
		begin = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location())
		end, period = begin.AddDate(0, 1, 0), now.Format("2006-01")
	}
	return period, float64(now.Sub(begin)) / float64(end.Sub(begin))
}

func spendingText(l budget.Level, held int64, share float64) string {
	text := fmt.Sprintf("$%.2f of $%.2f are used up.", float64(held)/1e6, float64(l.Limit.MicroUSD)/1e6)
	if l.Left() == 0 {
		return text + " Nothing more is spent before the " + l.Window + " is over: ombud cost tells on what; budget." + l.Window + "_usd sets the limit."
	}
	if share > 0.05 { // before that it says nothing
		text += fmt.Sprintf(" At this rate it will be $%.2f at the end of the %s.", float64(held)/share/1e6, l.Window)
	}
	return text
}

// Letters tells what was given up and waits for somebody to decide.
type Letters interface {
	Unhandled(ctx context.Context) ([]eventlog.Pile, error)
}

// LetterWatch reminds the operator each morning of dead letters that still wait. That one
// has come is told at once, by the letters themselves.
func LetterWatch(s Letters) Loop {
	return Loop{
		Name: "dead-letters", Description: "reminds you each morning of dead letters that still wait",
		On: []trigger.On{{Schedule: &trigger.Schedule{When: "0 9 * * *"}}, {Manual: true}},
		Run: func(ctx context.Context, k *Kit) error {
			piles, err := s.Unhandled(ctx)
			if err != nil {
				return err
			}
			var lines []string
			var count, newest int64
			for _, p := range piles {
				count, newest = count+p.Count, max(newest, p.Newest)
				lines = append(lines, fmt.Sprintf("%d of %s %s, the oldest since %s", p.Count, p.Source, p.Name, time.UnixMicro(p.Oldest).Format("2 January 15:04")))
			}
			state := fmt.Sprint(count, " ", newest)
			was, _, err := k.ShortGet(ctx, "was", "", "told")
			if err != nil || was == state || count == 0 {
				return err
			}
			if err := k.ShortSet(ctx, "note", "", "told", state, 7*24*time.Hour); err != nil {
				return err
			}
			return k.Notify(ctx, "tell", fmt.Sprintf("%d dead letters wait", count), strings.Join(lines, "\n")+"\nombud dlq list shows them.")
		},
	}
}
