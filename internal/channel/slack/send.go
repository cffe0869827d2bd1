package slack

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

// metadataType is the type of the metadata of what ombud sends.
const metadataType = "ombud_message"

// metadata is kept with a message and shown to apps alone.
type metadata struct {
	Type    string `json:"event_type"`
	Payload struct {
		Key string `json:"key"`
	} `json:"event_payload"`
}

// text is a text in a block.
type text struct {
	Type string `json:"type"` // mrkdwn, plain_text
	Text string `json:"text"`
}

type button struct {
	Type     string `json:"type"`
	Text     text   `json:"text"`
	ActionID string `json:"action_id"`
	Value    string `json:"value"`
	Style    string `json:"style"`
}

type block struct {
	Type     string   `json:"type"`
	Text     *text    `json:"text,omitempty"`
	Elements []button `json:"elements,omitempty"`
}

// maxSection is how many characters a section has at most.
const maxSection = 3000

// content is what a message holds, the same whether it is sent or edited. Slack shows no
// previews, and makes nothing of names and channels that the text does not mark.
func content(out channel.Outgoing) (url.Values, error) {
	form := url.Values{"channel": {out.Chat}, "text": {out.Piece.Text}, "link_names": {"false"}, "parse": {"none"}}
	meta := metadata{Type: metadataType}
	meta.Payload.Key = out.Key
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, fault.New(fault.Invalid, "slack: %w", err)
	}
	form.Set("metadata", string(data))
	if out.Approval == "" {
		return form, nil
	}
	if data, err = json.Marshal(question(out)); err != nil {
		return nil, fault.New(fault.Invalid, "slack: %w", err)
	}
	form.Set("blocks", string(data))
	return form, nil
}

// question is the text in sections, with buttons under it.
func question(out channel.Outgoing) (blocks []block) {
	for _, s := range sections(out.Piece.Text) {
		blocks = append(blocks, block{Type: "section", Text: &text{"mrkdwn", s}})
	}
	return append(blocks, block{Type: "actions", Elements: []button{
		{"button", text{"plain_text", "Approve"}, approveID, out.Approval, "primary"},
		{"button", text{"plain_text", "Deny"}, denyID, out.Approval, "danger"},
	}})
}

// sections cuts a text where a line ends, if one does.
func sections(s string) (out []string) {
	for utf8.RuneCountInString(s) > maxSection {
		cut := 0
		for i := range s {
			if cut++; cut > maxSection {
				cut = i
				break
			}
		}
		if i := strings.LastIndexByte(s[:cut], '\n'); i > 0 {
			cut = i
		}
		out = append(out, s[:cut])
		s = strings.TrimPrefix(s[cut:], "\n")
	}
	if strings.TrimSpace(s) != "" {
		out = append(out, s)
	}
	return out
}

// Send posts a piece and returns its ts.
func (a *Adapter) Send(ctx context.Context, out channel.Outgoing) (string, error) {
	form, err := content(out)
	if err != nil {
		return "", err
	}
	form.Set("unfurl_links", "false")
	form.Set("unfurl_media", "false")
	if out.Thread != "" {
		form.Set("thread_ts", out.Thread)
	}
	var sent struct {
		TS string `json:"ts"`
	}
	if err := a.write(ctx, "chat.postMessage", form, &sent); err != nil {
		return "", err
	}
	if sent.TS == "" {
		return "", fault.New(fault.Unknown, "slack: chat.postMessage tells no ts")
	}
	return sent.TS, nil
}

// Edit replaces what a message holds.
func (a *Adapter) Edit(ctx context.Context, ref string, out channel.Outgoing) error {
	form, err := content(out)
	if err != nil {
		return err
	}
	form.Set("ts", ref)
	if !form.Has("blocks") {
		form.Set("blocks", "[]") // those that are there would stay
	}
	return a.write(ctx, "chat.update", form, nil)
}

// write calls a method that writes. Blocks that Slack does not take are left out, once: the
// question can be answered in words.
func (a *Adapter) write(ctx context.Context, method string, form url.Values, out any) error {
	err := a.api.call(ctx, method, partBot, form, out)
	switch codeOf(err) {
	case "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long":
		if form.Get("blocks") != "[]" {
			a.log.WarnContext(ctx, "slack took no buttons", "method", method, "code", codeOf(err))
			form.Del("blocks")
			err = a.api.call(ctx, method, partBot, form, out)
		}
	}
	return sending(err)
}
