package grant

import (
	"context"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/vault"
)

// Effect says what a grant does.
type Effect string

// The effects; doc.go says what each means.
const (
	Allow    Effect = "allow"
	Ask      Effect = "ask"
	Deny     Effect = "deny"
	Limit    Effect = "limit"
	Standing Effect = "standing"
)

// Effects are all of them, as a person is told.
func Effects() []string {
	return []string{string(Allow), string(Ask), string(Deny), string(Limit), string(Standing)}
}

// The origins of a grant; a preset's name and an approval's id are behind a colon.
const (
	FromOperator = "operator"
	FromApproval = "approval"
	FromPreset   = "preset"
)

// Operator is who may change authority.
const Operator = "operator"

// New is a grant to be made.
type New struct {
	Subject      string
	Scope        scope.Scope
	Effect       Effect
	Conversation string // "" for all
	Origin       string // default operator
	Expires      int64  // Unix microseconds; 0 is never
}

// Grant is a stored grant. Times are Unix microseconds.
type Grant struct {
	New
	ID        string
	By        string
	At        int64
	Revoked   int64 // 0 while it is not
	RevokedBy string
}

// State says where a grant stands.
type State string

// The states.
const (
	Live    State = "live"
	Expired State = "expired"
	Revoked State = "revoked"
)

// StateAt is the state of g at a time.
func (g Grant) StateAt(now int64) State {
	switch {
	case g.Revoked != 0:
		return Revoked
	case g.Expires != 0 && g.Expires <= now:
		return Expired
	}
	return Live
}

// Level is a level set for a subject, everywhere or in one area.
type Level struct {
	Subject string
	Area    string // "": wherever no area has its own
	Level   policy.Level
	By      string
	At      int64
}

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Bounds of what is kept.
const (
	maxLive = 1000 // live grants of one subject
	maxName = 128  // bytes of the name of a subject
	// maxCached is how many subjects are kept in memory.
	maxCached = 1024
)

// Grants keeps the grants of one store. It is safe for concurrent use.
type Grants struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	audit Auditor
	usual policy.Level

	mu      sync.Mutex
	version string // of what is cached
	cache   map[string]stored
}

// stored is what is kept of one subject: its unrevoked grants and its levels.
// Immutable.
type stored struct {
	grants []Grant
	levels []Level
}

// NewGrants returns the grants of d. Usual is the level where none is set.
func NewGrants(d *db.DB, v *vault.Vault, log *eventlog.Log, a Auditor, usual policy.Level) *Grants {
	return &Grants{db: d, vault: v, log: log, audit: a, usual: usual, cache: map[string]stored{}}
}

// kinds are the first words of subjects that can be granted to.
var kinds = []string{"agent", "harness", "loop", "mcp", "peer", "recipe", "tool", "workflow"}

// CheckSubject refuses what is no subject a grant can be for.
func CheckSubject(subject string) error {
	kind, name, ok := strings.Cut(subject, ":")
	switch {
	case subject == Operator:
		return fault.New(fault.Invalid, "the operator needs no grant")
	case !ok || !slices.Contains(kinds, kind):
		return fault.New(fault.Invalid, "%q is no subject", clip(subject)).
			WithHint("a subject is %s and a name, as in agent:main", strings.Join(kinds, ":, ")+":")
	case name == "" || len(name) > maxName || strings.ContainsFunc(name, unusable):
		return fault.New(fault.Invalid, "the name of subject %q is empty, over %d bytes or has a space or control character", clip(subject), maxName)
	}
	return nil
}

func unusable(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || !unicode.IsPrint(r)
}

func clip(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// mayChange refuses everybody but the operator.
func mayChange(by string) error {
	if by == Operator {
		return nil
	}
	return fault.New(fault.Denied, "%q cannot change what anybody may do", clip(by)).
		WithHint("the operator can, on the machine itself: ombud caps, ombud access")
}

// Check refuses, as Invalid, what no grant can be.
func (n *New) Check(now int64) error {
	if err := CheckSubject(n.Subject); err != nil {
		return err
	}
	switch {
	case n.Scope.IsZero():
		return fault.New(fault.Invalid, "a grant needs a scope")
	case !slices.Contains(Effects(), string(n.Effect)):
		return fault.New(fault.Invalid, "unknown effect %q", clip(string(n.Effect))).WithHint("it is one of %s", strings.Join(Effects(), ", "))
	case n.Effect == Limit && n.Conversation != "":
		return fault.New(fault.Invalid, "a limit holds in every conversation")
	case n.Expires != 0 && n.Expires <= now:
		return fault.New(fault.Invalid, "the grant would have expired already")
	}
	return nil
}
