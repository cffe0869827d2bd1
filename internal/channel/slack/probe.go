package slack

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

const (
	probePages  = 5   // how many pages are looked through
	pageSize    = 200 // messages of one
	clocksApart = 15 * time.Minute
)

// Probe looks for a message of ombud's with the key of a piece.
func (a *Adapter) Probe(ctx context.Context, out channel.Outgoing, since time.Time) (outbox.Answer, string, error) {
	me, err := a.known(ctx)
	if err != nil {
		return outbox.CannotTell, "", sending(err)
	}
	answer, ref, err := a.look(ctx, me, out, since)
	if err != nil || answer != outbox.DidNotHappen || a.pace.now().Sub(since) > 10*a.pace.settle {
		return answer, ref, sending(err)
	}
	// Slack may still be at it.
	if err := a.pace.wait(ctx, a.pace.settle); err != nil {
		return outbox.CannotTell, "", err
	}
	answer, ref, err = a.look(ctx, me, out, since)
	return answer, ref, sending(err)
}

// look reads back to since. That it is not there is only known if nothing was left out, and
// if Slack shows the metadata of ombud's messages at all: without a scope it does not.
func (a *Adapter) look(ctx context.Context, me channel.Me, out channel.Outgoing, since time.Time) (outbox.Answer, string, error) {
	oldest := stamp(since.Add(-clocksApart).UnixMicro())
	own, shown := 0, 0
	for cursor, n := "", 0; n < probePages; n++ {
		p, err := a.page(ctx, out.Place, oldest, cursor)
		if err != nil {
			return outbox.CannotTell, "", err
		}
		for _, m := range p.Messages {
			if !me.Is(m.User) && !me.Is(m.BotID) || !later(m.TS, oldest) {
				continue
			}
			own++
			var meta metadata
			if json.Unmarshal(m.Metadata, &meta) != nil || meta.Type != metadataType {
				continue
			}
			shown++
			if out.Key != "" && meta.Payload.Key == out.Key {
				return outbox.Happened, m.TS, nil
			}
		}
		switch cursor = p.NextCursor; {
		case !p.HasMore && (own == 0 || shown > 0):
			return outbox.DidNotHappen, "", nil
		case !p.HasMore, cursor == "":
			return outbox.CannotTell, "", nil
		}
	}
	return outbox.CannotTell, "", nil
}

// page is one of a channel or a thread.
type page struct {
	Messages   []message
	HasMore    bool
	NextCursor string
}

// page reads what was written after oldest: of a channel newest first, of a thread oldest
// first with its root. A message of an unknown shape is left out. An end in the future makes
// Slack begin there, and not at oldest.
func (a *Adapter) page(ctx context.Context, at channel.Place, oldest, cursor string) (page, error) {
	form := url.Values{"channel": {at.Chat}, "oldest": {oldest}, "limit": {strconv.Itoa(pageSize)}, "include_all_metadata": {"true"}}
	method := "conversations.history"
	if at.Thread != "" {
		method = "conversations.replies"
		form.Set("ts", at.Thread)
	} else {
		form.Set("latest", stamp(a.pace.now().Add(time.Hour).UnixMicro()))
	}
	if cursor != "" {
		form.Set("cursor", cursor)
	}
	var raw struct {
		Messages []json.RawMessage `json:"messages"`
		HasMore  *bool             `json:"has_more"`
		Meta     struct {
			NextCursor string `json:"next_cursor"`
		} `json:"response_metadata"`
	}
	if err := a.api.call(ctx, method, partBot, form, &raw); err != nil {
		return page{}, err
	}
	if raw.HasMore == nil && raw.Messages == nil {
		return page{}, fault.New(fault.Unknown, "slack: the answer of %s is no page", method)
	}
	p := page{HasMore: raw.HasMore != nil && *raw.HasMore || raw.Meta.NextCursor != "", NextCursor: raw.Meta.NextCursor}
	for _, r := range raw.Messages {
		var m message
		if json.Unmarshal(r, &m) == nil {
			m.Channel = at.Chat
			p.Messages = append(p.Messages, m)
		}
	}
	return p, nil
}
