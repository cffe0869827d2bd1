package approval

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
)

// OpenIn returns the open questions of a conversation, the oldest first, as the
// caller's transaction or snapshot sees them.
func (a *Approvals) OpenIn(ctx context.Context, q db.Q, conversation string) ([]Approval, error) {
	return db.All(ctx, q, func(r *db.Rows) (Approval, error) { return a.scan(r.Scan) },
		"SELECT "+columns+" FROM approvals WHERE conversation = $1 AND state = 'pending' ORDER BY id LIMIT 100", conversation)
}

// GetTx is Get in the caller's transaction.
func (a *Approvals) GetTx(ctx context.Context, tx *db.Tx, id string) (Approval, error) {
	return a.load(ctx, tx, id)
}
