package guests

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

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Prefix begins the subjects of clients.
const Prefix = "mcp:"

// Kinds of event, on the stream mcpclient:<name>.
const (
	KindAdded   = "mcp.client_added"
	KindRemoved = "mcp.client_removed"
)

// Granted says what was granted to a subject.
type Granted interface {
	For(ctx context.Context, subject, conversation string) (policy.Held, error)
}

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Deps are the parts clients use.
type Deps struct {
	DB        *db.DB
	Vault     *vault.Vault
	Log       *eventlog.Log
	Audit     Auditor
	Runs      *run.Engine
	Act       *act.Act
	Tools     *tool.Registry
	Approvals *approval.Approvals
	Budget    *budget.Budget
	Granted   Granted
	Usual     *policy.Autonomy // where no level is set
	Hide      *redact.Redactor // is told every token; nil: nothing is hidden
	Logger    *slog.Logger
}

// Clients are the clients of one store. It is safe for concurrent use.
type Clients struct {
	Deps

	mu   sync.Mutex
	lent map[string][][]byte // digests of lent tokens by client
	seen map[string]int64    // when a client last proved itself, Unix microseconds
	busy map[string]int      // calls that are waited for, by client
}

// New returns the clients. Add Kind to the engine's kinds before it opens.
func New(d Deps) *Clients {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Clients{Deps: d, lent: map[string][][]byte{}, seen: map[string]int64{}, busy: map[string]int{}}
}

// Client is one of them. Times are Unix microseconds.
type Client struct {
	Name  string
	Added int64
	Seen  int64 // since this process began; 0 for never
}

// Subject is who it acts as.
func (c Client) Subject() string { return Prefix + c.Name }

var validName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// errToken is the answer to every token that is not good, whatever the cause.
var errToken = fault.New(fault.Denied, "this token is not that of a client of the Model Context Protocol").
	WithHint("ombud mcp client add NAME makes one")

func noClient(name string) error {
	return fault.New(fault.NotFound, "no client %q of the Model Context Protocol", name).WithHint("ombud mcp client add %s makes it", name)
}

// secret is a fresh one.
func secret() ([]byte, error) {
	out := make([]byte, 32)
	if _, err := rand.Read(out); err != nil {
		return nil, fault.New(fault.Internal, "no system randomness: %w", err)
	}
	return out, nil
}

// token is how a secret is told, which is hidden from here on wherever it is repeated.
func (c *Clients) token(name string, secret []byte) string {
	text := hex.EncodeToString(secret)
	c.Hide.Transient(Prefix+name, []byte(text))
	return name + "." + text
}

// Add makes a client and returns its token, which is told only here. Errors: Invalid for
// a name that is none; Conflict if it is there.
func (c *Clients) Add(ctx context.Context, name, by string) (Client, string, error) {
	if !validName.MatchString(name) {
		return Client{}, "", fault.New(fault.Invalid, "a client's name has 1 to 32 of a-z, 0-9 and -, not %q", name)
	}
	s, err := secret()
	if err != nil {
		return Client{}, "", err
	}
	out := Client{Name: name}
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out.Added = tx.Now()
		n, err := tx.Exec(ctx, `INSERT INTO mcp_clients (name, token, added, removed) VALUES ($1, $2, $3, 0)
			ON CONFLICT (name) DO UPDATE SET token = $2, added = $3, removed = 0 WHERE mcp_clients.removed <> 0`, name, c.digest(name, s), out.Added)
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "there is a client %s", name).WithHint("ombud mcp client rm %s first, to give it a new token", name)
		}
		if err != nil {
			return err
		}
		return c.tell(ctx, tx, name, KindAdded, by)
	})
	if err != nil {
		return Client{}, "", err
	}
	return out, c.token(name, s), nil
}

// Remove ends a client: its tokens are good no longer, and what it waits for is stopped.
// Also does more in the same transaction; nil: nothing. NotFound if there is none.
func (c *Clients) Remove(ctx context.Context, name, by string, also func(context.Context, *db.Tx) error) error {
	err := c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE mcp_clients SET removed = $1 WHERE name = $2 AND removed = 0", tx.Now(), name)
		if err == nil && n == 0 {
			err = noClient(name)
		}
		if err == nil {
			err = c.stopCalls(ctx, tx, name, by)
		}
		if err == nil && also != nil {
			err = also(ctx, tx)
		}
		if err != nil {
			return err
		}
		return c.tell(ctx, tx, name, KindRemoved, by)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lent, name)
	delete(c.seen, name)
	return nil
}

// List returns the clients there are, by name.
func (c *Clients) List(ctx context.Context) (out []Client, err error) {
	err = c.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (x Client, err error) {
			err = r.Scan(&x.Name, &x.Added)
			return x, err
		}, "SELECT name, added FROM mcp_clients WHERE removed = 0 ORDER BY name LIMIT 1000")
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range out {
		out[i].Seen = c.seen[out[i].Name]
	}
	return out, err
}

// Known returns NotFound if there is no such client.
func (c *Clients) Known(ctx context.Context, name string) error {
	_, err := c.kept(ctx, name)
	if errors.Is(err, sql.ErrNoRows) {
		return noClient(name)
	}
	return err
}

// maxLent is how many lent tokens of one client are good at a time.
const maxLent = 64

// Lend makes a passing token of a client.
func (c *Clients) Lend(ctx context.Context, name string) (string, error) {
	if err := c.Known(ctx, name); err != nil {
		return "", err
	}
	s, err := secret()
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := append(c.lent[name], c.digest(name, s))
	c.lent[name] = list[max(0, len(list)-maxLent):]
	return c.token(name, s), nil
}

// Verify returns the name of the client of a token, or Denied. The secret is compared in
// constant time, and also when there is no such client.
func (c *Clients) Verify(ctx context.Context, token string) (string, error) {
	name, text, _ := strings.Cut(token, ".")
	s, err := hex.DecodeString(text)
	if err != nil || len(s) != 32 || !validName.MatchString(name) {
		return "", errToken
	}
	kept, err := c.kept(ctx, name)
	missing := errors.Is(err, sql.ErrNoRows)
	if err != nil && !missing {
		return "", err
	}
	digest := c.digest(name, s)
	good := hmac.Equal(digest, kept)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lent := range c.lent[name] {
		good = hmac.Equal(digest, lent) || good
	}
	if !good || missing {
		return "", errToken
	}
	c.seen[name] = c.DB.Time()
	c.Hide.Transient(Prefix+name, []byte(text)) // after a restart it is known again
	return name, nil
}

// kept is the digest of a client's token, or sql.ErrNoRows.
func (c *Clients) kept(ctx context.Context, name string) (digest []byte, err error) {
	err = c.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT token FROM mcp_clients WHERE name = $1 AND removed = 0", name).Scan(&digest)
	})
	return digest, err
}

func (c *Clients) digest(name string, secret []byte) []byte {
	return c.Vault.MAC("mcp.token", []byte(name), secret)
}

// changeData is the payload of the events about clients.
type changeData struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
}

func (c *Clients) tell(ctx context.Context, tx *db.Tx, name, kind, by string) error {
	_, err := c.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "mcpclient:" + name, Kind: kind, Actor: by, Expect: eventlog.Any, Data: changeData{name, Prefix + name},
	})
	if err != nil {
		return err
	}
	_, err = c.Audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: Prefix + name, Outcome: "ok"})
	return err
}
