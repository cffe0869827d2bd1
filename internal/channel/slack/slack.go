package slack

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

// The parts a channel is set up with.
const (
	partApp = "app_token"
	partBot = "bot_token"
	partURL = "api_url"
)

const defaultURL = "https://slack.com/api/"

// limit is how many characters a piece has at most. Slack cuts messages from 4,000 on.
const limit = 3800

// editsApart is how far apart edits are: chat.update may be called about 50 times a minute.
const editsApart = 1200 * time.Millisecond

// Kind returns the kind of channel that this package makes.
func Kind() channel.Kind {
	return channel.Kind{
		Name:  "slack",
		About: "an app of yours in a Slack workspace, over Socket Mode",
		Needs: []channel.Part{
			{Name: partApp, Secret: true, About: "app-level token with connections:write, xapp-…: api.slack.com/apps, Basic Information, App-Level Tokens"},
			{Name: partBot, Secret: true, About: "bot token, xoxb-…: api.slack.com/apps, OAuth & Permissions, after the app is installed"},
			{Name: partURL, Optional: true, Default: defaultURL, About: "address of the Web API"},
		},
		Make: func(s channel.Setup) (channel.Adapter, error) { return newAdapter(s, defaults()) },
	}
}

// pace is how long things may take. Tests have less patience.
type pace struct {
	call   time.Duration // a call of the Web API
	hello  time.Duration // until a new socket says hello
	quiet  time.Duration // a socket without a sign of life
	ping   time.Duration // between pings of ours
	steady time.Duration // a socket that lived as long was no failure
	grace  time.Duration // a replaced socket is still heard
	names  time.Duration // what is looked up before a message is taken in
	again  time.Duration // until a history is read again after trouble
	settle time.Duration // until a message that was just sent is in the history
	now    func() time.Time
	wait   func(ctx context.Context, d time.Duration) error
}

func defaults() pace {
	return pace{
		call: 15 * time.Second, hello: 30 * time.Second, quiet: 90 * time.Second, ping: 30 * time.Second,
		steady: 30 * time.Second, grace: 10 * time.Second, names: time.Second, again: 30 * time.Second,
		settle: 3 * time.Second, now: time.Now, wait: channel.Wait,
	}
}

// Adapter is one app in one workspace.
type Adapter struct {
	api    *api
	pace   pace
	log    *slog.Logger
	people *people
	me     atomic.Pointer[channel.Me] // nil until Slack said it
}

var (
	_ channel.Adapter = (*Adapter)(nil)
	_ channel.Editor  = (*Adapter)(nil)
	_ channel.Prober  = (*Adapter)(nil)
)

func newAdapter(s channel.Setup, p pace) (*Adapter, error) {
	base := s.Values[partURL]
	if base == "" {
		base = defaultURL
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fault.New(fault.Config, "%s is not the address of a Web API, such as %s", partURL, defaultURL)
	}
	base = strings.TrimSuffix(base, "/") + "/"
	client, err := channel.Client(base, p.call, maxAnswer)
	if err != nil {
		return nil, err
	}
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Adapter{api: &api{base: base, client: client, secret: s.Secret}, pace: p, log: log}
	a.people = newPeople(a.api, p.now)
	return a, nil
}

// Capabilities tells what Slack can do.
func (a *Adapter) Capabilities() channel.Capabilities {
	return channel.Capabilities{Buttons: true, Edits: editsApart, Limit: limit}
}

// Check asks Slack who the app is.
func (a *Adapter) Check(ctx context.Context) (channel.Me, error) {
	var who struct {
		User   string `json:"user"`
		UserID string `json:"user_id"`
		BotID  string `json:"bot_id"`
	}
	if err := a.api.call(ctx, "auth.test", partBot, nil, &who); err != nil {
		return channel.Me{}, err
	}
	if who.UserID == "" {
		return channel.Me{}, fault.New(fault.Unknown, "slack: auth.test names no user")
	}
	if who.BotID == "" {
		return channel.Me{}, keyTrouble("not_a_bot", "slack: %s is the token of a person, not of an app", partBot).
			hint("take the Bot User OAuth Token, xoxb-…, of the page OAuth & Permissions")
	}
	me := channel.Me{ID: who.UserID, Name: "@" + who.User, IDs: []string{who.UserID, who.BotID}, Names: []string{who.User}}
	a.me.Store(&me)
	return me, nil
}

// known returns who the app is, and asks if that is not known.
func (a *Adapter) known(ctx context.Context) (channel.Me, error) {
	if me := a.me.Load(); me != nil {
		return *me, nil
	}
	return a.Check(ctx)
}

// Render makes pieces of Slack's mrkdwn.
func (a *Adapter) Render(markdown string) []markup.Piece { return markup.Slack(markdown) }
