package keyproxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

func ask(t *testing.T, q *http.Request) (*http.Response, string) {
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
	return resp, string(raw)
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
			if resp.StatusCode != 200 || said != "POST /v1/messages?beta=true hello <nil>" {
				t.Errorf("%q: %d %s", given, resp.StatusCode, said)
			}
		}
		resp, said := ask(t, request(t, "POST", l.BaseURL+"/m:stream?alt=sse&key="+l.Token+"&access_token=stolen", ""))
		if resp.StatusCode != 200 || said != "POST /v1/m:stream?alt=sse  <nil>" {
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
		if resp.StatusCode != 401 || !strings.Contains(said, `"message":"ombud: this is the token of no run`) {
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
	if resp, said := ask(t, request(t, "GET", other.BaseURL+"/v1/models", "", "X-Api-Key", other.Token)); resp.StatusCode != 200 {
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
				if resp, said := ask(t, request(t, "POST", l.BaseURL+"/x", "hello", "Authorization", "Bearer "+l.Token)); resp.StatusCode != 200 {
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

// raw writes a request as it stands and returns the status and the rest of the answer.
func raw(t *testing.T, address, text string) (status int, said string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // a server may hang up on what is wrong
	return resp.StatusCode, string(body)
}

// TestNoRequestLeadsElsewhere: whatever its target, it goes to the one API below the one
// path, or nowhere.
func TestNoRequestLeadsElsewhere(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, nil)
	b := open(t, a)
	l := lend(t, b, a, "/v1")
	way, _ := b.Way("run_1")
	at := way.Address
	for target, want := range map[string]int{
		"/v1/ok":                                200,
		"/v1":                                   200,
		"/v2/admin":                             404,
		"/":                                     404,
		"/v1/../v2/admin":                       404,
		"/v1/%2e%2e/v2":                         404,
		"/v1/%2E./v2":                           404,
		"/v1/%252e%252e/v2":                     404,
		"/v1//v2":                               404,
		"//v2.example/v1/":                      404,
		"/v1/..%2fv2":                           404,
		`/v1/..\v2`:                             404,
		"/v1/%5c..%5cv2":                        404,
		"http://" + at + "/v1/ok":               400,
		"http://api.example/v1/ok":              400,
		"https://" + a.host() + "/v1/ok":        400,
		"http://user:x@" + at + "/v1/ok":        400,
		"*":                                     404,
		"/v1/ok#frag":                           404,
		"/v1/ok?key=" + key + "&api_key=" + key: 401, // not the token's
	} {
		method := "GET"
		if target == "*" {
			method = "OPTIONS"
		}
		got, said := raw(t, at, method+" "+target+" HTTP/1.1\r\nHost: "+at+"\r\nX-Api-Key: "+l.Token+"\r\nConnection: close\r\n\r\n")
		if got != want {
			t.Errorf("%s: %d %s", target, got, said)
		}
	}
	for host, want := range map[string]int{"api.example": 421, a.host(): 421, "localhost:" + at[strings.LastIndex(at, ":")+1:]: 421, at: 200} {
		if got, said := raw(t, at, "GET /v1/ok HTTP/1.1\r\nHost: "+host+"\r\nX-Api-Key: "+l.Token+"\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("host %s: %d %s", host, got, said)
		}
	}
	if got, _ := raw(t, at, "CONNECT "+a.host()+" HTTP/1.1\r\nHost: "+a.host()+"\r\nX-Api-Key: "+l.Token+"\r\n\r\n"); got != 400 {
		t.Errorf("CONNECT: %d", got)
	}
	// Two lengths, or a length and chunks, could be two requests to whoever reads them otherwise.
	for _, framing := range []string{"Content-Length: 3\r\nContent-Length: 40\r\n", "Transfer-Encoding: chunked, identity\r\nContent-Length: 3\r\n"} {
		if got, said := raw(t, at, "POST /v1/ok HTTP/1.1\r\nHost: "+at+"\r\nX-Api-Key: "+l.Token+"\r\n"+framing+"\r\nabc"); got < 400 {
			t.Errorf("%q: %d %s", framing, got, said)
		}
	}
	for _, q := range a.requests() {
		if q.URL.Path != "/v1/ok" && q.URL.Path != "/v1" {
			t.Errorf("the API was asked for %s", q.URL)
		}
	}
}

func TestARedirectIsNotFollowedNorHandedOn(t *testing.T) {
	t.Parallel()
	elsewhere := newAPI(t, XAPIKey, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL+"/?"+r.Header.Get("X-Api-Key"))
			w.WriteHeader(status)
		})
		b := open(t, a, elsewhere)
		l := lend(t, b, a, "")
		resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token))
		if resp.StatusCode != 502 || resp.Header.Get("Location") != "" || !strings.Contains(said, "base_url") || strings.Contains(said, key) {
			t.Errorf("%d: %d %v %s", status, resp.StatusCode, resp.Header, said)
		}
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("it was followed %d times", n)
	}
}

// TestTheKeyIsTakenOutOfAnswers: an API, or what stands before it, may repeat what it was
// asked with.
func TestTheKeyIsTakenOutOfAnswers(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len("no: "+key)))
			w.WriteHeader(400)
			fmt.Fprint(w, "no: "+r.Header.Get("X-Api-Key"))
		},
		"a header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Debug", "key="+r.Header.Get("X-Api-Key"))
			w.Header().Set("Set-Cookie", "key="+r.Header.Get("X-Api-Key"))
		},
		"a header before the last": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", key)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusOK)
		},
		"a trailer": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "ok")
			w.Header().Set(http.TrailerPrefix+"X-Debug", key)
		},
		"another spelling": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte("Bearer "+key)), " ", url.QueryEscape(key))
		},
		"pieces": func(w http.ResponseWriter, r *http.Request) {
			for _, c := range []byte("data: " + key + "\n\n") {
				_, _ = w.Write([]byte{c})
				_ = http.NewResponseController(w).Flush()
			}
		},
		"an error that is packed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(500)
			z := gzip.NewWriter(w)
			fmt.Fprint(z, key)
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, XAPIKey, reply)
			b := open(t, a)
			l := lend(t, b, a, "")
			resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token, "Accept-Encoding", "gzip"))
			var all bytes.Buffer
			fmt.Fprintf(&all, "%d %v %v %s", resp.StatusCode, resp.Header, resp.Trailer, said)
			if resp.Header.Get("Content-Encoding") == "gzip" {
				t.Errorf("nobody looked into %v", resp.Header)
			}
			for _, spelling := range []string{key, base64.StdEncoding.EncodeToString([]byte(key))[:24], "c2stcmVhbC0w"} {
				if strings.Contains(all.String(), spelling) {
					t.Errorf("the key is in %s", all.String())
				}
			}
			if got := a.requests()[0].Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("it is asked for %q", got)
			}
		})
	}
}

// TestAStreamIsHandedOnAsItComes: each event is read before the next is sent.
func TestAStreamIsHandedOnAsItComes(t *testing.T) {
	t.Parallel()
	next := make(chan int)
	a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range next {
			fmt.Fprintf(w, "event: delta\ndata: {\"n\":%d,\"text\":\"s\"}\n\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	})
	b := open(t, a)
	l := lend(t, b, a, "")
	next1 := make(chan *http.Response, 1)
	go func() {
		resp, err := client(t).Do(request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token))
		if err != nil {
			t.Error(err)
		}
		next1 <- resp
	}()
	next <- 0
	resp := <-next1
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 10 {
		for _, want := range []string{"event: delta\n", fmt.Sprintf("data: {\"n\":%d,\"text\":\"s\"}\n", i), "\n"} {
			if got, err := lines.ReadString('\n'); got != want || err != nil {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
		if i < 9 {
			next <- i + 1
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestARequestIsBoundedAndStreamed: it is handed on while it is made.
func TestARequestIsBoundedAndStreamed(t *testing.T) {
	t.Parallel()
	came := make(chan string, 1)
	a := newAPI(t, Bearer, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err == nil {
			select {
			case came <- string(first):
			default:
			}
		}
		n, _ := io.Copy(io.Discard, r.Body) // the other side ends it
		fmt.Fprint(w, n)
	})
	b := open(t, a)
	l := lend(t, b, a, "/v1")
	send := func(body io.Reader, length int64) (*http.Response, string) {
		q := request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token)
		q.Body, q.ContentLength = io.NopCloser(body), length
		return ask(t, q)
	}
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "hello")
		if got := <-came; got != "hello" {
			t.Errorf("%q came first", got)
		}
		_, _ = io.WriteString(pw, " world")
		_ = pw.Close()
	}()
	if resp, said := send(pr, -1); resp.StatusCode != 200 || said != "6" {
		t.Errorf("%d %s", resp.StatusCode, said)
	}
	if resp, said := send(io.LimitReader(zeros{}, maxBody), -1); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, said)
	}
	q := request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token, "Expect", "100-continue")
	q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1)), maxBody+1
	c := client(t)
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	resp, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("told to be too long: %d", resp.StatusCode)
	}
	// One that does not tell is cut off, with or without an answer.
	q = request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token)
	q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1<<20)), -1
	if resp, err := client(t).Do(q); err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("too long: %d", resp.StatusCode)
		}
	}
	way, _ := b.Way("run_1")
	at := way.Address
	if got, _ := raw(t, at, "GET /v1/x HTTP/1.1\r\nHost: "+at+"\r\nX-Long: "+strings.Repeat("a", 80<<10)+"\r\n\r\n"); got != 431 {
		t.Errorf("a huge head: %d", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWhatIsUnderWayEnds: by the client, by the end of its run, by that of the daemon.
func TestWhatIsUnderWayEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *Broker, l *Loan, cancel func()){
		"client": func(_ *Broker, _ *Loan, cancel func()) { cancel() },
		"run":    func(_ *Broker, l *Loan, _ func()) { l.End() },
		"daemon": func(b *Broker, _ *Loan, _ func()) { _ = b.Close(context.Background()) },
	} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprint(name, begun), func(t *testing.T) {
				t.Parallel()
				came, gone := make(chan struct{}), make(chan struct{})
				a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
					defer close(gone)
					if begun {
						w.WriteHeader(200)
						_ = http.NewResponseController(w).Flush()
					}
					close(came)
					<-r.Context().Done()
				})
				b := open(t, a)
				l := lend(t, b, a, "")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, err := client(t).Do(request(t, "POST", l.BaseURL+"/v1/messages", "x", "X-Api-Key", l.Token).WithContext(ctx))
					if err != nil {
						return
					}
					defer resp.Body.Close()
					if _, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == 200 {
						t.Error("it looks complete")
					}
				}()
				<-came
				end(b, l, cancel)
				<-gone
				<-done
			})
		}
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
		if resp, said := ask(t, q); resp.StatusCode != 502 || said != want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d %s", resp.StatusCode, said)
		}
	}
	// A certificate nobody vouches for is not believed.
	a := newAPI(t, XAPIKey, nil)
	l = lend(t, b, a, "")
	if resp, _ := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "", "X-Api-Key", l.Token)); resp.StatusCode != 502 || len(a.requests()) > 0 {
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
		if resp, said := ask(t, q); resp.StatusCode != 401 || said != want {
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
	if b.server != nil {
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
