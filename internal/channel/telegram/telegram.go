// Package telegram is the adapter of Telegram's Bot API: a long poll, and calls over HTTPS.
//
// The poll is our own. An update is confirmed to Telegram by the next poll alone, which asks
// from the offset that was committed with the messages before it: what was not kept comes
// again. Telegram keeps updates for 24 hours.
//
// Telegram has no key of a message that is ours and lets no bot read back what it sent, so
// what became of a message whose answer was lost cannot be found out: there is no Prober.
package telegram

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

const (
	partToken  = "token"
	partAPI    = "api_url"
	defaultAPI = "https://api.telegram.org"
)

// Kind is the kind of channel that this package makes.
func Kind() channel.Kind {
	return channel.Kind{
		Name:  "telegram",
		About: "a bot on Telegram",
		Needs: []channel.Part{
			{Name: partToken, About: "the bot's token, from @BotFather", Secret: true},
			{Name: partAPI, About: "of a Bot API server of your own", Optional: true, Default: defaultAPI},
		},
		Make: func(s channel.Setup) (channel.Adapter, error) { return newAdapter(s, tuning{}) },
	}
}

// tuning is what tests change; zero fields have defaults.
type tuning struct {
	call time.Duration // of a call with its answer; default 30 s
	poll time.Duration // how long a long poll may wait; default 50 s, as the server's own limit
	late time.Duration // after which a poll that should have ended is given up; default 15 s
	now  func() time.Time
	wait func(ctx context.Context, d time.Duration) error // returns the error of ctx if that ends first
}

func (t tuning) filled() tuning {
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&t.call, 30 * time.Second}, {&t.poll, 50 * time.Second}, {&t.late, 15 * time.Second}} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	if t.now == nil {
		t.now = time.Now
	}
	if t.wait == nil {
		t.wait = channel.Wait
	}
	return t
}

// adapter is one bot. It is safe for concurrent use.
type adapter struct {
	tuning
	base   string // of the Bot API, without a slash at its end
	secret func(ctx context.Context, part string) (string, error)
	calls  *http.Client
	polls  *http.Client
	log    *slog.Logger
}

var (
	_ channel.Adapter = (*adapter)(nil)
	_ channel.Editor  = (*adapter)(nil)
	_ channel.Typer   = (*adapter)(nil)
)

func newAdapter(s channel.Setup, t tuning) (*adapter, error) {
	base := strings.TrimRight(s.Values[partAPI], "/")
	if base == "" {
		base = defaultAPI
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fault.New(fault.Config, "%s: %q is not the http address of a Bot API server", partAPI, base)
	}
	a := &adapter{tuning: t.filled(), base: base, secret: s.Secret, log: s.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.calls, err = channel.Client(base, a.call, maxAnswer); err != nil {
		return nil, err
	}
	if a.polls, err = channel.Client(base, a.poll+a.late, maxUpdates); err != nil {
		return nil, err
	}
	return a, nil
}

// Capabilities are what Telegram can do. It allows about one message a second in a chat and
// 20 a minute in a group; edits count.
func (a *adapter) Capabilities() channel.Capabilities {
	return channel.Capabilities{Buttons: true, Edits: 1500 * time.Millisecond, Limit: 4096}
}

// Render makes pieces of Markdown, each a text with its entities.
func (a *adapter) Render(markdown string) []markup.Piece { return markup.Telegram(markdown) }

// Check asks Telegram who the bot is. Denied if it refuses the token, or there is none.
func (a *adapter) Check(ctx context.Context) (channel.Me, error) {
	var u user
	if err := a.do(ctx, a.calls, "getMe", nil, &u); err != nil {
		return channel.Me{}, connected(err)
	}
	if u.ID <= 0 || u.Username == "" {
		return channel.Me{}, fault.New(fault.Unavailable, "Telegram does not say who the bot is")
	}
	id := strconv.FormatInt(u.ID, 10)
	return channel.Me{ID: id, Name: "@" + u.Username, IDs: []string{id}, Names: []string{u.Username}}, nil
}

// isToken reports whether a text looks like a token of @BotFather, ID:SECRET. Nothing else gets
// into an address.
func isToken(text string) bool {
	id, secret, ok := strings.Cut(text, ":")
	if !ok || id == "" || id[0] == '0' || len(id) > 20 || secret == "" || len(secret) > 128 {
		return false
	}
	return only(id, func(r rune) bool { return r >= '0' && r <= '9' }) && only(secret, func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '_' || r == '-'
	})
}

func only(text string, is func(rune) bool) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !is(r) })
}

// noToken says that no call can be made, whatever the server would say.
type noToken struct{ err *fault.Error }

func (e *noToken) Error() string { return e.err.Msg }

func (e *noToken) Unwrap() error { return e.err }

func (a *adapter) token(ctx context.Context) (string, error) {
	token, err := a.secret(ctx, partToken)
	if fault.Is(err, fault.NotFound) {
		return "", &noToken{fault.New(fault.Unavailable, "there is no token: %w", err).WithHint("@BotFather gives one for each bot")}
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "read the token: %w", err)
	}
	token = strings.TrimSpace(token)
	if !isToken(token) {
		return "", &noToken{fault.New(fault.Unavailable, "the token is none of Telegram's").WithHint("a token looks like 123456789:AAF…; @BotFather shows it")}
	}
	return token, nil
}
