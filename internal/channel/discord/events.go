package discord

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// answerTime is how long an interaction may be answered, and how long that may take.
const answerTime = 3 * time.Second

// event handles an event. An error is the store's, or that of the end of ctx; the event
// will have to come again.
func (r *runner) event(ctx context.Context, f frame) error {
	if f.Name == "READY" {
		return r.ready(f)
	}
	if r.session == "" {
		return nil // nothing is meant for who was not let in
	}
	switch f.Name {
	case "RESUMED":
		r.up()
	case "MESSAGE_CREATE":
		return decoded(r, f, func(m message) error { return r.message(ctx, m) })
	case "INTERACTION_CREATE":
		return decoded(r, f, func(p press) error { return r.press(ctx, p) })
	default:
		return r.learn(f)
	}
	return nil
}

// decoded calls fn with the payload of an event. One that cannot be decoded would come
// again for ever: it is told of and let go.
func decoded[T any](r *runner, f frame, fn func(T) error) error {
	var v T
	if err := json.Unmarshal(f.Data, &v); err != nil {
		r.log.Warn("an event of Discord's cannot be read", "event", f.Name, "err", err)
		return nil
	}
	return fn(v)
}

// learn keeps what events tell of guilds and channels.
func (r *runner) learn(f frame) error {
	switch f.Name {
	case "GUILD_CREATE":
		return decoded(r, f, func(s server) error {
			r.places.learn(s, r.me.ID)
			r.behind.arrived(s)
			return nil
		})
	case "GUILD_ROLE_CREATE", "GUILD_ROLE_UPDATE":
		return decoded(r, f, func(e roleEvent) error { r.places.role(e, r.me.ID); return nil })
	case "GUILD_MEMBER_UPDATE":
		return decoded(r, f, func(e memberEvent) error { r.places.member(e, r.me.ID); return nil })
	case "CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE":
		return decoded(r, f, func(c room) error { r.places.moved(c); return nil })
	case "CHANNEL_DELETE", "THREAD_DELETE":
		return decoded(r, f, func(c room) error { r.places.gone(c); return nil })
	}
	return nil
}

// ready begins a session: all channels are behind until they were read.
func (r *runner) ready(f frame) error {
	var d ready
	err := json.Unmarshal(f.Data, &d)
	if err != nil || d.Session == "" || !snowflake(d.User.ID) {
		return fault.New(fault.Unavailable, "%w", &garbled{fmt.Errorf("READY does not say who ombud is: %w", err)})
	}
	r.session, r.resume, r.me = d.Session, d.Resume, d.User.me()
	r.behind.begin(r.cursor.channels(), d.Guilds, time.Now().Add(r.set.settle))
	r.up()
	return nil
}

func (r *runner) up() {
	r.told = false
	r.in.Up(r.me)
}

// message takes in a message that the Gateway tells of.
func (r *runner) message(ctx context.Context, m message) error {
	if !written(m) {
		return nil
	}
	if r.behind.has(m.ChannelID) {
		if err := r.readUp(ctx, m.ChannelID); err != nil {
			return err
		}
	}
	in := room{ID: m.ChannelID, GuildID: m.GuildID}
	if m.GuildID != "" {
		in.Name = r.places.title(ctx, m.ChannelID)
	}
	return r.take(ctx, m, in, !r.behind.has(m.ChannelID))
}

// take takes a message in, with the cursor unless older ones are still to be read.
func (r *runner) take(ctx context.Context, m message, in room, move bool) error {
	got := received(m, r.me, in, r.places)
	next := r.cursor
	if move {
		next = r.cursor.with(m.ChannelID, m.ID)
		got.Cursor = next.String()
	}
	if err := r.in.Take(ctx, got); err != nil {
		return notKept(err)
	}
	r.cursor = next
	return nil
}

// unkept is the store's error, whose class says nothing of Discord.
type unkept struct{ err error }

func (e *unkept) Error() string { return "what was written could not be kept: " + e.err.Error() }
func (e *unkept) Unwrap() error { return e.err }

func notKept(err error) error { return fault.New(fault.Unavailable, "%w", &unkept{err}) }

// press takes in the press of a button, and only then tells Discord so.
func (r *runner) press(ctx context.Context, p press) error {
	in := room{ID: p.ChannelID, GuildID: p.GuildID, Name: r.places.roomName(p.GuildID, p.ChannelID)}
	got, ok := pressed(p, in)
	if !ok {
		return nil
	}
	if err := r.in.Take(ctx, got); err != nil {
		return notKept(err)
	}
	r.callers.Go(func() { r.acknowledge(ctx, p) }) // it is in no order with what comes
	return nil
}

type callback struct {
	Type int `json:"type"`
}

// acknowledge ends the waiting sign at a button. If it fails, Discord shows the person
// that the press failed although it did not; the question is seen to be answered.
func (r *runner) acknowledge(ctx context.Context, p press) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	const deferredUpdate = 6
	if !snowflake(p.ID) || p.Token == "" || !plain(p.Token) {
		return
	}
	err := r.api.call(ctx, http.MethodPost, "/interactions/"+p.ID+"/"+p.Token+"/callback", callback{deferredUpdate}, nil)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("Discord was not told that a button's press arrived", "err", err)
	}
}

// plain reports whether a text can be a part of a path as it is.
func plain(text string) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(text) < 1000 && text != "." && text != ".."
}

var _ known = (*places)(nil)
