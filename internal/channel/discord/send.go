package discord

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// maxCustomID is what Discord takes as the id of a button.
const maxCustomID = 100

// newMessage is discordgo.MessageSend with what it lacks.
type newMessage struct {
	Content         string                            `json:"content"`
	Nonce           string                            `json:"nonce,omitempty"`
	EnforceNonce    bool                              `json:"enforce_nonce,omitempty"`
	Flags           discordgo.MessageFlags            `json:"flags"`
	AllowedMentions *discordgo.MessageAllowedMentions `json:"allowed_mentions"`
	Reference       *discordgo.MessageReference       `json:"message_reference,omitempty"`
	Components      []discordgo.MessageComponent      `json:"components"`
}

// changedMessage is what an edit replaces.
type changedMessage struct {
	Content         string                            `json:"content"`
	Flags           discordgo.MessageFlags            `json:"flags"`
	AllowedMentions *discordgo.MessageAllowedMentions `json:"allowed_mentions"`
	Components      []discordgo.MessageComponent      `json:"components"`
}

// nobody is who a message pings: what an agent writes wakes no crowd.
func nobody() *discordgo.MessageAllowedMentions {
	return &discordgo.MessageAllowedMentions{Parse: []discordgo.AllowedMentionType{}}
}

// nonce is what Discord knows a piece by, for some minutes: at most 25 characters.
func nonce(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

func buttons(approval string) ([]discordgo.MessageComponent, error) {
	if approval == "" {
		return []discordgo.MessageComponent{}, nil
	}
	yes, no := customID(approval, true), customID(approval, false)
	if len(yes) > maxCustomID {
		return nil, fault.New(fault.Invalid, "the id of the question is too long for a button")
	}
	return []discordgo.MessageComponent{discordgo.ActionsRow{Components: []discordgo.MessageComponent{
		discordgo.Button{Label: labelOf(true), Style: discordgo.SuccessButton, CustomID: yes},
		discordgo.Button{Label: labelOf(false), Style: discordgo.DangerButton, CustomID: no},
	}}}, nil
}

// messages is the path of a channel's messages.
func messages(channel string) (string, error) {
	if !snowflake(channel) {
		return "", fault.New(fault.Invalid, "%q is no channel of Discord's", fault.Cut(channel, 50))
	}
	return "/channels/" + channel + "/messages", nil
}

// made is what is read of an answer: the message's id.
type made struct {
	ID string `json:"id"`
}

// Send sends one piece, once.
func (a *Adapter) Send(ctx context.Context, out channel.Outgoing) (string, error) {
	path, err := messages(out.Chat)
	if err != nil {
		return "", err
	}
	rows, err := buttons(out.Approval)
	if err != nil {
		return "", err
	}
	m := newMessage{
		Content: out.Piece.Text, Nonce: nonce(out.Key), EnforceNonce: out.Key != "",
		Flags: discordgo.MessageFlagsSuppressEmbeds, AllowedMentions: nobody(), Components: rows,
	}
	if snowflake(out.ReplyTo) {
		m.Reference = &discordgo.MessageReference{MessageID: out.ReplyTo, FailIfNotExists: new(false)}
	}
	var got made
	if err := a.api.call(ctx, http.MethodPost, path, m, &got); err != nil {
		return "", err
	}
	if !snowflake(got.ID) {
		return "", fault.New(fault.Unknown, "Discord's answer names no message")
	}
	return got.ID, nil
}

// Edit replaces a sent piece.
func (a *Adapter) Edit(ctx context.Context, ref string, out channel.Outgoing) error {
	path, err := messages(out.Chat)
	if err != nil {
		return err
	}
	if !snowflake(ref) {
		return fault.New(fault.Invalid, "%q is no message of Discord's", fault.Cut(ref, 50))
	}
	rows, err := buttons(out.Approval)
	if err != nil {
		return err
	}
	m := changedMessage{out.Piece.Text, discordgo.MessageFlagsSuppressEmbeds, nobody(), rows}
	return a.api.call(ctx, http.MethodPatch, path+"/"+ref, m, nil)
}

// Typing shows for about ten seconds that an answer is being written.
func (a *Adapter) Typing(ctx context.Context, at channel.Place) error {
	if !snowflake(at.Chat) {
		return fault.New(fault.Invalid, "%q is no channel of Discord's", fault.Cut(at.Chat, 50))
	}
	return a.api.call(ctx, http.MethodPost, "/channels/"+at.Chat+"/typing", nil, nil)
}

// skew is how far the clocks of ombud and Discord may be apart.
const skew = 2 * time.Minute

// Probe looks for a piece among what ombud wrote in the channel since it may have been
// sent. One message with that nonce, or the only one with that text, is it. None means
// that it was not sent, if all that was written since was read.
func (a *Adapter) Probe(ctx context.Context, out channel.Outgoing, since time.Time) (outbox.Answer, string, error) {
	if _, err := messages(out.Chat); err != nil {
		return outbox.CannotTell, "", err
	}
	var me user
	if err := a.api.call(ctx, http.MethodGet, "/users/@me", nil, &me); err != nil {
		return outbox.CannotTell, "", err
	}
	list, whole, err := a.history(ctx, out.Chat, fmt.Sprintf("after=%d&limit=%d", idAt(since.Add(-skew)), page))
	if err != nil {
		return outbox.CannotTell, "", err
	}
	return find(list, me.ID, out, since, whole)
}

// find looks for a piece. all says that nothing was written since but the list.
func find(list []message, me string, out channel.Outgoing, since time.Time, all bool) (outbox.Answer, string, error) {
	var same []message
	want := strings.TrimSpace(out.Piece.Text)
	mine := `"` + nonce(out.Key) + `"` // base64 needs no escapes
	for _, m := range list {
		if m.Author.ID != me {
			continue
		}
		if out.Key != "" && string(m.Nonce) == mine {
			return outbox.Happened, m.ID, nil
		}
		if strings.TrimSpace(m.Content) == want {
			same = append(same, m)
		}
	}
	switch {
	case !all || len(same) > 1:
		return outbox.CannotTell, "", nil
	case len(same) == 0:
		return outbox.DidNotHappen, "", nil
	case compareIDs(same[0].ID, fmt.Sprint(idAt(since))) < 0:
		return outbox.CannotTell, "", nil // it may be older, or the clocks differ
	}
	return outbox.Happened, same[0].ID, nil
}
