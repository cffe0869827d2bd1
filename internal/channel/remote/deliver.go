package remote

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
)

// Delivery is a message as an adapter hands it over. Every id is the network's own.
type Delivery struct {
	Credential string
	Account    string // ours, on the network
	Chat       string
	Thread     string
	Title      string // of the chat, for people
	Group      bool   // others than the sender read the chat
	Sender     string // user id
	SenderName string
	Text       string
	Key        string // the network's id of the message, unique in its chat
}

const maxPart = 512 // bytes of each id and name

func (d *Delivery) check() error {
	for _, f := range []struct {
		name, value string
		needed      bool
	}{
		{"account", d.Account, false}, {"chat", d.Chat, true}, {"thread", d.Thread, false}, {"title", d.Title, false},
		{"sender", d.Sender, true}, {"sender_name", d.SenderName, false}, {"key", d.Key, true},
	} {
		switch {
		case f.needed && strings.TrimSpace(f.value) == "":
			return fault.New(fault.Invalid, "a message has a %s", f.name)
		case len(f.value) > maxPart || !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0):
			return fault.New(fault.Invalid, "%s is UTF-8 of at most %d bytes", f.name, maxPart)
		}
	}
	return nil
}

// Deliver takes a message in. It returns when that is durable. Errors: Denied,
// Invalid, Conflict for a key that came with another text before, or the store's.
func (r *Remote) Deliver(ctx context.Context, d Delivery) (agent.Accepted, error) {
	l, err := r.check(ctx, d.Credential)
	if err != nil {
		return agent.Accepted{}, err
	}
	if err := d.check(); err != nil {
		return agent.Accepted{}, err
	}
	name := Prefix + l.name
	who := channel.Said{
		Sender: pairing.Sender{Channel: name, Account: d.Account, User: d.Sender}, Name: d.SenderName, Chat: d.Chat, Group: d.Group,
	}
	return r.Conversations.Intake(ctx, agent.Inbound{
		Address: agent.Address{Channel: name, Account: d.Account, Chat: d.Chat, Thread: d.Thread},
		Title:   d.Title, Sender: d.Sender, SenderName: d.SenderName, Text: d.Text, Key: d.Chat + "\x00" + d.Key,
		Source: label.Untrusted(name + "/" + d.Sender), Tier: policy.Untrusted,
		Judge: func(ctx context.Context, tx *db.Tx, in *agent.Inbound) (string, bool, error) {
			// Once more, in the transaction: it may have been removed meanwhile.
			if _, err := r.verify(ctx, tx, d.Credential); err != nil {
				return "", false, err
			}
			if code, is := channel.PairCode(d.Text); is {
				in.Text = channel.Redacted
				notice, err := who.Pair(ctx, tx, r.Senders, code)
				return notice, err == nil, err
			}
			i, err := r.Senders.Of(ctx, tx, who.Sender)
			if err == nil {
				who.Rank(i, in)
			}
			return "", false, err
		},
	})
}
