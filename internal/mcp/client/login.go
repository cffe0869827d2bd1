package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/vault"
)

const (
	loginWait   = 10 * time.Minute // for a person in a browser
	refreshWait = 30 * time.Second
	early       = time.Minute // before a token ends, another is fetched
	maxKnocks   = 50          // requests to the address a browser comes back to
)

// login is what a server's authorization server gave, as it is kept.
type login struct {
	ClientID     string    `json:"client_id"`
	ClientSecret string    `json:"client_secret,omitempty"`
	TokenURL     string    `json:"token_url"`
	Style        int       `json:"style"` // of oauth2.AuthStyle
	Resource     string    `json:"resource"`
	Access       string    `json:"access"`
	Type         string    `json:"type,omitempty"`
	Refresh      string    `json:"refresh,omitempty"`
	Expires      time.Time `json:"expires,omitzero"`
}

// known has its tokens hidden wherever they would be shown.
func (l *login) known(know func(name, value string), server string) {
	for _, value := range []string{l.Access, l.Refresh, l.ClientSecret} {
		if value != "" {
			know("mcp "+server, value)
		}
	}
}

func (l *login) token() *oauth2.Token {
	return &oauth2.Token{AccessToken: l.Access, TokenType: l.Type}
}

// bearer gives the requests to a server their token. It implements auth.OAuthHandler.
type bearer struct {
	x  *server
	mu sync.Mutex // one refresh at a time
}

var _ auth.OAuthHandler = (*bearer)(nil)

// TokenSource implements auth.OAuthHandler. Nil: the server is asked without a token.
func (b *bearer) TokenSource(ctx context.Context) (oauth2.TokenSource, error) {
	l := b.x.stored().login
	if l == nil {
		return nil, nil //nolint:nilnil // the interface says so
	}
	if l.Refresh != "" && !l.Expires.IsZero() && b.x.s.Now().Add(early).After(l.Expires) {
		var err error
		if l, err = b.renew(ctx, l.Access); err != nil {
			return nil, err
		}
	}
	return oauth2.StaticTokenSource(l.token()), nil
}

// Authorize implements auth.OAuthHandler: a refused token is renewed once. A person is
// never asked here: they log in when they want to.
func (b *bearer) Authorize(ctx context.Context, req *http.Request, resp *http.Response) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxExtra)) // for the connection to be used again
	_ = resp.Body.Close()
	l := b.x.stored().login
	used := req.Header.Get("Authorization")
	if resp.StatusCode == http.StatusUnauthorized && l != nil && l.Refresh != "" && used != "" {
		_, err := b.renew(ctx, used[len(used)-min(len(used), len(l.Access)):])
		return err
	}
	return b.x.errLogin(resp.Status)
}

func (x *server) errLogin(status string) error {
	return fault.New(fault.Denied, "%s wants you to log in (%s)", x.name, guard.OneLine(status, maxExcerpt)).WithHint("ombud mcp login %s", x.name)
}

// renew fetches another token in the place of used, unless that was done already, and
// keeps it before it is used: the old refresh token may be good no longer.
func (b *bearer) renew(ctx context.Context, used string) (*login, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.x
	r := x.stored()
	if r.login == nil {
		return nil, x.errLogin("no token")
	}
	l := *r.login
	if l.Access != used {
		return &l, nil
	}
	client, err := x.s.authClient(&r.spec)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshWait)
	defer cancel()
	cfg := oauth2.Config{ClientID: l.ClientID, ClientSecret: l.ClientSecret, Endpoint: oauth2.Endpoint{TokenURL: l.TokenURL, AuthStyle: oauth2.AuthStyle(l.Style)}}
	token, err := cfg.Exchange(context.WithValue(ctx, oauth2.HTTPClient, client), "",
		oauth2.SetAuthURLParam("grant_type", "refresh_token"), oauth2.SetAuthURLParam("refresh_token", l.Refresh), oauth2.SetAuthURLParam("resource", l.Resource))
	if err != nil {
		return nil, x.errRenew(err)
	}
	l.Access, l.Type, l.Expires = token.AccessToken, token.TokenType, token.Expiry
	if token.RefreshToken != "" {
		l.Refresh = token.RefreshToken
	}
	return &l, x.keepLogin(ctx, &l, "")
}

// errRenew does not repeat what the authorization server answered: it may hold a token.
func (x *server) errRenew(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fault.New(fault.Denied, "%s gives no other token: %s", x.name, guard.OneLine(refused.ErrorCode, maxExcerpt)).WithHint("ombud mcp login %s", x.name)
	}
	return fault.New(fault.Unavailable, "renew the token of %s: %w", x.name, err)
}

// keepLogin keeps tokens, sealed. by is who logged in; empty: they were only renewed.
func (x *server) keepLogin(ctx context.Context, l *login, by string) error {
	l.known(x.s.Know, x.name)
	plain, err := json.Marshal(l) //nolint:gosec // it is sealed before it is kept
	if err != nil {
		return err
	}
	x.keeping.Lock()
	defer x.keeping.Unlock()
	err = x.s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := x.s.setTx(ctx, tx, x.name, vault.MCPLogin, plain); err != nil || by == "" {
			return err
		}
		return x.s.tell(ctx, tx, KindLogin, by, "ok", eventData{Name: x.name})
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.row.login = l
	return nil
}

// authClient reaches authorization servers, which may be anywhere the server itself may be.
func (s *Servers) authClient(sp *Spec) (*http.Client, error) {
	egress, err := guard.NewEgress(guard.EgressConfig{AllowPrivate: sp.Private})
	if err != nil {
		return nil, err
	}
	return guard.HTTPClient(guard.HTTPConfig{Egress: egress, Timeout: refreshWait, MaxBody: 1 << 20, MaxRedirects: -1}), nil
}

// Login has the operator log in to a server in a browser: open is told the address. It
// finds the authorization server as the protocol says, registers ombud there unless the
// operator gave a client id, and keeps the tokens. The browser comes back to an address of
// this machine that is there for as long. Errors: NotFound, Invalid for a program,
// Conflict for a server that wants no login, Denied, Timeout.
func (s *Servers) Login(ctx context.Context, name, by string, open func(url string) error) error {
	x, err := s.get(name)
	if err != nil {
		return err
	}
	sp := x.stored().spec
	if !sp.Remote() {
		return fault.New(fault.Invalid, "%s is a program: there is nothing to log in to", name)
	}
	if s.Hold() {
		return errHeld(name)
	}
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fault.New(fault.Unavailable, "wait for the browser: %w", err)
	}
	back := &comeback{ln: ln, got: make(chan url.Values, 1)}
	served := make(chan struct{})
	go func() { defer close(served); back.serve() }()
	defer func() { _ = ln.Close(); <-served }()
	client, err := s.authClient(&sp)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return x.logIn(ctx, &sp, client, "http://"+ln.Addr().String()+"/", back, by, open)
}

func (x *server) logIn(ctx context.Context, sp *Spec, client *http.Client, redirect string, back *comeback, by string, open func(string) error) error {
	var got *login
	cfg := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: redirect, RequestRefreshToken: true, Client: client, AcceptUnadvertisedIss: true,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			return back.fetch(ctx, args.URL, open)
		},
		NewTokenSource: func(_ context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			got = &login{
				ClientID: c.ClientID, ClientSecret: c.ClientSecret, TokenURL: c.Endpoint.TokenURL, Style: int(c.Endpoint.AuthStyle),
				Access: t.AccessToken, Type: t.TokenType, Refresh: t.RefreshToken, Expires: t.Expiry,
			}
			return oauth2.StaticTokenSource(t), nil
		},
	}
	if sp.ClientID != "" {
		cfg.PreregisteredClient = &oauthex.ClientCredentials{ClientID: sp.ClientID}
	} else {
		cfg.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: clientName, RedirectURIs: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"},
			ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: "none",
		}}
	}
	h, err := auth.NewAuthorizationCodeHandler(cfg)
	if err != nil {
		return fault.New(fault.Invalid, "log in to %s: %w", x.name, err)
	}
	req, resp, err := x.knock(ctx, sp)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		_ = resp.Body.Close()
		return fault.New(fault.Conflict, "%s wants no login: it answers %s", x.name, guard.OneLine(resp.Status, maxExcerpt))
	}
	if err := h.Authorize(ctx, req, resp); err != nil {
		return x.errAuthorize(ctx, err)
	}
	if got == nil {
		return fault.New(fault.Denied, "%s does not say how to log in (%s)", x.name, guard.OneLine(resp.Status, maxExcerpt))
	}
	got.Resource = back.resource
	if err := x.keepLogin(ctx, got, by); err != nil {
		return err
	}
	x.wake()
	return nil
}

func (x *server) errAuthorize(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fault.New(fault.Denied, "log in to %s: it gives no token: %s", x.name, guard.OneLine(refused.ErrorCode, maxExcerpt))
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return fmt.Errorf("log in to %s: %w", x.name, err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "log in to %s: nobody came back from the browser within %v", x.name, loginWait)
	}
	return fault.New(fault.Denied, "log in to %s: %s", x.name, guard.OneLine(err.Error(), 300))
}

// knock asks the server for anything, without a token, to be told where to log in.
func (x *server) knock(ctx context.Context, sp *Spec) (*http.Request, *http.Response, error) {
	client, err := x.s.webClient(sp)
	if err != nil {
		return nil, nil, err
	}
	const ask = `{"jsonrpc":"2.0","id":1,"method":"ping"}` // it begins nothing
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sp.URL, bytes.NewReader([]byte(ask)))
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "%w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "reach %s: %w", x.name, err)
	}
	return req, resp, nil
}

// comeback is where a browser comes back to with a code. It is no HTTP server: it reads
// the first line of each request and answers all with the same page.
type comeback struct {
	ln       net.Listener
	got      chan url.Values
	resource string // the login was asked for
	mu       sync.Mutex
	state    string // what the right browser brings
}

const comebackPage = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n" +
	"Referrer-Policy: no-referrer\r\nContent-Length: 55\r\n\r\nombud has what it needs. You can close this page now.\r\n"

// serve answers requests until its listener is closed.
func (b *comeback) serve() {
	for range maxKnocks {
		c, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.answer(c)
	}
}

func (b *comeback) answer(c net.Conn) {
	defer func() { _ = c.Close() }() // it is answered, or not
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, 16<<10)))
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, comebackPage)
	q := req.URL.Query()
	b.mu.Lock()
	right := b.state != "" && q.Get("state") == b.state
	b.mu.Unlock()
	if !right || req.Method != http.MethodGet {
		return // some other page of the browser knocks
	}
	select {
	case b.got <- q:
	default: // the first counts
	}
}

// fetch sends the operator to the authorization server and waits for what they bring back.
func (b *comeback) fetch(ctx context.Context, address string, open func(string) error) (*auth.AuthorizationResult, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fault.New(fault.Denied, "the address to log in at is none: %s", guard.OneLine(address, 200))
	}
	b.mu.Lock()
	b.state, b.resource = u.Query().Get("state"), u.Query().Get("resource")
	b.mu.Unlock()
	if err := open(address); err != nil {
		return nil, err
	}
	select {
	case q := <-b.got:
		if q.Get("code") == "" {
			return nil, fault.New(fault.Denied, "it was refused: %s", guard.OneLine(q.Get("error")+" "+q.Get("error_description"), 200))
		}
		return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
