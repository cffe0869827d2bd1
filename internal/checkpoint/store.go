package checkpoint

import (
	"context"
	"encoding/json"
	"os"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// State is how far a checkpoint has come. Its text is in the store: never rename one.
type State string

// The states.
const (
	Open State = "open" // the call is under way, or was interrupted
	Held State = "kept" // the call has ended
	None State = "none" // there is no checkpoint of the call, and Why says why
)

// Row is a checkpoint as it is recorded.
type Row struct {
	ID, Run, Step         string
	Seq                   int64
	State                 State
	BeforeRef, BeforeTree string
	AfterRef, AfterTree   string // "" if the state after the call is not known
	At, Ended             int64  // Unix µs
	Body

	repository []byte
}

// Body is the sealed part of a row. Paths in it are written by show, as JSON could
// not hold every name of a file.
type Body struct {
	Top       string `json:"top"`
	GitDir    string `json:"git_dir"`
	CommonDir string `json:"common_dir"`
	Tool      string `json:"tool"`
	Subject   string `json:"subject"`
	Summary   string `json:"summary"`
	Why       string `json:"why,omitempty"`     // why there is none, or no state after the call
	Changed   int    `json:"changed,omitempty"` // files the call changed
	Order     string `json:"order,omitempty"`   // of the look after the call, among those of calls at the same time

	// Exact is set if the call says which files it may change: then only those are
	// its doing, whatever else changed meanwhile.
	Exact   []string               `json:"exact,omitempty"`
	Skipped map[string]string      `json:"skipped,omitempty"` // files that were there and not kept, and why
	Older   []string               `json:"older,omitempty"`   // files that look made by the call and were there before, ignored or not kept
	Cut     bool                   `json:"cut,omitempty"`     // Skipped or Older is not complete: nothing that looks made by the call is removed
	With    []string               `json:"with,omitempty"`    // checkpoints of calls that ran at the same time
	Plain   os.FileMode            `json:"plain,omitempty"`   // permissions most files had
	Exec    os.FileMode            `json:"exec,omitempty"`    // and most executable ones
	Odd     map[string]os.FileMode `json:"odd,omitempty"`     // and those that had others
	Undoes  []string               `json:"undoes,omitempty"`  // of git.restore: the checkpoints it takes back
}

// maxNames bounds each list of names in a body.
const maxNames = 2000

const columns = `id, seq, run, step, repository, state, before_ref, before_tree, after_ref, after_tree, body, at, ended`

func (c *Checkpoints) scanRow(r *db.Rows) (Row, error) { return c.scan(r.Scan) }

func (c *Checkpoints) scan(scan func(...any) error) (x Row, err error) {
	var sealed []byte
	err = scan(&x.ID, &x.Seq, &x.Run, &x.Step, &x.repository, &x.State, &x.BeforeRef, &x.BeforeTree, &x.AfterRef, &x.AfterTree, &sealed, &x.At, &x.Ended)
	if err != nil {
		return x, err
	}
	plain, err := c.vault.Open(vault.CheckpointBody, x.ID, sealed)
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(plain, &x.Body); err != nil {
		return x, fault.New(fault.Verification, "checkpoint %s: %w", x.ID, err)
	}
	return x, nil
}

func (c *Checkpoints) seal(x *Row) []byte {
	plain, err := json.Marshal(x.Body)
	if err != nil {
		panic("checkpoint: a body does not marshal: " + err.Error())
	}
	return c.vault.Seal(vault.CheckpointBody, x.ID, plain)
}

func (c *Checkpoints) insertTx(ctx context.Context, tx *db.Tx, x *Row) error {
	seq, err := tx.Next(ctx, "checkpoints")
	if err != nil {
		return err
	}
	x.Seq, x.At = seq, tx.Now()
	_, err = tx.Exec(ctx, "INSERT INTO checkpoints ("+columns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
		x.ID, x.Seq, x.Run, x.Step, x.repository, string(x.State), x.BeforeRef, x.BeforeTree, x.AfterRef, x.AfterTree, c.seal(x), x.At, x.Ended)
	return err
}

// closeTx records what is known when the call has ended.
func (c *Checkpoints) closeTx(ctx context.Context, tx *db.Tx, x *Row) error {
	x.Ended = tx.Now()
	_, err := tx.Exec(ctx, "UPDATE checkpoints SET state = 'kept', after_ref = $1, after_tree = $2, body = $3, ended = $4 WHERE id = $5 AND state = 'open'",
		x.AfterRef, x.AfterTree, c.seal(x), x.Ended, x.ID)
	return err
}

func (c *Checkpoints) dropTx(ctx context.Context, tx *db.Tx, id string) error {
	_, err := tx.Exec(ctx, "DELETE FROM checkpoints WHERE id = $1", id)
	return err
}

func (c *Checkpoints) repositoryKey(gitDir string) []byte {
	return c.vault.Blind(vault.CheckpointRepo, gitDir)
}

// rows reads rows by a condition.
func (c *Checkpoints) rows(ctx context.Context, where string, args ...any) (out []Row, err error) {
	err = c.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, c.scanRow, "SELECT "+columns+" FROM checkpoints WHERE "+where, args...)
		return err
	})
	return out, err
}

// Of returns the checkpoints of one call.
func (c *Checkpoints) Of(ctx context.Context, run, step string) ([]Row, error) {
	return c.rows(ctx, "run = $1 AND step = $2 ORDER BY seq", run, step)
}

// OfRun returns the checkpoints of all calls of a run.
func (c *Checkpoints) OfRun(ctx context.Context, run string) ([]Row, error) {
	return c.rows(ctx, "run = $1 ORDER BY seq LIMIT 1000", run)
}

// since returns the checkpoints of a repository from one on, in order, up to before
// another (0: all).
func (c *Checkpoints) since(ctx context.Context, repository []byte, from, before int64) ([]Row, error) {
	if before == 0 {
		before = 1 << 62
	}
	return c.rows(ctx, "repository = $1 AND seq >= $2 AND seq < $3 ORDER BY seq", repository, from, before)
}

// Find returns the checkpoint whose id begins so.
func (c *Checkpoints) Find(ctx context.Context, prefix string) (Row, error) {
	found, err := c.rows(ctx, "id >= $1 AND id < $2 ORDER BY id LIMIT 2", prefix, id.Behind(prefix))
	switch {
	case err != nil:
		return Row{}, err
	case len(found) == 0 || prefix == "":
		return Row{}, fault.New(fault.NotFound, "no checkpoint %q", prefix).WithHint("ombud undo lists them")
	case len(found) > 1:
		return Row{}, fault.New(fault.Invalid, "several checkpoints begin with %q", prefix).WithHint("give more of the id")
	}
	return found[0], nil
}
