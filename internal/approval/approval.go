package approval

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/vault"
)

// The kinds of events of the stream approval:<id>.
const (
	KindAsked    = "approval.asked"
	KindResolved = "approval.resolved"
)

// State is where an approval stands.
type State string

// The states; doc.go has the moves between them.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Expired  State = "expired"
	Used     State = "used"
)

// Self is the resolver recorded when no person decided.
const Self = "ombud"

// Ask is a question. ID may be empty; NewID makes one when it is needed before.
type Ask struct {
	ID           string
	Run          string
	Step         string
	Subject      string // who wants to make the call
	Tool         string
	ToolDigest   string // of the definition the person is shown
	Summary      string // one line for people
	Conversation string // where to ask; "" if only the inbox does
	CallHash     []byte
	Input        json.RawMessage
	Scopes       []string
	Reasons      []string    // why it is asked
	Label        label.Label // of the context the call comes from
	// Form is the JSON Schema of what a yes has to come with, as package form reads it;
	// nil: nothing.
	Form json.RawMessage
}

// Approval is a question and what became of it. Times are Unix microseconds.
type Approval struct {
	Ask
	State     State
	Asked     int64
	Expires   int64  // nobody can approve it, or use it once approved, from here on
	HoldUntil int64  // the turn waits no longer than this
	Resolved  int64  // when it left pending; 0 while it has not
	Resolver  string // who decided; Self if nobody did
	Note      string // what they said
	// Answer is what they filled in with a yes: canonical, and it fits the Form. Nil
	// while there is none, and of a question without a form.
	Answer   json.RawMessage
	Detached bool // the turn went on without it: once approved the call is a run of its own
}

// Hook joins the transaction of a move. It may run twice.
type Hook func(ctx context.Context, tx *db.Tx, a Approval) error

// Options tune Approvals; zero fields have defaults.
type Options struct {
	Hold    time.Duration // how long a turn waits before it goes on without; default 10 min
	Expires time.Duration // how long a question stays open; default 24 h
	Good    time.Duration // how long an approval may stay unused; default 1 h
	Poll    time.Duration // how often expired ones are looked for; default 5 s
	// OnAsked tells a person: what it writes is one commit with the question.
	OnAsked Hook
	// OnApproving is called before a yes is written. Its error refuses the yes and leaves
	// the question open.
	OnApproving Hook
	// OnResolved wakes the run, or starts one for a detached call. It is called when
	// a question leaves pending for approved, denied or expired.
	OnResolved Hook
	// Hide knows the secrets, whose values no answer may hold; nil: none are known.
	Hide   *redact.Redactor
	Logger *slog.Logger
}

// Approvals keeps the approvals of one store. It is safe for concurrent use.
type Approvals struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	opt   Options

	mu   sync.Mutex
	quit context.CancelFunc // nil while the loop does not run
	loop sync.WaitGroup
}

// New returns the approvals of d. Nothing expires until Start.
func New(d *db.DB, v *vault.Vault, l *eventlog.Log, o Options) *Approvals {
	if o.Hold <= 0 {
		o.Hold = 10 * time.Minute
	}
	if o.Expires <= 0 {
		o.Expires = 24 * time.Hour
	}
	if o.Good <= 0 {
		o.Good = time.Hour
	}
	if o.Poll <= 0 {
		o.Poll = 5 * time.Second
	}
	nothing := func(context.Context, *db.Tx, Approval) error { return nil }
	if o.OnAsked == nil {
		o.OnAsked = nothing
	}
	if o.OnApproving == nil {
		o.OnApproving = nothing
	}
	if o.OnResolved == nil {
		o.OnResolved = nothing
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Approvals{db: d, vault: v, log: l, opt: o}
}

// NewID makes an id for an Ask.
func (a *Approvals) NewID() string { return id.New("apr") }

// Hold is how long a turn waits for an answer.
func (a *Approvals) Hold() time.Duration { return a.opt.Hold }

// Start looks for expired questions at once and then every Options.Poll.
func (a *Approvals) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quit != nil {
		return nil
	}
	if _, err := a.ExpireOnce(ctx); err != nil {
		return err
	}
	loop, quit := context.WithCancel(context.Background())
	a.quit = quit
	a.loop.Go(func() { a.expireLoop(loop) })
	return nil
}

// Stop ends the loop and waits for it. It is safe to call twice.
func (a *Approvals) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quit == nil {
		return
	}
	a.quit()
	a.loop.Wait()
	a.quit = nil
}

func (a *Approvals) expireLoop(ctx context.Context) {
	tick := time.NewTicker(a.opt.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, err := a.ExpireOnce(ctx); err != nil && ctx.Err() == nil {
			a.opt.Logger.Warn("expire approvals", "error", err)
		}
	}
}
