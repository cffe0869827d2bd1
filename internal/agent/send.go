package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
)

// ToOperator is whom a message is for that the operator is to read, in the conversation
// main.
const ToOperator = "operator"

// LocalPrefix begins the name of a conversation of the operator at this machine.
const LocalPrefix = "local:"

// Sending is a message that is no answer.
type Sending struct {
	To     string      // operator, local:NAME, the id of a conversation, or CHANNEL:CHAT and CHANNEL:CHAT/THREAD, adapters too
	Text   string      // Markdown
	Cause  string      // one message for each, unless Run is set
	Run    string      // the turn that sends it: one of several, and the same words as its answer are said once
	By     string      // who sends it
	Label  label.Label // of what the text was made from
	Repeat bool        // it may say again what was said a moment ago
}

// Places knows what conversations are beyond this machine.
type Places interface {
	// Place is the address behind CHANNEL:CHAT. NotFound if there is no such channel, naming
	// those there are; Invalid if the rest is no chat.
	Place(ctx context.Context, q db.Q, to string) (Address, error)
	// Told are the operator's own chats in which they want to be told what is told them here.
	Told(ctx context.Context, q db.Q) ([]Address, error)
	// Operators reports whether an address is a chat that the operator alone reads.
	Operators(ctx context.Context, q db.Q, ad Address) (bool, error)
}

// SendTx puts a message into the outbox, and tells the operator of one that goes to
// somebody else. Errors: NotFound if there is no such place; Conflict if it was just said
// there, with when and in what words.
func (a *Agents) SendTx(ctx context.Context, tx *db.Tx, s Sending) (outbox.Item, error) {
	conv, err := a.RecipientTx(ctx, tx, s.To)
	if err != nil {
		return outbox.Item{}, err
	}
	text := guard.CleanText(s.Text)
	if strings.TrimSpace(text) == "" {
		return outbox.Item{}, fault.New(fault.Invalid, "there is nothing to send")
	}
	own, err := a.operators(ctx, tx, conv.Address)
	if err != nil {
		return outbox.Item{}, err
	}
	m := outbox.Message{
		Conversation: conv.ID, Channel: conv.Address.Channel, Recipient: conv.Address.Chat, ChatName: conv.Title, Group: conv.Address.Group,
		Run: s.Cause, Text: text, Unasked: s.By != ToOperator,
	}
	if s.Run != "" {
		m.Run = s.Run
		if m.Ordinal, err = a.Outbox.NextTx(ctx, tx, s.Run); err != nil {
			return outbox.Item{}, err
		}
	}
	if !own && !s.Repeat {
		if err := a.saidBefore(ctx, tx, m); err != nil {
			return outbox.Item{}, err
		}
	}
	it, err := a.Outbox.AppendTx(ctx, tx, m)
	if err != nil || it.Queued != tx.Now() { // the same message again
		return it, err
	}
	if err := a.addHistoryTx(ctx, tx, conv.ID, "", entry{Role: roleAssistant, Body: entryBody{Text: text, Label: s.Label}}); err != nil {
		return outbox.Item{}, err
	}
	if s.To == ToOperator {
		err = a.alsoTx(ctx, tx, m)
	}
	if err != nil || own || s.By == ToOperator {
		return it, err
	}
	to := conv.Title
	if to == "" {
		to = conv.Address.Chat
	}
	said, cut := guard.CutText(text, maxToldText)
	if cut {
		said += " …"
	}
	return it, a.NoticeTx(ctx, tx, it.ID, fmt.Sprintf("%s sent to %s on %s: %s", s.By, to, conv.Address.Channel, said))
}

// alsoTx tells the operator something in the chats of theirs that they chose for it.
func (a *Agents) alsoTx(ctx context.Context, tx *db.Tx, m outbox.Message) error {
	if a.Places == nil {
		return nil
	}
	list, err := a.Places.Told(ctx, tx)
	if err != nil {
		return err
	}
	beside := m.Ordinal > 0 // the run has other results, whose numbers are taken
	for i, ad := range list {
		conv, err := a.openTx(ctx, tx, ad, Default, "")
		if err != nil {
			return err
		}
		if m.Ordinal = i + 1; beside {
			if m.Ordinal, err = a.Outbox.NextTx(ctx, tx, m.Run); err != nil {
				return err
			}
		}
		if err := a.outTx(ctx, tx, conv, m); err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
			return err // what was told before in another order of the chats was told
		}
	}
	return nil
}

// maxToldText is how much of a message the operator is told, in bytes.
const maxToldText = 500

// UndeliveredTx lets the next turn of a conversation know that a message of ombud's did not
// arrive, or may not have. The operator is told of it as a dead letter.
func (a *Agents) UndeliveredTx(ctx context.Context, tx *db.Tx, it outbox.Item) error {
	conv, err := a.conversationByID(ctx, tx, it.Conversation)
	if err != nil {
		return err
	}
	what := "was not delivered"
	if it.State == outbox.Uncertain {
		what = "may or may not have arrived, and is not sent again by itself"
	}
	// It quotes nothing: the text is in the history with its label, and an error can hold anything.
	return a.addHistoryTx(ctx, tx, conv.ID, "", entry{Role: roleUser, Body: entryBody{
		From: "ombud", Text: fmt.Sprintf("(ombud: your message of %s UTC %s)", time.UnixMicro(it.Queued).UTC().Format("15:04:05"), what),
		Label: label.Of(label.Own, label.Conversation(conv.ID)),
	}})
}

func (a *Agents) operators(ctx context.Context, q db.Q, ad Address) (bool, error) {
	if ad.Channel == Local("").Channel {
		return true, nil
	}
	if a.Places == nil {
		return false, nil
	}
	return a.Places.Operators(ctx, q, ad)
}

// RecipientTx finds the conversation of a name. One at this machine has to be there: a
// name with a typing error would get an inbox that nobody reads.
func (a *Agents) RecipientTx(ctx context.Context, tx *db.Tx, to string) (Conversation, error) {
	name, local := strings.CutPrefix(to, LocalPrefix)
	switch {
	case to == ToOperator:
		return a.openTx(ctx, tx, Local(mainConversation), Default, mainConversation)
	case local, id.Valid("conv", to):
		return a.Conversation(ctx, tx, name)
	case a.Places == nil || !strings.Contains(to, ":"):
		return Conversation{}, fault.New(fault.NotFound, "nobody is called %q", to).
			WithHint("send to operator, to local:NAME, to CHANNEL:CHAT or adapter:NAME:CHAT (ombud channel list), or to the id of a conversation (ombud conversations)")
	}
	ad, err := a.Places.Place(ctx, tx, to)
	if err != nil {
		return Conversation{}, err
	}
	return a.openTx(ctx, tx, ad, Default, "")
}

// ReadersOf is who reads what is sent to somebody; anybody where that is not known.
func ReadersOf(to string) label.Audience {
	switch {
	case to == ToOperator, strings.HasPrefix(to, LocalPrefix):
		return label.OperatorOnly
	case id.Valid("conv", to):
		return label.Conversation(to)
	}
	return label.Anyone
}

// AddressesOn returns the chats that were seen on a channel, the one used last first, at most
// 500.
func (a *Agents) AddressesOn(ctx context.Context, q db.Q, channel string) (out []Address, err error) {
	list, err := db.All(ctx, q, func(r *db.Rows) (Conversation, error) { return a.scanConversation(r.Scan) },
		"SELECT "+conversationColumns+" FROM conversations WHERE channel = $1 ORDER BY last_at DESC, id LIMIT 500", channel)
	for _, c := range list {
		out = append(out, c.Address)
	}
	return out, err
}

// GroupsOn returns the groups that were seen on a channel, by their ids, with their titles.
func (a *Agents) GroupsOn(ctx context.Context, channel string) (map[string]string, error) {
	groups := map[string]string{}
	err := a.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err := db.All(ctx, q, func(r *db.Rows) (Conversation, error) { return a.scanConversation(r.Scan) },
			"SELECT "+conversationColumns+" FROM conversations WHERE channel = $1 ORDER BY last_at DESC, id LIMIT 500", channel)
		for _, c := range list {
			if _, seen := groups[c.Address.Chat]; c.Address.Group && (!seen || groups[c.Address.Chat] == "") {
				groups[c.Address.Chat] = c.Title
			}
		}
		return err
	})
	return groups, err
}
