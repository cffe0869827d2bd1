package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Recorded is an entry as it is stored. What hides a scope or an input from its
// reader hides it here too.
type Recorded struct {
	Ref
	At           int64
	Kind         string
	Actor        string
	Subject      string
	Tool         string
	Scopes       []string // without what they are about
	Outcome      string
	Reason       string
	DurationUS   int64
	CostMicroUSD int64
	Count        int64
	Run          string
	Step         string
	Signed       int64  // seq of the first checkpoint that covers it, 0 if none does yet
	Text         string // canonical JSON: what the hash is made of
}

// selectRecorded is read by scanRecorded.
const selectRecorded = `SELECT a.chain, a.seq, a.hash, a.entry, COALESCE((SELECT min(k.seq) FROM audit_checkpoints k
	WHERE k.chain = a.chain AND k.seq >= a.seq), 0) FROM audit a `

// tailChains is among how many of the newest chains Tail looks at least: those of
// all nodes that may be writing.
const tailChains = 16

// Tail returns the last entries of all chains, the oldest first. It does not verify.
func Tail(ctx context.Context, d reader, limit int) (out []Recorded, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		out = nil
		chains, err := db.All(ctx, q, func(r *db.Rows) (chain string, err error) { return chain, r.Scan(&chain) },
			`SELECT chain FROM audit_chains ORDER BY number DESC LIMIT $1`, int64(page))
		for i, chain := range chains {
			if i >= tailChains && len(out) >= limit {
				break
			}
			last, err := db.All(ctx, q, scanRecorded, selectRecorded+`WHERE a.chain = $1 ORDER BY a.seq DESC LIMIT $2`, chain, int64(limit))
			if err != nil {
				return err
			}
			out = append(out, last...)
		}
		return err
	})
	slices.SortStableFunc(out, func(a, b Recorded) int { return cmp.Compare(b.At, a.At) })
	out = out[:min(limit, len(out))]
	slices.Reverse(out)
	return out, err
}

// Show returns one entry. An empty chain is the newest one that has it.
func Show(ctx context.Context, d reader, chain string, seq int64) (out Recorded, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		found, err := db.All(ctx, q, scanRecorded, selectRecorded+`JOIN audit_chains c ON c.chain = a.chain
			WHERE a.seq = $1 AND (a.chain = $2 OR $2 = '') ORDER BY c.number DESC LIMIT 1`, seq, chain)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fault.New(fault.NotFound, "no audit entry %d%s", seq, ofChain(chain)).WithHint("see the last ones: ombud audit tail")
		}
		out = found[0]
		return nil
	})
	return out, err
}

func ofChain(chain string) string {
	if chain == "" {
		return ""
	}
	return " of chain " + chain
}

// Head returns the last entry that was written, the zero Ref if there is none.
func Head(ctx context.Context, d reader) (out Ref, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		err := q.QueryRow(ctx, `SELECT a.chain, a.seq, a.hash FROM audit a JOIN audit_chains c ON c.chain = a.chain
			ORDER BY c.number DESC, a.seq DESC LIMIT 1`).Scan(&out.Chain, &out.Seq, &out.Hash)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return out, err
}

func scanRecorded(r *db.Rows) (e Recorded, err error) {
	if err := r.Scan(&e.Chain, &e.Seq, &e.Hash, &e.Text, &e.Signed); err != nil {
		return e, err
	}
	var rec record
	if err := strict(e.Text, &rec); err != nil {
		return e, bad(e.Chain, e.Seq, "it cannot be read: %v", err)
	}
	e.At, e.Kind, e.Actor, e.Subject, e.Tool, e.Scopes = rec.At, rec.Kind, rec.Actor, rec.Subject, rec.Tool, rec.Scopes
	e.Outcome, e.Reason, e.DurationUS, e.CostMicroUSD, e.Count = rec.Outcome, rec.Reason, rec.DurationUS, rec.CostMicroUSD, rec.Count
	e.Run, e.Step = rec.Run, rec.Step
	return e, nil
}
