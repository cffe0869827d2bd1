package wire

import "encoding/json"

// Grant is what the operator gave to a subject, or took from it, beside its role.
type Grant struct {
	ID           string `json:"id"`                     // grt_…; empty in a preview
	Subject      string `json:"subject"`                // agent:main, loop:…, …
	Scope        string `json:"scope"`                  // canonical
	Effect       string `json:"effect"`                 // allow, ask, deny, limit, standing
	Conversation string `json:"conversation,omitempty"` // empty: in all
	Origin       string `json:"origin"`                 // operator, approval:<id>, preset:<name>
	By           string `json:"by"`                     // who made it
	At           int64  `json:"at"`                     // Unix µs
	ExpiresAt    int64  `json:"expires_at,omitempty"`   // Unix µs; absent: never
	State        string `json:"state"`                  // live, expired, revoked
	RevokedAt    int64  `json:"revoked_at,omitempty"`   // Unix µs
	RevokedBy    string `json:"revoked_by,omitempty"`   // who took it back
	Grants       string `json:"grants"`                 // how much of it has an effect: all, part, nothing
	Why          string `json:"why,omitempty"`          // why not all of it
}

// CapsListRequest selects what subjects have.
type CapsListRequest struct {
	Subject string `json:"subject,omitempty"` // empty: all
	All     bool   `json:"all,omitempty"`     // revoked grants too
}

// CapsListResult answers caps.list.
type CapsListResult struct {
	Subjects []CapsSubject `json:"subjects"` // the configured agents
	Grants   []Grant       `json:"grants"`   // the newest first, at most 1,000
}

// CapsSubject is an agent and what the configuration gives it.
type CapsSubject struct {
	Subject string     `json:"subject"`
	Role    string     `json:"role"`     // its name
	MaxTier string     `json:"max_tier"` // it acts with no more than this tier
	Rules   []CapsRule `json:"rules"`    // of the role, then of its ancestors
}

// CapsRule is one rule of a role.
type CapsRule struct {
	Layer  string `json:"layer"`  // whose rule it is
	Effect string `json:"effect"` // allow, ask, deny
	Scope  string `json:"scope"`
}

// CapsGrantRequest makes a grant.
type CapsGrantRequest struct {
	Subject      string `json:"subject"`
	Scope        string `json:"scope"`
	Effect       string `json:"effect,omitempty"`       // empty: allow
	Conversation string `json:"conversation,omitempty"` // id or name; empty: all
	ForS         int64  `json:"for_s,omitempty"`        // seconds it is good for; 0: until it is revoked
	Preview      bool   `json:"preview,omitempty"`      // only say what it would come to
}

// CapsGrantResult is the grant as stored, or as it would be.
type CapsGrantResult struct {
	Grant Grant `json:"grant"`
}

// CapsRevokeRequest takes a grant back.
type CapsRevokeRequest struct {
	ID string `json:"id"` // whole, or an unambiguous beginning
}

// CapsRevokeResult is the grant as revoked.
type CapsRevokeResult struct {
	Grant Grant `json:"grant"`
}

// CapsWhyRequest asks how a call would be decided. It needs a scope, or a tool
// with its input.
type CapsWhyRequest struct {
	Subject      string          `json:"subject"`
	Scope        string          `json:"scope,omitempty"`
	Tool         string          `json:"tool,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`        // of the tool; absent: {}
	Conversation string          `json:"conversation,omitempty"` // id or name
	Tier         string          `json:"tier,omitempty"`         // how the caller would be connected; empty: trusted
	Unattended   bool            `json:"unattended,omitempty"`   // nobody is there to be asked
}

// CapsWhyResult is the decision and all that led to it. What is in the context of
// a call, the budget and what was refused before in its run are not known here.
type CapsWhyResult struct {
	Decision string       `json:"decision"`       // allow, ask, deny
	Park     bool         `json:"park,omitempty"` // the call would be kept for review and the work would go on
	Subject  string       `json:"subject"`
	Scopes   []string     `json:"scopes"`            // what the call needs
	Summary  string       `json:"summary,omitempty"` // of the tool's call, in one line
	Decided  CapsReason   `json:"decided"`           // the reason that settled it
	Reasons  []CapsReason `json:"reasons"`           // of every layer, in the order they were asked
}

// CapsReason is what one layer says.
type CapsReason struct {
	Effect string `json:"effect"`          // allow, ask, deny
	Code   string `json:"code"`            // stable: rule, no_rule, tier, level, standing, …
	Layer  string `json:"layer"`           // who says it
	Scope  string `json:"scope,omitempty"` // about what
	Rule   string `json:"rule,omitempty"`  // the rule that decided, if it was a rule
	Grant  string `json:"grant,omitempty"` // the stored grant the rule comes from
	Text   string `json:"text"`            // for a person
}

// CapsMeterRequest asks how calls ended.
type CapsMeterRequest struct {
	Subject string `json:"subject,omitempty"` // empty: all
	Days    int    `json:"days,omitempty"`    // the last so many days; 0: 7, at most 366
}

// CapsMeterResult answers caps.meter, from the audit log.
type CapsMeterResult struct {
	Since int64       `json:"since"` // Unix µs
	Lines []CapsCalls `json:"lines"`
}

// CapsCalls counts the calls of one subject to one tool that ended in one way.
type CapsCalls struct {
	Subject      string `json:"subject"`
	Tool         string `json:"tool"`
	Outcome      string `json:"outcome"`          // ok, failed, refused, parked, unknown
	Reason       string `json:"reason,omitempty"` // of refusals: a code
	Calls        int64  `json:"calls"`
	CostMicroUSD int64  `json:"cost_microusd"`
}

// AccessShowRequest names whose levels are asked for.
type AccessShowRequest struct {
	Subject string `json:"subject,omitempty"` // empty: agent:main
}

// AccessSetRequest sets how much a subject does without asking.
type AccessSetRequest struct {
	Subject string `json:"subject,omitempty"` // empty: agent:main
	Level   string `json:"level"`             // manual, assisted, supervised, autonomous; default takes it back
	Area    string `json:"area,omitempty"`    // one area of work; empty: wherever no area has its own
}

// AccessScopeRequest sets how far into the machine a subject may reach.
type AccessScopeRequest struct {
	Subject string `json:"subject,omitempty"` // empty: agent:main
	Preset  string `json:"preset"`            // sandbox, workspace, home, full; default takes it back
}

// Access is how much a subject does without asking, and how far it may reach.
type Access struct {
	Subject string       `json:"subject"`
	Level   string       `json:"level"`            // where no area has its own
	Usual   bool         `json:"usual"`            // nobody set it: it is the default
	Areas   []AccessArea `json:"areas"`            // those with a level of their own
	Preset  string       `json:"preset,omitempty"` // access level; absent: only the role bounds it
	Limits  []Grant      `json:"limits"`           // the rows the preset wrote
	Levels  []LevelDoc   `json:"levels"`           // every level there is
}

// AccessArea is the level of one area of work.
type AccessArea struct {
	Area  string `json:"area"` // first word of a scope: fs, net, memory
	Level string `json:"level"`
}

// LevelDoc says what a level does.
type LevelDoc struct {
	Level string `json:"level"`
	Doc   string `json:"doc"` // in one sentence
}
