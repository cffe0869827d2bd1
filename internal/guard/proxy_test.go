package guard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
)

const proxyPatience = 30 * time.Second

// refusals collects what a proxy tells.
type refusals struct {
	mu   sync.Mutex
	told []string
}

func (r *refusals) add(target string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, target)
	if !fault.Is(why, fault.Denied) && !fault.Is(why, fault.Invalid) {
		r.told = append(r.told, "class of "+why.Error())
	}
}

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

// proxied serves a proxy on loopback until the test ends.
func proxied(t testing.TB, cfg ProxyConfig) (address string, told *refusals) {
	t.Helper()
	told = &refusals{}
	cfg.OnRefused = told.add
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := NewProxy(cfg).Serve(ln)
	t.Cleanup(stop)
	return ln.Addr().String(), told
}

// say writes raw bytes to a proxy and returns what comes until it closes, or the
// head and body of the first answer.
func say(t testing.TB, proxy, raw string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(proxyPatience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// through is a client whose only way is the proxy.
func through(t testing.TB, proxy string, credentials *url.Userinfo) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: credentials})}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: proxyPatience}
}

// raw is a server that keeps every byte it gets and answers each request the same.
type raw struct {
	ln     net.Listener
	answer string

	mu    sync.Mutex
	got   map[net.Conn]*bytes.Buffer
	conns sync.WaitGroup
}

func newRaw(t testing.TB, answer string) *raw {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{ln: ln, answer: answer, got: map[net.Conn]*bytes.Buffer{}}
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r.conns.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() { ln.Close(); loop.Wait(); r.conns.Wait() })
	return r
}

func (r *raw) serve(conn net.Conn) {
	defer conn.Close()
	kept := &bytes.Buffer{}
	r.mu.Lock()
	r.got[conn] = kept
	r.mu.Unlock()
	tee := bufio.NewReader(io.TeeReader(conn, lockedWriter{r, kept}))
	for {
		req, err := http.ReadRequest(tee)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if _, err := io.WriteString(conn, r.answer); err != nil || req.Close {
			return
		}
	}
}

type lockedWriter struct {
	r *raw
	b *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.b.Write(p)
}

// all is what came over each connection.
func (r *raw) all() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.got {
		out = append(out, b.String())
	}
	return out
}

func (r *raw) address() string { return r.ln.Addr().String() }

const plainOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestAProxyLeadsWhereTheGuardAllows(t *testing.T) {
	t.Parallel()
	_, port := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, body)
	})
	table := map[string]netip.Addr{"good.example.com": netip.MustParseAddr("127.0.0.1")}
	e := egress(t, EgressConfig{Resolver: nameTable(t, table), AllowHosts: []string{"good.example.com"}, OnlyHosts: []string{"good.example.com"}})
	proxy, told := proxied(t, ProxyConfig{Egress: e})
	client := through(t, proxy, nil)
	resp, err := client.Post("http://good.example.com:"+port+"/x", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "POST good.example.com:"+port+" body" {
		t.Errorf("plain: %q, %v", body, err)
	}
	status, _ := say(t, proxy, "CONNECT good.example.com:"+port+" HTTP/1.1\r\nHost: good.example.com\r\n\r\nGET /in HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if status != http.StatusOK {
		t.Errorf("tunnel: %d", status)
	}
	if told := told.take(); len(told) != 0 {
		t.Errorf("refused: %q", told)
	}
}

// A tunnel carries both ways what was sent before it stood, and each end of a way.
func TestATunnelCarriesEveryByteAndEachEnd(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var echo sync.WaitGroup
	echo.Go(func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // until the client has ended its way
		_, _ = conn.Write(bytes.ToUpper(all))
	})
	defer echo.Wait()
	proxy, _ := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{ln.Addr().String()}})})
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(proxyPatience))
	data := strings.Repeat("abcdefgh", 100_000)
	if _, err := io.WriteString(conn, "CONNECT "+ln.Addr().String()+" HTTP/1.1\r\nHost: x\r\n\r\n"+data); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	want := "HTTP/1.1 200 Connection established\r\n\r\n" + strings.ToUpper(data)
	if err != nil || string(got) != want {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
}

func TestAProxyRefusesAndTellsEachTarget(t *testing.T) {
	t.Parallel()
	up := newRaw(t, plainOK)
	_, port, err := net.SplitHostPort(up.address())
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]netip.Addr{"inner.example.com": netip.MustParseAddr("127.0.0.1"), "meta.example.com": netip.MustParseAddr("169.254.169.254"), "six.example.com": netip.MustParseAddr("::ffff:127.0.0.1")}
	proxy, told := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{Resolver: nameTable(t, table)})})
	head := " HTTP/1.1\r\nHost: allowed.example.com\r\nConnection: close\r\n\r\n"
	for _, target := range []string{
		"127.0.0.1:" + port, "localhost:" + port, "LOCALHOST.:" + port, "[::1]:" + port, "[::ffff:127.0.0.1]:" + port, "[::ffff:7f00:1]:" + port,
		"10.0.0.1:443", "169.254.169.254:80", "[fd00::1]:443", "[fe80::1]:443", "0.0.0.0:" + port, "[::]:" + port, "[64:ff9b::7f00:1]:" + port,
		"inner.example.com:" + port, "meta.example.com:80", "six.example.com:" + port, "2130706433:" + port, "0x7f000001:" + port, "127.1:" + port,
		"0177.0.0.1:" + port, "[fe80::1%25lo]:443", "ex\u0430mple.com:443",
	} {
		for _, form := range []string{"CONNECT " + target + head, "GET http://" + target + "/" + head} {
			status, body := say(t, proxy, form)
			if status != http.StatusForbidden && status != http.StatusBadRequest {
				t.Errorf("%.40q: %d %q", form, status, body)
			}
			if status == http.StatusForbidden {
				if got := told.take(); len(got) != 1 || !strings.EqualFold(strings.ReplaceAll(got[0], "%lo", "%25lo"), target) {
					t.Errorf("%.40q is told as %q", form, got)
				}
			}
			told.take()
		}
	}
	if got := up.all(); len(got) != 0 {
		t.Errorf("it was reached: %q", got)
	}
}

// What could be read in two ways is refused, before anything is asked or connected.
func TestARequestWithTwoReadingsIsRefused(t *testing.T) {
	t.Parallel()
	up := newRaw(t, plainOK)
	at := up.address()
	proxy, told := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{at}, OnlyHosts: []string{at}})})
	for _, raw := range []string{
		"GET http://" + at + "@127.0.0.2/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET http://user:pw@" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET http://127.0.0.2#@" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET http://127.0.0.2\\@" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET http:///x HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET http:" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET //" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET https://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET ftp://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"GET file:///etc/passwd HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"CONNECT user@" + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT http://" + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT " + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT /" + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1: HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1:+80 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1:080 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1:http HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT 127.0.0.1:65616 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT [127.0.0.1]:80 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"CONNECT " + at + " HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		"CONNECT " + at + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbodyx",
		"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nbody",
		"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
		"GET http://" + at + "/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET http://" + at + "/\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\nBad\x00: y\r\n\r\n",
		"GET http://" + at + "/ HTTP/1.1 extra\r\nHost: x\r\n\r\n",
	} {
		status, body := say(t, proxy, raw)
		if status < 400 || status > 505 {
			t.Errorf("%q: %d %q", raw, status, body)
		}
	}
	if got := up.all(); len(got) != 0 {
		t.Errorf("it was reached: %q", got)
	}
	if got := told.take(); len(got) < 10 || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "class of") }) {
		t.Errorf("told: %q", got)
	}
}

// One message with two lengths becomes one request of one length, and what a
// smuggler hides in it stays its body.
func TestNoSecondRequestIsSmuggledUpstream(t *testing.T) {
	t.Parallel()
	up := newRaw(t, plainOK)
	at := up.address()
	proxy, _ := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{at}})})
	inner := "GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
	for _, message := range []string{
		"POST http://" + at + "/ HTTP/1.1\r\nHost: evil\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"POST http://" + at + "/ HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + inner,
		fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: evil\r\nContent-Length: %d\r\n\r\n%s", at, len(inner), inner),
		"GET http://" + at + "/ HTTP/1.1\r\nHost: evil\r\nX: a\r\n\tb: c\r\n\r\n" + inner,
		"POST http://" + at + "/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + inner,
	} {
		say(t, proxy, message)
	}
	if len(up.all()) == 0 {
		t.Fatal("nothing arrived")
	}
	for _, got := range up.all() {
		for r := bufio.NewReader(strings.NewReader(got)); ; {
			req, err := http.ReadRequest(r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%q: %v", got, err)
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				t.Fatalf("%q: %v", got, err)
			}
			if req.URL.Path != "/" || req.Host != at || len(req.TransferEncoding) > 0 && req.Header.Get("Content-Length") != "" {
				t.Errorf("it got %s of %s, %v", req.URL, req.Host, req.Header)
			}
		}
	}
}

func TestWhatIsForTheProxyStaysHere(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[http.Header]
	base, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header.Clone()
		got.Store(&h)
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("X-End", "1")
	})
	at := strings.TrimPrefix(base, "http://")
	proxy, _ := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{at}})})
	req, err := http.NewRequest(http.MethodGet, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "keep-alive, X-Mine,, x-too", "X-Mine": "1", "X-Too": "1", "Keep-Alive": "timeout=5", "Proxy-Connection": "keep-alive",
		"Proxy-Whatever": "1", "Te": "trailers", "Upgrade": "websocket", "Authorization": "Bearer for-the-server", "Cookie": "a=b", "Http2-Settings": "x",
	} {
		req.Header.Set(name, value)
	}
	resp, err := through(t, proxy, url.UserPassword("job", "proxy-password")).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	h := *got.Load()
	for _, name := range []string{"Connection", "X-Mine", "X-Too", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Whatever", "Te", "Upgrade", "Http2-Settings", "X-Forwarded-For", "Via"} {
		if v, there := h[name]; there {
			t.Errorf("the server got %s: %q", name, v)
		}
	}
	if h.Get("Authorization") != "Bearer for-the-server" || h.Get("Cookie") != "a=b" {
		t.Errorf("the server did not get what is its: %v", h)
	}
	for _, name := range []string{"X-Hop", "Proxy-Authenticate"} {
		if resp.Header.Get(name) != "" {
			t.Errorf("the client got %s", name)
		}
	}
	if resp.Header.Get("X-End") != "1" {
		t.Errorf("the client got %v", resp.Header)
	}
	// In a tunnel nothing of the request for it is sent on.
	up := newRaw(t, plainOK)
	proxy, _ = proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{up.address()}})})
	say(t, proxy, "CONNECT "+up.address()+" HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\nGET / HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n")
	for _, got := range up.all() {
		if strings.Contains(got, "Proxy-") || strings.Contains(got, "CONNECT") {
			t.Errorf("through the tunnel: %q", got)
		}
	}
}

// A name that is public when it is looked up first and ours when it is connected to.
func TestARebindingNameGainsNothingByProxy(t *testing.T) {
	t.Parallel()
	up := newRaw(t, plainOK)
	_, port, err := net.SplitHostPort(up.address())
	if err != nil {
		t.Fatal(err)
	}
	rebinding := nameServer(t, func(n int64) [4]byte { return [4]byte{127, 0, 0, byte(n)} })
	proxy, told := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{Resolver: rebinding})})
	for range 3 {
		for _, raw := range []string{"CONNECT evil.example.com:" + port, "GET http://evil.example.com:" + port + "/"} {
			if status, body := say(t, proxy, raw+" HTTP/1.1\r\nHost: evil.example.com\r\n\r\n"); status != http.StatusForbidden {
				t.Errorf("%s: %d %q", raw, status, body)
			}
		}
	}
	if got := told.take(); len(got) != 6 || got[0] != "evil.example.com:"+port {
		t.Errorf("told: %q", got)
	}
	if got := up.all(); len(got) != 0 {
		t.Errorf("it was reached: %q", got)
	}
}

func TestAProxyIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	base, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	t.Cleanup(func() { close(release) })
	at := strings.TrimPrefix(base, "http://")
	e := egress(t, EgressConfig{AllowHosts: []string{at}})
	proxy, _ := proxied(t, ProxyConfig{Egress: e, MaxHead: 1 << 10, MaxConns: 2, Idle: 300 * time.Millisecond})
	status, _ := say(t, proxy, "GET "+base+"/ HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("y", 16<<10)+"\r\n\r\n")
	if status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long head: %d", status)
	}
	if status, _ := say(t, proxy, "GET "+base+"/hang HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusBadGateway {
		t.Errorf("a server that says nothing: %d", status)
	}
	// Two that say nothing hold both slots until they are idle for too long; then a
	// third is served.
	for _, first := range []string{"", "CONNECT " + at + " HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://"} {
		for range 2 {
			conn, err := net.Dial("tcp", proxy)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, first); err != nil {
				t.Fatal(err)
			}
		}
		if status, _ := say(t, proxy, "GET "+base+"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); status != http.StatusOK {
			t.Errorf("after two with %q: %d", first, status)
		}
	}
}

// A long answer in small pieces outlives the limit on idleness, and comes as it is sent.
func TestAStreamIsNotIdle(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	base, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		for range 5 {
			fmt.Fprintln(w, "piece")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	at := strings.TrimPrefix(base, "http://")
	proxy, _ := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{at}}), Idle: proxyPatience})
	resp, err := through(t, proxy, nil).Get(base)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 5 {
		if !lines.Scan() || lines.Text() != "piece" {
			t.Fatalf("it says %q: %v", lines.Text(), lines.Err())
		}
		next <- struct{}{}
	}
}

func TestAnAnswerThatIsCutOffDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	up := newRaw(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
	proxy, _ := proxied(t, ProxyConfig{Egress: egress(t, EgressConfig{AllowHosts: []string{up.address()}})})
	resp, err := through(t, proxy, nil).Get("http://" + up.address())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("it ends well with %q", body)
	}
}

// Stopping ends what waits, what is in a tunnel and what hangs, and leaves nothing.
func TestStopEndsEverythingOfAProxy(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	ctx, cancel := context.WithCancel(t.Context())
	base, _ := server(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	})
	at := strings.TrimPrefix(base, "http://")
	e := egress(t, EgressConfig{AllowHosts: []string{at}})
	for range 20 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stop := NewProxy(ProxyConfig{Egress: e, MaxConns: 4}).Serve(ln)
		var clients sync.WaitGroup
		ready := make(chan struct{}, 8)
		for _, raw := range []string{"", "GET ", "GET " + base + "/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT " + at + " HTTP/1.1\r\nHost: x\r\n\r\n", "", ""} {
			clients.Go(func() {
				conn, err := net.Dial("tcp", ln.Addr().String())
				ready <- struct{}{}
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, raw)
				_, _ = io.Copy(io.Discard, conn) // until it is closed from there
			})
		}
		for range 6 {
			<-ready
		}
		var both sync.WaitGroup
		both.Go(stop)
		both.Go(stop)
		both.Wait()
		clients.Wait()
		if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			conn.Close()
			t.Fatal("it still listens")
		}
	}
	cancel()
}

func FuzzProxyHead(f *testing.F) {
	const at = "127.0.0.1:1" // is replaced by where the server is
	for _, seed := range []string{
		"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\nGET http://127.0.0.1:1/2 HTTP/1.1\r\n\r\n",
		"GET http://127.0.0.1:1/ HTTP/1.1\r\nProxy-Authorization: Basic x\r\nConnection: Proxy-Authorization, close\r\n\r\n",
		"GET http://u:p@127.0.0.1:1/ HTTP/1.1\r\n\r\n", "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", "GET http://127.0.0.1:1/ HTTP/1.0\n\n",
		"GET http://127.0.0.1:1/?a b HTTP/1.1\r\n\r\n", "GET http://127.0.0.1:1\r\nX: y HTTP/1.1\r\n\r\n", "PUT http://127.0.0.1:1/%0d%0aX:%20y HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, head string) {
		up := newRaw(t, plainOK)
		e, err := NewEgress(EgressConfig{AllowHosts: []string{up.address()}, OnlyHosts: []string{up.address()}})
		if err != nil {
			t.Fatal(err)
		}
		proxy, _ := proxied(t, ProxyConfig{Egress: e, Idle: time.Second})
		conn, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, strings.ReplaceAll(head, at, up.address()))
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetDeadline(time.Now().Add(proxyPatience))
		if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("it hangs: %v", err)
		}
		if strings.Contains(head, "CONNECT") {
			return // a tunnel carries what it likes
		}
		for _, got := range up.all() {
			for r := bufio.NewReader(strings.NewReader(got)); ; {
				req, err := http.ReadRequest(r)
				if err != nil {
					break // the end, or cut off when the client ended
				}
				for name := range req.Header {
					if strings.HasPrefix(name, "Proxy-") || name == "Connection" && req.Header.Get(name) != "close" {
						t.Fatalf("%s is sent on: %q", name, got)
					}
				}
				if req.Host != up.address() || req.URL.Host != "" || req.URL.User != nil {
					t.Fatalf("it is sent %q", got)
				}
				if _, err := io.Copy(io.Discard, req.Body); err != nil {
					break
				}
			}
		}
	})
}
