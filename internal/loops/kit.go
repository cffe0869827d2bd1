package loops

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

// Starter starts a loop or a recipe by its name, now or later.
type Starter interface {
	StartTx(ctx context.Context, tx *db.Tx, target string, tr trigger.Trigger) (runID string, err error)
	ArmTx(ctx context.Context, tx *db.Tx, w trigger.Wake) error
	DisarmTx(ctx context.Context, tx *db.Tx, target, timer string) (bool, error)
}

var _ Starter = (*trigger.Triggers)(nil)

// Holder tells what was decided about a subject beside its role.
type Holder interface {
	For(ctx context.Context, subject, conversation string) (policy.Held, error)
}

// Deps are the parts that kits use.
type Deps struct {
	DB        *db.DB
	Vault     *vault.Vault
	Log       *eventlog.Log
	Runs      *run.Engine
	Act       *act.Act
	Agents    *agent.Agents
	Approvals *approval.Approvals
	Blobs     *blob.Store
	Triggers  Starter
	Held      Holder       // nil: nothing beside the roles
	Usual     policy.Level // where the operator set no level
	// Chats are the operator's chats on the channels there are; nil: none.
	Chats func(ctx context.Context) ([]string, error)
	// Delegate begins a run that gives a task to a coding agent, for the run that waits for
	// it, and returns its id. nil: there are none.
	Delegate func(ctx context.Context, tx *db.Tx, parent string, t Task) (string, error)
	Hide     *redact.Redactor // takes known values out of what is kept; nil: none are known
	Logger   *slog.Logger
}

// Limits bound one run. Zero fields have the defaults in the comments.
type Limits struct {
	Active time.Duration // 12 min of work; waiting does not count
	Steps  int           // 1000
	Log    int           // 256 KiB of log
}

// UsualTime is how long one run may work where nothing else is set.
const UsualTime = 12 * time.Minute

func (l Limits) withDefaults() Limits {
	if l.Active <= 0 {
		l.Active = UsualTime
	}
	if l.Steps <= 0 {
		l.Steps = 1000
	}
	if l.Log <= 0 {
		l.Log = 256 << 10
	}
	return l
}

// Actor is who a kit works as.
type Actor struct {
	Subject string       // "loop:NAME" or "recipe:NAME"; also its conversation
	Role    *policy.Role // what it can do
	// Own is what the subject was given beside its role. With Own set, even empty, the
	// role is what it has from the start, and Own adds to it; without, it bounds the
	// subject.
	Own    []policy.Rule
	Agent  string            // who is asked and whose memory is used; "" for the default
	Config map[string]string // its settings
	Limits Limits
	Lends  []string // tools of its own, for the turns it asks for
}

// Kit is what one run of a loop or a recipe works with. Its methods may be called from
// several goroutines, but each step name only once in an execution.
type Kit struct {
	d     Deps
	r     *run.Run
	who   Actor
	auth  *act.Authority
	tr    trigger.Trigger
	fence guard.Fence

	mu      sync.Mutex
	label   label.Label
	foreign []string // what others wrote, as it was returned
	steps   int
	logged  int
	asked   bool
}

// NewKit returns the kit of a run whose input is a trigger. What the actor may do is
// looked up now: what was revoked while the run waited is gone.
func NewKit(ctx context.Context, d Deps, r *run.Run, who Actor) (*Kit, error) {
	k := &Kit{d: d, r: r, who: who}
	if k.d.Logger == nil {
		k.d.Logger = slog.New(slog.DiscardHandler)
	}
	if k.who.Agent == "" {
		k.who.Agent = agent.Default
	}
	k.who.Limits = who.Limits.withDefaults()
	if err := json.Unmarshal(r.Input(), &k.tr); err != nil {
		return nil, fault.New(fault.Internal, "input of %s: %w", who.Subject, err)
	}
	// The mark is the same whenever the run is done again, and nobody outside can guess it.
	k.fence = guard.FenceOf(hex.EncodeToString(d.Vault.MAC("loop.fence", []byte(r.ID()))[:5]))
	k.saw(k.tr.Label, texts(k.tr.Payload)...)
	var err error
	if k.auth, err = d.AuthorityOf(ctx, k.who); err != nil {
		return nil, err
	}
	return k, nil
}

// Run is the run the kit belongs to.
func (k *Kit) Run() *run.Run { return k.r }

// Trigger is what started the run. It is the same in every attempt.
func (k *Kit) Trigger() trigger.Trigger { return k.tr }

// Subject is who the kit works as.
func (k *Kit) Subject() string { return k.who.Subject }

// Config is a setting of the loop, "" if it is not set.
func (k *Kit) Config(key string) string { return k.who.Config[key] }

// Fence returns text between marks that it cannot end, as data of from. Text that
// others wrote is put between marks by every prompt anyhow.
func (k *Kit) Fence(text, from string) string { return k.fence.Wrap(from, text) }

// Label is that of all the run has read so far.
func (k *Kit) Label() label.Label {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.label
}

// minForeign is how long a text of others is, in bytes, before a prompt marks it: a
// word that stands everywhere would be marked everywhere.
const minForeign = 12

// saw joins the label of what is returned, and remembers others' words.
func (k *Kit) saw(l label.Label, said ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.label = label.Join(k.label, l)
	if !l.Tainted() {
		return
	}
	for _, s := range said {
		if s = strings.TrimSpace(s); len(s) >= minForeign {
			k.foreign = append(k.foreign, s)
		}
	}
}

// bounded is the context of the run's work, which ends with its time.
func (k *Kit) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return k.r.Bound(ctx, k.who.Limits.Active, k.overTime())
}

func (k *Kit) overTime() error {
	return fault.New(fault.Timeout, "%s worked for %s, the most it may", k.who.Subject, k.who.Limits.Active).
		WithHint("loops.%s.timeout sets it", strings.TrimPrefix(k.who.Subject, "loop:"))
}

// step counts a step and refuses one too many.
func (k *Kit) step(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name == "" {
		return fault.New(fault.Invalid, "%s has a step without a name", k.who.Subject)
	}
	if k.steps++; k.steps > k.who.Limits.Steps {
		return fault.New(fault.Invalid, "%s took %d steps, the most one run can", k.who.Subject, k.who.Limits.Steps)
	}
	return nil
}

// maxAttempts bounds how often a run can be tried.
const maxAttempts = 16

// each does a step under the name it has in this attempt of the run. What failed in an
// earlier attempt is recorded as that for good, so a further one does it anew under the
// name with its number behind it; what was done stays done.
func (k *Kit) each(name string, do func(step string) error) error {
	if err := k.step(name); err != nil {
		return err
	}
	return do(k.nameOf(name))
}

func (k *Kit) nameOf(name string) string {
	for try := range maxAttempts {
		step := numbered(name, try)
		s, there := k.r.Recorded(step)
		_, failed := k.r.Recorded(step + endStep)
		if there && s.State != run.Errored && !failed {
			return step
		}
	}
	return numbered(name, k.r.Record().Attempt)
}

func numbered(name string, try int) string {
	if try == 0 {
		return name
	}
	return name + "~" + strconv.Itoa(try)
}
