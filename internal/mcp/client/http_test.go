//go:build linux

package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/secret"
)

// remoteServer is a server over HTTP, of the official library.
type remoteServer struct {
	t    *testing.T
	web  *httptest.Server
	auth *authServer // nil: it wants no login

	mu     sync.Mutex
	heads  []http.Header
	tokens map[string]bool // that are good
	wait   chan struct{}
}

func newRemote(t *testing.T, auth bool) *remoteServer {
	t.Helper()
	r := &remoteServer{t: t, tokens: map[string]bool{}, wait: make(chan struct{})}
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "2"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "say", Description: "says it"}, func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said " + i.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Description: "waits"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
		case <-r.wait:
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	askingTools(s)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	mux := http.NewServeMux()
	// Without sessions the library speaks the newest revision, with them older ones.
	mux.Handle("/newest", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.heads = append(r.heads, req.Header.Clone())
		good := r.auth == nil || r.tokens[strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")]
		r.mu.Unlock()
		if !good {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+r.web.URL+`/.well-known/oauth-protected-resource/mcp"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, req)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(obj{"resource": r.web.URL + "/mcp", "authorization_servers": []string{r.auth.web.URL}, "scopes_supported": []string{"tools"}})
	})
	r.web = httptest.NewServer(mux)
	if auth {
		r.auth = newAuth(t, r)
	}
	t.Cleanup(func() { close(r.wait); r.web.CloseClientConnections(); r.web.Close() })
	return r
}

// authServer is an authorization server that holds its clients to PKCE, the state of the
// redirect and the resource, and gives tokens that are good once.
type authServer struct {
	t   *testing.T
	web *httptest.Server
	r   *remoteServer

	mu       sync.Mutex
	clients  map[string]string // id → redirect
	codes    map[string]url.Values
	refresh  string
	issued   int
	life     int // seconds
	problems []string
}

func newAuth(t *testing.T, r *remoteServer) *authServer {
	t.Helper()
	a := &authServer{t: t, r: r, clients: map[string]string{}, codes: map[string]url.Values{}, life: 3600}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(obj{
			"issuer": a.web.URL, "authorization_endpoint": a.web.URL + "/authorize", "token_endpoint": a.web.URL + "/token",
			"registration_endpoint": a.web.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, req *http.Request) {
		var m struct {
			RedirectURIs []string `json:"redirect_uris"`
		}
		if err := json.NewDecoder(req.Body).Decode(&m); err != nil || len(m.RedirectURIs) != 1 || !strings.HasPrefix(m.RedirectURIs[0], "http://127.0.0.1:") {
			a.problem("registration of %v", m.RedirectURIs)
		}
		a.mu.Lock()
		id := fmt.Sprint("client-", len(a.clients))
		a.clients[id] = m.RedirectURIs[0]
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(obj{"client_id": id, "redirect_uris": m.RedirectURIs, "token_endpoint_auth_method": "none"})
	})
	mux.HandleFunc("/authorize", a.authorize)
	mux.HandleFunc("/token", a.token)
	a.web = httptest.NewServer(mux)
	t.Cleanup(a.web.Close)
	return a
}

func (a *authServer) problem(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (a *authServer) authorize(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	a.mu.Lock()
	redirect := a.clients[q.Get("client_id")]
	a.mu.Unlock()
	switch {
	case redirect == "" || q.Get("redirect_uri") != redirect:
		a.problem("client %s, redirect %s", q.Get("client_id"), q.Get("redirect_uri"))
	case q.Get("code_challenge") == "" || q.Get("code_challenge_method") != "S256":
		a.problem("no PKCE")
	case q.Get("resource") != a.r.web.URL+"/mcp":
		a.problem("the resource is %q", q.Get("resource"))
	case len(q.Get("state")) < 16:
		a.problem("the state is %q", q.Get("state"))
	default:
		a.mu.Lock()
		code := fmt.Sprint("code-", len(a.codes))
		a.codes[code] = q
		a.mu.Unlock()
		http.Redirect(w, req, redirect+"?code="+code+"&state="+url.QueryEscape(q.Get("state")), http.StatusFound)
		return
	}
	http.Error(w, "no", http.StatusBadRequest)
}

func (a *authServer) token(w http.ResponseWriter, req *http.Request) {
	refuse := func(why string) {
		a.problem("token: %s", why)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(obj{ //nolint:errchkjson // texts
			"error": "invalid_grant", "error_description": why})
	}
	if err := req.ParseForm(); err != nil {
		refuse("no form")
		return
	}
	a.mu.Lock()
	asked, refresh := a.codes[req.Form.Get("code")], a.refresh
	delete(a.codes, req.Form.Get("code"))
	a.mu.Unlock()
	if req.Form.Get("resource") != a.r.web.URL+"/mcp" {
		refuse("the resource is " + req.Form.Get("resource"))
		return
	}
	switch req.Form.Get("grant_type") {
	case "authorization_code":
		sum := sha256.Sum256([]byte(req.Form.Get("code_verifier")))
		if asked == nil || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || asked.Get("client_id") != req.Form.Get("client_id") {
			refuse("the code or its verifier")
			return
		}
	case "refresh_token":
		if refresh == "" || req.Form.Get("refresh_token") != refresh {
			refuse("the refresh token was used before")
			return
		}
	default:
		refuse("grant type " + req.Form.Get("grant_type"))
		return
	}
	a.mu.Lock()
	a.issued++
	access := fmt.Sprint("access-token-", a.issued)
	a.refresh = fmt.Sprint("refresh-token-", a.issued)
	answer := obj{"access_token": access, "token_type": "Bearer", "expires_in": a.life, "refresh_token": a.refresh}
	a.mu.Unlock()
	a.r.mu.Lock()
	a.r.tokens = map[string]bool{access: true}
	a.r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // texts and numbers
}

func far(r *remoteServer) Spec {
	return Spec{Name: "act", URL: r.web.URL + "/mcp", Private: true}
}

func TestAServerOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRemote(t, false)
	s := setup(t, dbtest.SQLite(t), quick())
	sp := far(r)
	sp.Headers = map[string]string{"X-Team": "blue"}
	if info := s.with(sp); info.Says != "far 2" || info.PID != 0 {
		t.Errorf("%+v", info)
	}
	if got := s.says("mcp.act.say", `{"text":"hello"}`); got != "said hello" {
		t.Error(got)
	}
	r.mu.Lock()
	for _, h := range r.heads {
		if h.Get("X-Team") != "blue" {
			t.Errorf("a request without its header: %v", h)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, "mcp.act.wait", `{"text":"x"}`); !fault.Is(err, fault.Unknown) {
		t.Errorf("its time was over: %v", err)
	}
	if got := s.says("mcp.act.say", `{"text":"again"}`); got != "said again" {
		t.Error(got)
	}
}

func TestAPrivateAddressHasToBeAllowed(t *testing.T) {
	t.Parallel()
	r := newRemote(t, false)
	s := setup(t, dbtest.SQLite(t), quick())
	sp := far(r)
	sp.Private = false
	s.add(sp)
	s.failing("is refused")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heads) != 0 {
		t.Error("it was asked all the same")
	}
}

func TestLoggingIn(t *testing.T) {
	t.Parallel()
	r := newRemote(t, true)
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(far(r))
	info := s.failing("wants you to log in")
	if info.Hint != "ombud mcp login act" {
		t.Errorf("the hint is %q", info.Hint)
	}
	browse := func(address string) error {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		// Some other page knocks first, with a state of its own.
		back := u.Query().Get("redirect_uri")
		for _, wrong := range []string{"?code=evil&state=evil", "", "favicon.ico"} {
			if resp, err := http.Get(back + wrong); err == nil {
				_ = resp.Body.Close()
			}
		}
		resp, err := http.Get(address)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "You can close this page") {
			t.Errorf("the browser shows %d %s %v", resp.StatusCode, page, err)
		}
		return nil
	}
	if err := s.Login(t.Context(), "act", "operator", browse); err != nil {
		t.Fatal(err, r.auth.problems)
	}
	s.ready()
	s.accept()
	if got := s.says("mcp.act.say", `{"text":"hello"}`); got != "said hello" {
		t.Error(got)
	}
	if s.ready(); len(s.entries(KindLogin)) != 1 || !s.ready().LoggedIn {
		t.Error("the login is not recorded")
	}
	// A token that is refused is renewed once, and another daemon has the new one.
	r.mu.Lock()
	r.tokens = map[string]bool{}
	r.mu.Unlock()
	if got := s.says("mcp.act.say", `{"text":"2"}`); got != "said 2" || r.auth.issued != 2 {
		t.Errorf("%q after %d tokens", got, r.auth.issued)
	}
	// Several that are refused at a time get one other token.
	r.mu.Lock()
	r.tokens = map[string]bool{}
	r.mu.Unlock()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := s.call(t.Context(), "mcp.act.say", `{"text":"x"}`); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if r.auth.issued != 3 {
		t.Errorf("%d tokens for several calls", r.auth.issued)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.boot(quick())
	if got := s.says("mcp.act.say", `{"text":"3"}`); got != "said 3" || r.auth.issued != 3 {
		t.Errorf("%q after %d tokens", got, r.auth.issued)
	}
	if len(r.auth.problems) != 0 {
		t.Error(r.auth.problems)
	}
	s.mu.Lock()
	hidden := strings.Join(s.hidden, " ")
	s.mu.Unlock()
	for _, want := range []string{"access-token-1", "refresh-token-1", "access-token-2"} {
		if !strings.Contains(hidden, want) {
			t.Errorf("%s is not hidden", want)
		}
	}
	// When no other is given, the operator has to log in again.
	r.mu.Lock()
	r.tokens = map[string]bool{}
	r.mu.Unlock()
	r.auth.mu.Lock()
	r.auth.refresh = ""
	r.auth.mu.Unlock()
	_, err := s.call(t.Context(), "mcp.act.say", `{"text":"4"}`)
	if !fault.Is(err, fault.Denied) || fault.HintOf(err) != "ombud mcp login act" || strings.Contains(err.Error(), "-token-") {
		t.Errorf("no token: %v (%s)", err, fault.HintOf(err))
	}
	r.mu.Lock()
	r.tokens["access-token-3"] = true // so that the session can be ended
	r.mu.Unlock()
}

func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	t.Parallel()
	r := newRemote(t, true)
	r.auth.life = 30 // less than the minute that is left to it
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(far(r))
	s.failing("log in")
	err := s.Login(t.Context(), "act", "operator", func(address string) error {
		resp, err := http.Get(address)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ready()
	r.auth.mu.Lock()
	defer r.auth.mu.Unlock()
	if r.auth.issued < 2 || len(r.auth.problems) != 0 {
		t.Errorf("%d tokens, %v", r.auth.issued, r.auth.problems)
	}
}

func TestWhatCannotBeLoggedInTo(t *testing.T) {
	t.Parallel()
	open := func(string) error { t.Error("a browser was sent somewhere"); return nil }
	r := newRemote(t, false)
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(far(r))
	if err := s.Login(t.Context(), "act", "operator", open); !fault.Is(err, fault.Conflict) {
		t.Errorf("one that wants none: %v", err)
	}
	p := setup(t, dbtest.SQLite(t), quick())
	p.add(spec("good"))
	if err := p.Login(t.Context(), "act", "operator", open); !fault.Is(err, fault.Invalid) {
		t.Errorf("a program: %v", err)
	}
}

func TestASecretGoesToItsHostsOnly(t *testing.T) {
	t.Parallel()
	r := newRemote(t, false)
	s := setup(t, dbtest.SQLite(t), quick())
	here := strings.TrimPrefix(r.web.URL, "http://")
	s.secrets(secret.Setting{Name: "ours", Value: []byte("open sesame"), Hosts: []string{here}}, secret.Setting{Name: "theirs", Value: []byte("for one host"), Hosts: []string{"example.com"}})
	sp := far(r)
	sp.Headers = map[string]string{"Authorization": "Bearer {{secret:theirs}}"}
	s.add(sp)
	s.failing("is for example.com and is not sent to 127.0.0.1")
	if r.mu.Lock(); len(r.heads) != 0 {
		t.Errorf("it was sent elsewhere: %v", r.heads)
	}
	r.mu.Unlock()
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp.Headers["Authorization"] = "Bearer {{secret:ours}}"
	s.with(sp)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.heads {
		if h.Get("Authorization") != "Bearer open sesame" {
			t.Errorf("%v", h)
		}
	}
}
