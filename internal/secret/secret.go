package secret

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/vault"
)

// Limits.
const (
	MaxValue = 16 << 10 // bytes
	maxCount = 1000
)

// ByOperator is the only one who changes secrets.
const ByOperator = "operator"

// Kinds of event, on the stream secret:<name>.
const (
	KindSet     = "secret.set"
	KindRemoved = "secret.removed"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Setting is a secret as it is set.
type Setting struct {
	Name  string
	Value []byte
	Hosts []string // the only ones it is sent to: host, *.domain, each perhaps with :port; none: not bound
}

// Info is what is told of a secret. Times are Unix microseconds.
type Info struct {
	Name        string
	Version     int64 // how often it was set
	Hosts       []string
	By          string
	SetAt       int64
	UsedAt      int64  // 0: never
	Fingerprint string // the same for the same value in this store, and useless without its key
}

// Secrets are the secrets of one store. It is safe for concurrent use.
type Secrets struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	audit Auditor
	hide  *redact.Redactor

	mu   sync.Mutex
	used map[string]int64 // not written yet
}

// New returns the secrets of d. hide is told every value; call Load before anything
// is shown.
func New(d *db.DB, v *vault.Vault, log *eventlog.Log, a Auditor, hide *redact.Redactor) *Secrets {
	return &Secrets{db: d, vault: v, log: log, audit: a, hide: hide, used: map[string]int64{}}
}

// Load tells the redactor every value. A row that cannot be opened is in the error,
// and keeps no other from being told.
func (s *Secrets) Load(ctx context.Context) error {
	var bad []error
	err := s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		bad = nil
		_, err := db.All(ctx, q, func(r *db.Rows) (struct{}, error) {
			if b, err := s.scan(r.Scan); err == nil {
				s.know(b)
			} else {
				bad = append(bad, err)
			}
			return struct{}{}, nil
		}, "SELECT "+columns+" FROM secrets ORDER BY name LIMIT $1", int64(maxCount))
		return err
	})
	return errors.Join(append(bad, err)...)
}

func (s *Secrets) know(b row) { s.hide.Register(b.Name, b.Value) }

// Set sets a secret, whatever it was before. by has to be the operator. Errors:
// Denied; Invalid for a name, value or host that cannot be used, which none repeats;
// Conflict if there are too many.
func (s *Secrets) Set(ctx context.Context, n Setting, by string) (i Info, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		i, err = s.SetTx(ctx, tx, n, by)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return i, nil
}

// SetTx is Set as part of tx. The value is hidden from what is shown from then on, also if
// tx does not commit.
func (s *Secrets) SetTx(ctx context.Context, tx *db.Tx, n Setting, by string) (Info, error) {
	if err := mayChange(by); err != nil {
		return Info{}, err
	}
	b, err := s.checked(n, by)
	if err != nil {
		return Info{}, err
	}
	s.know(b) // before it can be in anything; should the commit fail, nothing is lost by it
	before, err := s.load(ctx, tx, n.Name)
	missing := fault.Is(err, fault.NotFound)
	if err == nil || missing || fault.Is(err, fault.Verification) { // a damaged row is replaced
		b.Version, b.At, b.used = before.Version+1, tx.Now(), 0
		err = s.put(ctx, tx, b, before.Version, missing)
	}
	if err == nil {
		err = s.tell(ctx, tx, b, KindSet, by)
	}
	if err != nil {
		return Info{}, fmt.Errorf("set secret %s: %w", n.Name, err)
	}
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.used, n.Name) // it was the other value
	})
	i := s.info(b)
	i.UsedAt = 0
	return i, nil
}

func (s *Secrets) checked(n Setting, by string) (row, error) {
	if err := CheckName(n.Name); err != nil {
		return row{}, err
	}
	switch {
	case len(bytes.TrimSpace(n.Value)) == 0:
		return row{}, fault.New(fault.Invalid, "the value of secret %s is empty", n.Name).WithHint("ombud secret rm %s removes one", n.Name)
	case len(n.Value) > MaxValue:
		return row{}, fault.New(fault.Invalid, "the value of secret %s has %d bytes, the most is %d", n.Name, len(n.Value), MaxValue).
			WithHint("keep the large part in a file and the key to it as the secret")
	}
	hosts, err := checkHosts(n.Hosts)
	return row{body: body{Name: n.Name, Value: n.Value, Hosts: hosts, By: by}}, err
}

// Hide takes a value out of what is shown for a while, before it is set or without that.
func (s *Secrets) Hide(name string, value []byte) { s.hide.Transient(name, value) }

func mayChange(by string) error {
	if by != ByOperator {
		return fault.New(fault.Denied, "secrets are set and removed by the operator only").WithHint("ombud secret, on the machine of the daemon")
	}
	return nil
}

func (s *Secrets) put(ctx context.Context, tx *db.Tx, b row, was int64, missing bool) error {
	raw, err := json.Marshal(b.body)
	if err != nil {
		return fault.New(fault.Internal, "body of secret %s: %w", b.Name, err)
	}
	sealed := s.vault.Seal(vault.SecretBody, b.Name, raw)
	clear(raw)
	if !missing {
		n, err := tx.Exec(ctx, "UPDATE secrets SET version = $1, body = $2, used = 0 WHERE name = $3 AND version = $4", b.Version, sealed, b.Name, was)
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "it was changed meanwhile").WithHint("set it again")
		}
		return err
	}
	var count int64
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM secrets").Scan(&count); err != nil {
		return err
	}
	if count >= maxCount {
		return fault.New(fault.Conflict, "there are %d secrets, which is the most that is kept", count).WithHint("ombud secret rm removes one")
	}
	n, err := tx.Exec(ctx, "INSERT INTO secrets ("+columns+") VALUES ($1, $2, $3, 0) ON CONFLICT (name) DO NOTHING", b.Name, b.Version, sealed)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "it was set meanwhile").WithHint("set it again")
	}
	return err
}

// Remove removes a secret, also one whose row is damaged. NotFound if there is none.
func (s *Secrets) Remove(ctx context.Context, name, by string) (i Info, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		i, err = s.RemoveTx(ctx, tx, name, by)
		return err
	})
	return i, err
}

// RemoveTx is Remove as part of tx.
func (s *Secrets) RemoveTx(ctx context.Context, tx *db.Tx, name, by string) (Info, error) {
	if err := mayChange(by); err != nil {
		return Info{}, err
	}
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	b, err := s.load(ctx, tx, name)
	if err != nil && !fault.Is(err, fault.Verification) {
		return Info{}, err
	}
	b.Name = name
	n, err := tx.Exec(ctx, "DELETE FROM secrets WHERE name = $1 AND version = $2", name, b.Version)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "secret %s was changed meanwhile", name)
	}
	if err == nil {
		err = s.tell(ctx, tx, b, KindRemoved, by)
	}
	return s.info(b), err
}

// changeData is the payload of secret.set and secret.removed.
type changeData struct {
	Name    string   `json:"name"`
	Version int64    `json:"version"`
	Hosts   []string `json:"hosts,omitempty"`
}

func (s *Secrets) tell(ctx context.Context, tx *db.Tx, b row, kind, by string) error {
	_, err := s.log.AppendTx(ctx, tx, eventlog.New{
		Stream: refPrefix + b.Name, Kind: kind, Actor: by, Expect: eventlog.Any, Data: changeData{b.Name, b.Version, b.Hosts},
	})
	if err != nil {
		return err
	}
	outcome := "set"
	switch {
	case kind == KindRemoved:
		outcome = "removed"
	case b.Version > 1:
		outcome = "replaced"
	}
	_, err = s.audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: refPrefix + b.Name, Outcome: outcome})
	return err
}

// List tells of every secret, by name.
func (s *Secrets) List(ctx context.Context) (out []Info, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Info, error) {
			b, err := s.scan(r.Scan)
			if fault.Is(err, fault.Verification) {
				return Info{Name: b.Name, Version: b.Version, By: "unreadable"}, nil
			}
			return s.info(b), err
		}, "SELECT "+columns+" FROM secrets LIMIT $1", int64(maxCount))
		return err
	})
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

func (s *Secrets) info(b row) Info {
	s.mu.Lock()
	used := max(b.used, s.used[b.Name])
	s.mu.Unlock()
	sum := s.vault.MAC("secret.fingerprint", b.Value)
	return Info{Name: b.Name, Version: b.Version, Hosts: b.Hosts, By: b.By, SetAt: b.At, UsedAt: used, Fingerprint: hex.EncodeToString(sum[:4])}
}

// Check is Resolve without the value and without counting as a use.
func (s *Secrets) Check(ctx context.Context, name string) error {
	_, err := s.read(ctx, name)
	return err
}

// Resolve returns the value of a secret. Who may have it is for the caller to ask.
// NotFound, with the way out, if there is none.
func (s *Secrets) Resolve(ctx context.Context, name string) (Value, error) {
	b, err := s.read(ctx, name)
	if err != nil {
		return Value{}, err
	}
	s.know(b) // another node may have set it
	s.mu.Lock()
	s.used[name] = s.db.Time()
	s.mu.Unlock()
	return Value{name: name, text: string(b.Value), hosts: b.Hosts}, nil
}

func (s *Secrets) read(ctx context.Context, name string) (b row, err error) {
	if err := CheckName(name); err != nil {
		return b, err
	}
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		b, err = s.load(ctx, q, name)
		return err
	})
	return b, err
}

// Flush writes when secrets were last used.
func (s *Secrets) Flush(ctx context.Context) error {
	s.mu.Lock()
	used := maps.Clone(s.used)
	s.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, name := range slices.Sorted(maps.Keys(used)) {
			if _, err := tx.Exec(ctx, "UPDATE secrets SET used = $1 WHERE name = $2 AND used < $1", used[name], name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note the use of secrets: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, at := range used {
		if s.used[name] == at {
			delete(s.used, name)
		}
	}
	return nil
}

const columns = "name, version, body, used"

// body is the sealed whole of a secret.
type body struct {
	Name    string   `json:"name"`
	Version int64    `json:"version"`
	Value   []byte   `json:"value"`
	Hosts   []string `json:"hosts,omitempty"`
	By      string   `json:"by"`
	At      int64    `json:"at"`
}

type row struct {
	body
	used int64
}

func (s *Secrets) load(ctx context.Context, q db.Q, name string) (row, error) {
	b, err := s.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM secrets WHERE name = $1", name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return b, fault.New(fault.NotFound, "there is no secret %s", name).WithHint("ombud secret set %s", name)
	}
	return b, err
}

// scan reads a row. With an error of class Verification name and version are those of
// the columns.
func (s *Secrets) scan(scan func(...any) error) (b row, err error) {
	var name string
	var version int64
	var sealed []byte
	if err := scan(&name, &version, &sealed, &b.used); err != nil {
		return b, err
	}
	b.Name, b.Version = name, version
	plain, err := s.vault.Open(vault.SecretBody, name, sealed)
	if err != nil {
		return b, err
	}
	defer clear(plain)
	var got body
	if err := json.Unmarshal(plain, &got); err != nil || got.Name != name || got.Version != version {
		return b, fault.New(fault.Verification, "the row of secret %s is not what was stored", name).WithHint("ombud secret set %s", name)
	}
	b.body = got
	return b, nil
}
