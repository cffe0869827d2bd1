package agent

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// Inbound is a message as its channel hands it over.
type Inbound struct {
	Address    Address
	Title      string // of the conversation, for people
	Agent      string // who answers; "" for whoever does in the conversation, in a new one the default
	Sender     string // as the channel names them
	SenderName string
	Text       string
	Key        string         // dedupe key, unique for channel and account; "" for a message that cannot come twice
	Source     label.Source   // who wrote it
	Audience   label.Audience // who reads the conversation; its members when empty
	Tier       policy.Tier    // by how it is connected
	Unattended bool           // nobody waits for the answer: what must be asked is parked where the level says so
	Control    bool           // control messages count: it comes from the operator
	Cause      string         // the event it comes from, if that was within: its Sender is then the actor
	Within     Within         // what a message from within adds
	Ref        string         // the channel's id of the message, for an answer that is to quote it
	Written    time.Time      // when its network says it was written; zero if it does not
	Addressed  string         // by what ombud was addressed, for people
	Overheard  bool           // nobody asked ombud: it is an event and starts no turn
	// Judge, if set, says what depends on rows, such as who the sender is to the
	// operator, in the transaction that takes the message in and before anything of it
	// is recorded. It may change the message, or settle it with a notice. It may run
	// twice. A message that was taken before is not judged again.
	Judge func(ctx context.Context, tx *db.Tx, in *Inbound) (notice string, settled bool, err error)

	orders []string // phrases in it that read like orders, whoever wrote it
}

// Accepted says what became of a message. It is returned only when that is durable.
type Accepted struct {
	Event        string
	Run          string // its turn; "" if a control message needed none
	Conversation string
	Duplicate    bool
	Notice       string // the answer to a control message
}

// TurnInput is what a turn is started with.
type TurnInput struct {
	Event        string         `json:"event"`
	Conversation string         `json:"conversation"`
	Agent        string         `json:"agent"`
	Text         string         `json:"text"`
	Sender       string         `json:"sender,omitempty"`
	SenderName   string         `json:"sender_name,omitempty"`
	Source       label.Source   `json:"source"`
	Audience     label.Audience `json:"audience"`
	Tier         policy.Tier    `json:"tier"`
	Unattended   bool           `json:"unattended,omitempty"`
	Ref          string         `json:"ref,omitempty"`
	At           int64          `json:"at"`
	Within       Within         `json:"within,omitzero"`
}

// messageData is the payload of comms.message, with KARMAX's keys.
type messageData struct {
	MessageID   string `json:"message_id"`
	ChannelID   string `json:"channel_id"` // the conversation
	ChannelType string `json:"channel_type"`
	SenderID    string `json:"sender_id"`
	SenderName  string `json:"sender_name,omitempty"`
	Content     string `json:"content"`
	Direction   string `json:"direction"`
	Timestamp   int64  `json:"timestamp"`
	ChatName    string `json:"chat_name,omitempty"`
	WrittenAt   int64  `json:"written_at,omitempty"` // what its network says, Unix seconds
	Addressed   string `json:"addressed,omitempty"`  // by what ombud was addressed; "" for what is from within
	Overheard   bool   `json:"overheard,omitempty"`  // it was said to somebody else, or by nobody ombud answers
}

// Kinds of event an intake leaves.
const (
	kindMessage  = "comms.message"
	kindConflict = "comms.conflict"
)

// conflictData tells of a dedupe key that came back with another text.
type conflictData struct {
	First   string `json:"first_event"`
	BodyMAC []byte `json:"body_mac"`
}

// errConflict is what a conflict is refused with, after it was recorded.
var errConflict = fault.New(fault.Conflict, "a message with this key and another text was taken before").
	WithHint("use a new key for a new message")

// Intake takes a message in, in one transaction. Errors: Invalid if it is empty or
// too long, Conflict, or the store's; then nothing was taken.
func (a *Agents) Intake(ctx context.Context, in Inbound) (Accepted, error) {
	if a.Refuse != nil {
		if err := a.Refuse(); err != nil {
			return Accepted{}, err
		}
	}
	if err := a.ready(&in); err != nil {
		return Accepted{}, err
	}
	var out Accepted
	var conflict bool
	err := a.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		out, conflict, err = a.intakeTx(ctx, tx, in)
		return err
	})
	if err == nil && conflict {
		err = errConflict
	}
	return out, err
}

// ready refuses a message that cannot be taken in, and fills in what it leaves out.
func (a *Agents) ready(in *Inbound) error {
	if len(in.Text) > a.cfg.MaxMessage {
		return fault.New(fault.Invalid, "the message has %d bytes; at most %d are taken", len(in.Text), a.cfg.MaxMessage).
			WithHint("put long content into a file and ask about the file")
	}
	in.Text = guard.CleanText(in.Text)
	if strings.TrimSpace(in.Text) == "" {
		return fault.New(fault.Invalid, "the message is empty")
	}
	if in.Key == "" {
		in.Key = id.New("key")
	}
	in.orders = guard.Phrases(in.SenderName + "\n" + in.Text)
	return nil
}

func (a *Agents) intakeTx(ctx context.Context, tx *db.Tx, in Inbound) (out Accepted, conflict bool, err error) {
	conv, err := a.openTx(ctx, tx, in.Address, cmp.Or(in.Agent, Default), in.Title)
	if err != nil {
		return out, false, err
	}
	if err := a.refreshTx(ctx, tx, &conv, in); err != nil {
		return out, false, err
	}
	dedupe := a.Vault.Blind(vault.InboundDedupe, in.Address.Channel+"\x00"+in.Address.Account+"\x00"+in.Key)
	mac := a.Vault.MAC("inbound", []byte(in.Address.key()), []byte(in.Text))
	if out, known, err := a.takenBefore(ctx, tx, dedupe, mac); err != nil || known {
		if fault.Is(err, fault.Conflict) {
			return out, true, a.noteConflict(ctx, tx, conv, out.Event, mac)
		}
		return out, false, err
	}
	out = Accepted{Event: id.New("evt"), Conversation: conv.ID}
	handled := false
	if in.Judge != nil {
		if out.Notice, handled, err = in.Judge(ctx, tx, &in); err != nil {
			return out, false, err
		}
	}
	if in.Audience == "" {
		in.Audience = label.Conversation(conv.ID)
	}
	if err := a.appendMessage(ctx, tx, in, conv, out.Event); err != nil {
		return out, false, err
	}
	if err := a.warnOf(ctx, tx, in, conv, out.Event); err != nil {
		return out, false, err
	}
	if in.Overheard && !handled {
		return out, false, a.rememberTx(ctx, tx, dedupe, mac, conv, out)
	}
	if in.Control && !handled {
		if out.Notice, handled, err = a.control(ctx, tx, conv, in); err != nil {
			return out, false, err
		}
	}
	if handled {
		err = a.replyTx(ctx, tx, conv, out.Event, out.Notice)
	} else {
		out.Run, err = a.Runs.StartTx(ctx, tx, run.Spec{
			Kind: TurnKind, Name: cmp.Or(in.Agent, conv.Agent), Key: conv.ID, Parent: in.Within.Parent, Cause: out.Event, Actor: actorOf(in), Definition: "turn.v1",
			Input: TurnInput{
				Event: out.Event, Conversation: conv.ID, Agent: conv.Agent, Text: in.Text, Sender: in.Sender, SenderName: in.SenderName,
				Source: in.Source, Audience: in.Audience, Tier: in.Tier, Unattended: in.Unattended, Ref: in.Ref, At: tx.Now(),
				Within: in.Within,
			},
		})
	}
	if err != nil {
		return out, false, err
	}
	return out, false, a.rememberTx(ctx, tx, dedupe, mac, conv, out)
}

// rememberTx keeps what became of a message, for when it comes again.
func (a *Agents) rememberTx(ctx context.Context, tx *db.Tx, dedupe, mac []byte, conv Conversation, out Accepted) error {
	_, err := tx.Exec(ctx, `INSERT INTO inbound (dedupe, event, run, conversation, body_mac, notice, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		dedupe, out.Event, out.Run, conv.ID, mac, a.Vault.Seal(vault.InboundBody, out.Event, []byte(out.Notice)), tx.Now())
	return err
}

func actorOf(in Inbound) string {
	switch {
	case in.Cause != "":
		return in.Sender
	case in.Source == label.Operator && in.Tier == policy.Paired:
		return "operator@" + in.Address.Channel
	case in.Source == label.Operator:
		return "operator"
	}
	return in.Address.Channel + ":" + in.Sender
}

// takenBefore looks a dedupe key up. A known key with another body is a Conflict.
func (a *Agents) takenBefore(ctx context.Context, tx *db.Tx, dedupe, mac []byte) (out Accepted, known bool, err error) {
	var had, notice []byte
	err = tx.QueryRow(ctx, "SELECT event, run, conversation, body_mac, notice FROM inbound WHERE dedupe = $1", dedupe).
		Scan(&out.Event, &out.Run, &out.Conversation, &had, &notice)
	if errors.Is(err, sql.ErrNoRows) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	if !bytes.Equal(had, mac) {
		return out, true, errConflict
	}
	text, err := a.Vault.Open(vault.InboundBody, out.Event, notice)
	out.Duplicate, out.Notice = true, string(text)
	return out, true, err
}

func (a *Agents) noteConflict(ctx context.Context, tx *db.Tx, conv Conversation, first string, mac []byte) error {
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "conversation:" + conv.ID, Kind: kindConflict, Actor: "ombud", Cause: first, Expect: eventlog.Any,
		Data: conflictData{First: first, BodyMAC: mac},
	})
	return err
}

func (a *Agents) appendMessage(ctx context.Context, tx *db.Tx, in Inbound, conv Conversation, event string) error {
	var written int64
	if !in.Written.IsZero() {
		written = in.Written.Unix()
	}
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		ID: event, Stream: "conversation:" + conv.ID, Kind: kindMessage, Actor: actorOf(in), Cause: in.Cause, Trace: event, Expect: eventlog.Any,
		Data: messageData{
			MessageID: event, ChannelID: conv.ID, ChannelType: in.Address.Channel, SenderID: in.Sender, SenderName: in.SenderName,
			Content: in.Text, Direction: "in", Timestamp: tx.Now() / 1e6, ChatName: conv.Title,
			WrittenAt: written, Addressed: in.Addressed, Overheard: in.Overheard,
		},
	})
	return err
}

// replyTx queues a message to the conversation, one for each cause.
func (a *Agents) replyTx(ctx context.Context, tx *db.Tx, conv Conversation, cause, text string) error {
	return a.outTx(ctx, tx, conv, outbox.Message{Run: cause, Text: text})
}

// outTx queues a message to the conversation.
func (a *Agents) outTx(ctx context.Context, tx *db.Tx, conv Conversation, m outbox.Message) error {
	m.Conversation, m.Channel, m.Recipient, m.ChatName, m.Group = conv.ID, conv.Address.Channel, conv.Address.Chat, conv.Title, conv.Address.Group
	_, err := a.Outbox.AppendTx(ctx, tx, m)
	return err
}

// SayTx queues a message of ombud's own to a conversation, such as a reminder. from
// is the label of what the text was made from.
func (a *Agents) SayTx(ctx context.Context, tx *db.Tx, conversation, cause, text string, from label.Label) error {
	conv, err := a.conversationByID(ctx, tx, conversation)
	if err != nil {
		return err
	}
	if err := a.addHistoryTx(ctx, tx, conv.ID, "", entry{Role: roleAssistant, Body: entryBody{Text: text, Label: from}}); err != nil {
		return err
	}
	return a.outTx(ctx, tx, conv, outbox.Message{Run: cause, Text: text, Unasked: true})
}

// PruneInbound forgets dedupe keys older than before; it keeps at least 30 days.
func (a *Agents) PruneInbound(ctx context.Context, before int64) (removed int64, err error) {
	const month = int64(30 * 24 * 3600 * 1e6)
	before = min(before, a.DB.Time()-month)
	return a.DB.Drain(ctx, "DELETE FROM inbound WHERE dedupe IN (SELECT dedupe FROM inbound WHERE at < $1 ORDER BY at LIMIT 1000)", before)
}
