package loops

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// The levels of a line.
const (
	Debug = "debug"
	Info  = "info"
	Warn  = "warn"
	Error = "error"
)

// maxLine is how much of one line is kept, in bytes.
const maxLine = 4 << 10

// Log writes a line to the log of the loop; ombud loop logs shows it. It rides with the
// run's next commit. Beyond the limit of the run the log is full, which is its last line.
func (k *Kit) Log(ctx context.Context, step, level, text string) error {
	text, _ = guard.CutText(guard.CleanText(k.d.Hide.String(text)), maxLine)
	k.mu.Lock()
	room := k.who.Limits.Log - k.logged
	k.logged += len(text)
	k.mu.Unlock()
	switch {
	case room <= 0:
		return nil
	case len(text) > room:
		level, text = Warn, "the log of this run is full; what follows is not kept"
	}
	if level == "" {
		level = Info
	}
	return k.each(step, func(step string) error {
		spec := run.StepSpec{
			Name: step, Kind: "log", Policy: run.Policy{Kind: run.Repeatable}, Lazy: true,
			OnClose: func(ctx context.Context, tx *db.Tx, _ *run.Outcome) error {
				return k.d.logTx(ctx, tx, k.who.Subject, k.r.ID(), level, text)
			},
		}
		_, err := k.r.Do(ctx, spec, func(context.Context) run.Outcome { return run.Succeed(nil) })
		return err
	})
}

func (d Deps) logTx(ctx context.Context, tx *db.Tx, subject, runID, level, text string) error {
	seq, err := tx.Next(ctx, "loop_logs")
	if err != nil {
		return err
	}
	row := id.New("line")
	_, err = tx.Exec(ctx, "INSERT INTO loop_logs (id, seq, subject, run, at, level, text) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		row, seq, subject, runID, tx.Now(), level, d.Vault.Seal(vault.LoopLogText, row, []byte(text)))
	return err
}

// Line is a line of a log.
type Line struct {
	Seq          int64
	Subject, Run string
	At           int64 // Unix microseconds
	Level, Text  string
}

// Lines returns up to limit lines of a subject, the newest last, behind one (0 for the
// newest there are), of all its runs or of one.
func (d Deps) Lines(ctx context.Context, subject, runID string, after int64, limit int) (out []Line, err error) {
	if limit <= 0 || limit > 1000 {
		return nil, fault.New(fault.Invalid, "1 to 1000 lines can be asked for, not %d", limit)
	}
	const inner = `SELECT seq, id, subject, run, at, level, text FROM loop_logs
		WHERE subject = $1 AND ($2 = '' OR run = $2) AND seq > $3 `
	query := inner + "ORDER BY seq LIMIT $4"
	if after == 0 {
		query = "SELECT seq, id, subject, run, at, level, text FROM (" + inner + "ORDER BY seq DESC LIMIT $4) AS newest ORDER BY seq"
	}
	err = d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (l Line, err error) {
			var row string
			var sealed []byte
			if err := r.Scan(&l.Seq, &row, &l.Subject, &l.Run, &l.At, &l.Level, &sealed); err != nil {
				return l, err
			}
			plain, err := d.Vault.Open(vault.LoopLogText, row, sealed)
			l.Text = string(plain)
			return l, err
		}, query, subject, runID, after, limit)
		return err
	})
	return out, err
}

// pruneLogs forgets the lines older than before, and returns how many.
func (d Deps) pruneLogs(ctx context.Context, before int64) (int64, error) {
	return d.DB.Drain(ctx, "DELETE FROM loop_logs WHERE id IN (SELECT id FROM loop_logs WHERE at < $1 ORDER BY seq LIMIT 1000)", before)
}

// Forget removes entries of short memory whose time is over and old lines of logs, and
// returns how many of each.
func (d Deps) Forget(ctx context.Context) (notes, lines int64, err error) {
	if notes, err = d.sweepNotes(ctx); err != nil {
		return notes, 0, err
	}
	lines, err = d.pruneLogs(ctx, d.DB.Time()-keepLogs.Microseconds())
	return notes, lines, err
}
