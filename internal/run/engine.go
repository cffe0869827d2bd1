package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// topic is notified whenever a run may be claimed or has ended.
const topic = "runs"

// maxCrashes is how often a run may take its node down before it is given up.
const maxCrashes = 5

// Kind is a sort of work the engine can do.
type Kind struct {
	Name string
	// Handle does the work. After a crash, a park or a retry it is called again from
	// its beginning: what it did in steps is returned to it from the record.
	Handle func(ctx context.Context, r *Run) (json []byte, err error)
	// Attempts is how often Handle may fail before the run does. Default 1.
	Attempts int
	// Backoff is the pause before attempt n+1, n from 1. Default 1 s, doubled, at most 5 min.
	Backoff func(n int) time.Duration
	// TellUnknown gives a step of unknown outcome to Handle as an error of class
	// Unknown. Without it the run becomes uncertain and a person decides.
	TellUnknown bool
	// Knows reports whether this node has what a run was started from, its pinned
	// definition. Until it has, the run is kept back. Default true. It must be quick.
	Knows func(ctx context.Context, q db.Q, r Record) (bool, error)
	// Heard says that whoever waits for a run of this kind is told of its failure: it
	// makes no dead letter.
	Heard bool
	// Ended runs in the transaction that ends a run: the place to tell somebody.
	Ended func(ctx context.Context, tx *db.Tx, r Record) error
}

// Kinds is the set of kinds an engine knows.
type Kinds struct {
	mu   sync.RWMutex
	m    map[string]Kind
	list string // of the names, as SQL has it
}

// NewKinds returns an empty set.
func NewKinds() *Kinds { return &Kinds{m: map[string]Kind{}, list: "''"} }

// Add adds a kind; its name must be new. Runs of it that were kept back go on.
func (k *Kinds) Add(kind Kind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.m[kind.Name]; there || kind.Name == "" || kind.Handle == nil {
		return fault.New(fault.Internal, "run kind %q is there already or not whole", kind.Name)
	}
	k.m[kind.Name] = kind
	k.list += ", '" + strings.ReplaceAll(kind.Name, "'", "''") + "'"
	return nil
}

func (k *Kinds) get(name string) (Kind, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	kind, ok := k.m[name]
	return kind, ok
}

// known returns an SQL list of the kinds' names.
func (k *Kinds) known() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.list
}

// Options tune an Engine; zero fields have defaults.
type Options struct {
	Slots    int           // runs at once on this node; default 256
	Poll     time.Duration // longest sleep between looks at the store; default 1 s
	Grace    time.Duration // how long Stop waits for effects under way; default 10 s
	LeaseTTL time.Duration // how long a silent node keeps its runs (PostgreSQL); default 30 s
	// Home names the place of which this process holds the lock, so that every
	// earlier node of the same home is dead, whatever its lease says. It must be
	// another in every installation; "" if there is none.
	Home string
	// Sole is the caller's word that no other node can write to the store any more.
	// Then a run of another node is taken back at once, unless an effect of it may
	// still be under way there: for that its lease is waited for.
	Sole bool
	// Held is asked before anything is begun: while it is true no run is claimed and
	// no timer fires. Default never.
	Held   func() bool
	Logger *slog.Logger
}

// Engine does the runs of one node.
type Engine struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	slog  *slog.Logger
	kinds *Kinds
	opt   Options
	node  string // this process, one boot

	mu        sync.Mutex
	live      map[string]*Run
	progress  map[string]Progress  // told and not stored yet, by run
	kept      map[string]time.Time // runs kept back, when they were last looked at
	leaseMu   sync.Mutex
	lease     time.Time
	started   bool
	stopping  chan struct{} // closed by Stop: no new step begins
	quit      context.CancelFunc
	graceOver chan struct{} // closed by Stop: outcomes wait no longer for the store
	dispatch  sync.WaitGroup
	loops     sync.WaitGroup
	runs      sync.WaitGroup
}

// New returns an engine. Kinds may be added later too.
func New(d *db.DB, v *vault.Vault, l *eventlog.Log, kinds *Kinds, o Options) *Engine {
	if o.Slots <= 0 {
		o.Slots = 256
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.LeaseTTL <= 0 {
		o.LeaseTTL = 30 * time.Second
	}
	if o.Held == nil {
		o.Held = func() bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Engine{
		db: d, vault: v, log: l, slog: o.Logger, kinds: kinds, opt: o, node: nodeOf(o.Home),
		live: map[string]*Run{}, progress: map[string]Progress{}, kept: map[string]time.Time{}, stopping: make(chan struct{}), graceOver: make(chan struct{}),
	}
}

// nodeOf names one boot in a home.
func nodeOf(home string) string {
	if home == "" {
		return id.New("boot")
	}
	return home + "/" + id.New("boot")
}

// sameHome matches, in LIKE, the nodes that are dead because this one has their home.
func (e *Engine) sameHome() string {
	if e.opt.Home == "" {
		return ""
	}
	return e.opt.Home + "/%"
}

// Node is this process's name as an owner of runs.
func (e *Engine) Node() string { return e.node }

// Open takes back what a dead node left, then starts the loops. It returns when
// the first look has been taken.
func (e *Engine) Open(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started {
		return nil
	}
	if err := e.renew(ctx, 0); err != nil {
		return fmt.Errorf("take the node's lease: %w", err)
	}
	if err := e.recoverOnce(ctx, !e.db.Postgres()); err != nil {
		return fmt.Errorf("take back the runs of a dead node: %w", err)
	}
	loops, quit := context.WithCancel(context.Background())
	e.quit, e.started = quit, true
	e.dispatch.Go(func() { e.dispatchLoop(loops) })
	e.loops.Go(func() { e.upkeepLoop(loops) })
	return nil
}

// claimSQL selects the runs that are due and of a kind this node knows.
func (e *Engine) claimSQL() string {
	return `SELECT id FROM runs WHERE state IN ('queued', 'waiting') AND next_at <= $1 AND kind IN (` +
		e.kinds.known() + `) ORDER BY next_at, seq LIMIT $2`
}

// Stop cancels effects under way that may be repeated and lets the others come to their
// end, for at most Options.Grace, then cancels them too. Runs that were not finished are queued again and go on at the
// next start. It is safe to call twice.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if !e.started {
		e.mu.Unlock()
		return nil
	}
	e.started = false
	close(e.stopping)
	e.mu.Unlock()
	e.dispatch.Wait() // it begins nothing any more
	e.mu.Lock()
	for _, r := range e.live {
		r.halt(errStopping)
	}
	e.mu.Unlock()

	done := make(chan struct{})
	go func() { e.runs.Wait(); close(done) }()
	grace := time.NewTimer(e.opt.Grace)
	defer grace.Stop()
	slow := time.AfterFunc(slowStop, e.tellUnderWay)
	defer slow.Stop()
	select {
	case <-done:
	case <-grace.C:
	case <-ctx.Done():
	}
	e.mu.Lock()
	for _, r := range e.live {
		r.cancel(errStopping)
	}
	close(e.graceOver)
	e.mu.Unlock()
	<-done
	e.quit()
	e.loops.Wait()
	return e.db.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE id = $1", e.node)
		return err
	})
}

// slowStop is how long a stop waits without saying for what.
const slowStop = time.Second

// tellUnderWay says which runs a stop waits for.
func (e *Engine) tellUnderWay() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, r := range e.live {
		e.slog.Warn("stopping waits for what a run has under way", "run", id, "kind", r.rec.Kind, "name", r.rec.Name, "at_most", e.opt.Grace)
	}
}

func (e *Engine) isStopping() bool {
	select {
	case <-e.stopping:
		return true
	default:
		return false
	}
}

// dispatchLoop claims runs as they come due.
func (e *Engine) dispatchLoop(ctx context.Context) {
	woken, stop := e.db.Watch(topic)
	defer stop()
	tick := time.NewTicker(e.opt.Poll)
	defer tick.Stop()
	for {
		more, err := e.dispatchOnce(ctx)
		if err != nil && ctx.Err() == nil {
			e.slog.Warn("claim runs", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-e.stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// dispatchOnce claims what is due, as far as there is room, and begins it. It
// reports whether there may be more. With nothing due it writes nothing.
func (e *Engine) dispatchOnce(ctx context.Context) (more bool, err error) {
	e.mu.Lock()
	room := min(e.opt.Slots-len(e.live), 64)
	e.mu.Unlock()
	if room <= 0 || e.isStopping() || e.opt.Held() {
		return false, nil
	}
	due, err := e.due(ctx, room)
	if err != nil || len(due) == 0 {
		return false, err
	}
	claimed, more, err := e.claim(ctx, room)
	for _, rec := range claimed {
		e.begin(rec)
	}
	return more, err
}

// soon is when something is due that is due at once: by the clock that due looks at, which
// goes back where the time of a transaction does not.
func (e *Engine) soon(tx *db.Tx) int64 { return min(tx.Now(), e.db.Time()) }

func (e *Engine) due(ctx context.Context, limit int) (ids []string, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		ids, err = db.All(ctx, q, db.Column[string], e.claimSQL(), e.db.Time(), limit)
		return err
	})
	return ids, err
}

// claim takes runs that are due, at most limit, and reports whether there may be more.
func (e *Engine) claim(ctx context.Context, limit int) (claimed []Record, more bool, err error) {
	err = e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		claimed = claimed[:0] // the function may run twice
		ids, err := db.All(ctx, tx, db.Column[string], e.claimSQL(), tx.Now(), limit)
		if err != nil {
			return err
		}
		more = len(ids) == limit
		for _, id := range ids {
			rec, err := e.load(ctx, tx, id)
			if err != nil {
				return err
			}
			if missing, err := e.missing(ctx, tx, rec); err != nil {
				return err
			} else if missing != "" {
				if err := e.keepBack(ctx, tx, rec, missing); err != nil {
					return err
				}
				continue
			}
			v := view{Record: rec}
			start := change{kind: evStarted, actor: "ombud", data: startedData{Owner: e.node, Fence: rec.Fence + 1}}
			if err := e.apply(ctx, tx, &v, []change{start}, nil); err != nil {
				return err
			}
			claimed = append(claimed, v.Record)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range claimed {
		delete(e.kept, rec.ID)
	}
	return claimed, more, nil
}

// begin works on a claimed run on a goroutine of its own.
func (e *Engine) begin(rec Record) {
	r := newRun(e, rec)
	e.mu.Lock()
	e.live[rec.ID] = r
	e.mu.Unlock()
	e.runs.Go(func() {
		defer func() {
			e.mu.Lock()
			delete(e.live, rec.ID)
			e.mu.Unlock()
			r.cancel(nil)
			e.db.Wake(topic) // there is room again
		}()
		e.work(r)
	})
}

// work calls the handler and records how it ended.
func (e *Engine) work(r *Run) {
	kind, _ := e.kinds.get(r.rec.Kind)
	result, err := e.handle(kind, r)
	e.conclude(r, kind, result, err)
}

// conclude records how a handler ended, unless that is recorded already.
func (e *Engine) conclude(r *Run, kind Kind, result []byte, err error) {
	err = r.leave(errEnded, func() error {
		if errors.Is(err, errLost) || errors.Is(context.Cause(r.ctx), errLost) {
			return errLost
		}
		if err := r.flush(); err != nil {
			return err
		}
		return e.settle(r, kind, result, err)
	})
	switch {
	case Unwinding(err), errors.Is(err, errEnded): // recorded, by this or by what ended it before
	case errors.Is(err, errLost):
		e.slog.Warn("a run was taken over", "run", r.rec.ID)
	default:
		e.slog.Error("record the end of a run", "run", r.rec.ID, "error", err)
	}
}

// handle calls the kind's handler; a panic is an error of class Internal.
func (e *Engine) handle(kind Kind, r *Run) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.slog.Error("a run panicked", "run", r.rec.ID, "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "panic: %v", p)
		}
	}()
	if err := r.insist(r.ctx, r.loadSteps); err != nil {
		return nil, err
	}
	return kind.Handle(r.ctx, r)
}

// settle turns what the handler returned into the run's next state.
func (e *Engine) settle(r *Run, kind Kind, result []byte, err error) error {
	switch cause := context.Cause(r.ctx); {
	case err != nil && (errors.Is(err, errStopping) || errors.Is(cause, errStopping)):
		return r.orCancelled(kind, change{kind: evRequeued, data: requeuedData{Why: "the daemon stopped", Asked: r.asked()}, nextAt: 1})
	case err != nil && (errors.Is(err, errCancelled) || errors.Is(cause, errCancelled)):
		return r.end(kind, evCancelled, endedData{Class: fault.Cancelled, Error: "cancelled"}, nil)
	case err == nil:
		return r.end(kind, evCompleted, endedData{ResultMAC: e.contentMAC(r.rec.ID, "", result)}, result)
	case r.rec.Attempt+1 < kind.Attempts && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Denied):
		wait := waitingData{For: ForRetry, Class: fault.ClassOf(err), Error: err.Error(), Asked: r.asked()}
		wait.Until = e.db.Time() + backoff(kind, r.rec.Attempt+1).Microseconds()
		return r.orCancelled(kind, change{kind: evWaiting, data: wait, nextAt: wait.Until})
	default:
		return r.end(kind, evFailed, endedData{Class: fault.ClassOf(err), Error: err.Error()}, nil)
	}
}

// orCancelled makes a move that would let the run go on later, or ends it if
// somebody has asked it to stop.
func (r *Run) orCancelled(kind Kind, c change) error {
	err := r.insist(context.WithoutCancel(r.ctx), func() error { return r.commit(c, nil) })
	if errors.Is(err, errCancelled) {
		return r.end(kind, evCancelled, endedData{}, nil)
	}
	return err
}

func backoff(kind Kind, n int) time.Duration {
	if kind.Backoff != nil {
		return kind.Backoff(n)
	}
	return min(time.Second<<min(n-1, 9), 5*time.Minute)
}
