package trigger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// gone is the owner of a target that was taken away while a person had paused it. Its row
// stays, so that it is paused if it comes back; nothing else sees it.
const gone = ""

const columns = `name, owner, body, paused_by, created, started, last_run, last_at, withheld, withheld_at`

// Standing is a target as its row says. Times are Unix microseconds, 0 for never.
type Standing struct {
	Target
	Owner      string
	PausedBy   string // who paused it, whatever its definition says; "" for nobody
	Created    int64
	Started    int64 // how often
	LastRun    string
	LastAt     int64
	Withheld   int64 // triggers that came since it was paused
	WithheldAt int64

	// Problem says why the row cannot be read; it then starts nothing.
	Problem error

	raw []byte
}

// Stopped reports whether a target starts nothing.
func (s *Standing) Stopped() bool { return s.Paused || s.PausedBy != "" }

func (t *Triggers) scan(scan func(...any) error) (s Standing, err error) {
	var sealed []byte
	err = scan(&s.Name, &s.Owner, &sealed, &s.PausedBy, &s.Created, &s.Started, &s.LastRun, &s.LastAt, &s.Withheld, &s.WithheldAt)
	if err != nil {
		return s, err
	}
	name := s.Name
	if s.raw, s.Problem = t.vault.Open(vault.TargetBody, name, sealed); s.Problem != nil {
		return s, nil //nolint:nilerr // the row is there, and says what is wrong with it
	}
	if err := json.Unmarshal(s.raw, &s.Target); err != nil {
		s.Problem = fault.New(fault.Verification, "read target %s: %w", name, err)
	}
	s.Name = name
	return s, nil
}

func (t *Triggers) query(ctx context.Context, q db.Q, where string, args ...any) ([]Standing, error) {
	return db.All(ctx, q, func(r *db.Rows) (Standing, error) { return t.scan(r.Scan) }, "SELECT "+columns+" FROM targets "+where, args...)
}

// GetIn returns a target as the caller's transaction or snapshot sees it; NotFound if
// there is none.
func (t *Triggers) GetIn(ctx context.Context, q db.Q, name string) (Standing, error) {
	s, err := t.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM targets WHERE name = $1 AND owner <> $2", name, gone).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return s, fault.New(fault.NotFound, "there is nothing called %q to be started", name).WithHint("ombud triggers shows what there is")
	}
	return s, err
}

// List returns the targets of an owner, or all, by name.
func (t *Triggers) List(ctx context.Context, owner string) (out []Standing, err error) {
	err = t.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = t.query(ctx, q, "WHERE owner <> $2 AND ($1 = '' OR owner = $1) ORDER BY name", owner, gone)
		return err
	})
	return out, err
}

// streamOf is where the events of a target are.
func streamOf(target string) string { return "trigger:" + target }

func (t *Triggers) tell(ctx context.Context, tx *db.Tx, verb, by, target, cause string, data any) (string, error) {
	evs, err := t.log.AppendTx(ctx, tx, eventlog.New{
		Stream: streamOf(target), Kind: kindPrefix + verb, Actor: by, Cause: cause, Data: data, Expect: eventlog.Any,
	})
	if err != nil {
		return "", err
	}
	return evs[0].ID, nil
}

// kindPrefix begins the kinds of our own events, which start nothing.
const kindPrefix = "trigger."
