package outbox

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// The kinds of events an item leaves, on the stream of its conversation.
const (
	KindSent      = "comms.sent"
	KindFailed    = "comms.failed"
	KindUncertain = "comms.uncertain"
	KindDecided   = "comms.decided"
)

// SentData is the payload of comms.sent. Its first keys are those of a
// comms.message, which recipes and loops read.
type SentData struct {
	MessageID   string    `json:"message_id"`        // the channel's own id, else the item's
	ChannelID   string    `json:"channel_id"`        // the conversation
	Transport   string    `json:"karmax_channel_id"` // the channel
	ChannelType string    `json:"channel_type"`
	SenderID    string    `json:"sender_id"`
	SenderName  string    `json:"sender_name"`
	Content     string    `json:"content"`
	Direction   string    `json:"direction"`
	ReplyTo     string    `json:"reply_to_id,omitempty"`
	Timestamp   time.Time `json:"timestamp"`
	IsGroup     bool      `json:"is_group"`
	ChatName    string    `json:"chat_name,omitempty"`

	Item           string `json:"outbox_id"`
	Recipient      string `json:"recipient,omitempty"`
	Run            string `json:"run_id"`
	Attempts       int    `json:"attempts"`
	PossibleRepeat bool   `json:"possible_repeat,omitempty"`
}

// TroubleData is the payload of comms.failed and comms.uncertain.
type TroubleData struct {
	Item      string      `json:"outbox_id"`
	ChannelID string      `json:"channel_id"`
	Transport string      `json:"karmax_channel_id"`
	Recipient string      `json:"recipient,omitempty"`
	Run       string      `json:"run_id"`
	Attempts  int         `json:"attempts"`
	Class     fault.Class `json:"error_class"`
	Error     string      `json:"error"`
}

// DecidedData is the payload of comms.decided.
type DecidedData struct {
	Item     string   `json:"outbox_id"`
	Decision Decision `json:"decision"`
	By       string   `json:"by"`
	Note     string   `json:"note,omitempty"`
}

func (o *Outbox) tell(ctx context.Context, tx *db.Tx, it *Item, kind, actor string, data any) error {
	_, err := o.log.AppendTx(ctx, tx, eventlog.New{
		Stream: "conversation:" + it.Conversation, Kind: kind, Actor: actor, Cause: it.Run, Trace: it.Run, Data: data, Expect: eventlog.Any,
	})
	return err
}

// tellEnd leaves the event of an item that has left the line.
func (o *Outbox) tellEnd(ctx context.Context, tx *db.Tx, it *Item) error {
	switch it.State {
	case Delivered:
		messageID := it.Ref
		if messageID == "" {
			messageID = it.ID
		}
		return o.tell(ctx, tx, it, KindSent, "ombud", SentData{
			MessageID: messageID, ChannelID: it.Conversation, Transport: it.Channel, ChannelType: it.Channel,
			SenderID: "ombud", SenderName: "ombud", Content: it.Text, Direction: "outbound", ReplyTo: it.ReplyTo,
			Timestamp: time.UnixMicro(it.DeliveredAt).UTC(), IsGroup: it.Group, ChatName: it.ChatName,
			Item: it.ID, Recipient: it.Recipient, Run: it.Run, Attempts: it.Attempts, PossibleRepeat: it.PossibleRepeat,
		})
	case Failed, Uncertain:
		kind := KindFailed
		if it.State == Uncertain {
			kind = KindUncertain
		}
		if err := o.tell(ctx, tx, it, kind, "ombud", TroubleData{
			Item: it.ID, ChannelID: it.Conversation, Transport: it.Channel, Recipient: it.Recipient, Run: it.Run,
			Attempts: it.Attempts, Class: it.ErrorClass, Error: it.Error,
		}); err != nil {
			return err
		}
		if err := o.bury(ctx, tx, it); err != nil {
			return err
		}
		return o.opt.OnTrouble(ctx, tx, *it)
	}
	return nil
}
