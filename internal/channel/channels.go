package channel

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/vault"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Agents takes messages in and knows where each conversation takes place.
type Agents interface {
	Intake(ctx context.Context, in agent.Inbound) (agent.Accepted, error)
	ConversationIn(ctx context.Context, q db.Q, id string) (agent.Conversation, error)
	Askers
	// Watch returns what is to be seen of a turn from now on, and how to stop.
	Watch(run string) (<-chan agent.Note, func())
	// Over reports whether a turn has ended.
	Over(ctx context.Context, run string) bool
}

// Secrets keeps the secret parts of channels.
type Secrets interface {
	Get(ctx context.Context, name string) (string, error)
	// PutTx and DropTx keep and forget one as part of tx. NotFound if there is none to forget.
	PutTx(ctx context.Context, tx *db.Tx, name, value string) error
	DropTx(ctx context.Context, tx *db.Tx, name string) error
	// Hide takes a value that is not kept yet out of what is shown.
	Hide(name, value string)
}

// Deps are the parts the channels use.
type Deps struct {
	DB      *db.DB
	Vault   *vault.Vault
	Log     *eventlog.Log
	Audit   Auditor
	Agents  Agents
	Senders Senders
	Outbox  *outbox.Outbox
	Out     *outbox.Senders
	Secrets Secrets
	Kinds   []Kind
	Environ []string            // of programs that adapters start, as KEY=VALUE; an adapter picks from it
	Hide    func(string) string // takes secrets out of what goes out; nil: none are known
	Held    func() bool         // while it is true nothing is heard and nothing said
	Logger  *slog.Logger
}

// Config tunes the channels; zero fields have defaults.
type Config struct {
	Grace    time.Duration // how long trouble may last before the operator is told; default 30 s
	Pause    time.Duration // the first pause before a channel is run again; default 1 s
	Longest  time.Duration // the longest; default 1 min
	Denied   time.Duration // the pause after its network refused the key; default 5 min
	Check    time.Duration // how long a network may take to say who ombud is; default 20 s
	Calm     time.Duration // how long after the last of several failed sends a network is taken at its word; default 5 min
	Handover time.Duration // how long a channel that is connected anew waits for the end of its old connection; default 15 s
}

// Channels is all chat networks of one store. It is safe for concurrent use.
type Channels struct {
	Deps
	cfg Config

	mu    sync.Mutex
	lines map[string]*line // by name, those that were removed too
	run   context.Context  // of what runs; nil before Start
	quit  context.CancelFunc
	going sync.WaitGroup

	notices sync.WaitGroup // of health, being told

	followed int // turns that are shown while they run
}

// New returns the channels of a store. None is known before Open.
func New(d Deps, c Config) *Channels {
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.Grace, 30 * time.Second}, {&c.Pause, time.Second}, {&c.Longest, time.Minute}, {&c.Denied, 5 * time.Minute}, {&c.Check, 20 * time.Second},
		{&c.Calm, 5 * time.Minute}, {&c.Handover, 15 * time.Second},
	} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Hide == nil {
		d.Hide = func(text string) string { return text }
	}
	if d.Held == nil {
		d.Held = func() bool { return false }
	}
	return &Channels{Deps: d, cfg: c, lines: map[string]*line{}}
}

// Open makes all channels known to the outbox, those that were removed too: what is still
// to be said through one fails with the reason.
func (c *Channels) Open(ctx context.Context) error {
	list, err := c.rows(ctx)
	for _, x := range list {
		if err == nil {
			_, err = c.connect(x)
		}
	}
	return err
}

// Start begins to listen.
func (c *Channels) Start(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		return nil
	}
	c.run, c.quit = context.WithCancel(context.Background())
	for _, l := range c.lines {
		l.quiet(false)
		c.lockedStart(l)
	}
	return nil
}

// Stop ends all connections. What comes in meanwhile is not acknowledged and comes again.
func (c *Channels) Stop() {
	c.mu.Lock()
	if c.run == nil {
		c.mu.Unlock()
		return
	}
	c.quit()
	c.run = nil
	c.mu.Unlock()
	c.going.Wait()
	c.eachLine(func(l *line) { l.quiet(true) })
	c.notices.Wait()
}

func (c *Channels) eachLine(do func(l *line)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		do(l)
	}
}

// lockedStart runs a line unless it runs; the caller holds c.mu.
func (c *Channels) lockedStart(l *line) {
	if c.run == nil {
		return
	}
	t, begun := l.begin(c.run)
	if begun {
		c.going.Go(func() { l.supervise(t) })
	}
}

// connect gives a channel its line, and the line what its row says.
func (c *Channels) connect(x row) (*line, error) {
	kind, known := c.kind(x.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[x.name]
	if l == nil {
		l = newLine(c, x.name)
		if err := c.Out.Add(x.name, l); err != nil {
			return nil, err
		}
		c.lines[x.name] = l
	}
	var a Adapter
	var err error
	if x.removed == 0 {
		if !known {
			err = fault.New(fault.Config, "this version of ombud knows no channel of kind %q", x.kind)
		} else {
			a, err = kind.Make(c.setup(x.name, kind, x.body.Settings, nil))
		}
	}
	l.set(x, kind, a, err)
	c.lockedStart(l)
	return l, nil
}

// setup is what an adapter is made from. given are secret parts that are not kept yet.
func (c *Channels) setup(name string, k Kind, s Settings, given map[string]string) Setup {
	return Setup{
		Name: name, Values: s.values(k), Environ: c.Environ, Logger: c.Logger.With("channel", name),
		Secret: func(ctx context.Context, part string) (string, error) {
			if value, ok := given[part]; ok {
				return value, nil
			}
			return c.Secrets.Get(ctx, secretName(name, part))
		},
	}
}

// secretPrefix begins the names of the secret parts of channels.
const secretPrefix = "channel."

func secretName(channel, part string) string { return secretPrefix + channel + "." + part }

func (c *Channels) kind(name string) (Kind, bool) {
	at := slices.IndexFunc(c.Deps.Kinds, func(k Kind) bool { return k.Name == name })
	if at < 0 {
		return Kind{}, false
	}
	return c.Deps.Kinds[at], true
}

// line returns a channel that is there, or NotFound naming those there are.
func (c *Channels) line(name string) (*line, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lines[name]; l != nil && !l.isRemoved() {
		return l, nil
	}
	var names []string
	for n, l := range c.lines {
		if !l.isRemoved() {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fault.New(fault.NotFound, "no channel %q: none was added", name).WithHint("ombud channel add")
	}
	return nil, fault.New(fault.NotFound, "no channel %q; there are: %s", name, strings.Join(names, ", "))
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Adding is what a channel is added with.
type Adding struct {
	Name    string // "" is the name of its kind
	Kind    string
	Values  map[string]string // of settings and of parts that are not secret
	Secrets map[string]string // of the parts that are
	Uncheck bool              // add it also if the network cannot be asked now
}

// Add adds a channel and connects it. The network is asked first who ombud is. Errors:
// Invalid, NotFound for a kind there is none of, Conflict if the name is taken, Denied if
// the network refuses the key, Unavailable.
func (c *Channels) Add(ctx context.Context, a Adding, by string) (Info, error) {
	k, ok := c.kind(a.Kind)
	if !ok {
		return Info{}, fault.New(fault.NotFound, "no channel of kind %q; there are: %s", a.Kind, strings.Join(c.kindNames(), ", "))
	}
	if a.Name == "" {
		a.Name = k.Name
	}
	if !validName.MatchString(a.Name) || a.Name == "local" || a.Name == "adapter" || a.Name == "operator" {
		return Info{}, fault.New(fault.Invalid, "a channel's name is 1 to 32 of a-z, 0-9 and -, a letter first, not %q", a.Name)
	}
	x := row{name: a.Name, kind: k.Name, body: body{By: by, Settings: Settings{Strangers: Ignore}}}
	if _, err := c.line(a.Name); err == nil {
		return Info{}, errTaken(a.Name)
	}
	if err := c.fill(ctx, &x.body.Settings, k, a); err != nil {
		return Info{}, err
	}
	given, err := c.given(a)
	if err != nil {
		return Info{}, err
	}
	adapter, err := k.Make(c.setup(x.name, k, x.body.Settings, given))
	if err != nil {
		return Info{}, err
	}
	if x.body.Me, err = c.ask(ctx, k, adapter); err != nil && !a.Uncheck {
		return Info{}, err
	}
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		x.added = tx.Now()
		if err := c.insertTx(ctx, tx, x); err != nil {
			return err
		}
		if err := c.keepSecretsTx(ctx, tx, a.Name, given); err != nil {
			return err
		}
		return c.tellTx(ctx, tx, x, KindAdded, by)
	})
	if err != nil {
		return Info{}, err
	}
	l, err := c.connect(x)
	if err != nil {
		return Info{}, err
	}
	return l.info(), nil
}

func errTaken(name string) error {
	return fault.New(fault.Conflict, "there is a channel %s", name).WithHint("ombud channel set changes it; give the new one another name")
}

func (c *Channels) kindNames() (names []string) {
	for _, k := range c.Deps.Kinds {
		names = append(names, k.Name)
	}
	return names
}

// fill puts what was said into the settings, and says what is missing.
func (c *Channels) fill(ctx context.Context, s *Settings, k Kind, a Adding) error {
	for name, value := range a.Values {
		if err := s.Set(k, name, value); err != nil {
			return err
		}
	}
	for part := range a.Secrets {
		if !slices.ContainsFunc(k.Needs, func(p Part) bool { return p.Secret && p.Name == part }) {
			return fault.New(fault.Invalid, "a channel of kind %s has no secret %q", k.Name, part)
		}
	}
	for _, p := range k.Needs {
		if p.Optional || p.Secret && a.Secrets[p.Name] != "" || !p.Secret && (s.Values[p.Name] != "" || p.Default != "") {
			continue
		}
		hint := "--set " + p.Name + "=VALUE"
		if p.Secret {
			_, err := c.Secrets.Get(ctx, secretName(a.Name, p.Name))
			if err == nil { // it was set before
				continue
			}
			if !fault.Is(err, fault.NotFound) {
				return err
			}
			hint = "--file " + p.Name + "=PATH, or ombud secret set " + secretName(a.Name, p.Name)
		}
		return fault.New(fault.Invalid, "a channel of kind %s needs its %s: %s", k.Name, p.Name, p.About).WithHint("%s", hint)
	}
	return nil
}

// given are the secrets a channel is given, which nothing shows from here on. Invalid if one
// is empty: that is a file with nothing in it, and no wish to keep what was set before.
func (c *Channels) given(a Adding) (map[string]string, error) {
	out := map[string]string{}
	for part, value := range a.Secrets {
		if out[part] = strings.TrimSpace(value); out[part] == "" {
			return nil, fault.New(fault.Invalid, "the %s that was given is empty", part)
		}
		c.Secrets.Hide(secretName(a.Name, part), out[part])
	}
	return out, nil
}

func (c *Channels) keepSecretsTx(ctx context.Context, tx *db.Tx, name string, values map[string]string) error {
	for _, part := range slices.Sorted(maps.Keys(values)) {
		if err := c.Secrets.PutTx(ctx, tx, secretName(name, part), strings.TrimSpace(values[part])); err != nil {
			return err
		}
	}
	return nil
}

func (c *Channels) dropSecretsTx(ctx context.Context, tx *db.Tx, name string, k Kind) error {
	for _, p := range k.Needs {
		if !p.Secret {
			continue
		}
		if err := c.Secrets.DropTx(ctx, tx, secretName(name, p.Name)); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// ask asks the network of an adapter who ombud is.
func (c *Channels) ask(ctx context.Context, k Kind, a Adapter) (Me, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Check, fault.New(fault.Timeout, "%s did not answer within %s", k.Name, c.cfg.Check))
	defer cancel()
	return check(ctx, a)
}

// Change is a change of a channel's settings.
type Change struct {
	Name    string
	Values  []string          // name=value, in this order
	Secrets map[string]string // new values of secret parts
}

// Set changes the settings of a channel, all or none, and uses them at once.
func (c *Channels) Set(ctx context.Context, ch Change, by string) (Info, error) {
	l, err := c.line(ch.Name)
	if err != nil {
		return Info{}, err
	}
	for part := range ch.Secrets {
		if !slices.ContainsFunc(l.kindOf().Needs, func(p Part) bool { return p.Secret && p.Name == part }) {
			return Info{}, fault.New(fault.Invalid, "a channel of kind %s has no secret %q", l.kindOf().Name, part)
		}
	}
	keep := func(ctx context.Context, tx *db.Tx) error { return c.keepSecretsTx(ctx, tx, ch.Name, ch.Secrets) }
	return c.change(ctx, l, KindChanged, by, keep, func(x *row) error {
		k := l.kindOf()
		if err := x.body.Settings.SetAll(k, ch.Values); err != nil {
			return err
		}
		if len(ch.Values) > 0 && k.Make != nil { // what cannot be used is refused, and the channel goes on as it was
			if _, err := k.Make(c.setup(x.name, k, x.body.Settings, nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Renewed connects the channel a secret belongs to again, if it belongs to one: its new value
// may be another account's, whose messages are not to be taken for the old one's.
func (c *Channels) Renewed(secret string) {
	rest, ours := strings.CutPrefix(secret, secretPrefix)
	name, _, part := strings.Cut(rest, ".")
	if !ours || !part {
		return
	}
	l, err := c.line(name)
	if err != nil {
		return
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if _, err := c.connect(l.rowOf()); err != nil {
		c.Logger.Warn("connect a channel again", "channel", name, "error", err)
	}
}

// Pause keeps a channel from hearing and saying anything until Resume. Its network keeps
// what it keeps; what is to be said waits in the outbox.
func (c *Channels) Pause(ctx context.Context, name, by string) (Info, error) {
	return c.pause(ctx, name, by, true)
}

// Resume ends a pause.
func (c *Channels) Resume(ctx context.Context, name, by string) (Info, error) {
	return c.pause(ctx, name, by, false)
}

func (c *Channels) pause(ctx context.Context, name, by string, paused bool) (Info, error) {
	l, err := c.line(name)
	if err != nil {
		return Info{}, err
	}
	return c.change(ctx, l, KindChanged, by, nil, func(x *row) error { x.paused = paused; return nil })
}

// Remove ends a channel, forgets its secrets and fails what is still to be said through it,
// which is shown among the dead letters. Its conversations stay.
func (c *Channels) Remove(ctx context.Context, name, by string) error {
	l, err := c.line(name)
	if err != nil {
		return err
	}
	k := l.kindOf()
	end := func(ctx context.Context, tx *db.Tx) error {
		if err := c.dropSecretsTx(ctx, tx, name, k); err != nil {
			return err
		}
		return c.Outbox.FailTx(ctx, tx, name, errRemoved(name))
	}
	_, err = c.change(ctx, l, KindRemoved, by, end, func(x *row) error { x.removed = c.DB.Time(); return nil })
	return err
}

func errRemoved(name string) error { return fault.New(fault.Denied, "channel %s was removed", name) }

// change changes the row of a channel and what besides has to change in the same commit, and
// uses it at once.
func (c *Channels) change(ctx context.Context, l *line, kind, by string, besides func(context.Context, *db.Tx) error, change func(x *row) error) (Info, error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	x := l.rowOf()
	if x.removed != 0 { // while we waited
		return Info{}, fault.New(fault.NotFound, "channel %s was removed", l.name)
	}
	if err := change(&x); err != nil {
		return Info{}, err
	}
	err := c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := c.putTx(ctx, tx, x)
		if err == nil && besides != nil {
			err = besides(ctx, tx)
		}
		if err != nil {
			return err
		}
		return c.tellTx(ctx, tx, x, kind, by)
	})
	if err != nil {
		return Info{}, err
	}
	if _, err := c.connect(x); err != nil {
		return Info{}, err
	}
	return l.info(), nil
}

// Test asks a network who ombud is, now.
func (c *Channels) Test(ctx context.Context, name string) (Info, error) {
	l, err := c.line(name)
	if err != nil {
		return Info{}, err
	}
	k, x := l.kindOf(), l.rowOf()
	if k.Make == nil {
		return Info{}, fault.New(fault.Config, "this version of ombud knows no channel of kind %q", x.kind)
	}
	a, err := k.Make(c.setup(name, k, x.body.Settings, nil))
	if err != nil {
		return Info{}, err
	}
	me, err := c.ask(ctx, k, a)
	if err != nil {
		return Info{}, err
	}
	i := l.info()
	i.Me = me
	return i, nil
}

// List returns the channels there are.
func (c *Channels) List() []Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Info
	for _, l := range c.lines {
		if !l.isRemoved() {
			out = append(out, l.info())
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Get returns one.
func (c *Channels) Get(name string) (Info, error) {
	l, err := c.line(name)
	if err != nil {
		return Info{}, err
	}
	return l.info(), nil
}

// Kinds returns what can be added.
func (c *Channels) Kinds() []Kind { return c.Deps.Kinds }
