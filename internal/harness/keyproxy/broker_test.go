package keyproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/redact"
)

const key = "sk-real-0123456789abcdefghij"

// api is an API that takes one key in one place and nothing else that could be one.
type api struct {
	*httptest.Server
	t     *testing.T
	place Place
	reply http.HandlerFunc // nil: says what it was asked

	mu   sync.Mutex
	seen []*http.Request
}

func newAPI(t *testing.T, place Place, reply http.HandlerFunc) *api {
	t.Helper()
	a := &api{t: t, place: place, reply: reply}
	a.Server = httptest.NewUnstartedServer(a)
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.seen = append(a.seen, r.Clone(context.Background()))
	a.mu.Unlock()
	want := http.Header{}
	switch a.place {
	case Bearer:
		want.Set("Authorization", "Bearer "+key)
	case XAPIKey:
		want.Set("X-Api-Key", key)
	case XGoogAPIKey:
		want.Set("X-Goog-Api-Key", key)
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization"} {
		if got := r.Header.Values(name); !slices.Equal(got, want.Values(name)) {
			a.t.Errorf("%s is %q, want %q", name, got, want.Values(name))
		}
	}
	if r.Host != a.host() || r.URL.Query().Has("key") || r.URL.Query().Has("access_token") {
		a.t.Errorf("asked for %s at %s", r.URL, r.Host)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || name == "Forwarded" || name == "Upgrade" || name == "Connection" {
			a.t.Errorf("%s: %s", name, r.Header[name])
		}
	}
	if a.reply != nil {
		a.reply(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %v", r.Method, r.URL.RequestURI(), body, err)
}

func (a *api) host() string { return strings.TrimPrefix(a.URL, "https://") }

func (a *api) requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// open returns a broker that trusts an API's certificate.
func open(t *testing.T, apis ...*api) *Broker {
	t.Helper()
	b := New(Config{Hide: redact.New()})
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	trust := x509.NewCertPool()
	for _, a := range apis {
		trust.AddCert(a.Certificate())
	}
	b.connect = func(cfg guard.HTTPConfig) *http.Client {
		c := guard.HTTPClient(cfg)
		c.Transport = &http.Transport{
			DialContext: cfg.Egress.DialContext, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trust},
		}
		return c
	}
	return b
}

func lend(t *testing.T, b *Broker, a *api, path string) *Loan {
	t.Helper()
	l, err := b.Lend("run_1", Upstream{a.URL + path, a.place}, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client follows no redirect and keeps no connection.
func client(t *testing.T) *http.Client {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func request(t *testing.T, method, url, body string, header ...string) *http.Request {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	return q
}

// answer is what there was before the body.
type answer struct {
	StatusCode      int
	Header, Trailer http.Header
}

func ask(t *testing.T, q *http.Request) (answer, string) {
	t.Helper()
	resp, err := client(t).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, resp.Trailer}, string(raw)
}

func TestTheKeyIsPutInWhereItsAPITakesIt(t *testing.T) {
	t.Parallel()
	for _, place := range []Place{Bearer, XAPIKey, XGoogAPIKey} {
		a := newAPI(t, place, nil)
		b := open(t, a)
		l := lend(t, b, a, "/v1")
		for _, given := range [][]string{
			{"Authorization", "Bearer " + l.Token}, {"authorization", "bearer  " + l.Token}, {"X-Api-Key", l.Token}, {"X-Goog-Api-Key", l.Token},
			{"X-Api-Key", l.Token, "Authorization", "Bearer " + l.Token},
			{"X-Api-Key", l.Token, "Cookie", "session=stolen", "Api-Key", "stolen", "Proxy-Authorization", "Basic c3RvbGVu", "X-Forwarded-For", "192.0.2.1", "Connection", "X-Api-Key, close"},
			{"X-Api-Key", l.Token, "Upgrade", "websocket", "Connection", "Upgrade"},
		} {
			resp, said := ask(t, request(t, "POST", l.BaseURL+"/messages?beta=true", "hello", given...))
			if resp.StatusCode != http.StatusOK || said != "POST /v1/messages?beta=true hello <nil>" {
				t.Errorf("%q: %d %s", given, resp.StatusCode, said)
			}
		}
		resp, said := ask(t, request(t, "POST", l.BaseURL+"/m:stream?alt=sse&key="+l.Token+"&access_token=stolen", ""))
		if resp.StatusCode != http.StatusOK || said != "POST /v1/m:stream?alt=sse  <nil>" {
			t.Errorf("%d %s", resp.StatusCode, said)
		}
		if q := a.requests()[0]; q.ProtoMajor != 2 {
			t.Errorf("asked by %s", q.Proto)
		}
	}
}

func TestOnlyATokenThatIsLentOpens(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, nil)
	b := open(t, a)
	l, other := lend(t, b, a, ""), lend(t, b, a, "")
	if l.Token == other.Token || len(l.Token) < 64 {
		t.Fatalf("the tokens are %q and %q", l.Token, other.Token)
	}
	if got := b.cfg.Hide.String("its token is " + l.Token); strings.Contains(got, l.Token) {
		t.Errorf("it is shown: %s", got)
	}
	way, is := b.Way("run_1")
	address := way.Address
	if !is || way.Host != a.host() || l.BaseURL != "http://"+address || !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("it listens on %s for %s", address, l.BaseURL)
	}
	if _, is := b.Way("run_2"); is {
		t.Error("nothing is lent to run_2")
	}
	refused := func(what string, given ...string) {
		t.Helper()
		resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", given...))
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(said, `"message":"ombud: this is the token of no run`) {
			t.Errorf("%s: %d %s", what, resp.StatusCode, said)
		}
	}
	refused("none")
	refused("another", "X-Api-Key", "ombud-"+strings.Repeat("0", 64))
	refused("a part", "X-Api-Key", l.Token[:len(l.Token)-1])
	refused("the key itself", "X-Api-Key", key)
	refused("the placeholder", "X-Api-Key", Placeholder)
	refused("two at once", "X-Api-Key", l.Token, "Authorization", "Bearer "+other.Token)
	refused("one and a foreign one", "X-Api-Key", l.Token, "Authorization", "Bearer sk-of-somebody-else")
	refused("basic", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(l.Token)))
	l.End()
	l.End()
	refused("one that has ended", "X-Api-Key", l.Token)
	if resp, said := ask(t, request(t, "GET", other.BaseURL+"/v1/models", "", "X-Api-Key", other.Token)); resp.StatusCode != http.StatusOK {
		t.Errorf("the other: %d %s", resp.StatusCode, said)
	}
	other.End()
	if _, is := b.Way("run_1"); is {
		t.Error("everything has ended")
	}
	if n := len(a.requests()); n != 1 {
		t.Errorf("the API was asked %d times", n)
	}
}

// TestTwoTokensAtOnce: each has its own key and API.
func TestTwoTokensAtOnce(t *testing.T) {
	t.Parallel()
	one, two := newAPI(t, XAPIKey, nil), newAPI(t, Bearer, nil)
	b := open(t, one, two)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a := one
			if i%2 == 1 {
				a = two
			}
			l := lend(t, b, a, "/v1")
			defer l.End()
			for range 5 {
				if resp, said := ask(t, request(t, "POST", l.BaseURL+"/x", "hello", "Authorization", "Bearer "+l.Token)); resp.StatusCode != http.StatusOK {
					t.Errorf("%d %s", resp.StatusCode, said)
				}
			}
		})
	}
	all.Wait()
	if len(one.requests()) != 50 || len(two.requests()) != 50 {
		t.Errorf("asked %d and %d times", len(one.requests()), len(two.requests()))
	}
}

func TestAnAPIThatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	b := open(t)
	l, err := b.Lend("run_1", Upstream{"https://" + address, XAPIKey}, key)
	if err != nil {
		t.Fatal(err)
	}
	for want, q := range map[string]*http.Request{
		`{"type":"error","error":{"type":"api_error","message":"ombud: the API at ` + address + ` is not reached"}}`: request(t, "POST", l.BaseURL+"/v1/messages", "", "X-Api-Key", l.Token),
	} {
		if resp, said := ask(t, q); resp.StatusCode != http.StatusBadGateway || said != want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d %s", resp.StatusCode, said)
		}
	}
	// A certificate nobody vouches for is not believed.
	a := newAPI(t, XAPIKey, nil)
	l = lend(t, b, a, "")
	if resp, _ := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "", "X-Api-Key", l.Token)); resp.StatusCode != http.StatusBadGateway || len(a.requests()) > 0 {
		t.Errorf("%d, asked %d times", resp.StatusCode, len(a.requests()))
	}
}

// TestEachAPIIsAnsweredForInItsOwnWords, so that a program knows that it is its key.
func TestEachAPIIsAnsweredForInItsOwnWords(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, nil)
	b := open(t, a)
	l := lend(t, b, a, "")
	const text = `ombud: this is the token of no run, or its run has ended`
	for want, q := range map[string]*http.Request{
		`{"type":"error","error":{"type":"authentication_error","message":"` + text + `"}}`:            request(t, "POST", l.BaseURL+"/v1/messages", "", "Authorization", "Bearer x", "Anthropic-Version", "2023-06-01"),
		`{"error":{"message":"` + text + `","type":"invalid_request_error","code":"invalid_api_key"}}`: request(t, "POST", l.BaseURL+"/v1/responses", "", "Authorization", "Bearer x"),
		`{"error":{"code":401,"message":"` + text + `","status":"UNAUTHENTICATED"}}`:                   request(t, "POST", l.BaseURL+"/v1beta/models/m:generateContent?key=x", ""),
	} {
		if resp, said := ask(t, q); resp.StatusCode != http.StatusUnauthorized || said != want {
			t.Errorf("%d %s, want %s", resp.StatusCode, said, want)
		}
	}
}

func TestWhatCannotBeLent(t *testing.T) {
	t.Parallel()
	b := open(t)
	for base, bad := range map[string]string{
		"": key, "api.example": key, "ftp://api.example": key, "https://u:p@api.example": key, "https://api.example?x=y": key, "https://api.example/#x": key,
		"https://api.example/a/../b": key, "https://api.example/a%2fb": key, "https://api.example/a//b": key, "https://api.example/": "", "https://api.example": "two words",
		"https://api.example/v1": "line\nend", "https://api.example/v2": "schlüssel",
	} {
		if _, err := b.Lend("run_1", Upstream{Base: base}, bad); !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Config) || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", base, err)
		}
	}
	if b.Address() != "" {
		t.Error("it listens")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Lend("run_1", Upstream{Base: "https://api.example"}, key); !fault.Is(err, fault.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheHostOfAnAPI(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://api.example": "api.example", "https://api.example:8443/v1": "api.example", "http://127.0.0.1": "127.0.0.1:80", "https://[::1]/v1": "[::1]:443",
		"http://10.0.0.1:4000": "10.0.0.1:4000",
	} {
		u, err := parseBase(base)
		if err != nil || hostOf(u) != want {
			t.Errorf("%s: %s, %v", base, hostOf(u), err)
		}
	}
}
