package checkpoint

import (
	"context"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Item is a checkpoint as it is listed.
type Item struct {
	Row
	Undone bool   // what the call changed is as it was before
	Since  int    // files the call changed that somebody changed again
	Gone   string // why nothing can be undone, or told
}

// maxListed is how many checkpoints are listed at most.
const maxListed = 1000

// maxLooked is how many repositories are looked at for one list.
const maxLooked = 8

// List returns checkpoints, newest first. all says to list also calls of which there
// is none.
func (c *Checkpoints) List(ctx context.Context, limit int, all bool) ([]Item, error) {
	where := "state <> 'none' ORDER BY seq DESC LIMIT $1"
	if all {
		where = "state <> '' ORDER BY seq DESC LIMIT $1"
	}
	rows, err := c.rows(ctx, where, min(max(limit, 1), maxListed))
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(rows))
	of := map[string][]int{} // repository → items
	var order []string
	for i, x := range rows {
		items[i].Row = x
		if x.State == None {
			items[i].Gone = x.Why
			continue
		}
		key := string(x.repository)
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], i)
	}
	for n, key := range order {
		if n == maxLooked {
			break
		}
		if err := c.lookAt(ctx, items, of[key]); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			for _, i := range of[key] {
				items[i].Gone = because(err)
			}
		}
	}
	return items, nil
}

// lookAt compares what calls in one repository changed with what is there now.
func (c *Checkpoints) lookAt(ctx context.Context, items []Item, mine []int) error {
	r, err := c.repoOf(items[mine[0]].Row)
	if err != nil {
		return err
	}
	limits := c.o.limits
	ctx, cancel := context.WithTimeoutCause(ctx, limits.time, fault.New(fault.Timeout, "the limit is %s", limits.time))
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.open(ctx, r); err != nil {
		return err
	}
	var pairs []pair
	for _, i := range mine {
		if items[i].AfterTree != "" {
			pairs = append(pairs, pair{items[i].BeforeTree, items[i].AfterTree})
		}
	}
	diffs, err := r.deltas(ctx, pairs)
	if err != nil {
		return err
	}
	extra := map[string]bool{}
	for _, list := range diffs {
		for _, d := range list {
			extra[d.path] = true
		}
	}
	snap, err := r.scan(ctx, scanning{bounds: limits, extra: keys(extra)})
	if err != nil {
		return err
	}
	later := map[string]bool{} // taken back by an undo; mine is newest first
	for _, i := range mine {
		x := &items[i]
		var asBefore, asAfter int
		list := diffs[pair{x.BeforeTree, x.AfterTree}]
		for _, d := range list {
			switch is := snap.files[d.path]; {
			case is.same(d.old):
				asBefore++
			case is.same(d.new):
				asAfter++
			}
		}
		// Undone together with calls before it, its files are as they were before those.
		x.Undone = len(list) > 0 && (asBefore == len(list) || later[x.ID] && asAfter == 0)
		if !x.Undone {
			x.Since = len(list) - asBefore - asAfter
			for _, id := range x.Undoes {
				later[id] = true
			}
		}
	}
	return nil
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Change is one file an undo would change.
type Change struct {
	Path           string // written by show
	What           string // restore, remove, change
	Added, Removed int    // lines
	Binary         bool
	Conflict       string // why it is not done without force
	Never          string // why it is not done at all
}

// Preview is what an undo would do.
type Preview struct {
	Row
	Also    []Row    // calls after it that are taken back too
	Changes []Change // in the order of the paths
	Others  int      // files that changed since and are nobody's of these calls; they stay
	Busy    []string // calls at work in the repository now
}

// Preview tells what an undo would do, and changes nothing in the work tree.
func (c *Checkpoints) Preview(ctx context.Context, ch Choice) (out Preview, err error) {
	x, err := c.Find(ctx, ch.Checkpoint)
	if err != nil {
		return out, err
	}
	out.Row = x
	r, err := c.repoOf(x)
	if err != nil {
		return out, err
	}
	limits := c.o.limits.generous()
	ctx, cancel := context.WithTimeoutCause(ctx, limits.time, fault.New(fault.Timeout, "the limit is %s", limits.time))
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.open(ctx, r); err != nil {
		return out, err
	}
	early, err := c.pastOf(ctx, r, x, 0, ch, "")
	if err != nil {
		return out, err
	}
	extra := make([]string, 0, len(early.changes))
	for p := range early.changes {
		extra = append(extra, p)
	}
	snap, err := r.scan(ctx, scanning{bounds: limits, store: true, extra: extra})
	if err != nil {
		return out, err
	}
	p, err := c.pastOf(ctx, r, x, 0, ch, snap.tree)
	if err != nil {
		return out, err
	}
	for _, s := range p.spans {
		for _, row := range s.rows {
			if row.ID != x.ID {
				out.Also = append(out.Also, row)
			}
		}
	}
	skipped := map[string]string{}
	for path, why := range snap.skipped {
		skipped[show(path)] = why
	}
	todo := p.against(snap.files, skipped, ch.Paths)
	if out.Changes, err = r.describe(ctx, todo, snap.tree); err != nil {
		return out, err
	}
	out.Busy = r.busy("")
	out.Others, err = r.others(ctx, pair{p.spans[0].before, snap.tree}, p)
	return out, err
}

func (r *repo) others(ctx context.Context, since pair, p *past) (n int, err error) {
	diffs, err := r.deltas(ctx, []pair{since})
	for _, d := range diffs[since] {
		if p.changes[d.path] == nil {
			n++
		}
	}
	return n, err
}

// describe counts the lines of each change.
func (r *repo) describe(ctx context.Context, todo []change, now string) ([]Change, error) {
	var pairs []pair
	for _, c := range todo {
		pairs = append(pairs, pair{now, c.tree})
	}
	stats, err := r.stats(ctx, pairs)
	if err != nil {
		return nil, err
	}
	out := make([]Change, 0, len(todo))
	for _, c := range todo {
		s := stats[pair{now, c.tree}][c.path]
		x := Change{Path: show(c.path), What: "change", Added: s.added, Removed: s.removed, Binary: s.binary, Conflict: c.conflict, Never: c.never}
		switch {
		case c.from == nil:
			x.What = "restore"
		case c.to == nil:
			x.What = "remove"
		}
		out = append(out, x)
	}
	return out, nil
}

// InputOf is the input of git.restore for a choice.
func (c *Checkpoints) InputOf(ctx context.Context, ch Choice) (in RestoreInput, err error) {
	x, err := c.Find(ctx, ch.Checkpoint)
	if err != nil {
		return in, err
	}
	return RestoreInput{Checkpoint: x.ID, Repository: x.Top, Paths: shown(ch.Paths), Only: ch.Only, Force: ch.Force}, nil
}

// PathsIn turns paths as a person names them, absolute and written by show, into
// paths below the top of a checkpoint's work tree.
func (x Row) PathsIn(paths []string) (out []string, err error) {
	top, err := unshow(x.Top)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		full, err := unshow(p)
		if err != nil {
			return nil, err
		}
		rel, ok := relativeTo(top, full)
		if !ok {
			return nil, fault.New(fault.Invalid, "%s is not in %s", p, x.Top)
		}
		out = append(out, rel)
	}
	return out, nil
}

func relativeTo(top, full string) (string, bool) {
	rel, ok := strings.CutPrefix(full+"/", strings.TrimSuffix(top, "/")+"/")
	rel = strings.TrimSuffix(rel, "/")
	if rel == "" {
		rel = "."
	}
	return rel, ok && (rel == "." || sound(rel))
}
