package memory

import (
	"context"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

const (
	// unsayTime is how long something counts as just said.
	unsayTime = time.Hour
	// maxScan is how many facts a query to forget is compared with: they are read
	// inside the transaction, which has 50 ms. 1,000 take about 15.
	maxScan       = 1000
	maxCandidates = 5
)

// Which says what to forget: exactly one of ID, Query and Last is set.
type Which struct {
	ID     string
	Query  string // words that all are in the one fact that is meant
	Last   string // a conversation: what was last said there to remember
	Origin Origin // who asks
}

// Forgetting is what became of it.
type Forgetting struct {
	Facts      []Fact // what was forgotten, with the text it had
	Restored   []Fact // earlier versions that are live again, only after Last
	Candidates []Fact // nothing was forgotten: these all fit, at most 5 of them
}

// ForgetTx forgets as part of tx. Errors: NotFound if nothing fits, Invalid if the
// query says nothing or there are too many facts to compare it with.
func (m *Memory) ForgetTx(ctx context.Context, tx *db.Tx, agent string, w Which) (Forgetting, error) {
	switch {
	case w.ID != "" && w.Query == "" && w.Last == "":
		found, err := m.rows(ctx, tx, `id = $1 AND agent = $2 AND state = 'live'`, w.ID, agent)
		if err == nil && len(found) == 0 {
			err = noFact(w.ID)
		}
		if err != nil {
			return Forgetting{}, err
		}
		return m.forget(ctx, tx, found[0].Fact, w.Origin)
	case w.Query != "" && w.ID == "" && w.Last == "":
		return m.forgetBy(ctx, tx, agent, w)
	case w.Last != "" && w.ID == "" && w.Query == "":
		return m.unsay(ctx, tx, agent, w)
	}
	return Forgetting{}, fault.New(fault.Invalid, "say what to forget in exactly one way: by id, by a query, or the last said")
}

func (m *Memory) forget(ctx context.Context, tx *db.Tx, f Fact, by Origin) (Forgetting, error) {
	had := f
	f.Origin = by
	return Forgetting{Facts: []Fact{had}}, m.erase(ctx, tx, f, forgotten)
}

// forgetBy forgets the one fact that has all the words of a query, or that is the
// query; if several fit it forgets none.
func (m *Memory) forgetBy(ctx context.Context, tx *db.Tx, agent string, w Which) (Forgetting, error) {
	want := terms(w.Query)
	if len(want) == 0 {
		return Forgetting{}, fault.New(fault.Invalid, "the query has no word to look for")
	}
	same, ok, err := m.liveBy(ctx, tx, agent, "key", m.vault.Blind(vault.MemoryKey, normal(w.Query)))
	if err != nil {
		return Forgetting{}, err
	}
	if ok {
		return m.forget(ctx, tx, same.Fact, w.Origin)
	}
	all, err := m.newest(ctx, tx, agent, maxScan+1)
	if err != nil {
		return Forgetting{}, err
	}
	if len(all) > maxScan {
		return Forgetting{}, fault.New(fault.Invalid, "there are more than %d facts, too many to look through while forgetting", maxScan).
			WithHint("recall the fact first and forget it by its id")
	}
	var fit []Fact
	for _, f := range all {
		if containsAll(terms(f.Text), want) {
			fit = append(fit, f)
		}
	}
	switch len(fit) {
	case 0:
		return Forgetting{}, fault.New(fault.NotFound, "no fact has all the words of %q", w.Query)
	case 1:
		return m.forget(ctx, tx, fit[0], w.Origin)
	}
	return Forgetting{Candidates: fit[:min(len(fit), maxCandidates)]}, nil
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(t string) bool { return !slices.Contains(have, t) })
}

// unsay takes back what the last run that remembered something in a conversation
// remembered there.
func (m *Memory) unsay(ctx context.Context, tx *db.Tx, agent string, w Which) (Forgetting, error) {
	last, err := m.rows(ctx, tx, `agent = $1 AND conversation = $2 AND said > $3 AND state = 'live' ORDER BY said DESC, change DESC LIMIT 1`,
		agent, w.Last, tx.Now()-unsayTime.Microseconds())
	if err != nil {
		return Forgetting{}, err
	}
	if len(last) == 0 {
		return Forgetting{}, fault.New(fault.NotFound, "nothing was remembered in this conversation within the last hour").
			WithHint("say what to forget: some of its words, or its id")
	}
	if run := last[0].Origin.Run; run != "" {
		if last, err = m.rows(ctx, tx, `agent = $1 AND conversation = $2 AND run = $3 AND state = 'live' ORDER BY change DESC LIMIT 100`,
			agent, w.Last, run); err != nil {
			return Forgetting{}, err
		}
	}
	var out Forgetting
	for _, r := range last {
		had := r.Fact
		out.Facts = append(out.Facts, had)
		r.Origin = w.Origin
		if err := m.move(ctx, tx, r.Fact, `state = 'forgotten', `+erasing); err != nil {
			return out, err
		}
		if err := m.tell(ctx, tx, r.Fact, Forgotten); err != nil {
			return out, err
		}
		if err := m.restore(ctx, tx, r.Fact, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// restore brings the version before f back, unless its time is over or its text is
// known as another fact by now.
func (m *Memory) restore(ctx context.Context, tx *db.Tx, f Fact, out *Forgetting) error {
	before, err := m.rows(ctx, tx, `id = $1 AND state = 'old' AND (expires = 0 OR expires > $2)
		AND NOT EXISTS (SELECT 1 FROM memories o WHERE o.agent = memories.agent AND o.key = memories.key AND o.state = 'live')
		ORDER BY version DESC LIMIT 1`, f.ID, tx.Now())
	if err != nil || len(before) == 0 {
		return err
	}
	b := before[0].Fact
	change, err := tx.Next(ctx, changes)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE memories SET state = 'live', change = $3 WHERE id = $1 AND version = $2 AND state = 'old'`,
		b.ID, b.Version, change); err != nil {
		return err
	}
	out.Restored = append(out.Restored, b)
	b.Origin = f.Origin
	return m.tell(ctx, tx, b, Restored)
}

// Sweep erases the facts whose time is over and returns how many. Until it has
// run they are hidden, not gone.
func (m *Memory) Sweep(ctx context.Context) (erased int, err error) {
	for {
		n := 0
		err := m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			over, err := m.rows(ctx, tx, `state = 'live' AND expires > 0 AND expires <= $1 ORDER BY expires LIMIT $2`, tx.Now(), page)
			for _, r := range over {
				if err == nil {
					r.Origin = Origin{}
					err = m.erase(ctx, tx, r.Fact, expired)
				}
			}
			n = len(over)
			return err
		})
		if err != nil {
			return erased, err
		}
		if erased += n; n < page {
			return erased, nil
		}
	}
}
