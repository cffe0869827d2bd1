package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Deps are the parts servers use.
type Deps struct {
	DB    *db.DB
	Vault *vault.Vault
	Log   *eventlog.Log
	Audit Auditor
	Tools *tool.Registry
	// Launch starts a child inside its walls. An error says that nothing of it ran.
	Launch func(ctx context.Context, s confine.Spec) (supervise.Child, error)
	// Dir is the directory a program has for itself.
	Dir func(name string) string
	// Secret gives a secret. Nil: there are none.
	Secret func(ctx context.Context, name string) (secret.Value, error)
	// Know has a value that a server gave hidden like a secret. Nil: nothing is hidden.
	Know func(name, value string)
	// Redact takes secrets out of a line for the log. Nil: as it is.
	Redact func(string) string
	// Keep keeps bytes of a result and returns their handle. Nil: they stay in its text.
	Keep func(ctx context.Context, b []byte) (handle string, err error)
	// Hold says whether the instance is held: then no server is reached. Nil: never.
	Hold func() bool
	// Tell tells the operator something as part of tx, once for each cause. Nil: nobody is told.
	Tell func(ctx context.Context, tx *db.Tx, cause, text string) error
	// Ask has a question of a server answered, by a person or a model. It returns soon after
	// ctx ends, and nobody is asked any longer then. An error says that nobody could be asked.
	// Nil: servers are told that they can ask nothing.
	Ask     func(ctx context.Context, q Asked) (Answer, error)
	Version string // ombud's own, which servers are told
	Logger  *slog.Logger
	Now     func() time.Time // default time.Now
}

// Config tunes the servers; zero fields have defaults.
type Config struct {
	Handshake time.Duration   // how long a server may take to get ready; default 60 s, for some are fetched first
	Quiet     time.Duration   // how long the look for the newest protocol waits for an answer; default 5 s
	List      time.Duration   // how long all lists of a server may take; default 30 s
	ReadyWait time.Duration   // how long a call waits for its server to get ready; default 10 s
	StopGrace time.Duration   // how long a program may take to end when its input is closed; default 2 s
	Stable    time.Duration   // how long it has to run for its failures to be forgotten; default 1 min
	Ask       time.Duration   // how long a question of a server waits for a person; default 10 min
	Turn      time.Duration   // how long a server that is being reached keeps others from it; default 3 s
	Relist    time.Duration   // between two looks at what a server offers; default 1 s
	Backoff   []time.Duration // before each start after a failure, the last for all further; default 1, 5, 25, 125, 300 s
	CrashLoop int             // failures in a row that are said; default 5
	Calls     int             // calls of one server at a time; default 8
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.Handshake, time.Minute}, {&c.Quiet, 5 * time.Second}, {&c.List, 30 * time.Second}, {&c.ReadyWait, 10 * time.Second},
		{&c.StopGrace, 2 * time.Second}, {&c.Stable, time.Minute}, {&c.Turn, 3 * time.Second}, {&c.Relist, time.Second}, {&c.Ask, 10 * time.Minute},
	} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	if len(c.Backoff) == 0 {
		c.Backoff = []time.Duration{time.Second, 5 * time.Second, 25 * time.Second, 125 * time.Second, 300 * time.Second}
	}
	if c.CrashLoop <= 0 {
		c.CrashLoop = 5
	}
	if c.Calls <= 0 {
		c.Calls = 8
	}
	return c
}

// Servers are the servers of one daemon. It is safe for concurrent use.
type Servers struct {
	Deps
	cfg    Config
	starts chan struct{} // so many get ready at a time
	change sync.Mutex    // of what an operator changes, for all it takes

	mu      sync.Mutex
	byName  map[string]*server
	ctx     context.Context //nolint:containedctx // of all loops, between Start and Stop
	quit    context.CancelFunc
	stopped bool
}

// New returns the servers of a store. None is known before Open, none is reached before
// Start.
func New(d Deps, c Config) *Servers {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Redact == nil {
		d.Redact = func(s string) string { return s }
	}
	if d.Know == nil {
		d.Know = func(string, string) {}
	}
	if d.Hold == nil {
		d.Hold = func() bool { return false }
	}
	if d.Secret == nil {
		d.Secret = func(context.Context, string) (secret.Value, error) {
			return secret.Value{}, fault.New(fault.Unavailable, "there are no secrets here")
		}
	}
	return &Servers{Deps: d, cfg: c.withDefaults(), starts: make(chan struct{}, 2), byName: map[string]*server{}}
}

// Open makes known what was accepted of all servers.
func (s *Servers) Open(ctx context.Context) error {
	rows, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		x := newServer(s, r)
		if r.login != nil {
			r.login.known(s.Know, r.spec.Name)
		}
		if !r.spec.Disabled {
			if x.tools, _, err = x.offer(r); err != nil {
				return err
			}
		}
		s.byName[r.spec.Name] = x
	}
	return nil
}

// Start begins to reach every server, and does not wait for any.
func (s *Servers) Start(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return nil
	}
	s.ctx, s.quit = context.WithCancel(context.Background())
	for _, x := range s.byName {
		s.begin(x)
	}
	return nil
}

// begin is called with the lock, after Start.
func (s *Servers) begin(x *server) {
	ctx, quit := context.WithCancel(s.ctx)
	x.quit = quit
	go x.loop(ctx)
}

// Stop ends every server and waits until nothing of them is left. Their tools stay known,
// and are refused.
func (s *Servers) Stop(context.Context) error {
	s.mu.Lock()
	s.stopped = true
	all := make([]*server, 0, len(s.byName))
	if s.ctx != nil {
		s.quit()
	}
	for _, x := range s.byName {
		if x.quit != nil {
			all = append(all, x)
		}
	}
	s.mu.Unlock()
	for _, x := range all {
		<-x.done
	}
	return nil
}

// Add keeps a server and begins to reach it. It gives nobody anything: nothing of what it
// offers is used before Accept. Errors: Invalid, NotFound for a program that is not there,
// Conflict for a name that is taken.
func (s *Servers) Add(ctx context.Context, sp Spec, by string) (Info, error) {
	if err := sp.Check(); err != nil {
		return Info{}, err
	}
	if !sp.Remote() {
		if info, err := os.Stat(sp.Command[0]); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return Info{}, fault.New(fault.NotFound, "there is no program at %s", guard.OneLine(sp.Command[0], 200))
		}
	}
	s.change.Lock()
	defer s.change.Unlock()
	var r row
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if r, err = s.insert(ctx, tx, sp); err != nil {
			return err
		}
		said := sp
		said.Env, said.Headers = nil, nil // they may be secrets, and an event is kept longer
		return s.tell(ctx, tx, KindAdded, by, "ok", eventData{Name: sp.Name, Spec: &said})
	})
	if err != nil {
		return Info{}, err
	}
	x := newServer(s, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[sp.Name] = x
	if s.ctx != nil && !s.stopped {
		s.begin(x)
	}
	return x.info(), nil
}

// Remove ends a server, forgets it and takes its tools away. What was granted for them
// stays granted.
func (s *Servers) Remove(ctx context.Context, name, by string) error {
	s.change.Lock()
	defer s.change.Unlock()
	x, err := s.get(name)
	if err != nil {
		return err
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM mcp_servers WHERE name = $1", name)
		if err == nil && n == 0 {
			err = errNone(name)
		}
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, KindRemoved, by, "ok", eventData{Name: name})
	})
	if err != nil {
		return err
	}
	s.end(x)
	_, err = s.Tools.Replace(owner(name), nil) // after its loop, which might have put them back
	s.mu.Lock()
	delete(s.byName, name)
	s.mu.Unlock()
	return err
}

// end ends the loop of a server and waits for it.
func (s *Servers) end(x *server) {
	s.mu.Lock()
	quit := x.quit
	s.mu.Unlock()
	if quit != nil {
		quit()
		<-x.done
	}
}

// Enable lets a server be reached, or keeps it from that.
func (s *Servers) Enable(ctx context.Context, name string, on bool, by string) (Info, error) {
	s.change.Lock()
	defer s.change.Unlock()
	x, err := s.get(name)
	if err != nil {
		return Info{}, err
	}
	r := x.stored()
	if r.spec.Disabled != on {
		return x.info(), nil
	}
	r.spec.Disabled = !on
	body, err := json.Marshal(r.spec)
	if err != nil {
		return Info{}, err
	}
	kind := KindEnabled
	if !on {
		kind = KindDisabled
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.setTx(ctx, tx, name, vault.MCPBody, body); err != nil {
			return err
		}
		return s.tell(ctx, tx, kind, by, "ok", eventData{Name: name})
	})
	if err != nil {
		return Info{}, err
	}
	s.end(x)
	x = newServer(s, x.storedAs(r.spec))
	if on {
		x.tools, _, err = x.offer(x.stored())
	} else {
		_, err = s.Tools.Replace(owner(name), nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[name] = x
	if s.ctx != nil && !s.stopped {
		s.begin(x)
	}
	return x.info(), err
}

// Accept takes what a server offers as it is now. seen is the digest that Diff gave, so
// that nothing is accepted that the operator was not shown. Errors: NotFound, Conflict if
// it offers something else by now, Unavailable if it never got ready.
func (s *Servers) Accept(ctx context.Context, name, seen, by string) (Info, error) {
	s.change.Lock()
	defer s.change.Unlock()
	x, err := s.get(name)
	if err != nil {
		return Info{}, err
	}
	x.keeping.Lock()
	defer x.keeping.Unlock()
	r := x.stored()
	switch {
	case r.offered.Protocol == "":
		return x.info(), fault.New(fault.Unavailable, "%s has never got ready, so there is nothing to accept", name).WithHint("ombud mcp test %s", name)
	case seen != digest(r.offered.Items):
		return x.info(), fault.New(fault.Conflict, "%s offers something else by now", name).WithHint("look again: ombud mcp diff %s", name)
	}
	diff := compare(r.pinned, r.offered.Items)
	pinned, err := json.Marshal(r.offered.Items)
	if err != nil {
		return Info{}, err
	}
	r.pinned, r.offered.Told, r.changed = r.offered.Items, "", 0
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.setTx(ctx, tx, name, vault.MCPPinned, pinned); err != nil {
			return err
		}
		if err := s.setTx(ctx, tx, name, vault.MCPOffered, r.offered.encode()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE mcp_servers SET changed = 0 WHERE name = $1", name); err != nil {
			return err
		}
		return s.tell(ctx, tx, KindAccepted, by, "ok", eventData{Name: name, Offers: &diff})
	})
	if err != nil {
		return Info{}, err
	}
	err = x.adopt(r)
	return x.info(), err
}

func errNone(name string) error {
	return fault.New(fault.NotFound, "no server %q", guard.OneLine(name, maxExcerpt)).WithHint("ombud mcp list shows them")
}

func (s *Servers) get(name string) (*server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.byName[name]; x != nil {
		return x, nil
	}
	return nil, errNone(name)
}

// List returns all servers, by name.
func (s *Servers) List() []Info {
	s.mu.Lock()
	all := make([]*server, 0, len(s.byName))
	for _, x := range s.byName {
		all = append(all, x)
	}
	s.mu.Unlock()
	out := make([]Info, 0, len(all))
	for _, x := range all {
		out = append(out, x.info())
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return out
}

// Logs are the last lines of a server's standard error, at most n.
func (s *Servers) Logs(name string, n int) ([]supervise.Line, error) {
	x, err := s.get(name)
	if err != nil {
		return nil, err
	}
	return x.lines.Last(n), nil
}

// Diff is what of a server's offer was not accepted, as texts to read, and the digest of
// the offer for Accept.
func (s *Servers) Diff(name string) (diffs []Difference, seen string, err error) {
	x, err := s.get(name)
	if err != nil {
		return nil, "", err
	}
	r := x.stored()
	return differences(r.pinned, r.offered.Items), digest(r.offered.Items), nil
}

// Test reaches a server that is not ready, without waiting for its time, and says what it
// offers. Nothing of it is called. If it does not get ready, the error says why and the
// Info what is known.
func (s *Servers) Test(ctx context.Context, name string) (Info, error) {
	x, err := s.get(name)
	if err != nil {
		return Info{}, err
	}
	if x.stored().spec.Disabled {
		return x.info(), fault.New(fault.Conflict, "%s is switched off", name).WithHint("ombud mcp enable %s", name)
	}
	limit := time.NewTimer(s.cfg.Handshake + s.cfg.List + s.cfg.ReadyWait)
	defer limit.Stop()
	failures := -1
	for {
		x.mu.Lock()
		state, failed, failuresNow, changed := x.state, x.failed, x.failures, x.changedC
		x.mu.Unlock()
		if failures < 0 {
			failures = failuresNow
			if state == Waiting {
				x.wake()
			}
		}
		switch {
		case state == Ready:
			return x.info(), nil
		case state == Held:
			return x.info(), errHeld(name)
		case state == Waiting && failuresNow != failures:
			return x.info(), fault.New(fault.ClassOf(failed), "server %s does not get ready: %w", name, failed)
		}
		select {
		case <-changed:
		case <-x.done:
			return x.info(), fault.New(fault.Unavailable, "server %s was stopped", name)
		case <-limit.C:
			return x.info(), fault.New(fault.Timeout, "server %s does not get ready", name).WithHint("ombud mcp list says why")
		case <-ctx.Done():
			return x.info(), ctx.Err()
		}
	}
}
