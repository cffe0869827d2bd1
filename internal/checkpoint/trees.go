package checkpoint

import (
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// treeFiles reads a tree.
func (r *repo) treeFiles(ctx context.Context, tree string) (map[string]*entry, error) {
	out, err := r.ask(ctx, gitCall{args: []string{"ls-tree", "-r", "-z", "--full-tree", tree}})
	if err != nil {
		return nil, err
	}
	files := map[string]*entry{}
	for part := range strings.SplitSeq(string(out), "\x00") {
		if part == "" {
			continue
		}
		meta, path, ok := strings.Cut(part, "\t")
		fields := strings.Fields(meta)
		if !ok || len(fields) != 3 || !sound(path) {
			return nil, fault.New(fault.Verification, "the tree %s holds %q", tree, part)
		}
		e, err := entryOf(fields[0], fields[2])
		if err != nil {
			return nil, err
		}
		files[path] = e
	}
	return files, nil
}

// entryOf reads an entry of a tree; nil for the absence of one.
func entryOf(mode, oid string) (*entry, error) {
	m, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || !isOID(oid) {
		return nil, fault.New(fault.Verification, "a tree holds %q %q", mode, oid)
	}
	switch m {
	case 0:
		return nil, nil //nolint:nilnil // there was nothing
	case modeFile, modeExec, modeLink, modeRepo:
		return &entry{mode: uint32(m), oid: oid, stored: true}, nil
	}
	return nil, fault.New(fault.Verification, "a tree holds an entry of mode %s", mode)
}

// pair is two trees.
type pair struct{ from, to string }

// delta is a path that differs between two trees; nil stands for nothing there.
type delta struct {
	path     string
	old, new *entry
}

// deltas compares pairs of trees, all in one go.
func (r *repo) deltas(ctx context.Context, pairs []pair) (map[pair][]delta, error) {
	out, err := r.compare(ctx, pairs, "--raw", "--no-abbrev")
	if err != nil {
		return nil, err
	}
	return parseRaw(out)
}

func (r *repo) compare(ctx context.Context, pairs []pair, how ...string) ([]byte, error) {
	var in bytes.Buffer
	seen := map[pair]bool{}
	for _, p := range pairs {
		if p.from != p.to && !seen[p] {
			seen[p] = true
			in.WriteString(p.from + " " + p.to + "\n")
		}
	}
	if in.Len() == 0 {
		return nil, nil
	}
	args := append([]string{"diff-tree", "--stdin", "-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"}, how...)
	return r.ask(ctx, gitCall{args: args, in: &in})
}

// parseRaw reads what diff-tree says of pairs of trees: a line with both names, then
// the paths that differ, each of two parts that end with NUL.
func parseRaw(out []byte) (map[pair][]delta, error) {
	all := map[pair][]delta{}
	var now pair
	for len(out) > 0 {
		if out[0] != ':' {
			var err error
			if now, out, err = parsePair(out); err != nil {
				return nil, err
			}
			continue
		}
		meta, rest, ok1 := bytes.Cut(out[1:], []byte{0})
		path, rest, ok2 := bytes.Cut(rest, []byte{0})
		fields := strings.Fields(string(meta))
		if !ok1 || !ok2 || len(fields) != 5 || !sound(string(path)) {
			return nil, misread(out)
		}
		old, err := entryOf(fields[0], fields[2])
		if err != nil {
			return nil, err
		}
		fresh, err := entryOf(fields[1], fields[3])
		if err != nil {
			return nil, err
		}
		all[now] = append(all[now], delta{string(path), old, fresh})
		out = rest
	}
	return all, nil
}

func parsePair(out []byte) (p pair, rest []byte, err error) {
	line, rest, ok := bytes.Cut(out, []byte{'\n'})
	from, to, both := strings.Cut(string(line), " ")
	if !ok || !both || !isOID(from) || !isOID(to) {
		return p, nil, misread(out)
	}
	return pair{from, to}, rest, nil
}

func misread(out []byte) error {
	return fault.New(fault.Internal, "git diff-tree answered %q", fault.Cut(string(out), 200))
}

// stat is how many lines a change adds and removes.
type stat struct {
	added, removed int
	binary         bool
}

// stats compares pairs of trees line by line.
func (r *repo) stats(ctx context.Context, pairs []pair) (map[pair]map[string]stat, error) {
	out, err := r.compare(ctx, pairs, "--numstat")
	if err != nil {
		return nil, err
	}
	return parseNumstat(out)
}

func parseNumstat(out []byte) (map[pair]map[string]stat, error) {
	all := map[pair]map[string]stat{}
	var now pair
	for len(out) > 0 {
		if tab, end := bytes.IndexByte(out, '\t'), bytes.IndexByte(out, '\n'); tab < 0 || end >= 0 && end < tab {
			var err error
			if now, out, err = parsePair(out); err != nil {
				return nil, err
			}
			all[now] = map[string]stat{}
			continue
		}
		part, rest, ok := bytes.Cut(out, []byte{0})
		fields := strings.SplitN(string(part), "\t", 3)
		if !ok || len(fields) != 3 || all[now] == nil {
			return nil, misread(out)
		}
		var s stat
		if s.binary = fields[0] == "-"; !s.binary {
			var err1, err2 error
			s.added, err1 = strconv.Atoi(fields[0])
			s.removed, err2 = strconv.Atoi(fields[1])
			if err1 != nil || err2 != nil {
				return nil, misread(out)
			}
		}
		all[now][fields[2]] = s
		out = rest
	}
	return all, nil
}
