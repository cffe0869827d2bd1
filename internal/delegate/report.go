package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
)

// maxAnswer bounds the answer in a report, in bytes; the whole is kept with the run.
const maxAnswer = 24 << 10

// report makes of a record what the run comes to.
func (s *Service) report(ctx context.Context, w *work, rec harness.Record) (Report, Kept, error) {
	rep := Report{
		Outcome: rec.Outcome, Harness: w.h.Name, Model: cmp.Or(w.t.Model, rec.Model), Session: w.x.ID, Answer: fault.Cut(rec.Text, maxAnswer),
		Error: fault.Cut(rec.Error, 2<<10), Tries: w.try,
	}
	if rec.Outcome != harness.Completed && rep.Error == "" {
		rep.Error = inWords(rec.Reason)
	}
	if len(rep.Answer) < len(rec.Text) {
		w.note("the answer is longer: ombud delegate show %s", w.run)
	}
	if n := len(refused(rec)); n > 0 {
		verb := "were"
		if n == 1 {
			verb = "was"
		}
		w.note("%d of its calls %s refused", n, verb)
	}
	s.price(&rep, w, rec)
	if err := s.know(ctx, w, rec.Session); err != nil {
		return rep, Kept{}, err
	}
	kept := Kept{Record: rec, Tree: w.x.Body.Tree, Try: w.try}
	if tree := w.x.Body.Tree; w.t.Write && tree.There() {
		for _, command := range w.t.Checks {
			kept.Checks = append(kept.Checks, s.check1(ctx, w, command))
		}
		other, err := tree.mend()
		if err != nil {
			return rep, kept, err
		}
		if other {
			w.note("the file .git of its worktree was replaced or removed; it is as it was made")
		}
		f, err := s.left(ctx, w.owner, tree)
		if err != nil {
			return rep, kept, err
		}
		w.notes = append(w.notes, f.lacks...)
		kept.Patch, kept.Cut, rep.Files, rep.More, kept.Tree.State = f.patch, f.cut, f.files, f.more, f.state
		rep.Tree, rep.Dirty, rep.Checks = tree.Path, tree.Dirty, kept.Checks
		if tree.Dirty > 0 {
			w.note("%d files of %s have changes that are not committed; it did not see them", tree.Dirty, tree.Repo)
		}
		if kept.Cut {
			w.note("the patch is over %d bytes and is not kept whole; it is in the worktree", maxPatch)
		}
	}
	if w.t.Ephemeral {
		if err := s.forget(w); err != nil {
			w.note("%v", err)
		}
	}
	rep.Notes = w.notes
	return rep.fit(), kept, nil
}

// inWords is why a program was ended, for people.
func inWords(reason string) string {
	switch reason {
	case child.ReasonWall:
		return "it worked as long as it may (delegate.timeout, or what the task says)"
	case child.ReasonQuiet:
		return "it said nothing for as long as it may (delegate.quiet)"
	case child.ReasonCancelled:
		return "it was stopped"
	case child.ReasonLingers:
		return "it lived on when its work was over"
	case child.ReasonDeaf:
		return "it asked, and did not read the answers"
	}
	return reason
}

// maxReport bounds a report as JSON, in bytes: what a call came to is cut where it is over
// act.MaxText, and a report that is cut is none.
const maxReport = act.MaxText * 3 / 4

// fit is the report with as much of files, output and answer as there is room for. The
// whole is kept with the run.
func (r Report) fit() Report {
	if r.size() <= maxReport {
		return r
	}
	r.Notes = append(slices.Clone(r.Notes), "this report is shortened; the whole is kept with the run: ombud delegate show")
	r.Checks = slices.Clone(r.Checks)
	for part := 16 << 10; r.size() > maxReport && part > 0; part /= 2 {
		if most := part / 64; len(r.Files) > most {
			r.Files, r.More = r.Files[:most], r.More+len(r.Files)-most
		}
		for i, c := range r.Checks {
			r.Checks[i].Command = fault.Cut(c.Command, part/4)
			r.Checks[i].Output = strings.ToValidUTF8(c.Output[max(0, len(c.Output)-part/4):], "")
		}
		r.Answer = fault.Cut(r.Answer, part)
	}
	return r
}

func (r Report) size() int {
	raw, err := json.Marshal(r)
	if err != nil {
		return 0 // whoever writes it says why
	}
	return len(raw)
}

// refused are the permissions that were not given.
func refused(rec harness.Record) []harness.Permission {
	return slices.DeleteFunc(slices.Clone(rec.Permissions), func(p harness.Permission) bool { return p.Decision != harness.Refusal })
}

// middle returns the median and the most of what is not empty.
func middle(list []int64) (median, most int64) {
	slices.Sort(list)
	return list[len(list)/2], list[len(list)-1]
}
