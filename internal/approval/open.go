package approval

import (
	"bytes"
	"context"

	"github.com/ombud-run/ombud/internal/db"
)

// OpenIn returns the open questions of a conversation, the oldest first, as the
// caller's transaction or snapshot sees them.
func (a *Approvals) OpenIn(ctx context.Context, q db.Q, conversation string) ([]Approval, error) {
	return db.All(ctx, q, func(r *db.Rows) (Approval, error) { return a.scan(r.Scan) },
		"SELECT "+columns+" FROM approvals WHERE conversation = $1 AND state = 'pending' ORDER BY id LIMIT 100", conversation)
}

// Number is what a question is called in its conversation: the how-manieth it is there.
// It stays the same whatever becomes of the others.
func (a *Approvals) Number(ctx context.Context, q db.Q, x Approval) (n int64, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM approvals WHERE conversation = $1 AND id <= $2", x.Conversation, x.ID).Scan(&n)
	return n, err
}

// GetTx is Get in the caller's transaction.
func (a *Approvals) GetTx(ctx context.Context, tx *db.Tx, id string) (Approval, error) {
	return a.load(ctx, tx, id)
}

// maxAlike is how many waiting questions of one tool are compared.
const maxAlike = 200

// Waiting returns the open detached question about the very call of q, whatever
// run put it: unattended work that comes again does not ask again.
func (a *Approvals) Waiting(ctx context.Context, r db.Q, q Ask) (Approval, bool, error) {
	list, err := db.All(ctx, r, func(r *db.Rows) (Approval, error) { return a.scan(r.Scan) },
		"SELECT "+columns+` FROM approvals WHERE state = 'pending' AND detached = 1 AND subject = $1 AND tool = $2
		AND tool_digest = $3 AND conversation = $4 AND expires > $5 ORDER BY id DESC LIMIT $6`,
		q.Subject, q.Tool, q.ToolDigest, q.Conversation, a.db.Time(), int64(maxAlike))
	for _, x := range list {
		if bytes.Equal(x.Input, q.Input) {
			return x, true, nil
		}
	}
	return Approval{}, false, err
}
