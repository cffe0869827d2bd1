package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// strayAge is how old a ref without a row has to be before it is taken for a stray:
// the row of a younger one may be about to be written.
const strayAge = 10 * time.Minute

// open prepares a repository for the first checkpoint of this process. The caller
// holds its lock.
func (c *Checkpoints) open(ctx context.Context, r *repo) error {
	if r.opened {
		return nil
	}
	if err := os.MkdirAll(r.private, 0o700); err != nil {
		return fault.New(fault.Unavailable, "a place for our index: %w", err)
	}
	age := strayAge
	if len(c.siblings(r)) == 1 {
		age = 0 // nobody in this process is about to write a row
	}
	if err := c.sweepRefs(ctx, r, age); err != nil {
		return err
	}
	r.opened = true
	return nil
}

// sweepRefs deletes the refs of ours that no row knows. The caller holds the lock.
func (c *Checkpoints) sweepRefs(ctx context.Context, r *repo, age time.Duration) error {
	out, err := r.ask(ctx, gitCall{args: []string{"for-each-ref", "--format=%(refname)", strings.TrimSuffix(r.refs, "/")}})
	if err != nil {
		return err
	}
	names := strings.Fields(string(out))
	if len(names) == 0 {
		return nil
	}
	rows, err := c.rows(ctx, "repository = $1 ORDER BY seq", c.repositoryKey(r.gitDir))
	if err != nil {
		return err
	}
	// A linked work tree shares its refs with the others.
	others, err := c.rows(ctx, "state <> 'none' AND repository <> $1 ORDER BY seq", c.repositoryKey(r.gitDir))
	if err != nil {
		return err
	}
	if n := len(rows); n > 0 && r.newest().ref == "" && slices.Contains(names, rows[n-1].AfterRef) {
		r.setNewest(held{rows[n-1].AfterTree, rows[n-1].AfterRef})
	}
	known := map[string]bool{}
	for _, x := range append(rows, others...) {
		known[x.BeforeRef], known[x.AfterRef] = true, true
	}
	for _, sibling := range c.siblings(r) {
		known[sibling.newest().ref] = true
	}
	var stray []string
	for _, name := range names {
		if !known[name] && madeBefore(strings.TrimPrefix(name, r.refs), time.Now().Add(-age)) {
			stray = append(stray, name)
		}
	}
	return r.deleteRefs(ctx, stray)
}

// siblings are the work trees known in memory that share their refs with r, and r.
func (c *Checkpoints) siblings(r *repo) []*repo {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*repo
	for _, o := range c.repos {
		if o.commonDir == r.commonDir {
			out = append(out, o)
		}
	}
	return out
}

// madeBefore tells by the id in the name of a ref when it was made.
func madeBefore(name string, limit time.Time) bool {
	rest, ok := strings.CutPrefix(name, "chk_")
	if !ok || len(rest) < 12 {
		return false // not one of ours
	}
	var ms int64
	if _, err := fmt.Sscanf(rest[:12], "%012x", &ms); err != nil {
		return false
	}
	return time.UnixMilli(ms).Before(limit)
}

func (r *repo) deleteRefs(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var in bytes.Buffer
	for _, name := range names {
		in.WriteString("option no-deref\x00delete " + name + "\x00\x00")
	}
	return r.git(ctx, gitCall{args: []string{"update-ref", "-z", "--stdin"}, in: &in})
}

// Sweep forgets checkpoints that are too old or too many, with their refs, and the
// refs that a crash left. It returns how many checkpoints went.
func (c *Checkpoints) Sweep(ctx context.Context) (gone int, err error) {
	var keys [][]byte
	err = c.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		keys, err = db.All(ctx, q, db.Column[[]byte], "SELECT DISTINCT repository FROM checkpoints")
		return err
	})
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		n, err := c.sweepOne(ctx, key)
		gone += n
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

// sweepOne prunes the checkpoints of one repository: the rows first, so that none
// points to a ref that is gone.
func (c *Checkpoints) sweepOne(ctx context.Context, key []byte) (int, error) {
	rows, err := c.rows(ctx, "repository = $1 ORDER BY seq DESC", key)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	oldest := c.db.Time() - c.o.Age.Microseconds()
	var old []Row
	for i, x := range rows {
		if i >= c.o.Least && (i >= c.o.Most || x.At < oldest) {
			old = append(old, x)
		}
	}
	err = c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, x := range old {
			if err := c.dropTx(ctx, tx, x.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	p, err := rows[0].place()
	if err != nil {
		return len(old), err
	}
	if now, found, err := at(p.top); !found || err != nil || now != p {
		return len(old), nil // it is gone, or another one; so are the refs
	}
	r := c.repoAt(p)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fault.New(fault.Timeout, "the limit is %s", patience))
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(r.private, 0o700); err != nil {
		return len(old), fault.New(fault.Unavailable, "a place for our index: %w", err)
	}
	return len(old), c.sweepRefs(ctx, r, strayAge)
}

// place is where the repository of a row was.
func (x Row) place() (p place, err error) {
	var errs [3]error
	p.top, errs[0] = unshow(x.Top)
	p.gitDir, errs[1] = unshow(x.GitDir)
	p.commonDir, errs[2] = unshow(x.CommonDir)
	return p, errors.Join(errs[:]...)
}

// repoOf opens the repository of a row for a look or an undo.
func (c *Checkpoints) repoOf(x Row) (*repo, error) {
	p, err := x.place()
	if err != nil {
		return nil, err
	}
	now, found, err := at(p.top)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "%s: %w", x.Top, err)
	}
	if !found || now.gitDir != p.gitDir {
		return nil, fault.New(fault.NotFound, "the repository %s is gone", x.Top)
	}
	if !isDir(filepath.Join(now.commonDir, "objects")) {
		return nil, fault.New(fault.NotFound, "the objects of %s are gone", x.Top)
	}
	return c.repoAt(now), nil
}
