package discord

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

const defaultURL = "https://discord.com/api/v10"

// Kind is Discord as a kind of channel.
func Kind() channel.Kind {
	return channel.Kind{
		Name: "discord", About: "a Discord bot, in direct messages and in the channels of servers",
		Needs: []channel.Part{
			{Name: "token", Secret: true, About: "the bot's token: Discord Developer Portal, your application, Bot, Reset Token"},
			{Name: "api_url", Optional: true, Default: defaultURL, About: "where Discord's REST interface is, version 10"},
		},
		Make: func(s channel.Setup) (channel.Adapter, error) {
			return newAdapter(s, settings{})
		},
	}
}

// settings are what tests change; zero fields have defaults.
type settings struct {
	timeout time.Duration                                       // of a REST call; default 20 s
	wait    func(ctx context.Context, d time.Duration) error    // between connections; default by the clock
	settle  time.Duration                                       // how long a new session waits for its guilds; default 5 s
	retry   time.Duration                                       // how soon a channel that could not be read is read again; default 15 s
	dial    func(ctx context.Context, url string) (conn, error) // default over a guarded WebSocket
}

// Adapter is one bot. It is safe for concurrent use; Run only once at a time.
type Adapter struct {
	api    *api
	set    settings
	places *places
	log    *slog.Logger
}

var (
	_ channel.Adapter = (*Adapter)(nil)
	_ channel.Editor  = (*Adapter)(nil)
	_ channel.Typer   = (*Adapter)(nil)
	_ channel.Prober  = (*Adapter)(nil)
)

func newAdapter(s channel.Setup, set settings) (*Adapter, error) {
	base, err := apiURL(s.Values["api_url"])
	if err != nil {
		return nil, err
	}
	if set.timeout == 0 {
		set.timeout = 20 * time.Second
	}
	if set.settle == 0 {
		set.settle = 5 * time.Second
	}
	if set.retry == 0 {
		set.retry = 15 * time.Second
	}
	if set.wait == nil {
		set.wait = channel.Wait
	}
	client, err := channel.Client(base.String(), set.timeout, maxAnswer)
	if err != nil {
		return nil, err
	}
	if set.dial == nil {
		// The Gateway is at other hosts than the REST interface, and the answers of both
		// name them. Those may be on the public internet, or where the operator pointed to.
		egress, err := guard.NewEgress(guard.EgressConfig{AllowHosts: []string{base.Hostname()}})
		if err != nil {
			return nil, err
		}
		set.dial = dialer(egress, base.Scheme == "http")
	}
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &api{base: base.String(), client: client, limits: newLimits(), token: func(ctx context.Context) (string, error) { return s.Secret(ctx, "token") }}
	return &Adapter{api: a, set: set, places: newPlaces(a), log: log}, nil
}

// apiURL checks where the REST interface is: a token goes there.
func apiURL(text string) (*url.URL, error) {
	if text == "" {
		text = defaultURL
	}
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fault.New(fault.Config, "api_url %q is not an http address", text).WithHint("leave it out for Discord itself: %s", defaultURL)
	}
	if h := u.Hostname(); u.Scheme == "http" && h != "127.0.0.1" && h != "::1" && h != "localhost" {
		return nil, fault.New(fault.Config, "api_url %q would send the token unencrypted", text).WithHint("use https; http is for this machine only")
	}
	return u, nil
}

// between is a random duration from a to b.
func between(a, b time.Duration) time.Duration {
	return a + rand.N(b-a+1) //nolint:gosec // it only spreads load
}

// Capabilities says what Discord can do.
func (a *Adapter) Capabilities() channel.Capabilities {
	return channel.Capabilities{Buttons: true, Edits: 1200 * time.Millisecond, Limit: 2000}
}

// Check asks Discord who the bot is. Denied if the token is refused.
func (a *Adapter) Check(ctx context.Context) (channel.Me, error) {
	var me user
	if err := a.api.call(ctx, "GET", "/users/@me", nil, &me); err != nil {
		return channel.Me{}, refusedKey(err)
	}
	if !snowflake(me.ID) {
		return channel.Me{}, fault.New(fault.Unavailable, "Discord's answer does not say who the bot is")
	}
	return me.me(), nil
}

// Render makes pieces of Discord's Markdown.
func (a *Adapter) Render(markdown string) []markup.Piece { return markup.Discord(markdown) }

// me is a user as an identity of ombud's.
func (u user) me() channel.Me {
	m := channel.Me{ID: u.ID, Name: "@" + u.Username, IDs: []string{u.ID}, Names: []string{u.Username}}
	if u.GlobalName != "" && u.GlobalName != u.Username {
		m.Names = append(m.Names, u.GlobalName)
	}
	return m
}

// snowflake reports whether a text is an id of Discord's, safe in a path.
func snowflake(id string) bool {
	_, err := strconv.ParseUint(id, 10, 63)
	return err == nil
}

// timeOf is when a thing with that id was made.
func timeOf(id string) time.Time {
	t, err := discordgo.SnowflakeTimestamp(id)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// idAt is the first id of a moment.
func idAt(t time.Time) uint64 { return uint64(max(0, t.UnixMilli()-1420070400000)) << 22 }
