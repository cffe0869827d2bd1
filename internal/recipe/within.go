package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// items are what a foreach goes over.
func (w *worker) items(s *Step, v *values) ([]any, error) {
	f := s.Foreach
	var list []any
	switch f.In {
	case nil:
		for _, t := range f.List {
			text, err := t.render(v)
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
	default:
		x, one, err := f.In.raw(v)
		if err != nil {
			return nil, err
		}
		if !one {
			if x, err = f.In.render(v); err != nil {
				return nil, err
			}
		}
		if list, err = listOf(x); err != nil {
			return nil, err
		}
	}
	if len(list) > f.Limit {
		return nil, fault.New(fault.Invalid, "the list has %d items, and the limit is %d", len(list), f.Limit).
			WithHint("set limit, at most %d", maxItems)
	}
	return list, nil
}

// listOf makes a list of a value: of a JSON array its items, of a text its lines.
func listOf(x any) ([]any, error) {
	switch x := x.(type) {
	case nil:
		return nil, nil
	case []any:
		return x, nil
	case string:
		if t := strings.TrimSpace(x); strings.HasPrefix(t, "[") {
			if got, err := decode(json.RawMessage(t)); err == nil {
				if list, ok := got.([]any); ok {
					return list, nil
				}
			}
		}
		return linesOf(x), nil
	}
	return nil, fault.New(fault.Invalid, "foreach takes a list or lines, not %s", clip(show(x, false)))
}

// foreach does its steps for each item.
func (w *worker) foreach(ctx context.Context, s *Step, v *values, name string) (any, error) {
	list, err := w.items(s, v)
	if err != nil {
		return nil, err
	}
	from := v.fromOf(s.Foreach.In)
	return rounds(ctx, w.k, name, len(list), s.Foreach.Concurrency, func(ctx context.Context, i int) (object, error) {
		inner := v.inner()
		inner.set(s.Foreach.Var, list[i], from)
		inner.set("index", int64(i), "")
		if err := w.steps(ctx, s.Foreach.Do, inner, roundName(name, i)); err != nil {
			return nil, err
		}
		return inner.made(s.Foreach.Do), nil
	})
}

// fromOf says whose words a template renders, "" for the recipe's own.
func (v *values) fromOf(t *Template) string {
	switch {
	case t == nil:
		return ""
	case t.whole:
		return v.from([]string{everything})
	}
	return v.from(t.names)
}

// rounds does n rounds. With lanes over 1 that many rows are done side by side, each with
// every lanes-th round; the results stand in the order of the rounds.
func rounds(ctx context.Context, k Flow, name string, n, lanes int, round func(ctx context.Context, i int) (object, error)) ([]any, error) {
	out := make([]any, n)
	if lanes = min(lanes, n); lanes <= 1 {
		for i := range n {
			made, err := round(ctx, i)
			if err != nil {
				return nil, err
			}
			out[i] = made
		}
		return out, nil
	}
	branches := make([]Strand, lanes)
	for lane := range lanes {
		branches[lane] = Strand{Name: fmt.Sprintf("lane-%d", lane), Do: func(ctx context.Context) (json.RawMessage, error) {
			var mine []any
			for i := lane; i < n; i += lanes {
				made, err := round(ctx, i)
				if err != nil {
					return nil, err
				}
				mine = append(mine, made)
			}
			return json.Marshal(mine)
		}}
	}
	ended, err := k.Parallel(ctx, name, "all", 0, branches)
	if err != nil {
		return nil, err
	}
	for lane, e := range ended {
		x, err := decode(e.Result)
		if err != nil {
			return nil, err
		}
		mine, _ := x.([]any)
		for j, made := range mine {
			if i := lane + j*lanes; i < n {
				out[i] = made
			}
		}
	}
	return out, nil
}

// parallel does its branches side by side and tells how each ended.
func (w *worker) parallel(ctx context.Context, s *Step, v *values, name string) (any, error) {
	branches := make([]Strand, len(s.Join.Branches))
	for i, b := range s.Join.Branches {
		branches[i] = Strand{Name: b.Name, Do: func(ctx context.Context) (json.RawMessage, error) {
			inner := v.inner()
			if err := w.steps(ctx, b.Steps, inner, strings.TrimSuffix(name, s.ID)); err != nil {
				return nil, err
			}
			return json.Marshal(inner.made(b.Steps))
		}}
	}
	names := make([][]string, len(branches))
	for i, b := range s.Join.Branches {
		names[i] = w.r.bound(b.Steps)
	}
	return side(ctx, w.k, name, s.Join.How, s.Join.Quorum, branches, names)
}

// side does branches side by side. Of each it tells what it has bound, its state and its
// error. names are those each can bind: where it did not come so far they are empty.
func side(ctx context.Context, k Flow, name, how string, quorum int, branches []Strand, names [][]string) (object, error) {
	ended, err := k.Parallel(ctx, name, how, quorum, branches)
	if err != nil {
		return nil, err
	}
	out := object{}
	for i, e := range ended {
		made := object{}
		if x, err := decode(e.Result); err == nil {
			if m, ok := x.(object); ok {
				made = m
			}
		}
		for _, n := range names[i] {
			if _, there := made[n]; !there {
				made[n] = ""
			}
		}
		made["state"], made["error"] = e.State, e.Error
		out[branches[i].Name] = made
	}
	return out, nil
}
