package telegram

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

type button struct {
	Text string `json:"text"`
	Data string `json:"callback_data"`
}

type keyboard struct {
	Rows [][]button `json:"inline_keyboard"`
}

type replyParameters struct {
	MessageID int  `json:"message_id"`
	Lenient   bool `json:"allow_sending_without_reply"` // what is answered may be gone by now
}

type previewOptions struct {
	Disabled bool `json:"is_disabled"`
}

// outgoing are the parameters of sendMessage and editMessageText.
type outgoing struct {
	Chat     string           `json:"chat_id"`
	Message  int              `json:"message_id,omitempty"` // of editMessageText
	Thread   int              `json:"message_thread_id,omitempty"`
	Text     string           `json:"text"`
	Entities []markup.Entity  `json:"entities,omitempty"`
	Preview  previewOptions   `json:"link_preview_options"`
	ReplyTo  *replyParameters `json:"reply_parameters,omitempty"`
	Markup   *keyboard        `json:"reply_markup,omitempty"`
}

// compose makes the parameters of a message. Addresses in it show no preview: to make one,
// Telegram fetches the address, and the text may be of anybody's.
func compose(out channel.Outgoing) (outgoing, error) {
	p := outgoing{Chat: out.Chat, Text: out.Piece.Text, Entities: out.Piece.Entities, Preview: previewOptions{true}}
	if out.Approval != "" {
		yes, no := dataPrefix+out.Approval+dataYes, dataPrefix+out.Approval+dataNo
		if len(yes) > maxData || len(no) > maxData {
			return p, fault.New(fault.Invalid, "the id %q is too long for a button", fault.Cut(out.Approval, maxData))
		}
		p.Markup = &keyboard{Rows: [][]button{{{textApprove, yes}, {textDeny, no}}}}
	}
	return p, nil
}

// number reads an id that Telegram made, "" as 0.
func number(what, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return 0, fault.New(fault.Invalid, "%q is no id of a %s of Telegram's", fault.Cut(text, maxData), what)
	}
	return n, nil
}

// Send sends a piece and returns the id of the message.
func (a *adapter) Send(ctx context.Context, out channel.Outgoing) (string, error) {
	p, err := compose(out)
	if err != nil {
		return "", err
	}
	if p.Thread, err = number("topic", out.Thread); err != nil {
		return "", err
	}
	to, err := number("message", out.ReplyTo)
	if err != nil {
		return "", err
	}
	if to != 0 {
		p.ReplyTo = &replyParameters{MessageID: to, Lenient: true}
	}
	var sent message
	if err := a.post(ctx, "sendMessage", out.Piece, p, &sent); err != nil {
		return "", err
	}
	if sent.ID == 0 {
		return "", fault.New(fault.Unknown, "sendMessage: Telegram does not say which message it became")
	}
	return strconv.Itoa(sent.ID), nil
}

// Edit replaces the text of a message and its buttons.
func (a *adapter) Edit(ctx context.Context, ref string, out channel.Outgoing) error {
	p, err := compose(out)
	if err != nil {
		return err
	}
	if p.Message, err = number("message", ref); err != nil {
		return err
	}
	if p.Message == 0 {
		return fault.New(fault.Invalid, "an edit names no message")
	}
	return a.post(ctx, "editMessageText", out.Piece, p, nil)
}

// post makes a call that sends. If Telegram cannot read the entities the same text goes
// out once more without them: what it refused was not sent.
func (a *adapter) post(ctx context.Context, method string, piece markup.Piece, p outgoing, result any) error {
	err := a.do(ctx, a.calls, method, p, result)
	if r, ok := errors.AsType[*refusal](err); ok && len(p.Entities) > 0 && r.code == http.StatusBadRequest && (r.says("can't parse") || r.says("entit")) {
		a.log.WarnContext(ctx, "telegram cannot read the formatting of a message", slogErr(r))
		p.Entities = nil
		if piece.Plain != "" {
			p.Text = piece.Plain
		}
		err = a.do(ctx, a.calls, method, p, result)
	}
	if r, ok := errors.AsType[*refusal](err); ok && r.says("message is not modified") {
		return nil
	}
	return delivered(err)
}

type action struct {
	Chat   string `json:"chat_id"`
	Thread int    `json:"message_thread_id,omitempty"`
	Action string `json:"action"`
}

// Typing shows for five seconds that an answer is being written.
func (a *adapter) Typing(ctx context.Context, at channel.Place) error {
	thread, err := number("topic", at.Thread)
	if err != nil {
		return err
	}
	return delivered(a.do(ctx, a.calls, "sendChatAction", action{Chat: at.Chat, Thread: thread, Action: "typing"}, nil))
}
