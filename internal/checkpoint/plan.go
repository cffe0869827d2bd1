package checkpoint

import (
	"context"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
)

// Choice says what of the past is taken back.
type Choice struct {
	Checkpoint string   // its id
	Paths      []string // only what is at or below these, from the top of the work tree; empty: all
	Only       bool     // only what this call changed, not the calls after it
	Force      bool     // also files that somebody else changed since
}

// span is one call, or several that ran at the same time and cannot be told apart.
type span struct {
	rows          []Row
	before, after string // trees; after is "" if it is not known
	order         string // of the look at after
	named         []Row  // calls among them that name their files: after does not show what they did
	mixed         string // why its changes may be somebody else's, "" if they are not
}

// history is the calls from one on, in order, as far as there are checkpoints of them.
func (c *Checkpoints) history(ctx context.Context, x Row, before int64, only bool) ([]span, error) {
	first := x.Seq
	group, err := c.group(ctx, x)
	if err != nil {
		return nil, err
	}
	for _, g := range group {
		first = min(first, g.Seq)
	}
	rows, err := c.since(ctx, x.repository, first, before)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.State == None || r.BeforeTree == "" })
	if only {
		s := spanOf([]Row{x})
		if len(x.With) > 0 {
			s.mixed = "another call ran at the same time"
		}
		return []span{s}, nil
	}
	var out []span
	place := map[string]int{} // id → index in out
	for _, r := range rows {
		i := -1
		for _, w := range r.With {
			if j, ok := place[w]; ok && (i < 0 || j < i) {
				i = j
			}
		}
		if i < 0 {
			for _, s := range out { // it was named by one before it
				for _, o := range s.rows {
					if slices.Contains(o.With, r.ID) {
						i = place[o.ID]
					}
				}
			}
		}
		if i < 0 {
			i = len(out)
			out = append(out, span{})
		}
		for len(out) > i+1 { // whatever came between belongs to it
			out[i].rows = append(out[i].rows, out[i+1].rows...)
			out = slices.Delete(out, i+1, i+2)
		}
		out[i].rows = append(out[i].rows, r)
		for _, o := range out[i].rows {
			place[o.ID] = i
		}
	}
	for i := range out {
		out[i] = spanOf(out[i].rows)
	}
	return out, nil
}

// group is what ran at the same time as x, and at the same time as that.
func (c *Checkpoints) group(ctx context.Context, x Row) ([]Row, error) {
	out := []Row{x}
	seen := map[string]bool{x.ID: true}
	for i := 0; i < len(out) && len(out) < maxNames; i++ {
		for _, w := range out[i].With {
			if seen[w] {
				continue
			}
			seen[w] = true
			found, err := c.rows(ctx, "id = $1", w)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

func spanOf(rows []Row) span {
	slices.SortFunc(rows, func(a, b Row) int { return int(a.Seq - b.Seq) })
	s := span{rows: rows}
	known := true
	for _, r := range rows {
		known = known && r.AfterTree != ""
		if len(r.Exact) > 0 && len(rows) > 1 {
			s.named = append(s.named, r)
			continue
		}
		if s.before == "" {
			s.before = r.BeforeTree
		}
		if r.Order >= s.order {
			s.order, s.after = r.Order, r.AfterTree
		}
	}
	slices.SortFunc(s.named, func(a, b Row) int { return strings.Compare(a.Order, b.Order) })
	if s.before == "" { // all name their files; their group has gone
		s.before, s.after, s.order, s.named = rows[0].BeforeTree, rows[0].AfterTree, rows[0].Order, rows[1:]
	}
	if !known {
		s.after = ""
	}
	return s
}

func (s span) ids() []string {
	out := make([]string, 0, len(s.rows))
	for _, r := range s.rows {
		out = append(out, r.ID)
	}
	return out
}

// exact is the files the calls of a span may have changed, if all of them say so.
func (s span) exact() ([]string, bool) {
	var out []string
	for _, r := range s.rows {
		if len(r.Exact) == 0 {
			return nil, false
		}
		for _, p := range r.Exact {
			path, err := unshow(p)
			if err != nil {
				return nil, false
			}
			out = append(out, path)
		}
	}
	return out, true
}

// change is one file that undo is to bring back to what it was.
type change struct {
	path     string
	from, to *entry // nil: not there
	tree     string // the tree that holds to
	perm     os.FileMode
	conflict string // why it is not done without force
	never    string // why it is not done at all
}

// past is what the calls of a history did, file by file.
type past struct {
	changes map[string]*change // from is what the last call left
	unsure  bool               // of some call it cannot be told what it changed
	spans   []span
}

const (
	whyUnsure = "a call that changed it, or may have, was interrupted or its state afterwards is not known"
	whyLater  = "somebody else changed it since"
	whyMid    = "somebody else changed it between two calls"
)

// past follows the files through the calls. now is the present tree, "" if it is not
// known yet: then a call whose end is not known may have changed any file.
func (r *repo) past(ctx context.Context, spans []span, now string) (*past, error) {
	p := &past{changes: map[string]*change{}, spans: spans}
	ends := make([]string, len(spans))
	var pairs []pair
	for i, s := range spans {
		if ends[i] = s.after; ends[i] == "" {
			ends[i] = now
			if i+1 < len(spans) {
				ends[i] = spans[i+1].before
			}
		}
		if ends[i] != "" {
			pairs = append(pairs, pair{s.before, ends[i]})
		}
		for _, n := range s.named {
			if n.AfterTree != "" {
				pairs = append(pairs, pair{n.BeforeTree, n.AfterTree})
			}
		}
	}
	diffs, err := r.deltas(ctx, pairs)
	if err != nil {
		return nil, err
	}
	for i, s := range spans {
		deltas := diffs[pair{s.before, ends[i]}]
		why := s.mixed
		if s.after == "" {
			why = whyUnsure
			if deltas, err = r.possible(ctx, s, deltas, ends[i] == ""); err != nil {
				return nil, err
			}
			if _, exact := s.exact(); !exact {
				p.unsure = true
			}
		}
		for _, d := range s.withNamed(deltas, diffs) {
			p.follow(s, d, why)
		}
	}
	return p, nil
}

// withNamed adds to what calls at the same time did what those of them did that name
// their files.
func (s span) withNamed(deltas []delta, diffs map[pair][]delta) []delta {
	at := map[string]int{}
	for i, d := range deltas {
		at[d.path] = i
	}
	for _, n := range s.named { // what came after the last look at all files goes on from there
		for _, d := range diffs[pair{n.BeforeTree, n.AfterTree}] {
			i, seen := at[d.path]
			switch {
			case !seen:
				at[d.path] = len(deltas)
				deltas = append(deltas, d)
			case d.old.same(deltas[i].new):
				deltas[i].new = d.new
			}
		}
	}
	for _, n := range slices.Backward(s.named) { // and what came before the first leads there
		for _, d := range diffs[pair{n.BeforeTree, n.AfterTree}] {
			if i := at[d.path]; d.new.same(deltas[i].old) {
				deltas[i].old = d.old
			}
		}
	}
	return deltas
}

// possible is what a call whose end is not known may have changed.
func (r *repo) possible(ctx context.Context, s span, deltas []delta, all bool) ([]delta, error) {
	exact, known := s.exact()
	if known {
		deltas = slices.DeleteFunc(deltas, func(d delta) bool { return !slices.Contains(exact, d.path) })
	}
	if !all {
		return deltas, nil
	}
	files, err := r.treeFiles(ctx, s.before)
	if err != nil {
		return nil, err
	}
	for p, e := range files {
		if !known || slices.Contains(exact, p) {
			deltas = append(deltas, delta{p, e, nil})
		}
	}
	for _, p := range exact {
		if files[p] == nil {
			deltas = append(deltas, delta{p, nil, nil})
		}
	}
	return deltas, nil
}

// follow notes what one call did to a file.
func (p *past) follow(s span, d delta, why string) {
	c := p.changes[d.path]
	if c == nil {
		c = &change{path: d.path, to: d.old, tree: s.before, perm: s.rows[0].permOf(d.path, d.old)}
		p.changes[d.path] = c
	} else if !d.old.same(c.from) && c.conflict == "" {
		c.conflict = whyMid
	}
	c.from = d.new
	if why != "" && c.conflict == "" {
		c.conflict = why
	}
	if d.old == nil && c.never == "" {
		for _, r := range s.rows {
			if r.Cut && len(r.Exact) == 0 || slices.Contains(r.Older, show(d.path)) || r.Skipped[show(d.path)] != "" {
				c.never = "it was there before the call and was not kept"
			}
		}
	}
}

// permOf is the permissions a file had.
func (b Body) permOf(path string, e *entry) os.FileMode {
	switch {
	case e == nil:
		return 0
	case b.Odd[show(path)] != 0:
		return b.Odd[show(path)].Perm()
	case e.mode == modeExec && b.Exec != 0:
		return b.Exec.Perm()
	case e.mode == modeExec:
		return 0o755
	case b.Plain != 0:
		return b.Plain.Perm()
	}
	return 0o644
}

// against holds the past against what is there now and returns what is to be done, in
// the order of the paths. skipped are files that are there and could not be kept.
func (p *past) against(now map[string]*entry, skipped map[string]string, paths []string) (todo []change) {
	removed := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(p.changes)) {
		c := *p.changes[path]
		is := now[path]
		if is.same(c.to) || !under(paths, path) {
			continue
		}
		if !is.same(c.from) && c.conflict == "" {
			c.conflict = whyLater
		}
		c.from = is
		switch {
		case c.never != "":
		case c.to != nil && c.to.mode == modeRepo || is != nil && is.mode == modeRepo:
			c.never = "it is a repository of its own: its commit is noted, its files are not kept"
		case skipped[show(path)] != "":
			c.never = "what is there now cannot be kept first: " + skipped[show(path)]
		}
		removed[path] = c.to == nil && c.never == ""
		todo = append(todo, c)
	}
	inTheWay(todo, now, removed)
	return todo
}

// inTheWay finds the files whose place, or the place of whose directory, something
// has taken that stays.
func inTheWay(todo []change, now map[string]*entry, removed map[string]bool) {
	dirs := map[string]bool{}
	for path := range now {
		if !removed[path] {
			for dir := range above(path) {
				dirs[dir] = true
			}
		}
	}
	for i, c := range todo {
		if c.to == nil || c.never != "" {
			continue
		}
		if dirs[c.path] {
			todo[i].never = "a directory with other files is in its place"
		}
		for dir := range above(c.path) {
			if now[dir] != nil && !removed[dir] {
				todo[i].never = "something else is in the place of its directory"
			}
		}
	}
}

// above yields the directories a path is in, the nearest first.
func above(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
			if !yield(path[:i]) {
				return
			}
		}
	}
}

// under reports whether a path is chosen.
func under(paths []string, path string) bool {
	if len(paths) == 0 {
		return true
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == "." || path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}
