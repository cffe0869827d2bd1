package discord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// maxAnswer bounds an answer: a hundred messages, each with its embeds.
const maxAnswer = 16 << 20

// agent is the User-Agent in the form that Discord demands.
const agent = "DiscordBot (https://github.com/ombud-run/ombud, 1)"

// api makes REST calls, each once.
type api struct {
	base   string
	client *http.Client
	limits *limits
	token  func(ctx context.Context) (string, error)
}

// key returns the token. A keyRefused is within the error if there is none that could be one.
func (a *api) key(ctx context.Context) (string, error) {
	token, err := a.token(ctx)
	if fault.Is(err, fault.NotFound) {
		return "", noKey("it is not set")
	}
	if err != nil {
		return "", err
	}
	token = strings.TrimPrefix(strings.TrimSpace(token), "Bot ")
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", noKey("it has characters that no token has")
	}
	return token, nil
}

func noKey(why string) error {
	return &keyRefused{fault.New(fault.Denied, "the bot's token cannot be used: %s", why).
		WithHint("set the one that the Discord Developer Portal shows at Bot, Reset Token")}
}

// call makes a call and decodes its answer into out, unless that is nil. The class of an
// error is as channel.Adapter has it for sending, but a call that only reads is never
// Unknown. No error holds the address: that of an interaction has a token.
func (a *api) call(ctx context.Context, method, path string, in, out any) error {
	err := a.once(ctx, method, path, in, out)
	if err != nil && method == http.MethodGet && ctx.Err() == nil && !classified(err) {
		return fault.New(fault.Unavailable, "%w", err)
	}
	return err
}

func classified(err error) bool {
	if _, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		return true
	}
	c := fault.ClassOf(err)
	return c != fault.Unknown && c != fault.Internal && c != fault.Timeout
}

func (a *api) once(ctx context.Context, method, path string, in, out any) error {
	route := routeOf(method, path)
	if wait := a.limits.wait(route, time.Now()); wait > 0 {
		return &outbox.RetryAfter{After: wait, Err: fault.New(fault.Unavailable, "Discord's rate limit is used up")}
	}
	req, err := a.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req) //nolint:bodyclose // channel.ReadAll closes it
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		if fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Denied) {
			return err
		}
		return fault.New(fault.Unknown, "Discord did not answer: %w", err)
	}
	data, err := channel.ReadAll(resp, maxAnswer)
	if err != nil && (resp.StatusCode < 400 || resp.StatusCode > 499) {
		return err // of what was refused nothing was done, whatever more was said
	}
	a.limits.note(route, resp.Header, time.Now())
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return a.refused(route, resp, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fault.New(fault.Unknown, "Discord's answer is not what it should be: %w", err)
	}
	return nil
}

func (a *api) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fault.New(fault.Invalid, "encode a call: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Invalid, "a call to Discord has no valid address")
	}
	req.Header.Set("User-Agent", agent)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(path, "/interactions/") {
		return req, nil // the path is the authority
	}
	token, err := a.key(ctx)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "%w", err) // not sent, and the key will be mended
	}
	req.Header.Set("Authorization", "Bot "+token)
	return req, nil
}

// problem is the body of a refusal.
type problem struct {
	Code       int     `json:"code"`
	Message    string  `json:"message"`
	RetryAfter float64 `json:"retry_after"`
	Global     bool    `json:"global"`
}

func (a *api) refused(route string, resp *http.Response, data []byte) error {
	var p problem
	if json.Unmarshal(data, &p) != nil {
		p = problem{}
	}
	wait := channel.RetryAfter(resp.Header)
	if p.RetryAfter > 0 && p.RetryAfter < 24*3600 {
		wait = time.Duration(p.RetryAfter * float64(time.Second))
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		if p.Global {
			route = everything
		}
		a.limits.until(route, time.Now().Add(max(wait, time.Second)))
	}
	said := strings.ToValidUTF8(fault.Cut(p.Message, 200), "")
	if said == "" {
		said = http.StatusText(resp.StatusCode)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		denied := fault.New(fault.Denied, "Discord refuses the bot's token: %s", said).
			WithHint("reset it in the Discord Developer Portal at Bot, and set the new one")
		return fault.New(fault.Unavailable, "%w", &keyRefused{denied})
	}
	return channel.Refused(resp.StatusCode, wait, "Discord answered %d: %s (code %d)", resp.StatusCode, said, p.Code)
}

// keyRefused is within the error of a call whose token is refused or is none. The call's
// own class is Unavailable: a message waits until the token is mended.
type keyRefused struct{ err error }

func (e *keyRefused) Error() string { return e.err.Error() }
func (e *keyRefused) Unwrap() error { return e.err }

// refusedKey makes a refused key Denied, for those who ask to find that out, and nothing
// else: other refusals may be of the way there.
func refusedKey(err error) error {
	if inner, ok := errors.AsType[*keyRefused](err); ok {
		return inner.err
	}
	if fault.Is(err, fault.Denied) {
		return fault.New(fault.Unavailable, "%w", err)
	}
	return err
}

// everything is the route of what limits the whole bot.
const everything = "*"

// limits are the routes that are used up, so that they are not called in vain: a bot that
// is refused 10,000 times in ten minutes is shut out.
type limits struct {
	mu   sync.Mutex
	ends map[string]time.Time
}

const maxRoutes = 2000

func newLimits() *limits { return &limits{ends: map[string]time.Time{}} }

var anID = regexp.MustCompile(`/(messages|interactions)/.*`)

// routeOf is what shares a limit: the method and the channel, not the message.
func routeOf(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	return method + " " + anID.ReplaceAllString(path, "/$1/")
}

func (l *limits) wait(route string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var wait time.Duration
	for _, r := range []string{route, everything} {
		if end, ok := l.ends[r]; ok && end.After(now) {
			wait = max(wait, end.Sub(now))
		} else {
			delete(l.ends, r)
		}
	}
	return wait
}

func (l *limits) until(route string, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) >= maxRoutes {
		clear(l.ends) // the server counts too
	}
	l.ends[route] = end
}

// note reads what an answer says of its route.
func (l *limits) note(route string, h http.Header, now time.Time) {
	if h.Get("X-RateLimit-Remaining") != "0" || h.Get("X-RateLimit-Reset-After") == "" {
		return
	}
	after, err := time.ParseDuration(h.Get("X-RateLimit-Reset-After") + "s")
	if err == nil && after > 0 && after < time.Hour {
		l.until(route, now.Add(after))
	}
}
