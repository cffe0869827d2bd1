package backup

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
)

// Transfer copies every row of a snapshot into a store that is being loaded, of
// whatever kind either is.
func Transfer(ctx context.Context, snap *db.Snapshot, l *db.Loader, report func(Progress)) error {
	tables, err := snap.Tables(ctx)
	if err != nil {
		return err
	}
	var done int64
	for _, t := range tables {
		var rows [][]any
		var size int
		flush := func() error {
			err := l.Rows(ctx, t, rows)
			done += int64(size)
			rows, size = rows[:0], 0
			report(Progress{Phase: "copying rows", Done: done, Total: max(done, snap.Size)})
			return err
		}
		err := snap.Rows(ctx, t, func(row []any) error {
			own := make([]any, len(row))
			for i, v := range row {
				switch v := v.(type) {
				case []byte:
					own[i] = append([]byte{}, v...)
					size += len(v)
				case string:
					own[i] = v
					size += len(v)
				default:
					own[i] = v
				}
				size += 8
			}
			rows = append(rows, own)
			if size < maxRows {
				return nil
			}
			return flush()
		})
		if err == nil && len(rows) > 0 {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
