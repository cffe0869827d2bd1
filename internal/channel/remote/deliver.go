package remote

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
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
	Bot        bool   // another program wrote it
	MentionsMe bool   // by an id of ombud's in the structure of the message, not by its text alone
	QuotesMe   bool   // it answers a message of ombud's
	Command    bool   // it is a command to ombud
	Elsewhere  bool   // it is a command to another program, by its name
	Forwarded  bool   // the sender passes on what somebody else wrote
}

// Delivered says what became of a message, durably.
type Delivered struct {
	Event     string
	Duplicate bool // the key was known
	Addressed bool // it is answered; else it is kept as something that was overheard
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

func (d *Delivery) received() channel.Received {
	return channel.Received{
		ID: d.Key, Chat: d.Chat, Thread: d.Thread, Title: d.Title, Group: d.Group, Sender: d.Sender, SenderName: d.SenderName, Text: d.Text,
		Bot: d.Bot, MentionsMe: d.MentionsMe, QuotesMe: d.QuotesMe, Command: d.Command, Elsewhere: d.Elsewhere, Forwarded: d.Forwarded,
	}
}

// Deliver takes a message in. It returns when that is durable. Errors: Denied,
// Invalid, Conflict for a key that came with another text before, or the store's.
func (r *Remote) Deliver(ctx context.Context, d Delivery) (Delivered, error) {
	l, set, err := r.check(ctx, d.Credential)
	if err != nil {
		return Delivered{}, err
	}
	if err := d.check(); err != nil {
		return Delivered{}, err
	}
	m, name := d.received(), Prefix+l.name
	in := channel.Inbound(name, d.Account, m)
	in.Agent = set.Agent
	in.Judge = func(ctx context.Context, tx *db.Tx, in *agent.Inbound) (string, bool, error) {
		// Once more, in the transaction: it may have been removed meanwhile, or told otherwise.
		a, err := r.verify(ctx, tx, d.Credential)
		if err != nil {
			return "", false, err
		}
		return channel.Judging{
			Channel: name, Account: d.Account, Named: true, Settings: a.Settings, Senders: r.Senders, Agents: r.Conversations,
			Unknown: &l.unknown, Now: time.UnixMicro(r.DB.Time()),
		}.Judge(ctx, tx, m, in)
	}
	got, err := r.Conversations.Intake(ctx, in)
	if err != nil {
		return Delivered{}, err
	}
	if !got.Duplicate {
		l.heardOne()
	}
	// What is addressed has a turn or is settled at once; so it can be told of a repeat too.
	return Delivered{Event: got.Event, Duplicate: got.Duplicate, Addressed: got.Run != "" || got.Notice != ""}, nil
}
