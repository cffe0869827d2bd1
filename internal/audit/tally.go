package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Calls counts the calls of one subject to one tool that ended in one way.
type Calls struct {
	Subject string
	Tool    string
	Outcome string // as in Entry
	Reason  string // as in Entry; "" but for refusals
	Count   int64
	Cost    int64 // millionths of a dollar
}

// The kinds of entry that stand for the end of a call.
const (
	callMade    = "call"
	callRefused = "call.refused"
)

// Tally counts the calls recorded since a time, of one subject or of all. It reads
// every chain from its end back to there, a page at a time, and does not verify.
func Tally(ctx context.Context, d reader, since int64, subject string) ([]Calls, error) {
	var chains []string
	err := d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		chains, err = db.All(ctx, q, db.Column[string], "SELECT chain FROM audit_chains ORDER BY number")
		return err
	})
	if err != nil {
		return nil, err
	}
	sums := map[Calls]*Calls{}
	for _, chain := range chains {
		if err := tallyChain(ctx, d, chain, since, func(r record) {
			if subject == "" || r.Subject == subject {
				r.addTo(sums)
			}
		}); err != nil {
			return nil, err
		}
	}
	out := make([]Calls, 0, len(sums))
	for _, c := range sums {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Calls) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
	return out, nil
}

func (r record) addTo(sums map[Calls]*Calls) {
	key := Calls{Subject: r.Subject, Tool: r.Tool, Outcome: r.Outcome}
	if r.Kind == callRefused {
		key.Reason = r.Reason
	}
	c := sums[key]
	if c == nil {
		own := key
		c = &own
		sums[key] = c
	}
	c.Count += max(1, r.Count)
	c.Cost += r.CostMicroUSD
}

// tallyChain hands on the ends of calls of one chain, the newest first, back to
// since: within a chain the time never goes back.
func tallyChain(ctx context.Context, d reader, chain string, since int64, on func(record)) error {
	type line struct {
		seq, at int64
		entry   string
	}
	for before, more := int64(math.MaxInt64), true; more; {
		var list []line
		err := d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			list, err = db.All(ctx, q, func(r *db.Rows) (l line, err error) {
				err = r.Scan(&l.seq, &l.at, &l.entry)
				return l, err
			},
				"SELECT seq, at, entry FROM audit WHERE chain = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3", chain, before, int64(page))
			return err
		})
		if err != nil {
			return err
		}
		more = len(list) == page
		for _, l := range list {
			if l.at < since {
				return nil
			}
			before = l.seq
			var r record
			if err := json.Unmarshal([]byte(l.entry), &r); err != nil {
				return fault.New(fault.Verification, "audit entry %s %d cannot be read: %w", chain, l.seq, err)
			}
			if r.Kind == callMade || r.Kind == callRefused {
				on(r)
			}
		}
	}
	return nil
}
