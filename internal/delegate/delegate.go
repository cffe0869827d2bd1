package delegate

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/vault"
)

// Kind is the kind of the runs.
const Kind = "delegation"

// KindCompleted is the event of a delegation that has ended, however it did.
const KindCompleted = "delegation.completed"

// Starter starts coding agents; it is a *child.Starter.
type Starter interface {
	Run(ctx context.Context, t child.Task) (harness.Record, error)
	Probe(ctx context.Context, t child.Target) (child.Probe, error)
}

// Conversations is the part of the agents that tells of an end; it is a *agent.Agents.
type Conversations interface {
	ConversationIn(ctx context.Context, q db.Q, id string) (agent.Conversation, error)
	IntakeTx(ctx context.Context, tx *db.Tx, in agent.Inbound) (agent.Accepted, error)
	NoticeTx(ctx context.Context, tx *db.Tx, cause, text string) error
}

// Deps are the parts a delegation uses.
type Deps struct {
	DB      *db.DB
	Vault   *vault.Vault
	Log     *eventlog.Log
	Runs    *run.Engine
	Act     *act.Act
	Jobs    *job.Jobs
	Budget  *budget.Budget
	Secrets *secret.Secrets
	Agents  Conversations
	Starter Starter
	Keys    Keys
	Git     checkpoint.Git
	// Launcher starts checks.
	Launcher checkpoint.Launcher
	// Authority is what a subject may do now, in a conversation it is talked to from with tier.
	Authority func(ctx context.Context, subject, conversation string, tier policy.Tier) (*act.Authority, error)
	// Price is what tokens cost, in millionths of a US dollar; false where nobody knows. Nil: nobody does.
	Price func(cli harness.Name, model string, u harness.Usage) (int64, bool)
	// Likely is what they may cost at most, of a model nobody priced; it is never booked as spent.
	Likely func(cli harness.Name, model string, u harness.Usage) (int64, bool)
	Logger *slog.Logger
}

// Config is what the operator set.
type Config struct {
	Harnesses []Harness     // in the order in which one is chosen where nobody names one
	Default   string        // name; "" is the first that is on this machine
	Admit     []Route       // nothing: every harness with its own model
	Time      time.Duration // one delegation may work, unless it asks for less; waiting for a person does not count
	Quiet     time.Duration // without any output
	Budget    budget.Limit  // of one delegation

	Home      string // names this machine's directories: a session is where it was begun
	State     string // directory in which each harness keeps its own
	Trees     string // directory of the worktrees
	Workspace string // where a delegation works that names no directory
	Program   string // ombud itself, for the tools it lends; absolute
	Socket    string // of agents
	Shell     string // that runs checks, absolute; "" where there is none
	Path      string // directories a check finds programs in, as in PATH

	Caches       []Cache         // of toolchains, that checks read
	CheckNetwork confine.Network // of checks; none unless it is set
}

// Service is the delegations of one store.
type Service struct {
	*Deps
	cfg Config

	mu     sync.Mutex
	probed map[string]probed        // by harness
	swept  map[string]bool          // directories of harnesses without tokens of before
	turns  map[string]chan struct{} // by repository: held by whoever changes its worktrees
}

// New returns the delegations. d is filled in before the first is begun. Add RunKind and
// ApplyKind to the engine's kinds before it opens.
func New(d *Deps, c Config) *Service {
	return &Service{Deps: d, cfg: c, probed: map[string]probed{}, swept: map[string]bool{}, turns: map[string]chan struct{}{}}
}

// Harnesses are the coding agents that are set up.
func (s *Service) Harnesses() []Harness { return append([]Harness(nil), s.cfg.Harnesses...) }

// Harness returns the coding agent of a name. NotFound if there is none.
func (s *Service) Harness(name string) (Harness, error) {
	h, _, err := s.pick(name)
	return h, err
}

// StateOf is the directory in which a harness keeps its own.
func (s *Service) StateOf(h Harness) string { return filepath.Join(s.cfg.State, h.Name) }

// checksOf is the home of the checks of a session.
func (s *Service) checksOf(h Harness, session string) string {
	return filepath.Join(s.StateOf(h), "checks", session)
}

// Admitted are the routes that may run; nothing is every harness with its own model.
func (s *Service) Admitted() []Route { return append([]Route(nil), s.cfg.Admit...) }

// Task is the input of a run.
type Task struct {
	Prompt       string         `json:"prompt"`
	Subject      string         `json:"subject"`
	Conversation string         `json:"conversation,omitempty"`
	Readers      label.Audience `json:"readers,omitempty"` // of that conversation
	Tier         policy.Tier    `json:"tier"`
	Label        label.Label    `json:"label"` // of what the prompt was made from
	Unattended   bool           `json:"unattended,omitempty"`

	Use        string   `json:"use"` // the scope it was given by: harness:claude, or what a loop asks for
	Harness    string   `json:"harness"`
	Model      string   `json:"model,omitempty"`
	Why        string   `json:"why"` // the route was taken
	Session    string   `json:"session"`
	Dir        string   `json:"dir"`
	Write      bool     `json:"write,omitempty"`
	Background bool     `json:"background,omitempty"`
	Ephemeral  bool     `json:"ephemeral,omitempty"`
	Seconds    int      `json:"seconds,omitempty"` // it may work at most
	Tools      []string `json:"tools,omitempty"`   // of ombud, names and name.* patterns
	Checks     []string `json:"checks,omitempty"`  // commands that are run in its worktree afterwards
	Allow      string   `json:"allow,omitempty"`   // what the operator lets it do without asking: "edits" or "all"
	Limit      int64    `json:"limit,omitempty"`   // it may cost, micro-USD; 0 is no limit
}

// Operator is the subject of what the operator starts.
const Operator = "operator"

// What the operator can let a delegation do without asking.
const (
	AllowEdits = "edits"
	AllowAll   = "all"
)

// limit is how long the task may work.
func (s *Service) limit(t Task) time.Duration {
	most := s.cfg.Time
	if asked := time.Duration(t.Seconds) * time.Second; asked > 0 && asked < most {
		return asked
	}
	return most
}
