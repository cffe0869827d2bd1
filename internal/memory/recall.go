package memory

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

const (
	page     = 256     // rows of one read
	maxQuery = 8 << 10 // bytes of a query that are looked at
	maxHits  = 50
	maxList  = 200
	maxPage  = 1000
)

// Hit is a fact that fits a query. Scores compare within one answer only.
type Hit struct {
	Fact
	Score float64
}

// Recalled is what was found.
type Recalled struct {
	Hits    []Hit
	Warming bool // the index is not complete: older facts were not looked at yet
	Full    bool // the agent has more facts than are ever looked at
}

// Recall returns the k facts of an agent (at most 50) that fit a query best, none
// if no word of it is in any. It must not be called inside a transaction.
func (m *Memory) Recall(ctx context.Context, agent, query string, k int) (Recalled, error) {
	x := m.index(agent)
	select {
	case <-x.turn:
		defer func() { x.turn <- struct{}{} }()
	case <-ctx.Done():
		return Recalled{}, ctx.Err()
	}
	if err := m.catchUp(ctx, x, agent); err != nil {
		return Recalled{}, err
	}
	out := Recalled{Warming: !x.done, Full: x.full}
	query, _ = guard.CutText(query, maxQuery)
	found := x.search(query, min(max(k, 0), maxHits), m.db.Time())
	err := m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out.Hits = make([]Hit, 0, len(found))
		for _, s := range found {
			rows, err := m.rows(ctx, q, `id = $1 AND version = $2 AND state = 'live'`, s.row.id, s.row.version)
			if err != nil {
				return err
			}
			for _, r := range rows { // none: forgotten since
				out.Hits = append(out.Hits, Hit{r.Fact, s.score})
			}
		}
		return nil
	})
	return out, err
}

func (m *Memory) index(agent string) *index {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.indexes[agent]
	if x == nil {
		x = newIndex()
		m.indexes[agent] = x
	}
	return x
}

// catchUp reads what has changed since the last time, whoever changed it, and goes
// on building: newest facts first, at most Options.Pages pages. What fails is read
// again the next time.
func (m *Memory) catchUp(ctx context.Context, x *index, agent string) error {
	if !x.begun {
		if err := m.beginIndex(ctx, x); err != nil {
			return err
		}
	}
	for more := true; more; {
		rows, err := m.page(ctx, `agent = $1 AND change > $2 ORDER BY change LIMIT $3`, agent, x.high)
		if err != nil {
			return err
		}
		for _, r := range rows {
			x.take(r)
			x.high = r.change
		}
		more = len(rows) == page
	}
	if x.over(m.opts, 1.1) { // make room by building anew: the oldest stay out
		x.reset()
		if err := m.beginIndex(ctx, x); err != nil {
			return err
		}
	}
	for range m.opts.Pages {
		if x.done {
			return nil
		}
		rows, err := m.page(ctx, `agent = $1 AND change < $2 AND state = 'live' ORDER BY change DESC LIMIT $3`, agent, x.low)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if x.full = x.over(m.opts, 1); x.full {
				break
			}
			x.take(r)
			x.low = r.change
		}
		x.done = x.full || len(rows) < page
	}
	return nil
}

// beginIndex notes where the changes stand: what comes later is read forwards, what
// was before backwards.
func (m *Memory) beginIndex(ctx context.Context, x *index) error {
	return m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		var last int64
		err := q.QueryRow(ctx, `SELECT COALESCE(max(change), 0) FROM memories`).Scan(&last)
		if err == nil {
			x.begun, x.low, x.high = true, last+1, last
		}
		return err
	})
}

func (m *Memory) page(ctx context.Context, where, agent string, from int64) (rows []record, err error) {
	err = m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err = m.rows(ctx, q, where, agent, from, page)
		return err
	})
	return rows, err
}

// take brings the index up to one row.
func (x *index) take(r record) {
	row := rowID{r.ID, r.Version}
	if r.state != live {
		x.remove(row)
		return
	}
	x.put(entry{
		row: row, change: r.change, said: r.Said, expires: r.Expires, importance: r.Importance, pinned: r.Pinned,
	}, r.Text)
}

func (x *index) over(o Options, slack float64) bool {
	return float64(len(x.rows)) >= slack*float64(o.MaxFacts) || float64(x.postings) >= slack*float64(o.MaxPostings)
}

// List returns the live facts of an agent, the last changed first, at most limit
// and never more than 200.
func (m *Memory) List(ctx context.Context, agent string, limit int) (out []Fact, err error) {
	err = m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = m.newest(ctx, q, agent, min(limit, maxList))
		return err
	})
	return out, err
}

// Page returns the live facts of an agent, the last changed first, at most 1000;
// before is "" or the id of the fact to go on behind.
func (m *Memory) Page(ctx context.Context, agent, before string, limit int) (out []Fact, err error) {
	limit = min(limit, maxPage)
	err = m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		if before == "" {
			out, err = m.newest(ctx, q, agent, limit)
			return err
		}
		last, err := m.rows(ctx, q, `agent = $1 AND id = $2 ORDER BY version DESC LIMIT 1`, agent, before)
		if err != nil {
			return err
		}
		if len(last) == 0 {
			return fault.New(fault.NotFound, "no fact %s", before)
		}
		rows, err := m.rows(ctx, q, `agent = $1 AND state = 'live' AND (expires = 0 OR expires > $2) AND change < $3 ORDER BY change DESC LIMIT $4`,
			agent, m.db.Time(), last[0].change, limit)
		out = facts(rows)
		return err
	})
	return out, err
}

func (m *Memory) newest(ctx context.Context, q db.Q, agent string, limit int) ([]Fact, error) {
	rows, err := m.rows(ctx, q, `agent = $1 AND state = 'live' AND (expires = 0 OR expires > $2) ORDER BY change DESC LIMIT $3`,
		agent, m.db.Time(), limit)
	return facts(rows), err
}

func facts(rows []record) []Fact {
	out := make([]Fact, len(rows))
	for i, r := range rows {
		out[i] = r.Fact
	}
	return out
}

// Versions returns what a fact was and is, the newest first, or NotFound.
// Forgotten versions have no text.
func (m *Memory) Versions(ctx context.Context, agent, factID string) (out []Fact, err error) {
	err = m.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := m.rows(ctx, q, `id = $1 AND agent = $2 ORDER BY version DESC`, factID, agent)
		out = facts(rows)
		return err
	})
	if err == nil && len(out) == 0 {
		err = noFact(factID)
	}
	return out, err
}

func noFact(factID string) error {
	return fault.New(fault.NotFound, "there is no fact %s", strings.ToValidUTF8(factID, "?"))
}
