package httpd

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
)

func TestHealthReadyAndWhatIsMounted(t *testing.T) {
	t.Parallel()
	var reasons []string
	s := serve(t, Config{}, Deps{Ready: func(context.Context) []string { return reasons }}, map[string]http.HandlerFunc{
		"/m/": hello, "/m/deeper": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "deeper") },
	})
	for path, c := range map[string]struct {
		status int
		body   string
	}{
		"/health": {200, `{"status":"ok"}`}, "/healthz": {200, `{"status":"ok"}`}, "/ready": {200, `{"ready":true}`}, "/readyz": {200, `{"ready":true}`},
		"/m/x": {200, "hello /m/x"}, "/m/deeper/x": {200, "deeper"}, "/m/deeper": {200, "deeper"}, "/m/deepe": {200, "hello /m/deepe"}, "/m": {404, "there is nothing"}, "/": {404, "there is nothing"},
		"/health/": {404, "there is nothing"}, "/m/../health": {404, "there is nothing"}, "//m/x": {404, "there is nothing"}, "/nothing": {404, "there is nothing"},
	} {
		res, body := raw(t, s, get(path))
		want(t, path, res, body, c.status)
		if !strings.Contains(body, c.body) {
			t.Errorf("%s is answered %q", path, body)
		}
		for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"} {
			if res.Header.Get(name) != value {
				t.Errorf("%s: %s is %q", path, name, res.Header.Get(name))
			}
		}
	}
	res, body := raw(t, s, "POST /ready HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	want(t, "POST /ready", res, body, 405)
	reasons = []string{"standby"}
	res, body = raw(t, s, get("/ready"))
	if res.StatusCode != http.StatusServiceUnavailable || strings.TrimSpace(body) != `{"ready":false,"reasons":["standby"]}` {
		t.Errorf("a standby is answered %d %s", res.StatusCode, body)
	}
}

func TestSecretsAreHiddenInWhateverPiecesTheyCome(t *testing.T) {
	t.Parallel()
	hide := redact.New()
	const secret = "a-secret-of-some-length"
	hide.Register("key", []byte(secret))
	s := serve(t, Config{}, Deps{Hide: hide}, map[string]http.HandlerFunc{"/m": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(secret)*3))
		for _, c := range secret + secret + secret {
			if _, err := io.WriteString(w, string(c)); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
	}})
	_, body := raw(t, s, get("/m/x"))
	if strings.Contains(body, secret) || !strings.Contains(body, "key") {
		t.Errorf("answered %q", body)
	}
}

func TestAPanicIsContained(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, Deps{}, map[string]http.HandlerFunc{
		"/early": func(http.ResponseWriter, *http.Request) { panic("early") },
		"/late": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("half", 4096))
			panic("late")
		},
	})
	res, body := raw(t, s, get("/early/x"))
	want(t, "early", res, body, 500)
	if strings.Contains(body, "early") {
		t.Errorf("the panic is told: %s", body)
	}
	conn := dial(t, s)
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Replace(get("/late/x"), "Connection: close\r\n", "", 1)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err == nil && strings.HasSuffix(string(all), "0\r\n\r\n") {
		t.Error("half an answer looks whole")
	}
	res, body = raw(t, s, get("/health"))
	want(t, "after it", res, body, 200)
}

// Whoever sends slowly, or opens many connections, keeps nobody else out for long.
func TestASlowSenderIsCutOffAndOthersAreServed(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{MaxConns: 4, Head: 50 * time.Millisecond, Read: 200 * time.Millisecond, Idle: 50 * time.Millisecond}, Deps{}, map[string]http.HandlerFunc{
		"/m": func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				refuse(w, &refusal{400, fault.Invalid, "not whole"})
			}
		},
	})
	var slow []net.Conn
	for _, begin := range []string{"", "GET /he", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", "POST /m/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc"} {
		conn := dial(t, s)
		defer conn.Close()
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	res, body := raw(t, s, get("/health")) // the fifth: it is served once one of them is cut off
	want(t, "health", res, body, 200)
	for i, conn := range slow {
		if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("connection %d is not ended: %v", i, err)
		}
	}
}

func TestHeadsAndBodiesAreBounded(t *testing.T) {
	t.Parallel()
	seen := make(chan int64, 1)
	s := serve(t, Config{}, Deps{}, map[string]http.HandlerFunc{"/m": func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if _, over := errors.AsType[*http.MaxBytesError](err); !over {
			t.Errorf("%d bytes were read: %v", n, err)
		}
		seen <- n
	}})
	head := dial(t, s)
	defer head.Close()
	_, _ = io.WriteString(head, get("/health", "X-Long: "+strings.Repeat("a", 64<<10))) // it is cut off somewhere
	line, err := bufio.NewReader(head).ReadString('\n')
	if !strings.Contains(line, "431") {
		t.Errorf("a long head is answered %q, %v", line, err)
	}
	conn := dial(t, s)
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /m/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n")
	_, _ = io.CopyN(conn, endless{}, 30_000_000) // it is cut off somewhere
	if n := <-seen; n > maxBody {
		t.Errorf("%d bytes were read", n)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Who asks first whether to send a body is not kept waiting for an answer until it comes.
func TestWhoAsksBeforeItSendsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{Read: patience}, Deps{}, nil)
	start := time.Now()
	res, body := raw(t, s, "POST /hooks/nope HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n")
	want(t, "a path with nothing", res, body, 404)
	if d := time.Since(start); d > patience/2 {
		t.Errorf("it took %v", d)
	}
}

func TestAPortThatIsTakenIsNamedAndTriedAgain(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := Config{Address: netip.MustParseAddrPort(ln.Addr().String()), Again: 5 * time.Millisecond, Chosen: true}
	s := New(c, Deps{Hide: redact.New()})
	err = s.Start(t.Context())
	if !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c.Address.String()) {
		t.Errorf("a chosen port that is taken: %v", err)
	}
	if runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("process %d (", os.Getpid())) {
		t.Errorf("the holder is not named: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	c.Chosen = false
	s = serve(t, c, Deps{}, nil)
	if st := s.State(); st.Open || st.Problem == nil || st.Address != c.Address.String() {
		t.Errorf("the state is %+v", st)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return s.State().Open })
	res, body := raw(t, s, get("/health"))
	want(t, "once it is free", res, body, 200)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	s := serve(t, Config{Cert: cert, Key: key}, Deps{}, nil)
	conn, err := tls.Dial("tcp", s.State().Address, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, get("/health")); err != nil {
		t.Fatal(err)
	}
	res, body := answer(t, conn)
	want(t, "health", res, body, 200)
	if res.Header.Get("Strict-Transport-Security") == "" {
		t.Error("a browser is not told to stay with TLS")
	}
	if c, err := tls.Dial("tcp", s.State().Address, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}); err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if err := os.WriteFile(key, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := New(Config{Address: free, Cert: cert, Key: key, Chosen: true}, Deps{Hide: redact.New()})
	if err := bad.Start(t.Context()); !fault.Is(err, fault.Config) {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestMetricsAreForWhoMayKnow(t *testing.T) {
	t.Parallel()
	d := Deps{
		Admin: func(_ context.Context, token string) bool { return token == "right" },
		Metrics: func(context.Context) ([]Metric, error) {
			return []Metric{Gauge("ombud_b", `one\two`, 1.5), {Name: "ombud_a", Help: "x", Counter: true, Samples: []Sample{{[]Label{{"route", "a\"b\n"}}, 3}}}}, nil
		},
	}
	for name, c := range map[string]struct {
		c      Config
		head   []string
		status int
	}{
		"here":                  {Config{}, nil, 200},
		"for somebody else":     {Config{}, []string{"X-Forwarded-For: 1.2.3.4"}, 401},
		"behind a proxy":        {Config{BehindProxy: true}, nil, 401},
		"with another name":     {Config{Hosts: []string{"x.example"}}, nil, 401},
		"with the token":        {Config{BehindProxy: true}, []string{"Authorization: Bearer right"}, 200},
		"with another token":    {Config{BehindProxy: true}, []string{"Authorization: Bearer wrong"}, 401},
		"with a token of basic": {Config{BehindProxy: true}, []string{"Authorization: Basic right"}, 401},
	} {
		s := serve(t, c.c, d, nil)
		res, body := raw(t, s, get("/metrics", c.head...))
		want(t, name, res, body, c.status)
		if c.status == 200 && body != "# HELP ombud_a x\n# TYPE ombud_a counter\nombud_a{route=\"a\\\"b\\n\"} 3\n"+
			"# HELP ombud_b one\\\\two\n# TYPE ombud_b gauge\nombud_b 1.5\n"+
			"# HELP ombud_http_requests_total Requests answered by the listener, by status.\n# TYPE ombud_http_requests_total counter\n" {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestAStopLetsARequestEndAndStartsAndStopsAreSafe(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	s := serve(t, Config{}, Deps{}, map[string]http.HandlerFunc{"/m": func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
		fmt.Fprint(w, "whole")
	}})
	if err := s.Start(t.Context()); err != nil {
		t.Errorf("started twice: %v", err)
	}
	conn := dial(t, s)
	defer conn.Close()
	if _, err := io.WriteString(conn, get("/m/x")); err != nil {
		t.Fatal(err)
	}
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	until(t, func() bool { return !s.State().Open })
	close(release)
	if res, body := answer(t, conn); res.StatusCode != http.StatusOK || body != "whole" {
		t.Errorf("the request under way is answered %d %q", res.StatusCode, body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stopped twice: %v", err)
	}
}

// What answers a request works with the store, which is closed after the listener.
func TestAStopWaitsForWhatItCutOff(t *testing.T) {
	t.Parallel()
	begun, over := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	s := serve(t, Config{}, Deps{}, map[string]http.HandlerFunc{"/m": func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		<-over
		ended.Store(true)
	}})
	conn := dial(t, s)
	defer conn.Close()
	if _, err := io.WriteString(conn, get("/m/x")); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	time.AfterFunc(50*time.Millisecond, func() { close(over) })
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if !ended.Load() {
		t.Error("the stop did not wait for it")
	}
}

func TestTheTableOfSocketsIsRead(t *testing.T) {
	t.Parallel()
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1CA3 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1CA3 0100007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1CA4 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0000000000000000 100 0 0 10 0
   3: broken
`
	if got := inodesOf(strings.NewReader(table), 7331); len(got) != 1 || got[0] != "4711" {
		t.Errorf("got %q", got)
	}
}
