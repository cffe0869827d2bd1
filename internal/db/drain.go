package db

import "context"

// Drain repeats a statement that removes some of what is over, at most as many rows as its
// own LIMIT says, until it finds nothing more, and returns how many rows it removed. Each
// time is a commit of its own, so that nobody waits long behind it; a Drain that is cut off
// is gone on with by the next one.
func (d *DB) Drain(ctx context.Context, remove string, args ...any) (removed int64, err error) {
	for {
		var n int64
		err := d.InTx(ctx, func(ctx context.Context, tx *Tx) (err error) {
			n, err = tx.Exec(ctx, remove, args...)
			return err
		})
		if err != nil || n == 0 {
			return removed, err
		}
		removed += n
	}
}
