package approval

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

const columns = `id, run, step, call_hash, state, subject, tool, tool_digest, conversation, detached,
	asked, expires, hold_until, resolved, resolver, summary, input, details, note, answer`

// details is the sealed part that nothing is decided by here.
type details struct {
	Scopes  []string    `json:"scopes"`
	Reasons []string    `json:"reasons"`
	Label   label.Label `json:"label"`
	// Form is kept as text: it is shown in the order in which it was written.
	Form string `json:"form,omitempty"`
}

func (a *Approvals) scan(scan func(...any) error) (Approval, error) {
	var r Approval
	var detached int64
	var summary, input, shown, note, answer []byte
	err := scan(&r.ID, &r.Run, &r.Step, &r.CallHash, &r.State, &r.Subject, &r.Tool, &r.ToolDigest, &r.Conversation, &detached,
		&r.Asked, &r.Expires, &r.HoldUntil, &r.Resolved, &r.Resolver, &summary, &input, &shown, &note, &answer)
	if err != nil {
		return r, err
	}
	r.Detached = detached == 1
	for _, f := range []struct {
		field  vault.Field
		sealed *[]byte
	}{
		{vault.ApprovalSummary, &summary}, {vault.ApprovalInput, &input}, {vault.ApprovalDetails, &shown},
		{vault.ApprovalNote, &note}, {vault.ApprovalAnswer, &answer},
	} {
		if *f.sealed == nil {
			continue
		}
		if *f.sealed, err = a.vault.Open(f.field, r.ID, *f.sealed); err != nil {
			return r, err
		}
	}
	var d details
	if err := json.Unmarshal(shown, &d); err != nil {
		return r, fault.New(fault.Verification, "details of approval %s: %w", r.ID, err)
	}
	r.Summary, r.Input, r.Note = string(summary), input, string(note)
	r.Scopes, r.Reasons, r.Label, r.Answer = d.Scopes, d.Reasons, d.Label, answer
	if d.Form != "" {
		r.Form = json.RawMessage(d.Form)
	}
	return r, nil
}

// insert adds a question; it reports whether it was new.
func (a *Approvals) insert(ctx context.Context, tx *db.Tx, r *Approval) (bool, error) {
	shown, err := json.Marshal(details{r.Scopes, r.Reasons, r.Label, string(r.Form)})
	if err != nil {
		return false, fault.New(fault.Internal, "details of approval %s: %w", r.ID, err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO approvals (`+columns+`)
		VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, 0, $9, $10, $11, 0, '', $12, $13, $14, NULL, NULL)
		ON CONFLICT (run, step, call_hash) DO NOTHING`,
		r.ID, r.Run, r.Step, r.CallHash, r.Subject, r.Tool, r.ToolDigest, r.Conversation, r.Asked, r.Expires, r.HoldUntil,
		a.vault.Seal(vault.ApprovalSummary, r.ID, []byte(r.Summary)), a.vault.Seal(vault.ApprovalInput, r.ID, r.Input),
		a.vault.Seal(vault.ApprovalDetails, r.ID, shown))
	return n == 1, err
}

// Get returns an approval.
func (a *Approvals) Get(ctx context.Context, id string) (out Approval, err error) {
	err = a.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = a.load(ctx, q, id)
		return err
	})
	return out, err
}

func (a *Approvals) load(ctx context.Context, q db.Q, id string) (Approval, error) {
	r, err := a.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM approvals WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.NotFound, "no approval %s", id)
	}
	return r, err
}

// ByCall returns the approval asked for a call; NotFound if none was.
func (a *Approvals) ByCall(ctx context.Context, q db.Q, run, step string, callHash []byte) (Approval, error) {
	r, err := a.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM approvals WHERE run = $1 AND step = $2 AND call_hash = $3",
		run, step, callHash).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.NotFound, "no approval was asked for step %s of run %s", step, run)
	}
	return r, err
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	State        State
	Conversation string
	Run          string
	Step         string
	Before       string // an id, exclusive, to go on behind
	Limit        int    // default 100, at most 1000
}

// List returns approvals, the newest first.
func (a *Approvals) List(ctx context.Context, f Filter) (out []Approval, err error) {
	where, args := []string{"1 = 1"}, []any{}
	narrow := func(condition, value string) {
		if value != "" {
			args = append(args, value)
			where = append(where, condition+strconv.Itoa(len(args)))
		}
	}
	narrow("state = $", string(f.State))
	narrow("conversation = $", f.Conversation)
	narrow("run = $", f.Run)
	narrow("step = $", f.Step)
	narrow("id < $", f.Before)
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args = append(args, min(limit, 1000))
	err = a.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Approval, error) { return a.scan(r.Scan) },
			"SELECT "+columns+" FROM approvals WHERE "+strings.Join(where, " AND ")+" ORDER BY id DESC LIMIT $"+strconv.Itoa(len(args)), args...)
		return err
	})
	return out, err
}

// Find returns the one approval whose id begins with prefix: what a person copied
// from a narrow screen. Errors: NotFound, Invalid if several do.
func (a *Approvals) Find(ctx context.Context, prefix string) (Approval, error) {
	var ids []string
	err := a.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], "SELECT id FROM approvals WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 2",
			prefix, id.Behind(prefix))
		return err
	})
	switch {
	case err != nil:
		return Approval{}, err
	case len(ids) == 0 || prefix == "":
		return Approval{}, fault.New(fault.NotFound, "no approval %q", prefix)
	case len(ids) > 1:
		return Approval{}, fault.New(fault.Invalid, "several approvals begin with %q", prefix).WithHint("give more of the id")
	}
	return a.Get(ctx, ids[0])
}
