package delegate

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Worktree is the worktree of a session.
type Worktree struct {
	Session string
	Dir     string // where the session works
	Path    string
	Created int64  // Unix microseconds, like Used
	Used    int64  // by its last task
	Bytes   int64  // of its files, and of what its checks keep
	Kept    string // why it is not forgotten, "" if it is
}

// sessionsWithTree are those of this home that have a worktree and were used before a time.
func (s *Service) sessionsWithTree(ctx context.Context, before int64) (out []Session, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Session, error) { return s.scanSession(r.Scan) },
			"SELECT "+sessionColumns+" FROM delegation_sessions WHERE used < $1 ORDER BY used, id", before)
		return err
	})
	mine := out[:0]
	for _, x := range out {
		if x.Body.Home == s.cfg.Home && x.Body.Tree.There() {
			mine = append(mine, x)
		}
	}
	return mine, err
}

func (s *Service) worktreeOf(x Session) Worktree {
	t := Worktree{Session: x.ID, Dir: x.Body.Dir, Path: x.Body.Tree.Path, Created: x.Created, Used: x.Used, Bytes: size(x.Body.Tree.Path)}
	if h, err := s.Harness(x.Harness); err == nil {
		t.Bytes += size(s.checksOf(h, x.ID))
	}
	return t
}

// size is how many bytes the files in a directory have. What cannot be read has none.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // it returns no error
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// Worktrees are the worktrees there are, the one that was used longest ago first.
func (s *Service) Worktrees(ctx context.Context) (out []Worktree, err error) {
	list, err := s.sessionsWithTree(ctx, s.DB.Time()+1)
	for _, x := range list {
		out = append(out, s.worktreeOf(x))
	}
	return out, err
}

// DropOlder forgets the sessions whose worktree nobody used since a time, in Unix
// microseconds. One in which is what was never applied, or cannot be looked at, is kept
// unless force; with dry none is forgotten.
func (s *Service) DropOlder(ctx context.Context, before int64, force, dry bool) (out []Worktree, err error) {
	list, err := s.sessionsWithTree(ctx, before)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		t := s.worktreeOf(x)
		if t.Kept, err = s.worthKeeping(ctx, x, force); err != nil {
			return out, err
		}
		if t.Kept == "" && !dry {
			if _, err := s.drop(ctx, x, unusedSince(x)); err != nil {
				t.Kept = err.Error()
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// unusedSince refuses a session in which a task has come and gone since it was looked at.
func unusedSince(x Session) func(Session) error {
	return func(now Session) error {
		if now.Used != x.Used {
			return fault.New(fault.Conflict, "it was worked in meanwhile")
		}
		return nil
	}
}

// worthKeeping is why a session is not forgotten, "" if nothing speaks against it.
func (s *Service) worthKeeping(ctx context.Context, x Session, force bool) (string, error) {
	busy, err := s.busy(ctx, x.ID)
	switch {
	case err != nil:
		return "", err
	case busy:
		return "it is worked in", nil
	case force, x.Body.Dropped:
		return "", nil
	}
	tree := x.Body.Tree
	if _, err := os.Lstat(tree.Path); os.IsNotExist(err) {
		return "", nil // somebody removed it
	}
	release, err := s.alone(ctx, tree.Common)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := tree.mend(); err != nil {
		return "it cannot be looked at: " + err.Error(), nil
	}
	f, err := s.left(ctx, confine.Owner{Subject: "harness:" + x.Harness, Tool: RunTool}, tree)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "it cannot be looked at: " + err.Error(), nil
	case len(f.files)+f.more > 0 || len(f.lacks) > 0:
		return "it has changes that were not applied", nil
	}
	return "", nil
}

func (s *Service) busy(ctx context.Context, session string) (is bool, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error { is, err = busyIn(ctx, q, session); return err })
	return is, err
}

func busyIn(ctx context.Context, q db.Q, session string) (bool, error) {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM delegations WHERE session = $1 AND ended = 0", session).Scan(&n)
	return n > 0, err
}
