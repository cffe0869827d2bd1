package signed

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// Kind is the kind of run that does a signed loop, ToolKind that of a call of a tool that
// one provides. Owner owns what starts signed loops.
const (
	Kind     = "signed"
	ToolKind = "signed-tool"
	Owner    = "loop/signed"
)

const prefix = "loop:"

// Subject is who a loop acts as: also its target and the key that orders its runs.
func Subject(name string) string { return prefix + name }

// Definition is what a run of a loop is pinned to.
func Definition(name, sha string) string { return Subject(name) + "@sha256:" + sha }

// Pinned are the name and the artifact a definition names.
func Pinned(definition string) (name, sha string, ok bool) {
	name, sha, ok = strings.Cut(strings.TrimPrefix(definition, prefix), "@sha256:")
	return name, sha, ok
}

// Targets keeps what starts things.
type Targets interface {
	ReplaceTx(ctx context.Context, tx *db.Tx, owner string, targets []trigger.Target) error
	PauseTx(ctx context.Context, tx *db.Tx, target, by string) (trigger.Standing, error)
}

var _ Targets = (*trigger.Triggers)(nil)

// Runs ends runs.
type Runs interface {
	CancelTx(ctx context.Context, tx *db.Tx, id, by, why string) error
}

var _ Runs = (*run.Engine)(nil)

// Deps are the parts a Library uses. DB, Vault, Log, Audit, Targets and Runs are needed.
type Deps struct {
	DB      *db.DB
	Vault   *vault.Vault
	Log     *eventlog.Log
	Audit   *audit.Audit
	Targets Targets
	Runs    Runs
	// Taken reports whether a loop that is compiled in has the name.
	Taken func(name string) bool
	// Tool tells of a tool by its name, if there is one.
	Tool func(name string) (ToolFacts, bool)
	// Prepare is called with what is about to be installed, before anything is written. Its
	// error refuses it. It may compile the module.
	Prepare func(ctx context.Context, a *wasmloop.Artifact) error
	// Changed is called after a commit that changed what is installed, or stopped.
	Changed func()
	// OwnKey is the public key of the publisher that this instance is, "" if it is none.
	OwnKey func() (string, error)
	// Lenient says what of a v1 manifest means less than it seems to.
	Lenient func(m wasmloop.Manifest) []string
	// Tell tells the operator, in a transaction.
	Tell   func(ctx context.Context, tx *db.Tx, cause, text string) error
	Logger *slog.Logger
}

// ToolFacts are what a person is told of a tool that a loop wants to call.
type ToolFacts struct {
	ReadOnly     bool // it changes nothing
	Irreversible bool // what it changes cannot be taken back
}

// Library is every signed loop of an instance. It is safe for concurrent use.
type Library struct {
	d       Deps
	slog    *slog.Logger
	uploads uploads

	current atomic.Pointer[map[string]Installed] // what is installed, by name
	revoked atomic.Pointer[[]string]             // keys
	keys    sync.Map                             // by which each artifact that was read is signed: its sha256 to []string
}

// New returns the library of a store. Nothing is read before Open.
func New(d Deps) *Library {
	if d.Taken == nil {
		d.Taken = func(string) bool { return false }
	}
	if d.Tool == nil {
		d.Tool = func(string) (ToolFacts, bool) { return ToolFacts{}, false }
	}
	if d.Prepare == nil {
		d.Prepare = func(context.Context, *wasmloop.Artifact) error { return nil }
	}
	if d.Changed == nil {
		d.Changed = func() {}
	}
	if d.OwnKey == nil {
		d.OwnKey = func() (string, error) { return "", nil }
	}
	if d.Lenient == nil {
		d.Lenient = func(wasmloop.Manifest) []string { return nil }
	}
	if d.Tell == nil {
		d.Tell = func(context.Context, *db.Tx, string, string) error { return nil }
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Library{d: d, slog: d.Logger}
}

// Installed is a loop as its row says.
type Installed struct {
	Name      string            `json:"-"`
	SHA256    string            `json:"-"` // of the whole artifact file
	At        int64             `json:"-"` // when this version was installed, Unix µs
	Manifest  wasmloop.Manifest `json:"manifest"`
	Format    int               `json:"format"` // of the artifact: 1 or 2
	Tier      wasmloop.Tier     `json:"tier"`   // as what it was approved
	Publisher string            `json:"publisher,omitempty"`
	Registry  string            `json:"registry,omitempty"` // the key that countersigned it
	By        string            `json:"by"`                 // who installed it
	From      string            `json:"from,omitempty"`     // where it came from, as it was said
	First     int64             `json:"first"`              // when a version of it was first installed
	Settings  Settings          `json:"settings"`

	// Revoked is the key it is signed by that was revoked, "" if none was. Nothing of it
	// runs then.
	Revoked string `json:"-"`
	// Shadowed says that a loop that is compiled in has its name now, and has what starts it.
	Shadowed bool `json:"-"`
	// Problem says why the row cannot be read; it then starts nothing.
	Problem error `json:"-"`
}

// Settings are what the operator sets of an installed loop.
type Settings struct {
	Values  map[string]string `json:"values,omitempty"`  // what the loop reads by "config"
	Timeout time.Duration     `json:"timeout,omitempty"` // of one run's work; 0: the usual
	// Webhook says how a call of its webhook proves itself: "" for not at all, and then it
	// has none; "open"; or the name of a secret.
	Webhook string `json:"webhook,omitempty"`
}

// Subject is who the loop acts as.
func (x *Installed) Subject() string { return Subject(x.Name) }

// Definition is what a run that starts now is pinned to.
func (x *Installed) Definition() string { return Definition(x.Name, x.SHA256) }

// Stopped is why nothing of the loop may run, "" if it may.
func (x *Installed) Stopped() string {
	switch {
	case x.Problem != nil:
		return "its row cannot be read: " + x.Problem.Error()
	case x.Revoked != "":
		return "the key " + x.Revoked + ", by which it is signed, is revoked"
	case x.Shadowed:
		return "a loop that is a part of ombud has its name"
	}
	return ""
}

// Current is a loop as it was committed last. It reads nothing.
func (l *Library) Current(name string) (Installed, bool) {
	m := l.current.Load()
	if m == nil {
		return Installed{}, false
	}
	x, there := (*m)[name]
	return x, there
}

// Names are the installed loops, in order, as they were committed last.
func (l *Library) Names() []string {
	m := l.current.Load()
	if m == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(*m))
}

// Open reads what is installed. It is called once, before anything runs.
func (l *Library) Open(ctx context.Context) error {
	return l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err := l.listIn(ctx, q)
		if err != nil {
			return err
		}
		revoked, err := l.revokedIn(ctx, q)
		if err == nil {
			l.remember(list, revoked)
		}
		return err
	})
}

func (l *Library) remember(list []Installed, revoked []string) {
	l.revoked.Store(&revoked)
	m := map[string]Installed{}
	for _, x := range list {
		m[x.Name] = x
	}
	l.current.Store(&m)
}

// List returns what is installed, by name.
func (l *Library) List(ctx context.Context) (list []Installed, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err = l.listIn(ctx, q)
		return err
	})
	return list, err
}

// Get returns an installed loop by its name, with or without "loop:" before it; NotFound
// if there is none.
func (l *Library) Get(ctx context.Context, name string) (x Installed, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		x, err = l.getIn(ctx, q, strings.TrimPrefix(name, prefix))
		return err
	})
	return x, err
}

func notInstalled(name string) *fault.Error {
	return fault.New(fault.NotFound, "no loop %q is installed", name).WithHint("ombud loop list shows what there is")
}
