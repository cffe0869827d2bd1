package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// TurnKind is the kind of the runs that answer messages; CallKind is the kind of
// those that make one call a person approved after its turn had ended.
const (
	TurnKind = "turn"
	CallKind = "call"
)

// Default is the agent that answers where no other is named.
const Default = "main"

// Identity is one configured agent.
type Identity struct {
	Name         string
	Role         *policy.Role
	Grants       *policy.Layer
	Autonomy     *policy.Autonomy
	Tools        []string // nil: every tool; policy still decides
	Instructions string
}

// Model is a provider with the model to ask of it.
type Model struct {
	Provider model.Provider
	Name     string // "" for the provider's default
}

// Models gives the model of a role: "main" or "summary". A role without a Provider
// is one nobody can do: then conversations are not summarised.
type Models interface{ For(role string) Model }

// Fact is a remembered thing that fits a message.
type Fact struct {
	Text  string
	Label label.Label
}

// Memory recalls what fits a message. index is "warming" while not all that is
// remembered could be looked at.
type Memory interface {
	RecallFor(ctx context.Context, agent, text string, limit int) (facts []Fact, index string, err error)
}

// Authority tells what was decided about a subject beside its role.
type Authority interface {
	For(ctx context.Context, subject, conversation string) (policy.Held, error)
}

// Config bounds turns. Zero fields have the defaults in the comments.
type Config struct {
	Steps      int           // 32 model steps
	Calls      int           // 64 tool calls
	Timeout    time.Duration // 120 s of work
	History    int           // 48 KiB of history a model is shown
	Compact    int           // 64 KiB of history since the last summary before a new one is made
	MaxTokens  int           // 4096 tokens of one answer
	Recall     int           // 5 facts recalled for a message
	MaxMessage int           // 1 MiB of one message
}

func (c Config) withDefaults() Config {
	set := func(p *int, d int) {
		if *p <= 0 {
			*p = d
		}
	}
	set(&c.Steps, 32)
	set(&c.Calls, 64)
	set(&c.History, 48<<10)
	set(&c.Compact, 64<<10)
	set(&c.MaxTokens, 4096)
	set(&c.Recall, 5)
	set(&c.MaxMessage, 1<<20)
	if c.Timeout <= 0 {
		c.Timeout = 120 * time.Second
	}
	return c
}

// Deps are the parts a turn uses.
type Deps struct {
	DB        *db.DB
	Vault     *vault.Vault
	Log       *eventlog.Log
	Runs      *run.Engine
	Act       *act.Act
	Tools     *tool.Registry
	Approvals *approval.Approvals
	Budget    *budget.Budget
	Outbox    *outbox.Outbox
	Memory    Memory
	Authority Authority // nil: nothing beside the roles
	Models    Models
	Prices    *model.Catalog
	Hide      *redact.Redactor // takes known values out of what a model is told and says; nil: none are known
	Logger    *slog.Logger
	Now       func() time.Time
	Places    Places // nil: there is nothing beyond this machine
	// Refuse is asked before a message is taken in; its error is the answer. nil: never.
	Refuse func() error
}

// Agents answers messages with the configured identities.
type Agents struct {
	Deps
	cfg        Config
	identities map[string]Identity
	live       *Live
}

// New returns the agents. Add their Kinds to the engine's before it opens.
func New(d Deps, cfg Config, identities ...Identity) (*Agents, error) {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	a := &Agents{Deps: d, cfg: cfg.withDefaults(), identities: map[string]Identity{}, live: newLive()}
	for _, i := range identities {
		a.identities[i.Name] = i
	}
	if _, ok := a.identities[Default]; !ok {
		return nil, fault.New(fault.Config, "no agent %q is configured", Default)
	}
	return a, nil
}

// Live is where the text of turns in progress can be followed.
func (a *Agents) Live() *Live { return a.live }

// Kinds are the kinds of run that agents do.
func (a *Agents) Kinds() []run.Kind {
	return []run.Kind{
		{Name: TurnKind, Handle: a.turn, TellUnknown: true, Heard: true, Ended: a.turnEnded},
		{Name: CallKind, Handle: a.approvedCall, TellUnknown: true, Heard: true, Ended: a.callEnded},
	}
}

// identity returns the agent of a conversation; one that was removed from the
// configuration is answered for by the default one.
func (a *Agents) identity(name string) Identity {
	if i, ok := a.identities[name]; ok {
		return i
	}
	return a.identities[Default]
}

// Names are the agents there are, in order.
func (a *Agents) Names() []string { return slices.Sorted(maps.Keys(a.identities)) }
