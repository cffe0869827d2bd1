package remote

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/vault"
)

// Prefix begins the names of adapters' channels.
const Prefix = "adapter:"

// Kinds of event, on the stream adapter:<name>.
const (
	KindAdded   = "adapter.added"
	KindChanged = "adapter.changed"
	KindRemoved = "adapter.removed"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Conversations takes messages in and knows where each conversation takes place.
type Conversations interface {
	Intake(ctx context.Context, in agent.Inbound) (agent.Accepted, error)
	ConversationIn(ctx context.Context, q db.Q, id string) (agent.Conversation, error)
	AddressesOn(ctx context.Context, q db.Q, channel string) ([]agent.Address, error)
	channel.Askers
}

// Deps are the parts the channel uses.
type Deps struct {
	DB            *db.DB
	Vault         *vault.Vault
	Log           *eventlog.Log
	Audit         Auditor
	Conversations Conversations
	Senders       channel.Senders
	Channels      *outbox.Senders
	Outbox        *outbox.Outbox
	Logger        *slog.Logger
}

// Config tunes the channel; zero fields have defaults.
type Config struct {
	Lease time.Duration // how long an adapter may take over a message it was handed; default 30 s
	Offer time.Duration // how long a message waits for an adapter to ask before the outbox takes it back; default 10 s
	Pause time.Duration // how soon the outbox offers it again; default 5 s
}

// Remote is all adapters of one store. It is safe for concurrent use.
type Remote struct {
	Deps
	cfg Config

	changing sync.Mutex // held while settings are changed

	mu    sync.Mutex
	lines map[string]*line // by adapter
}

// New returns the adapters of a store. None can be used before Open.
func New(d Deps, c Config) *Remote {
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&c.Lease, 30 * time.Second}, {&c.Offer, 10 * time.Second}, {&c.Pause, 5 * time.Second}} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Remote{Deps: d, cfg: c, lines: map[string]*line{}}
}

// Adapter is a process that carries messages. Times are Unix microseconds.
type Adapter struct {
	Name     string
	Settings channel.Settings
	Added    int64
	Removed  int64 // 0 while it is not
	Asked    int64 // when it last asked for messages, since this daemon started; 0 for never
	Heard    int64 // when it last delivered one, the same
	Said     int64 // when it last said that it sent one, the same
	Waiting  int   // messages that wait for it to ask or to settle them
}

// Channel is the name of its channel.
func (a Adapter) Channel() string { return Prefix + a.Name }

var validName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// errCredential is the answer to every credential that is not good.
var errCredential = fault.New(fault.Denied, "this credential is not that of an adapter").
	WithHint("ombud channel add --external NAME makes one")

// Open makes the channels of all adapters known to the outbox, those that were
// removed too: what is still to be said through one fails with the reason.
func (r *Remote) Open(ctx context.Context) error {
	list, err := r.all(ctx)
	for _, x := range list {
		if err == nil {
			err = r.connect(x.Adapter)
		}
	}
	return err
}

// connect gives an adapter its line, once.
func (r *Remote) connect(a Adapter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[a.Name]
	if l == nil {
		l = newLine(r, a.Name)
		if err := r.Channels.Add(a.Channel(), l); err != nil {
			return err
		}
		r.lines[a.Name] = l
	}
	l.setRemoved(a.Removed != 0) // and whoever asks for its messages looks again
	return nil
}

// Add makes an adapter and returns its credential, which is told only here. An
// adapter that was removed comes back with a new one, and with no settings. Conflict if
// it is there.
func (r *Remote) Add(ctx context.Context, name, by string) (Adapter, string, error) {
	if !validName.MatchString(name) {
		return Adapter{}, "", fault.New(fault.Invalid, "an adapter's name has 1 to 32 of a-z, 0-9 and -, not %q", name)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return Adapter{}, "", fault.New(fault.Internal, "no system randomness: %w", err)
	}
	a := Adapter{Name: name, Settings: fresh}
	err := r.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a.Added = tx.Now()
		n, err := tx.Exec(ctx, `INSERT INTO adapters (name, credential, added, removed) VALUES ($1, $2, $3, 0)
			ON CONFLICT (name) DO UPDATE SET credential = $2, added = $3, removed = 0, settings = NULL WHERE adapters.removed <> 0`,
			name, r.digest(name, secret), a.Added)
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "there is an adapter %s", name).WithHint("remove it first to give it a new credential")
		}
		if err != nil {
			return err
		}
		return r.tell(ctx, tx, a, KindAdded, by)
	})
	if err != nil {
		return Adapter{}, "", err
	}
	return a, name + "." + hex.EncodeToString(secret), r.connect(a)
}

// Remove ends an adapter: its credential is good no longer, and what waits for it fails.
func (r *Remote) Remove(ctx context.Context, name, by string) error {
	err := r.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE adapters SET removed = $1 WHERE name = $2 AND removed = 0", tx.Now(), name)
		if err == nil && n == 0 {
			err = noAdapter(name)
		}
		if err != nil {
			return err
		}
		if err := r.Outbox.FailTx(ctx, tx, Prefix+name, errRemoved(name)); err != nil {
			return err
		}
		return r.tell(ctx, tx, Adapter{Name: name}, KindRemoved, by)
	})
	if err != nil {
		return err
	}
	return r.connect(Adapter{Name: name, Removed: 1})
}

// List returns the adapters there are.
func (r *Remote) List(ctx context.Context) (out []Adapter, err error) {
	list, err := r.all(ctx)
	for _, x := range list {
		if x.Removed != 0 {
			continue
		}
		a := x.Adapter
		var broken error
		if a.Settings, broken = r.open(a.Name, x.settings); broken != nil {
			return nil, broken
		}
		if l := r.line(a.Name); l != nil {
			l.state(&a)
		}
		out = append(out, a)
	}
	return out, err
}

// Get returns one adapter that is there, or NotFound.
func (r *Remote) Get(ctx context.Context, name string) (Adapter, error) {
	list, err := r.List(ctx)
	for _, a := range list {
		if a.Name == name {
			return a, nil
		}
	}
	if err == nil {
		err = noAdapter(name)
	}
	return Adapter{}, err
}

func noAdapter(name string) error {
	return fault.New(fault.NotFound, "no adapter %q", name).WithHint("ombud channel list shows them")
}

// row is an adapter as it is kept.
type row struct {
	Adapter
	settings []byte // sealed
}

func (r *Remote) all(ctx context.Context) (list []row, err error) {
	err = r.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err = db.All(ctx, q, func(r *db.Rows) (x row, err error) {
			err = r.Scan(&x.Name, &x.Added, &x.Removed, &x.settings)
			return x, err
		}, "SELECT name, added, removed, settings FROM adapters ORDER BY name LIMIT 1000")
		return err
	})
	return list, err
}

func (r *Remote) line(name string) *line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[name]
}

func (r *Remote) digest(name string, secret []byte) []byte {
	return r.Vault.MAC("adapter.credential", []byte(name), secret)
}

// verify returns the adapter of a credential, with its settings. The secret is compared in
// constant time, and also when there is no such adapter.
func (r *Remote) verify(ctx context.Context, q db.Q, credential string) (a Adapter, err error) {
	name, text, _ := strings.Cut(credential, ".")
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != 32 || !validName.MatchString(name) {
		return a, errCredential
	}
	var kept, settings []byte
	err = q.QueryRow(ctx, "SELECT credential, settings FROM adapters WHERE name = $1 AND removed = 0", name).Scan(&kept, &settings)
	missing := errors.Is(err, sql.ErrNoRows)
	if err != nil && !missing {
		return a, err
	}
	if !hmac.Equal(r.digest(name, secret), kept) || missing {
		return a, errCredential
	}
	a.Name = name
	a.Settings, err = r.open(name, settings)
	return a, err
}

// check is verify in a snapshot of its own.
func (r *Remote) check(ctx context.Context, credential string) (l *line, set channel.Settings, err error) {
	var a Adapter
	err = r.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		a, err = r.verify(ctx, q, credential)
		return err
	})
	if err != nil {
		return nil, set, err
	}
	if l = r.line(a.Name); l == nil { // another node added it
		if err := r.connect(Adapter{Name: a.Name}); err != nil {
			return nil, set, err
		}
		l = r.line(a.Name)
	}
	return l, a.Settings, nil
}

// changeData is the payload of adapter.added, adapter.changed and adapter.removed.
type changeData struct {
	Name     string           `json:"name"`
	Settings channel.Settings `json:"settings"`
}

func (r *Remote) tell(ctx context.Context, tx *db.Tx, a Adapter, kind, by string) error {
	_, err := r.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "adapter:" + a.Name, Kind: kind, Actor: by, Expect: eventlog.Any, Data: changeData{a.Name, a.Settings},
	})
	if err != nil {
		return err
	}
	_, err = r.Audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: Prefix + a.Name, Outcome: "ok"})
	return err
}
