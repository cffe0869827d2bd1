package remote

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/agent"
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

// redacted stands in the record for a message that held a pairing code.
const redacted = "/pair (code)"

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
	channel := Prefix + l.name
	who := pairing.Sender{Channel: channel, Account: d.Account, User: d.Sender}
	return r.Conversations.Intake(ctx, agent.Inbound{
		Address: agent.Address{Channel: channel, Account: d.Account, Chat: d.Chat, Thread: d.Thread},
		Title:   d.Title, Sender: d.Sender, SenderName: d.SenderName, Text: d.Text, Key: d.Chat + "\x00" + d.Key,
		Source: label.Untrusted(channel + "/" + d.Sender), Tier: policy.Untrusted,
		Judge: func(ctx context.Context, tx *db.Tx, in *agent.Inbound) (string, bool, error) {
			// Once more, in the transaction: it may have been removed meanwhile.
			if _, err := r.verify(ctx, tx, d.Credential); err != nil {
				return "", false, err
			}
			if code, is := pairCode(d.Text); is {
				in.Text = redacted
				return r.pair(ctx, tx, who, d, code)
			}
			return "", false, r.rank(ctx, tx, who, d, in)
		},
	})
}

// rank sets what a message may do by who sent it, and by nothing it says.
func (r *Remote) rank(ctx context.Context, tx *db.Tx, who pairing.Sender, d Delivery, in *agent.Inbound) error {
	i, err := r.Senders.Of(ctx, tx, who)
	switch {
	case err != nil:
		return err
	case i.OperatorIn(d.Chat, d.Group):
		// The operator is the one reader of that chat.
		in.Tier, in.Source, in.Audience, in.Control = policy.Paired, label.Operator, label.OperatorOnly, true
	case i.Standing != pairing.Stranger: // an operator elsewhere than in the paired chat is somebody known
		in.Tier = policy.SemiTrusted
	}
	return nil
}

// pairCode returns the code of a message that is a /pair.
func pairCode(text string) (string, bool) {
	words := strings.Fields(text)
	if len(words) == 0 || !strings.EqualFold(words[0], "/pair") {
		return "", false
	}
	return strings.Join(words[1:], ""), true
}

func (r *Remote) pair(ctx context.Context, tx *db.Tx, who pairing.Sender, d Delivery, code string) (string, bool, error) {
	_, err := r.Senders.RedeemTx(ctx, tx, who, d.SenderName, d.Chat, d.Group, code)
	if fault.Is(err, fault.Denied) {
		return "This code is not good here. It has to be sent in a direct chat, within ten minutes, and works once.", true, nil
	}
	if err != nil {
		return "", false, err
	}
	return "Paired: you are the operator in this chat. Reading is free here; what changes something asks you first.", true, nil
}
