package act

import (
	"context"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
)

// refusalKey is what refusals are counted by.
type refusalKey struct{ subject, tool, scope string }

// refusalCounts keeps a flood of refusals from filling the audit chain: the first
// of an hour are entries of their own, the rest become one entry with a count.
// The counts live in memory; a crash loses at most one hour's surplus count, never
// an act.
type refusalCounts struct {
	mu   sync.Mutex
	now  func() time.Time
	hour int64
	seen map[refusalKey]int64
	due  map[refusalKey]int64 // surplus of the hour before, to be written
}

// count notes a refusal and reports whether it gets an entry of its own.
func (r *refusalCounts) count(k *call) bool {
	key := refusalKey{subject: k.Authority.Subject, tool: k.Tool}
	if len(k.scopes) > 0 {
		key.scope = k.scopes[0].String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roll()
	r.seen[key]++
	return r.seen[key] <= refusalsEach
}

// roll starts a new hour and moves the surplus of the last one to due.
func (r *refusalCounts) roll() {
	hour := r.now().Unix() / 3600
	if hour == r.hour {
		return
	}
	r.collect()
	r.hour = hour
}

func (r *refusalCounts) collect() {
	for key, n := range r.seen {
		if n > refusalsEach {
			if r.due == nil {
				r.due = map[refusalKey]int64{}
			}
			r.due[key] += n - refusalsEach
		}
	}
	clear(r.seen)
}

// FlushRefusals writes one entry for each surplus of a past hour. The daemon calls
// it now and then.
func (a *Act) FlushRefusals(ctx context.Context) error { return a.flushRefusals(ctx, false) }

func (a *Act) flushRefusals(ctx context.Context, all bool) error {
	a.refusals.mu.Lock()
	a.refusals.roll()
	if all {
		a.refusals.collect()
	}
	due := a.refusals.due
	a.refusals.due = nil
	a.refusals.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	return a.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for key, n := range due {
			var scopes []string
			if key.scope != "" {
				scopes = []string{key.scope}
			}
			_, err := a.Audit.AppendTx(ctx, tx, audit.Entry{
				Kind: "call.refused", Actor: "ombud", Subject: key.subject, Tool: key.tool, Scopes: scopes,
				Outcome: string(Refused), Reason: "repeated", Count: n,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
