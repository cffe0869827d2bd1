package checkpoint

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Deps are what checkpoints are made with.
type Deps struct {
	DB     *db.DB
	Vault  *vault.Vault
	Git    Git
	Logger *slog.Logger
}

// Options say where and how long.
type Options struct {
	Dir   string        // for our indexes, one a repository; may be deleted while no daemon runs
	Home  string        // the operator's home, whose git configuration says what is ignored; "": none
	Most  int           // checkpoints of a repository that are kept; default 200
	Least int           // and never fewer than these, however old; default 20
	Age   time.Duration // how old one may get; default 14 days

	limits bounds       // zero: the usual ones
	at     func(string) // told each point at which a test may end the process
}

// maxRepos is how many repositories are known in memory at a time.
const maxRepos = 16

// Checkpoints keeps work trees before calls change them.
type Checkpoints struct {
	db    *db.DB
	vault *vault.Vault
	git   Git
	log   *slog.Logger
	o     Options
	refs  string // the ref names of this instance begin so

	mu    sync.Mutex
	repos map[string]*repo // by git directory
}

var _ tool.Keeper = (*Checkpoints)(nil)

// New returns a keeper of work trees.
func New(d Deps, o Options) *Checkpoints {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Most == 0 {
		o.Most = 200
	}
	if o.Least == 0 {
		o.Least = 20
	}
	if o.Age == 0 {
		o.Age = 14 * 24 * time.Hour
	}
	if o.limits == (bounds{}) {
		o.limits = usual()
	}
	// Two instances can work in one repository: each has refs of its own, or one would
	// sweep the other's.
	tag := hex.EncodeToString(d.Vault.Blind(vault.CheckpointRepo, "instance"))[:12]
	return &Checkpoints{
		db: d.DB, vault: d.Vault, git: d.Git, log: d.Logger, o: o, refs: "refs/ombud/checkpoints/" + tag + "/", repos: map[string]*repo{},
	}
}

// point is an instant at which a test may end the process.
func (c *Checkpoints) point(name string) {
	failpoint.Hit(name)
	if c.o.at != nil {
		c.o.at(name)
	}
}

// repoAt returns what is known of the repository at a place.
func (c *Checkpoints) repoAt(p place) *repo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.repos[p.gitDir]; r != nil && r.place == p {
		r.lastUsed = time.Now()
		return r
	}
	key := hex.EncodeToString(c.repositoryKey(p.gitDir))[:24]
	r := &repo{
		place: p, runner: c.git, home: c.o.Home, private: filepath.Join(c.o.Dir, key), refs: c.refs,
		owner: confine.Owner{Subject: "ombud", Tool: "git"}, active: map[*kept]bool{}, lastUsed: time.Now(),
	}
	c.repos[p.gitDir] = r
	if len(c.repos) > maxRepos {
		c.forgetOne(r)
	}
	return r
}

// forgetOne lets go of the repository that was used least recently, if nothing is
// going on there.
func (c *Checkpoints) forgetOne(but *repo) {
	var oldest *repo
	for _, r := range c.repos {
		if r == but || !r.mu.TryLock() {
			continue
		}
		if len(r.active) == 0 && (oldest == nil || r.lastUsed.Before(oldest.lastUsed)) {
			oldest = r
		}
		r.mu.Unlock()
	}
	if oldest != nil {
		delete(c.repos, oldest.gitDir)
	}
}

// kept is the checkpoint of one call in one repository.
type kept struct {
	c      *Checkpoints
	r      *repo // nil: there is none
	row    Row
	before *snapshot
	exact  []string // the only paths the call may change, below the top; nil: any
	again  bool
	gone   bool            // the call changed nothing, so the row goes
	with   map[string]bool // checkpoints of calls at the same time; under the lock of the repository
}

// all is the checkpoints of one call in all repositories it works in.
type all []*kept

var _ tool.Kept = all(nil)

// Before takes the trees of the repositories a call is going to work in.
func (c *Checkpoints) Before(ctx context.Context, t tool.Touch) tool.Kept {
	var out all
	seen := map[string]bool{}
	for _, path := range t.Paths {
		p, err := find(path)
		if errors.Is(err, errNoRepository) || seen[p.gitDir] {
			continue
		}
		seen[p.gitDir] = true
		if k := c.before(ctx, t, p, err); k != nil {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (c *Checkpoints) before(ctx context.Context, t tool.Touch, p place, unfit error) *kept {
	k := &kept{c: c, again: t.Again, with: map[string]bool{}, row: Row{
		ID: id.New("chk"), Run: t.Run, Step: t.Step, State: Open, repository: c.repositoryKey(p.gitDir),
		Body: Body{Top: show(p.top), GitDir: show(p.gitDir), CommonDir: show(p.commonDir), Tool: t.Tool, Subject: t.Subject, Summary: t.Summary},
	}}
	err := unfit
	if err == nil {
		k.r = c.repoAt(p)
		err = k.take(ctx, t)
	}
	switch {
	case err == nil:
		return k
	case ctx.Err() != nil: // the call will not be made
		k.Done()
		return nil
	}
	c.log.Info("no checkpoint", "tool", t.Tool, "run", t.Run, "repository", p.top, "why", err.Error())
	k.Done()
	k.r, k.row.State, k.row.Why = nil, None, because(err)
	if k.again {
		return nil // the row says it already
	}
	return k
}

// because is why there is no checkpoint, for people.
func because(err error) string {
	if fault.Is(err, fault.Timeout) {
		return "it took too long: " + err.Error()
	}
	return strings.ToValidUTF8(err.Error(), "\uFFFD")
}

// take takes the tree before the call.
func (k *kept) take(ctx context.Context, t tool.Touch) (err error) {
	limits := k.limits()
	ctx, cancel := context.WithTimeoutCause(ctx, limits.time, fault.New(fault.Timeout, "the limit is %s", limits.time))
	defer cancel()
	r := k.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := time.Until(r.tooSlow); left > 0 && t.Tool != RestoreTool {
		return fault.New(fault.Timeout, "the last one did; the next is tried in %s", left.Round(time.Second))
	}
	defer func() { r.slow(err) }()
	if err := k.c.open(ctx, r); err != nil {
		return err
	}
	extra, err := k.scope(ctx, t)
	if err != nil {
		return err
	}
	if k.again {
		return k.takeUp(ctx)
	}
	k.before, err = r.scan(ctx, scanning{bounds: limits, store: true, known: true, extra: extra})
	if err != nil {
		return err
	}
	if t.Tool != RestoreTool && k.allHidden() {
		return notKept{"git ignores what the call may change"}
	}
	k.c.point("checkpoint.tree")
	held, err := r.hold(ctx, k.before.tree, k.row.ID)
	if err != nil {
		return err
	}
	k.c.point("checkpoint.ref")
	k.row.BeforeTree, k.row.BeforeRef = held.tree, held.ref
	k.describe()
	for other := range r.active {
		if k.exact == nil {
			k.with[other.row.ID] = true
		}
		if other.exact == nil {
			other.with[k.row.ID] = true
		}
	}
	r.active[k] = true
	return nil
}

// slow leaves a repository alone for a while that took too long.
func (r *repo) slow(err error) {
	if fault.Is(err, fault.Timeout) {
		r.tooSlow = time.Now().Add(backOff)
	}
}

// scope finds out which files alone the call may change, if it says so. They are
// taken though git may ignore them only if the call is an undo, which knows them.
func (k *kept) scope(ctx context.Context, t tool.Touch) (extra []string, err error) {
	if t.Tool == RestoreTool {
		k.exact, k.row.Undoes, err = k.c.restoreScope(ctx, k.r, k.row.repository, t)
		k.row.Exact = shown(k.exact)
		return k.exact, err
	}
	for _, path := range t.Paths {
		if p, _ := find(path); p.gitDir != k.r.gitDir {
			continue
		}
		rel, err := filepath.Rel(k.r.top, path)
		if err != nil || !sound(filepath.ToSlash(rel)) || isDir(path) {
			k.exact = nil
			return nil, nil //nolint:nilerr // not one file: everything is kept
		}
		k.exact = append(k.exact, filepath.ToSlash(rel))
	}
	k.row.Exact = shown(k.exact)
	return nil, nil
}

func shown(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		out = append(out, show(p))
	}
	return out
}

// allHidden reports whether git ignores every file the call may change.
func (k *kept) allHidden() bool {
	return k.exact != nil && !slices.ContainsFunc(k.exact, func(p string) bool {
		return k.before.files[p] != nil || k.before.hidden.cut || !k.before.hidden.holds(p)
	})
}

// takeUp goes on with the checkpoint of a call that was begun before a crash. What
// became of the tree since cannot be told but for a call that names its files.
func (k *kept) takeUp(ctx context.Context) error {
	rows, err := k.c.Of(ctx, k.row.Run, k.row.Step)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rows, func(x Row) bool { return string(x.repository) == string(k.row.repository) })
	if i < 0 || rows[i].State != Open {
		return notKept{"the call was begun without one"}
	}
	k.row = rows[i]
	if k.exact == nil {
		return nil
	}
	files, err := k.r.treeFiles(ctx, k.row.BeforeTree)
	if err != nil {
		return err
	}
	k.before = &snapshot{tree: k.row.BeforeTree, files: files, hidden: hidden{cut: true}}
	k.r.active[k] = true
	return nil
}

// describe notes in the row what the tree does not say.
func (k *kept) describe() {
	b := &k.row.Body
	b.Plain, b.Exec, b.Odd = permissions(k.before.files)
	b.Skipped = map[string]string{}
	for p, why := range k.before.skipped {
		if len(b.Skipped) == maxNames {
			b.Cut = true
			break
		}
		b.Skipped[show(p)] = why
	}
	for _, p := range k.exact {
		if k.before.files[p] == nil && k.before.older(p) && exists(filepath.Join(k.r.top, filepath.FromSlash(p))) {
			b.Older = append(b.Older, show(p))
		}
	}
}

// older reports whether a path that is not in a snapshot may have been there.
func (s *snapshot) older(path string) bool { return s.skipped[path] != "" || s.hidden.holds(path) }

// permissions tells what most files have, and which have others.
func permissions(files map[string]*entry) (plain, exec os.FileMode, odd map[string]os.FileMode) {
	count := map[uint32]map[os.FileMode]int{modeFile: {}, modeExec: {}}
	for _, e := range files {
		if n := count[e.mode]; n != nil {
			n[e.perm]++
		}
	}
	most := func(n map[os.FileMode]int, usual os.FileMode) os.FileMode {
		for perm := range n {
			if n[perm] > n[usual] || n[perm] == n[usual] && n[perm] > 0 && perm < usual {
				usual = perm
			}
		}
		return usual
	}
	plain, exec = most(count[modeFile], 0o644), most(count[modeExec], 0o755)
	odd = map[string]os.FileMode{}
	for p, e := range files {
		if len(odd) < maxNames && (e.mode == modeFile && e.perm != plain || e.mode == modeExec && e.perm != exec) {
			odd[show(p)] = e.perm
		}
	}
	return plain, exec, odd
}

// OpenTx writes the rows with the intent of the call.
func (a all) OpenTx(ctx context.Context, tx *db.Tx) error {
	for _, k := range a {
		if err := k.c.insertTx(ctx, tx, &k.row); err != nil {
			return err
		}
	}
	return nil
}

// limits are those of the usual calls, or of an undo.
func (k *kept) limits() bounds {
	if k.row.Tool == RestoreTool {
		return k.c.o.limits.generous()
	}
	return k.c.o.limits
}

// Time is what After may take: one repository after the other.
func (a all) Time() (total time.Duration) {
	for _, k := range a {
		if k.r != nil {
			total += k.limits().time + time.Second
		}
	}
	return total
}

// After takes the trees after the call.
func (a all) After(ctx context.Context) {
	for _, k := range a {
		if k.r == nil || k.again && k.exact == nil {
			continue
		}
		if err := k.after(ctx); err != nil {
			k.c.log.Warn("the state after a call is not known", "tool", k.row.Tool, "run", k.row.Run, "error", err)
			k.row.Why = "the state after the call is not known: " + because(err)
		}
	}
}

func (k *kept) after(ctx context.Context) error {
	limits := k.limits()
	ctx, cancel := context.WithTimeoutCause(ctx, limits.time, fault.New(fault.Timeout, "the limit is %s", limits.time))
	defer cancel()
	r := k.r
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, k)
	k.row.With = slices.Sorted(maps.Keys(k.with))
	snap, err := k.now(ctx, scanning{bounds: limits, store: true})
	if err != nil {
		r.slow(err)
		return err
	}
	k.row.Order = id.New("look")
	k.c.point("checkpoint.after.tree")
	k.row.Changed = 0
	for p, e := range snap.files {
		if b := k.before.files[p]; !e.same(b) {
			k.row.Changed++
			if b == nil && k.exact == nil && k.before.older(p) {
				if len(k.row.Older) == maxNames {
					k.row.Cut = true
				} else {
					k.row.Older = append(k.row.Older, show(p))
				}
			}
		}
	}
	for p := range k.before.files {
		if snap.files[p] == nil {
			k.row.Changed++
		}
	}
	if k.row.Changed == 0 {
		k.gone = true
		return nil
	}
	held, err := r.hold(ctx, snap.tree, k.row.ID+".after")
	if err != nil {
		return err
	}
	k.c.point("checkpoint.after.ref")
	k.row.AfterTree, k.row.AfterRef = held.tree, held.ref
	return nil
}

// now is the tree after the call. What the call could not have changed is as it was
// before it; what git ignores by now is looked at all the same.
func (k *kept) now(ctx context.Context, s scanning) (*snapshot, error) {
	if k.exact == nil {
		s.extra = slices.Collect(maps.Keys(k.before.files))
		snap, err := k.r.scan(ctx, s)
		if err != nil {
			return nil, err
		}
		for p := range snap.skipped { // what cannot be kept now is not gone
			if e := k.before.files[p]; e != nil && snap.files[p] == nil {
				return nil, tooMuch{show(p) + ": " + snap.skipped[p]}
			}
		}
		return snap, nil
	}
	return k.r.patched(ctx, k.before.files, k.exact, s)
}

// patched is a tree with some paths as they are now.
func (r *repo) patched(ctx context.Context, files map[string]*entry, paths []string, s scanning) (*snapshot, error) {
	list := make([]listed, 0, len(paths))
	for _, p := range paths {
		list = append(list, listed{p, true})
	}
	snap := &snapshot{skipped: map[string]string{}}
	todo, err := r.look(list, s, snap)
	if err != nil {
		return nil, err
	}
	if err := r.hash(ctx, todo, s, snap); err != nil {
		return nil, err
	}
	fresh := snap.files
	snap.files = maps.Clone(files)
	for _, p := range paths {
		delete(snap.files, p)
		if r.files != nil {
			delete(r.files, p)
		}
		if e := fresh[p]; e != nil {
			snap.files[p] = e
			if r.files != nil {
				r.files[p] = e
			}
		} else if why := snap.skipped[p]; why != "" {
			return nil, tooMuch{show(p) + ": " + why}
		}
	}
	snap.tree, err = r.write(ctx, snap.files)
	return snap, err
}

// CloseTx writes what is known after the call, with its outcome.
func (a all) CloseTx(ctx context.Context, tx *db.Tx) error {
	for _, k := range a {
		var err error
		switch {
		case k.row.State == None:
		case k.gone:
			err = k.c.dropTx(ctx, tx, k.row.ID)
		default:
			if k.row.AfterTree == "" && k.row.Why == "" {
				k.row.Why = "the state after the call is not known: it was interrupted, or goes on though its time is over"
			}
			err = k.c.closeTx(ctx, tx, &k.row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Done ends the call for those that run beside it.
func (a all) Done() {
	for _, k := range a {
		k.Done()
	}
}

// Done ends the call for those that run beside it.
func (k *kept) Done() {
	if k.r == nil {
		return
	}
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	delete(k.r.active, k)
}

// hold makes a ref for a tree, unless the newest ref holds it already.
func (r *repo) hold(ctx context.Context, tree, name string) (held, error) {
	if last := r.newest(); last.tree == tree && last.ref != "" {
		return last, nil
	}
	ref := r.refs + name
	err := r.git(ctx, gitCall{args: []string{"update-ref", "--no-deref", ref, tree}, config: []string{"core.fsync=reference"}})
	if err != nil {
		return held{}, fmt.Errorf("keep the tree: %w", err)
	}
	r.setNewest(held{tree, ref})
	return held{tree, ref}, nil
}
