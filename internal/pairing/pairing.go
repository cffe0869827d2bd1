package pairing

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// Sender is who wrote something, as the channel's provider identifies them.
type Sender struct {
	Channel string `json:"channel"`
	Account string `json:"account,omitempty"` // ours, on that channel
	User    string `json:"user"`              // the provider's id, not a name
}

// Standing says what a sender is to the operator.
type Standing string

// The standings.
const (
	Stranger Standing = "stranger" // in no row
	Known    Standing = "known"    // listed by the operator
	Operator Standing = "operator" // the operator
)

// Identity is a sender who is no stranger. Times are Unix microseconds.
type Identity struct {
	Sender
	ID       string
	Standing Standing
	Name     string // as it was then, for people
	Chat     string // the one direct chat the operator is the operator in
	By       string
	Added    int64
}

// OperatorIn reports whether the sender is the operator in this chat.
func (i Identity) OperatorIn(chat string, group bool) bool {
	return i.Standing == Operator && !group && chat != "" && chat == i.Chat
}

// Kinds of event, on the stream sender:<id>.
const (
	KindAdded   = "sender.added"
	KindRemoved = "sender.removed"
)

// Auditor records a change in its transaction.
type Auditor interface {
	AppendTx(ctx context.Context, tx *db.Tx, e audit.Entry) (audit.Ref, error)
}

// Pairing keeps the senders of one store. It is safe for concurrent use.
type Pairing struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	audit Auditor
}

// New returns the senders of d.
func New(d *db.DB, v *vault.Vault, log *eventlog.Log, a Auditor) *Pairing {
	return &Pairing{db: d, vault: v, log: log, audit: a}
}

const maxPart = 512 // bytes of each part of a sender

// check refuses what cannot identify anybody.
func (s Sender) check() error {
	for _, part := range []string{s.Channel, s.Account, s.User} {
		if len(part) > maxPart || !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
			return fault.New(fault.Invalid, "channel, account and user are UTF-8 of at most %d bytes", maxPart)
		}
	}
	if s.Channel == "" || strings.TrimSpace(s.User) == "" {
		return fault.New(fault.Invalid, "a sender has a channel and a user id")
	}
	return nil
}

func (p *Pairing) key(s Sender) []byte {
	return p.vault.Blind(vault.SenderKey, s.Channel+"\x00"+s.Account+"\x00"+s.User)
}

// Of returns who a sender is, as the caller's transaction sees it: the standing of
// whoever is not listed is Stranger.
func (p *Pairing) Of(ctx context.Context, q db.Q, s Sender) (Identity, error) {
	if err := s.check(); err != nil {
		return Identity{}, err
	}
	i, err := p.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM senders WHERE key = $1 AND removed = 0", p.key(s)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Identity{Sender: s, Standing: Stranger}, nil
	}
	if err == nil && i.Sender != s {
		err = fault.New(fault.Verification, "sender %s is filed under somebody else", i.ID)
	}
	return i, err
}

// OperatorChats returns the operator's identities on a channel, the oldest first.
func (p *Pairing) OperatorChats(ctx context.Context, q db.Q, channel string) ([]Identity, error) {
	return db.All(ctx, q, func(r *db.Rows) (Identity, error) { return p.scan(r.Scan) },
		"SELECT "+columns+" FROM senders WHERE channel = $1 AND standing = 'operator' AND removed = 0 ORDER BY id LIMIT 1000", channel)
}

// OperatorChat returns the operator's identity whose direct chat this is. NotFound
// if it is nobody's.
func (p *Pairing) OperatorChat(ctx context.Context, q db.Q, channel, account, chat string) (Identity, error) {
	list, err := p.OperatorChats(ctx, q, channel)
	if err != nil {
		return Identity{}, err
	}
	for _, i := range list {
		if i.Account == account && i.OperatorIn(chat, false) {
			return i, nil
		}
	}
	return Identity{}, fault.New(fault.NotFound, "no operator is paired in this chat")
}

// Allow lists a sender as known to the operator. Listing again changes nothing; an
// operator stays one.
func (p *Pairing) Allow(ctx context.Context, s Sender, name, by string) (out Identity, err error) {
	err = p.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if out, err = p.Of(ctx, tx, s); err != nil || out.Standing != Stranger {
			return err
		}
		out, err = p.addTx(ctx, tx, Identity{Sender: s, Standing: Known, Name: name, By: by})
		return err
	})
	return out, err
}

// addTx makes a sender what i says, whatever it was before.
func (p *Pairing) addTx(ctx context.Context, tx *db.Tx, i Identity) (Identity, error) {
	if err := i.check(); err != nil {
		return i, err
	}
	before, err := p.Of(ctx, tx, i.Sender)
	if err != nil {
		return i, err
	}
	if before.ID != "" {
		if err := p.removeTx(ctx, tx, before, i.By); err != nil {
			return i, err
		}
	}
	i.ID, i.Added = id.New("snd"), tx.Now()
	raw, err := json.Marshal(body{i.Sender, i.Standing, i.Name, i.Chat, i.By})
	if err != nil {
		return i, fault.New(fault.Internal, "body of %s: %w", i.ID, err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO senders ("+columns+", key, removed, removed_by) VALUES ($1, $2, $3, $4, $5, $6, 0, '')",
		i.ID, i.Channel, string(i.Standing), p.vault.Seal(vault.SenderBody, i.ID, raw), i.Added, p.key(i.Sender))
	if err != nil {
		return i, err
	}
	return i, p.tell(ctx, tx, i, KindAdded, i.By)
}

// Remove makes a sender a stranger again. Prefix is an id or its beginning. Errors:
// NotFound, or Conflict if several begin like that.
func (p *Pairing) Remove(ctx context.Context, prefix, by string) (out Identity, err error) {
	err = p.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		list, err := p.live(ctx, tx)
		if err != nil {
			return err
		}
		var found []Identity
		for _, i := range list {
			if prefix != "" && strings.HasPrefix(i.ID, prefix) {
				found = append(found, i)
			}
		}
		switch len(found) {
		case 0:
			return fault.New(fault.NotFound, "no sender %q is paired or listed", prefix).WithHint("ombud channel people shows them")
		case 1:
			out = found[0]
			return p.removeTx(ctx, tx, out, by)
		}
		return fault.New(fault.Conflict, "%d senders begin with %q", len(found), prefix).WithHint("give more of the id")
	})
	return out, err
}

func (p *Pairing) removeTx(ctx context.Context, tx *db.Tx, i Identity, by string) error {
	n, err := tx.Exec(ctx, "UPDATE senders SET removed = $1, removed_by = $2 WHERE id = $3 AND removed = 0", tx.Now(), by, i.ID)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "sender %s was removed meanwhile", i.ID)
	}
	if err != nil {
		return err
	}
	return p.tell(ctx, tx, i, KindRemoved, by)
}

// List returns every sender who is no stranger, the oldest first.
func (p *Pairing) List(ctx context.Context) (out []Identity, err error) {
	err = p.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = p.live(ctx, q)
		return err
	})
	return out, err
}

func (p *Pairing) live(ctx context.Context, q db.Q) ([]Identity, error) {
	return db.All(ctx, q, func(r *db.Rows) (Identity, error) { return p.scan(r.Scan) },
		"SELECT "+columns+" FROM senders WHERE removed = 0 ORDER BY id LIMIT 10000")
}

// changeData is the payload of sender.added and sender.removed.
type changeData struct {
	ID       string   `json:"sender_id"`
	Standing Standing `json:"standing"`
	Sender
	Name string `json:"name,omitempty"`
	Chat string `json:"chat,omitempty"`
}

func (p *Pairing) tell(ctx context.Context, tx *db.Tx, i Identity, kind, by string) error {
	_, err := p.log.AppendTx(ctx, tx, eventlog.New{
		Stream: "sender:" + i.ID, Kind: kind, Actor: by, Expect: eventlog.Any,
		Data: changeData{ID: i.ID, Standing: i.Standing, Sender: i.Sender, Name: i.Name, Chat: i.Chat},
	})
	if err != nil {
		return err
	}
	_, err = p.audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: i.ID, Outcome: string(i.Standing)})
	return err
}

const columns = "id, channel, standing, body, added"

// body is the sealed part of a sender.
type body struct {
	Sender   Sender   `json:"sender"`
	Standing Standing `json:"standing"`
	Name     string   `json:"name,omitempty"`
	Chat     string   `json:"chat,omitempty"`
	By       string   `json:"by"`
}

func (p *Pairing) scan(scan func(...any) error) (i Identity, err error) {
	var channel string
	var standing Standing
	var sealed []byte
	if err := scan(&i.ID, &channel, &standing, &sealed, &i.Added); err != nil {
		return i, err
	}
	plain, err := p.vault.Open(vault.SenderBody, i.ID, sealed)
	if err != nil {
		return i, err
	}
	var b body
	if err := json.Unmarshal(plain, &b); err != nil || b.Sender.Channel != channel || b.Standing != standing {
		return i, fault.New(fault.Verification, "the row of sender %s is not what was stored", i.ID)
	}
	i.Sender, i.Standing, i.Name, i.Chat, i.By = b.Sender, b.Standing, b.Name, b.Chat, b.By
	return i, nil
}
