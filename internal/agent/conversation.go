package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// Address is where a conversation takes place, as its channel names it.
type Address struct {
	Channel string `json:"channel"`
	Account string `json:"account,omitempty"`
	Chat    string `json:"chat"`
	Thread  string `json:"thread,omitempty"`
	Group   bool   `json:"group,omitempty"` // several people read it; no part of what tells addresses apart
}

// Local is the address of a conversation of the operator on this machine.
func Local(name string) Address { return Address{Channel: "local", Chat: name} }

func (ad Address) key() string {
	return strings.Join([]string{ad.Channel, ad.Account, ad.Chat, ad.Thread}, "\x00")
}

// Conversation is one chat.
type Conversation struct {
	ID      string
	Address Address
	Agent   string
	Title   string
	Created int64
	LastAt  int64
	ResetAt int64

	seq         int64 // of the last history entry
	historyFrom int64 // entries up to this one are no longer told to a model
}

const conversationColumns = "id, channel, agent, title, address, created, last_at, reset_at, seq, history_from"

func (a *Agents) scanConversation(scan func(...any) error) (c Conversation, err error) {
	var channel string
	var title, address []byte
	err = scan(&c.ID, &channel, &c.Agent, &title, &address, &c.Created, &c.LastAt, &c.ResetAt, &c.seq, &c.historyFrom)
	if err != nil {
		return c, err
	}
	plainTitle, err1 := a.Vault.Open(vault.ConversationTitle, c.ID, title)
	plainAddress, err2 := a.Vault.Open(vault.ConversationAddress, c.ID, address)
	if err := errors.Join(err1, err2); err != nil {
		return c, err
	}
	c.Title = string(plainTitle)
	return c, json.Unmarshal(plainAddress, &c.Address)
}

// Conversation returns one by its id, or by the name of a local one.
func (a *Agents) Conversation(ctx context.Context, q db.Q, idOrName string) (Conversation, error) {
	if id.Valid("conv", idOrName) {
		return a.conversationByID(ctx, q, idOrName)
	}
	blind := a.Vault.Blind(vault.ConversationKey, Local(idOrName).key())
	c, err := a.scanConversation(q.QueryRow(ctx, "SELECT "+conversationColumns+" FROM conversations WHERE key = $1", blind).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return c, fault.New(fault.NotFound, "no conversation %q", idOrName)
	}
	return c, err
}

func (a *Agents) conversationByID(ctx context.Context, q db.Q, id string) (Conversation, error) {
	c, err := a.scanConversation(q.QueryRow(ctx, "SELECT "+conversationColumns+" FROM conversations WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return c, fault.New(fault.NotFound, "no conversation %s", id)
	}
	return c, err
}

// Conversations lists them, the last used first.
func (a *Agents) Conversations(ctx context.Context, limit int) (out []Conversation, err error) {
	err = a.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Conversation, error) { return a.scanConversation(r.Scan) },
			"SELECT "+conversationColumns+" FROM conversations ORDER BY last_at DESC, id LIMIT $1", limit)
		return err
	})
	return out, err
}

// openTx returns the conversation at an address, making it at its first message.
func (a *Agents) openTx(ctx context.Context, tx *db.Tx, ad Address, agent, title string) (Conversation, error) {
	blind := a.Vault.Blind(vault.ConversationKey, ad.key())
	c, err := a.scanConversation(tx.QueryRow(ctx, "SELECT "+conversationColumns+" FROM conversations WHERE key = $1", blind).Scan)
	if !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	c = Conversation{ID: id.New("conv"), Address: ad, Agent: agent, Title: title, Created: tx.Now(), LastAt: tx.Now()}
	address, err := json.Marshal(ad)
	if err != nil {
		return c, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO conversations (id, key, channel, agent, title, address, created, last_at, reset_at, seq, history_from)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 0, 0, 0)`, c.ID, blind, ad.Channel, agent,
		a.Vault.Seal(vault.ConversationTitle, c.ID, []byte(title)), a.Vault.Seal(vault.ConversationAddress, c.ID, address), c.Created)
	return c, err
}

// refreshTx takes over what a message from outside says of its conversation: who answers in
// it, as its channel is set now, and what a message that went out first could not know.
func (a *Agents) refreshTx(ctx context.Context, tx *db.Tx, c *Conversation, in Inbound) error {
	if in.Cause != "" {
		return nil
	}
	now := *c
	if in.Agent != "" {
		now.Agent = in.Agent
	}
	now.Address.Group = now.Address.Group || in.Address.Group
	if now.Title == "" {
		now.Title = in.Title
	}
	if now == *c {
		return nil
	}
	address, err := json.Marshal(now.Address)
	if err == nil {
		_, err = tx.Exec(ctx, "UPDATE conversations SET agent = $1, title = $2, address = $3 WHERE id = $4", now.Agent,
			a.Vault.Seal(vault.ConversationTitle, c.ID, []byte(now.Title)), a.Vault.Seal(vault.ConversationAddress, c.ID, address), c.ID)
	}
	*c = now
	return err
}

// ResetTx starts a conversation afresh: its history and labels no longer reach a
// turn. Nothing is deleted.
func (a *Agents) ResetTx(ctx context.Context, tx *db.Tx, conversation string) error {
	n, err := tx.Exec(ctx, "UPDATE conversations SET history_from = seq, reset_at = $1 WHERE id = $2", tx.Now(), conversation)
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "no conversation %s", conversation)
	}
	return err
}

// Mailbox is what waits and what runs in a conversation.
type Mailbox struct {
	Queued  int64
	Running string // id of the turn that runs or waits, "" for none
}

// MailboxOf looks at a conversation's turns.
func (a *Agents) MailboxOf(ctx context.Context, q db.Q, conversation string) (m Mailbox, err error) {
	rows, err := db.All(ctx, q, func(r *db.Rows) (row [2]string, err error) {
		err = r.Scan(&row[0], &row[1])
		return row, err
	}, "SELECT id, state FROM runs WHERE key = $1 AND key <> '' AND ended = 0 AND state IN ('queued', 'running', 'waiting', 'cancelling') ORDER BY seq", conversation)
	for _, row := range rows {
		if row[1] == string(run.Queued) {
			m.Queued++
		} else {
			m.Running = row[0]
		}
	}
	return m, err
}

// Messages is how many entries the history has since the last reset.
func (c Conversation) Messages() int64 { return c.seq - c.historyFrom }

// CountConversations is how many there are.
func (a *Agents) CountConversations(ctx context.Context) (n int64, err error) {
	err = a.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM conversations").Scan(&n)
	})
	return n, err
}
