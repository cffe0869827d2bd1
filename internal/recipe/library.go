package recipe

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

// RunKind is the kind of a recipe's run.
const RunKind = "recipe"

// Targets is where what starts recipes is kept.
type Targets interface {
	ReplaceTx(ctx context.Context, tx *db.Tx, owner string, targets []trigger.Target) error
}

var _ Targets = (*trigger.Triggers)(nil)

// Change is what a look at the files did to one recipe.
type Change struct {
	Name   string
	Before *Recipe // nil: it is new
	After  *Recipe // nil: it is gone
	First  bool    // it is the first look of this process
	Cause  string  // the event that tells of it
}

// Deps are the parts a Library uses.
type Deps struct {
	DB      *db.DB
	Vault   *vault.Vault
	Log     *eventlog.Log
	Targets Targets
	Foreign Reader                          // reads files without our mark; nil takes none
	World   func(ctx context.Context) World // what recipes may refer to
	// Changed is told of each change in its transaction.
	Changed func(ctx context.Context, tx *db.Tx, c Change) error
	// Tell tells the operator, in a transaction, what is wrong with a file.
	Tell func(ctx context.Context, tx *db.Tx, cause, text string) error
	// Mount says how a webhook without a secret in its file proves itself: "" for not at
	// all, "open", or the name of a secret. Default "".
	Mount  func(recipe string) string
	Logger *slog.Logger
}

// Options of a Library.
type Options struct {
	Dir   string        // where recipes are
	Files []string      // those that are elsewhere
	Quiet time.Duration // how long the files have to be at rest before they are read; default 300 ms
	Poll  time.Duration // how often they are read anyway; default 30 s
}

// Library is every recipe of an instance. It is safe for concurrent use.
type Library struct {
	d    Deps
	o    Options
	slog *slog.Logger

	loading   sync.Mutex // held during a look
	looked    bool
	parsed    map[string]*Recipe // those in use, by their rows' hash and path
	suspected map[string]string  // what was wrong at the last look, by path
	broken    map[string]string  // the files that are, each with the recipe that stays in use
	trouble   string             // why the directory could not be looked at, "" if it could

	current atomic.Pointer[map[string]*Recipe] // those in use, by name
	late    atomic.Pointer[string]             // why changes are seen late, "" if they are not

	mu   sync.Mutex
	quit context.CancelFunc
	loop sync.WaitGroup
}

// New returns the library of a directory. Nothing is read before Load or Start.
func New(d Deps, o Options) *Library {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.World == nil {
		d.World = func(context.Context) World { return World{} }
	}
	if d.Changed == nil {
		d.Changed = func(context.Context, *db.Tx, Change) error { return nil }
	}
	if d.Tell == nil {
		d.Tell = func(context.Context, *db.Tx, string, string) error { return nil }
	}
	if d.Mount == nil {
		d.Mount = func(string) string { return "" }
	}
	o.Quiet, o.Poll = cmp.Or(o.Quiet, 300*time.Millisecond), cmp.Or(o.Poll, 30*time.Second)
	return &Library{d: d, o: o, slog: d.Logger}
}

// Standing is a recipe, or a file that is none, as it stands.
type Standing struct {
	Name     string // "" if the file never held a good one
	File     string
	Hash     string    // of the version in use
	Recipe   *Recipe   // the version in use, nil if there is none
	Problems []Problem // of what the file holds now; the version in use is then an older one
	Since    int64     // when this came about
}

// List returns what every file comes to, by name.
func (l *Library) List(ctx context.Context) (out []Standing, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := l.rows(ctx, q)
		for _, x := range rows {
			out = append(out, l.standing(ctx, q, x))
		}
		return err
	})
	return out, err
}

func (l *Library) standing(ctx context.Context, q db.Q, x row) Standing {
	s := Standing{Name: x.name, File: x.Path, Hash: x.hash, Problems: x.Problems, Since: x.at}
	if x.hash == "" {
		return s
	}
	var err error
	if s.Recipe, err = l.definitionIn(ctx, q, x.hash, x.Path); err != nil {
		s.Problems = append(slices.Clone(s.Problems), Problem{File: x.Path, Msg: err.Error()})
	}
	return s
}

// Get returns a recipe by its name, or by that of its file where it holds none.
func (l *Library) Get(ctx context.Context, name string) (s Standing, err error) {
	var names []string
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := l.rows(ctx, q)
		for _, x := range rows {
			if x.name == name || x.name == "" && strings.TrimSuffix(filepath.Base(x.Path), filepath.Ext(x.Path)) == name {
				s = l.standing(ctx, q, x)
				return err
			}
			names = append(names, x.name)
		}
		return err
	})
	if err != nil || s.File != "" {
		return s, err
	}
	none := fault.New(fault.NotFound, "there is no recipe %q", clip(name))
	if fix := nearFix(name, names); fix != "" {
		return s, none.WithHint("%s", fix)
	}
	return s, none.WithHint("put one into %s: ombud recipe example", l.o.Dir)
}

// Trouble is why the directory of the recipes could not be read last, "" if it could.
func (l *Library) Trouble() string {
	l.loading.Lock()
	defer l.loading.Unlock()
	return l.trouble
}

// candidate is a file on its way into use.
type candidate struct {
	row
	was      *row // as it is written down, nil if it is not
	text     []byte
	recipe   *Recipe // what the file holds; nil if it is no recipe
	old      *Recipe // the version in use before
	problems []Problem
	inUse    *Recipe
	newHash  string
	say      string // the problems, as a hash
	tell     bool   // the operator is told of them now
}

// Load looks at all files and makes what they hold what is in use, in one transaction. A
// file that holds no recipe leaves the last good version of it in use. again says that a
// file is broken and the operator was not told yet: it may be half written, so that is for
// the next look.
func (l *Library) Load(ctx context.Context) (again bool, err error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	files, err := look(l.o.Dir, l.o.Files)
	if err != nil {
		if l.trouble != err.Error() {
			l.slog.Warn("the recipes cannot be read; those in use stay", "error", err)
		}
		l.trouble = err.Error()
		return false, err
	}
	l.trouble = ""
	world := l.d.World(ctx)
	var before []row
	var all []*candidate
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if before, err = l.rows(ctx, q); err == nil {
			all = l.candidates(ctx, q, files, before)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	settle(world, all)
	again = l.suspects(all)
	err = l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return l.take(ctx, tx, all, before) })
	if err != nil {
		return again, err
	}
	l.looked = true
	inUse := map[string]*Recipe{}
	l.broken, l.parsed = map[string]string{}, map[string]*Recipe{}
	for _, c := range all {
		if len(c.problems) > 0 {
			l.broken[c.Path] = ""
			if c.inUse != nil {
				l.broken[c.Path] = c.inUse.Name
			}
		}
		if c.inUse != nil {
			inUse[c.inUse.Name], l.parsed[c.newHash+c.Path] = c.inUse, c.inUse
		}
	}
	l.current.Store(&inUse)
	return again, nil
}

// Loaded reports whether the files were looked at.
func (l *Library) Loaded() bool { return l.current.Load() != nil }

// Broken are the files whose last look found something wrong, each with the recipe that
// stays in use, "" if there is none.
func (l *Library) Broken() map[string]string {
	l.loading.Lock()
	defer l.loading.Unlock()
	return maps.Clone(l.broken)
}

// Current is the version of a recipe that is in use, nil if there is none.
func (l *Library) Current(name string) *Recipe {
	if m := l.current.Load(); m != nil {
		return (*m)[name]
	}
	return nil
}

// suspects decides of which broken files the operator is told now: those of the first look,
// and those that are broken as they were a look ago.
func (l *Library) suspects(all []*candidate) (again bool) {
	now := map[string]string{}
	for _, c := range all {
		if len(c.problems) == 0 {
			continue
		}
		said := slices.Clone(c.problems)
		for i := range said {
			said[i].File = filepath.Base(said[i].File) // wherever the directory is
		}
		c.say = Hash([]byte(Fault(said).Error()))
		now[c.Path] = c.say
		c.tell = c.say != c.Told && (!l.looked || l.suspected[c.Path] == c.say)
		again = again || c.say != c.Told && !c.tell
	}
	l.suspected = now
	return again
}

// take makes the candidates what is in use.
func (l *Library) take(ctx context.Context, tx *db.Tx, all []*candidate, before []row) error {
	for _, old := range before { // first, so that a file that was renamed can have the name
		if slices.ContainsFunc(all, func(c *candidate) bool { return c.id == old.id }) {
			continue
		}
		if err := l.gone(ctx, tx, old, all); err != nil {
			return err
		}
	}
	var targets []trigger.Target
	for _, c := range all {
		if err := l.use(ctx, tx, c); err != nil {
			return err
		}
		if c.inUse != nil {
			targets = append(targets, l.target(c.inUse, c.newHash))
		}
	}
	slices.SortFunc(targets, func(a, b trigger.Target) int { return cmp.Compare(a.Name, b.Name) })
	return l.d.Targets.ReplaceTx(ctx, tx, "recipe", targets)
}

// candidates reads the files, each beside what is in use of it.
func (l *Library) candidates(ctx context.Context, q db.Q, files []found, before []row) (all []*candidate) {
	for _, f := range files {
		c := &candidate{row: row{id: l.fileID(f.path)}, text: f.text}
		if i := slices.IndexFunc(before, func(x row) bool { return x.id == c.id || x.Path == f.path }); i >= 0 {
			c.row, c.was = before[i], &before[i]
		}
		c.Path = f.path
		if c.hash != "" {
			c.old = l.version(ctx, q, c.row)
		}
		switch {
		case f.err != nil:
			c.problems = []Problem{{File: f.path, Msg: f.err.Error(), Fix: fault.HintOf(f.err)}}
		case c.old != nil && Hash(f.text) == c.hash:
			c.recipe = c.old // by the clock of the day it was taken
		default:
			c.recipe, c.problems = Read(f.path, f.text, time.UnixMicro(l.d.DB.Time()), l.d.Foreign)
		}
		all = append(all, c)
	}
	return all
}

// version is what a row has in use, nil if it cannot be read.
func (l *Library) version(ctx context.Context, q db.Q, x row) *Recipe {
	if r := l.parsed[x.hash+x.Path]; r != nil {
		return r
	}
	r, err := l.definitionIn(ctx, q, x.hash, x.Path)
	if err != nil {
		l.slog.Error("a recipe in use cannot be read", "recipe", x.name, "error", err)
	}
	return r
}

// settle decides which version of each file is used: what the file holds, if it is in order
// beside all others, else what was used before.
func settle(world World, all []*candidate) {
	var good []*Recipe
	for _, c := range all {
		switch {
		case c.recipe != nil:
			good = append(good, c.recipe)
		case c.old != nil:
			good = append(good, c.old)
		}
	}
	wrong := map[string][]Problem{}
	problems, _ := Check(world, good)
	for _, p := range problems {
		wrong[p.File] = append(wrong[p.File], p)
	}
	taken := map[string]bool{}
	use := func(c *candidate, r *Recipe, hash string) {
		if r != nil && !taken[strings.ToLower(r.Name)] {
			c.inUse, c.newHash = r, hash
			taken[strings.ToLower(r.Name)] = true
		}
	}
	for _, c := range all { // what was in use goes before what is new
		if c.recipe == nil || len(wrong[c.Path]) > 0 {
			c.problems = append(c.problems, wrong[c.Path]...)
			use(c, c.old, c.hash)
		}
	}
	for _, c := range all {
		if c.recipe != nil && len(wrong[c.Path]) == 0 {
			use(c, c.recipe, Hash(c.text))
		}
	}
}

// use writes down what a file has come to, if that is another than before.
func (l *Library) use(ctx context.Context, tx *db.Tx, c *candidate) error {
	x := row{id: c.id, fileBody: fileBody{Path: c.Path, Problems: c.problems}}
	if c.inUse != nil {
		x.name, x.hash = c.inUse.Name, c.newHash
	}
	if x.hash != c.hash || x.name != c.name {
		if c.inUse != nil {
			if err := l.keep(ctx, tx, c.newHash, c.Path, c.text); err != nil {
				return err
			}
		}
		if err := l.changed(ctx, tx, Change{Name: cmp.Or(x.name, c.name), Before: c.old, After: c.inUse, First: !l.looked}); err != nil {
			return err
		}
	}
	if len(c.problems) > 0 {
		x.Told = c.Told
	}
	if c.tell {
		x.Told = c.say
		if err := l.tell(ctx, tx, c, x.name); err != nil {
			return err
		}
	}
	if w := c.was; w != nil && x.hash == w.hash && x.name == w.name && x.Path == w.Path && x.Told == w.Told && slices.Equal(x.Problems, w.Problems) {
		return nil
	}
	return l.put(ctx, tx, x)
}

// tell tells the operator of a broken file, once for each way in which it is broken.
func (l *Library) tell(ctx context.Context, tx *db.Tx, c *candidate, inUse string) error {
	what := "it is not used"
	if inUse != "" {
		what = "the last good version of " + inUse + " stays in use"
	}
	tx.AfterCommit(func() {
		l.slog.Warn("a recipe is broken", "file", c.Path, "problems", len(c.problems), "in_use", inUse)
	})
	evs, err := l.d.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "recipes", Kind: "recipe.broken", Actor: "ombud", Data: changedData{Name: inUse, File: c.Path}, Expect: eventlog.Any,
	})
	if err != nil {
		return err
	}
	return l.d.Tell(ctx, tx, evs[0].ID, "The recipe "+c.Path+" is broken: "+what+".\n"+Fault(slices.Clone(c.problems)).Error())
}

// gone takes away a recipe whose file is. Its runs find their definition.
func (l *Library) gone(ctx context.Context, tx *db.Tx, old row, all []*candidate) error {
	if _, err := tx.Exec(ctx, "DELETE FROM recipe_files WHERE id = $1", old.id); err != nil {
		return err
	}
	if old.name == "" {
		return nil
	}
	r := l.version(ctx, tx, old)
	if i := slices.IndexFunc(all, func(c *candidate) bool { return c.inUse != nil && c.inUse.Name == old.name }); i >= 0 {
		if c := all[i]; c.hash == "" { // its file was moved: what that did to it is what is told
			c.name, c.hash, c.old = old.name, old.hash, r
		}
		return nil
	}
	if r == nil {
		r = &Recipe{Name: old.name, File: old.Path}
	}
	return l.changed(ctx, tx, Change{Name: old.name, Before: r, First: !l.looked})
}

// changedData is the payload of recipe.added, .changed and .removed.
type changedData struct {
	Name   string   `json:"name"`
	File   string   `json:"file"`
	Grants []string `json:"grants,omitempty"`
}

func (l *Library) changed(ctx context.Context, tx *db.Tx, c Change) error {
	verb, r := "changed", c.After
	switch {
	case c.Before == nil:
		verb = "added"
	case c.After == nil:
		verb, r = "removed", c.Before
	}
	evs, err := l.d.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: Subject(c.Name), Kind: "recipe." + verb, Actor: "operator", Expect: eventlog.Any,
		Data: changedData{Name: c.Name, File: r.File, Grants: r.Scopes()},
	})
	if err != nil {
		return err
	}
	tx.AfterCommit(func() { l.slog.Info("recipe "+verb, "recipe", c.Name) })
	c.Cause = evs[0].ID
	return l.d.Changed(ctx, tx, c)
}

// Scopes are what a recipe is granted beside its role.
func (r *Recipe) Scopes() (out []string) {
	if r == nil {
		return nil
	}
	for _, g := range r.Grants {
		if !slices.Contains(out, g.Scope) {
			out = append(out, g.Scope)
		}
	}
	return out
}
