package delegate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/vault"
)

// Session is what a harness remembers. Times are Unix microseconds.
type Session struct {
	ID, Harness   string
	Created, Used int64
	Body          SessionBody
}

// SessionBody is its sealed part.
type SessionBody struct {
	Subject      string `json:"subject"`
	Conversation string `json:"conversation,omitempty"`
	Native       string `json:"native,omitempty"` // the program's own id; "" until it told one
	Home         string `json:"home"`             // the machine's directories it is in
	Dir          string `json:"dir"`
	Tree         Tree   `json:"tree,omitzero"`     // where it writes
	Dropped      bool   `json:"dropped,omitempty"` // it is being forgotten: nobody goes on with it

	// What it has cost and used so far, where its program counts over the session.
	MicroUSD int64         `json:"micro_usd,omitempty"`
	Usage    harness.Usage `json:"usage,omitzero"`
}

// Delegation is a run as its row says.
type Delegation struct {
	Run, Session, Harness string
	Tries                 int
	Outcome               string // "" while it works
	MicroUSD              int64  // what it cost
	Priced                bool   // that is known, and not the least it may be
	Possible              int64  // it may have cost beside that
	Started, Ended        int64
	Route                 Routed
}

// Routed is what is kept of a delegation beside its run.
type Routed struct {
	Model        string `json:"model,omitempty"`
	Why          string `json:"why"`
	Subject      string `json:"subject"`
	Conversation string `json:"conversation,omitempty"`
	Dir          string `json:"dir"`
	Write        bool   `json:"write,omitempty"`
	Background   bool   `json:"background,omitempty"`
}

// Kept is what the program of a run told, whole, and what it left.
type Kept struct {
	Record harness.Record `json:"record"`
	Patch  string         `json:"-"`
	Bytes  []byte         `json:"patch,omitempty"`     // Patch, of which not every byte needs to be text that JSON holds
	Cut    bool           `json:"patch_cut,omitempty"` // the patch is longer than what is kept
	Checks []Check        `json:"checks,omitempty"`
	Tree   Tree           `json:"tree,omitzero"`

	Try int `json:"try,omitempty"` // the start of the program that told it

	session string // of patchOf
}

func (s *Service) seal(f vault.Field, row string, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.New(fault.Internal, "%s of %s: %w", f.Column(), row, err)
	}
	return s.Vault.Seal(f, row, raw), nil
}

func (s *Service) open(f vault.Field, row string, sealed []byte, into any) error {
	raw, err := s.Vault.Open(f, row, sealed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.New(fault.Verification, "%s of %s: %w", f.Column(), row, err)
	}
	return nil
}

const sessionColumns = "id, harness, body, created, used"

func (s *Service) scanSession(scan func(...any) error) (x Session, err error) {
	var body []byte
	if err = scan(&x.ID, &x.Harness, &body, &x.Created, &x.Used); err != nil {
		return x, err
	}
	return x, s.open(vault.DelegationSession, x.ID, body, &x.Body)
}

// Session returns a session. NotFound if there is none of that id.
func (s *Service) session(ctx context.Context, q db.Q, id string) (Session, error) {
	x, err := s.scanSession(q.QueryRow(ctx, "SELECT "+sessionColumns+" FROM delegation_sessions WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.NotFound, "no session %q", fault.Cut(id, 100)).WithHint("ombud delegate list shows those there are")
	}
	return x, err
}

func (s *Service) saveSession(ctx context.Context, tx *db.Tx, x Session) error {
	body, err := s.seal(vault.DelegationSession, x.ID, x.Body)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO delegation_sessions (`+sessionColumns+`) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET body = excluded.body, used = excluded.used`, x.ID, x.Harness, body, x.Created, x.Used)
	return err
}

// change reads a session, lets f change it and writes it.
func (s *Service) change(ctx context.Context, id string, f func(x *Session)) (x Session, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if x, err = s.session(ctx, tx, id); err != nil {
			return err
		}
		f(&x)
		return s.saveSession(ctx, tx, x)
	})
	return x, err
}

const columns = "run, session, harness, body, tries, outcome, cost, priced, possible, started, ended"

func (s *Service) scan(scan func(...any) error) (x Delegation, err error) {
	var body []byte
	var priced int64
	err = scan(&x.Run, &x.Session, &x.Harness, &body, &x.Tries, &x.Outcome, &x.MicroUSD, &priced, &x.Possible, &x.Started, &x.Ended)
	if err != nil {
		return x, err
	}
	x.Priced = priced == 1
	return x, s.open(vault.DelegationBody, x.Run, body, &x.Route)
}

func (s *Service) insert(ctx context.Context, tx *db.Tx, x Delegation) error {
	body, err := s.seal(vault.DelegationBody, x.Run, x.Route)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO delegations ("+columns+") VALUES ($1, $2, $3, $4, 0, '', 0, 0, 0, $5, 0)", x.Run, x.Session, x.Harness, body, x.Started)
	return err
}

// begin counts another start of the run's program and returns how many there were.
func (s *Service) begin(ctx context.Context, runID string) (tries int, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRow(ctx, "UPDATE delegations SET tries = tries + 1 WHERE run = $1 RETURNING tries", runID).Scan(&tries)
	})
	return tries, err
}

// keep writes what the program of a run told.
func (s *Service) keep(ctx context.Context, runID string, k Kept) error {
	k.Bytes = []byte(k.Patch)
	body, err := s.seal(vault.DelegationRecord, runID, k)
	if err != nil {
		return err
	}
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE delegations SET record = $1 WHERE run = $2", body, runID)
		return err
	})
}

// Get returns a delegation and what its program told, if it has told anything.
func (s *Service) Get(ctx context.Context, runID string) (x Delegation, k Kept, told bool, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		if x, err = s.get(ctx, q, runID); err != nil {
			return err
		}
		k, told, err = s.kept(ctx, q, runID)
		return err
	})
	return x, k, told, err
}

// kept is what the program of a run told, if it has told anything.
func (s *Service) kept(ctx context.Context, q db.Q, runID string) (k Kept, told bool, err error) {
	var sealed []byte
	if err := q.QueryRow(ctx, "SELECT record FROM delegations WHERE run = $1", runID).Scan(&sealed); err != nil || len(sealed) == 0 {
		return k, false, err
	}
	if err := s.open(vault.DelegationRecord, runID, sealed, &k); err != nil {
		return k, false, err
	}
	k.Patch, k.Bytes = string(k.Bytes), nil
	return k, true, nil
}

func (s *Service) get(ctx context.Context, q db.Q, runID string) (Delegation, error) {
	x, err := s.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM delegations WHERE run = $1", runID).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.NotFound, "run %q is no delegation", fault.Cut(runID, 100)).WithHint("ombud delegate list shows them")
	}
	return x, err
}

// List returns the newest delegations, at most so many.
func (s *Service) List(ctx context.Context, limit int) (out []Delegation, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Delegation, error) { return s.scan(r.Scan) },
			"SELECT "+columns+" FROM delegations ORDER BY started DESC, run DESC LIMIT $1", limit)
		return err
	})
	return out, err
}

// SessionOf returns a session for the operator.
func (s *Service) SessionOf(ctx context.Context, id string) (x Session, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error { x, err = s.session(ctx, q, id); return err })
	return x, err
}

// Typical is what the last delegations of a harness cost: the dearest of at most 20 of
// which it is known. Without any, known is 0.
func (s *Service) Typical(ctx context.Context, name string) (median, most int64, known int, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		median, most, known, err = s.typical(ctx, q, name)
		return err
	})
	return median, most, known, err
}

func (s *Service) typical(ctx context.Context, q db.Q, name string) (median, most int64, known int, err error) {
	costs, err := db.All(ctx, q, db.Column[int64],
		"SELECT cost FROM delegations WHERE harness = $1 AND ended > 0 AND priced = 1 ORDER BY started DESC LIMIT 20", name)
	if err != nil || len(costs) == 0 {
		return 0, 0, 0, err
	}
	median, most = middle(costs)
	return median, most, len(costs), nil
}
