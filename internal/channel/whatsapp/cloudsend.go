package whatsapp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Limits of Meta's.
const (
	maxWithButtons = 1024 // characters of a text that has buttons
	maxKey         = 512  // characters of what comes back in reports
	maxButtonID    = 256  // characters
)

// The requests, as Meta has them.
type (
	message struct {
		Product     string       `json:"messaging_product"`
		Recipient   string       `json:"recipient_type"`
		To          string       `json:"to"`
		Type        string       `json:"type"`
		Text        *textBody    `json:"text,omitempty"`
		Interactive *interactive `json:"interactive,omitempty"`
		Context     *answers     `json:"context,omitempty"`
		Key         string       `json:"biz_opaque_callback_data,omitempty"`
	}
	textBody struct {
		Body    string `json:"body"`
		Preview bool   `json:"preview_url"`
	}
	answers struct {
		ID string `json:"message_id"`
	}
	interactive struct {
		Type   string       `json:"type"`
		Body   buttonText   `json:"body"`
		Action buttonAction `json:"action"`
	}
	buttonText struct {
		Text string `json:"text"`
	}
	buttonAction struct {
		Buttons []button `json:"buttons"`
	}
	button struct {
		Type  string `json:"type"`
		Reply reply  `json:"reply"`
	}
	reply struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	reading struct {
		Product string `json:"messaging_product"`
		Status  string `json:"status"`
		ID      string `json:"message_id"`
		Typing  typing `json:"typing_indicator"`
	}
	typing struct {
		Type string `json:"type"`
	}
)

// Typing implements channel.Typer. Meta shows it at a message, which it marks as read by
// the same, for 25 s or until an answer comes. Where none came since we run, there is none.
func (c *cloud) Typing(ctx context.Context, at channel.Place) error {
	id := c.last.get(at.Chat)
	if id == "" {
		return nil
	}
	var done struct {
		Success bool `json:"success"`
	}
	return c.call(ctx, http.MethodPost, c.phone+"/messages", &reading{Product: "whatsapp", Status: "read", ID: id, Typing: typing{Type: "text"}}, &done)
}

// Send implements channel.Adapter.
func (c *cloud) Send(ctx context.Context, out channel.Outgoing) (string, error) {
	to := strings.TrimPrefix(out.Chat, "+")
	if to == "" || len(to) > 32 || digits(to) != to {
		return "", fault.New(fault.Invalid, "%q is not the number of a WhatsApp chat", fault.Cut(out.Chat, maxJID))
	}
	m, err := compose(to, out)
	if err != nil {
		return "", err
	}
	var done struct {
		Messages []struct {
			ID string `json:"id"`
		} `json:"messages"`
	}
	if err := c.call(ctx, http.MethodPost, c.phone+"/messages", &m, &done); err != nil {
		return "", err
	}
	if len(done.Messages) == 0 || done.Messages[0].ID == "" {
		return "", fault.New(fault.Unknown, "Meta's answer names no message: it may or may not have arrived")
	}
	return fault.Cut(line(done.Messages[0].ID), maxID), nil
}

// compose is a piece as Meta takes it. A question that is too long for buttons goes
// without: it is answered in words.
func compose(to string, out channel.Outgoing) (message, error) {
	text := strings.ReplaceAll(out.Piece.Text, "\x00", "")
	if n := utf8.RuneCountInString(text); strings.TrimSpace(text) == "" || n > limit {
		return message{}, fault.New(fault.Invalid, "a WhatsApp message has between 1 and %d characters, not %d", limit, n)
	}
	m := message{Product: "whatsapp", Recipient: "individual", To: to}
	if utf8.RuneCountInString(out.Key) <= maxKey { // a longer one would have the message refused
		m.Key = out.Key
	}
	if out.ReplyTo != "" {
		m.Context = &answers{ID: out.ReplyTo}
	}
	yes, no := pressID(out.Approval, true), pressID(out.Approval, false)
	if out.Approval == "" || utf8.RuneCountInString(text) > maxWithButtons || len(yes) > maxButtonID {
		m.Type, m.Text = "text", &textBody{Body: text}
		return m, nil
	}
	m.Type = "interactive"
	m.Interactive = &interactive{Type: "button", Body: buttonText{Text: text}, Action: buttonAction{Buttons: []button{
		{Type: "reply", Reply: reply{ID: yes, Title: "Approve"}},
		{Type: "reply", Reply: reply{ID: no, Title: "Deny"}},
	}}}
	return m, nil
}

// pressID is the id of a button: a:<approval>:y or …:n.
func pressID(approval string, yes bool) string {
	if yes {
		return "a:" + approval + ":y"
	}
	return "a:" + approval + ":n"
}

// parsePress reads it back.
func parsePress(id string) (approval string, yes, ok bool) {
	rest, ok := strings.CutPrefix(id, "a:")
	if !ok || len(id) > maxButtonID {
		return "", false, false
	}
	if approval, yes = strings.CutSuffix(rest, ":y"); yes {
		return approval, true, approval != ""
	}
	approval, ok = strings.CutSuffix(rest, ":n")
	return approval, false, ok && approval != ""
}

// call asks the API and reads the answer into answer. The error says what became of the
// request, as an adapter's has to.
func (c *cloud) call(ctx context.Context, method, path string, body, answer any) error {
	token, err := c.secret(ctx, partToken)
	if err != nil || token == "" {
		return &refusedKey{fault.New(fault.Unavailable, "the access token cannot be read").WithHint("ombud secret set channel.%s.%s", c.name, partToken)}
	}
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return fault.New(fault.Invalid, "write the message as JSON: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.api+"/"+path, bytes.NewReader(data))
	if err != nil {
		return fault.New(fault.Invalid, "make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req) //nolint:bodyclose // channel.ReadAll closes it
	if err != nil {
		if fault.Is(err, fault.Unavailable) {
			return err
		}
		return fault.New(fault.Unknown, "no answer of Meta's: %w", err)
	}
	data, err = channel.ReadAll(resp, maxAnswer)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refused(resp, data, token)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fault.New(fault.Unknown, "Meta's answer cannot be read: %w", err)
	}
	return nil
}

// refusedKey is the error of a key that is not taken. As of a message it is Unavailable:
// nothing was sent, and it can be when the key is mended.
type refusedKey struct{ err *fault.Error }

func (e *refusedKey) Error() string { return e.err.Error() }
func (e *refusedKey) Unwrap() error { return e.err }

func isRefusedKey(err error) bool {
	_, ok := errors.AsType[*refusedKey](err)
	return ok
}

// graphError is an error as Meta tells it.
type graphError struct {
	Message string `json:"message"`
	Code    int    `json:"code"`
	Subcode int    `json:"error_subcode"`
	Data    struct {
		Details string `json:"details"`
	} `json:"error_data"`
}

// refused is the error of an answer that is no success. The code of Meta's says more than
// the status; a server's error says nothing of what became of the message.
func (c *cloud) refused(resp *http.Response, data []byte, token string) error {
	var body struct {
		Error graphError `json:"error"`
	}
	_ = json.Unmarshal(data, &body) // what is none leaves the code at 0, and the status decides
	e := body.Error
	what := strings.ReplaceAll(line(cmp.Or(e.Data.Details, e.Message)), token, "[token]")
	said := func(class fault.Class) *fault.Error {
		return fault.New(class, "Meta answered %d, code %d: %s", resp.StatusCode, e.Code, what)
	}
	switch wait := channel.RetryAfter(resp.Header); {
	case resp.StatusCode >= 500:
		return said(fault.Unknown)
	case e.Code == 190, resp.StatusCode == http.StatusUnauthorized: // its words may hold the token
		return &refusedKey{fault.New(fault.Unavailable, "Meta refuses the access token (status %d, code %d, subcode %d)", resp.StatusCode, e.Code, e.Subcode).
			WithHint("make a token of a system user, for those of API Setup end after a day: ombud secret set channel.%s.%s", c.name, partToken)}
	case e.Code == 131056: // too much to one person
		return &outbox.RetryAfter{After: max(wait, 10*time.Second), Err: said(fault.Unavailable)}
	case e.Code == 130429, e.Code == 80007, e.Code == 4, e.Code == 131048:
		return &outbox.RetryAfter{After: max(wait, time.Minute), Err: said(fault.Unavailable)}
	case e.Code == 131047:
		return said(fault.Denied).WithHint("the person last wrote more than 24 hours ago, and Meta lets a business write first only by a template; it can be sent once they have written again")
	case e.Code == 131026, e.Code == 100:
		return said(fault.Invalid)
	}
	return channel.Refused(resp.StatusCode, channel.RetryAfter(resp.Header), "Meta answered %d, code %d: %s", resp.StatusCode, e.Code, what)
}
