package delegate

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// Plan is what a delegation would be, without beginning one.
type Plan struct {
	Route   Route
	Why     string
	Harness Harness
	Dir     string
	Needs   []scope.Scope
	Limit   int64 // it may cost at most, micro-USD; 0: nothing but the budgets limit it
	Median  int64 // what the last ones by this harness cost
	Most    int64
	Known   int // of how many that is known
}

// Text is a route for people.
func (p Plan) Text() string { return fmt.Sprintf("%s (%s)", p.Route, p.Why) }

// Plan says what would be begun for an order. What would end it before its program is
// started is an error here already.
func (s *Service) Plan(ctx context.Context, o Order) (p Plan, err error) {
	var tree Tree
	if o.Session != "" {
		x, err := s.SessionOf(ctx, o.Session)
		if err != nil {
			return p, err
		}
		if err := goesOn(x, &o); err != nil {
			return p, err
		}
		o.Dir, tree = x.Body.Dir, x.Body.Tree
	}
	if p.Harness, p.Route, p.Why, err = s.Resolve(o.Want); err != nil {
		return p, err
	}
	if err := s.check(&o.Task, p.Harness); err != nil {
		return p, err
	}
	o.Task.Harness, p.Dir = p.Harness.Name, o.Dir
	if p.Needs, err = s.needs(o); err != nil {
		return p, err
	}
	if s.cfg.Budget.Set {
		p.Limit = s.cfg.Budget.MicroUSD
	}
	if err := s.foresee(ctx, o.Task, tree); err != nil {
		return p, err
	}
	p.Median, p.Most, p.Known, err = s.Typical(ctx, p.Harness.Name)
	return p, err
}

// foresee returns what would end a task before its program is started.
func (s *Service) foresee(ctx context.Context, t Task, tree Tree) error {
	auth, err := s.authority(ctx, t)
	if err != nil {
		return err
	}
	if t.Write && !tree.There() {
		owner := confine.Owner{Subject: "harness:" + t.Harness, Tool: RunTool}
		if tree, err = s.ground(ctx, owner, t.Dir); err != nil {
			return err
		}
		if _, _, err := s.git(ctx, owner, tree.main(nil, "cat-file", "-e", tree.Base+":"+tree.inBase())); err != nil {
			return fault.New(fault.NotFound, "%s is in no commit of %s, so it would not be in the worktree: %w", t.Dir, tree.Repo, err).
				WithHint("commit something in it first, or work from the top of the repository")
		}
	}
	if err := s.keptOut(auth, t); err != nil {
		return err
	}
	for _, command := range t.Checks {
		if err := s.startable(command); err != nil {
			return err
		}
	}
	var left budget.Headroom
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		left, err = s.Budget.Left(ctx, q, auth.Agent, "")
		return err
	})
	if err != nil {
		return err
	}
	return left.UsedUp()
}

// maxLooked bounds the files that are looked at for what a task may not read.
const maxLooked = 200_000

// keptOut refuses a task where a rule keeps whoever gave it from a part of what its program
// would see: all of a directory is shown or none of it, and of a repository also what was
// committed.
func (s *Service) keptOut(auth *act.Authority, t Task) error {
	top := t.Dir
	bases := []string{"fs.read"}
	if t.Write {
		bases = append(bases, "fs.write")
		if place, err := placeOf(t.Dir); err == nil {
			top = place.Top // a worktree is of the whole repository
		}
	}
	for _, base := range bases {
		whole, err := under(base, top)
		if err != nil {
			return err
		}
		for _, l := range layers(auth) {
			for _, r := range l.Rules() {
				if r.Effect != policy.Deny || !r.Scope.Overlaps(whole) {
					continue
				}
				found, err := within(top, base, r.Scope)
				if err != nil {
					return err
				}
				if found != "" {
					return fault.New(fault.Denied, "%s: %q keeps %s, and %s would see all of %s", l.Name(), r, found, t.Harness, top).
						WithHint("give it a directory without that, or take the rule back: ombud caps")
				}
			}
		}
	}
	return nil
}

// layers are those that bind an authority.
func layers(auth *act.Authority) []*policy.Layer {
	out := append([]*policy.Layer{auth.Grants}, auth.Bounds...)
	if auth.Role != nil {
		out = append(out, auth.Role.Layers()...)
	}
	return out
}

// within is the first thing below top that a scope stands for, "" if there is none.
func within(top, base string, s scope.Scope) (found string, err error) {
	looked := 0
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what we cannot read, the program cannot either
		}
		if looked++; looked > maxLooked {
			return fault.New(fault.Denied, "%s has over %d files, too many to look for what %q keeps", top, maxLooked, s).
				WithHint("give it a smaller directory")
		}
		name, err := scope.Of(base, filepath.ToSlash(path))
		if err != nil {
			return nil //nolint:nilerr // a name that no rule can hold
		}
		if s.Covers(name) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found, err
}

// plainWord is a word of a shell that names a program to look for.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

// shellWords are known to every shell without a program.
var shellWords = strings.Fields("alias bg bind break builtin case cd command continue declare do done echo elif else enable esac eval exec exit " +
	"export false fc fg fi for function getopts hash if in jobs kill let local printf pwd read readonly return select set shift source test then time times trap true " +
	"type ulimit umask unalias unset until wait while")

// startable refuses a check whose program is not there. What a shell makes of more than a
// plain word is left to it.
func (s *Service) startable(command string) error {
	words := strings.Fields(command)
	if len(words) == 0 {
		return fault.New(fault.Invalid, "a check is empty")
	}
	name := words[0]
	if !plainWord.MatchString(name) || slices.Contains(shellWords, name) {
		return nil
	}
	for _, dir := range filepath.SplitList(s.cfg.Path) {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fault.New(fault.NotFound, "the check %q cannot run: no program %s is in the daemon's PATH", fault.Cut(command, 200), name).
		WithHint("name it by its path, or start the daemon with a PATH that has it: %s", s.cfg.Path)
}
