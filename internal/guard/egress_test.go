package guard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

func egress(t *testing.T, cfg EgressConfig) *Egress {
	t.Helper()
	e, err := NewEgress(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAddressesByReach(t *testing.T) {
	t.Parallel()
	for want, addrs := range map[reach][]string{
		public: {"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.17.255.255",
			"198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"},
		private: {"10.0.0.1", "127.0.0.1", "127.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.0", "100.127.255.255",
			"::1", "fc00::1", "fdff::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"},
		forbidden: {"0.0.0.0", "0.1.2.3", "169.254.169.254", "192.0.0.1", "192.0.0.255", "192.0.2.1", "192.88.99.1", "198.18.0.0", "198.19.255.255",
			"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::7f00:1", "64:ff9b::7f00:1",
			"64:ff9b::101:101", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "4000::1", "5f00::1", "fe80::1",
			"fe80::1%eth0", "fec0::1", "ff02::1", "::ffff:169.254.169.254", "::ffff:0.0.0.0"},
	} {
		for _, a := range addrs {
			if got, what := classify(netip.MustParseAddr(a)); got != want {
				t.Errorf("%s is %d (%s), want %d", a, got, what, want)
			}
		}
	}
	if got, _ := classify(netip.Addr{}); got != forbidden {
		t.Error("no address at all is reachable")
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	listed := egress(t, EgressConfig{AllowHosts: []string{"localhost", "*.lan", "127.0.0.1:11434", "[::1]:80"}})
	open := egress(t, EgressConfig{AllowPrivate: true})
	for _, c := range []struct {
		e    *Egress
		url  string
		want bool
	}{
		{nil, "https://example.com/a?q", true},
		{nil, "https://1.1.1.1", true},
		{nil, "https://localhost", false},
		{nil, "https://LOCALHOST.", false},
		{nil, "https://a.localhost", false},
		{nil, "https://ip6-localhost", false},
		{nil, "https://localhost.localdomain", false},
		{nil, "http://127.0.0.1", false},
		{nil, "http://127.1", false},
		{nil, "http://2130706433", false},
		{nil, "http://0x7f000001", false},
		{nil, "http://0177.0.0.1", false},
		{nil, "http://127.0.0.1.", false},
		{nil, "http://[::ffff:7f00:1]", false},
		{nil, "http://[::1%25lo]", false},
		{nil, "http://169.254.169.254/latest/meta-data", false},
		{nil, "http://user@example.com", false},
		{nil, "http://example.com@127.0.0.1", false},
		{nil, "ftp://example.com", false},
		{nil, "file:///etc/passwd", false},
		{nil, "example.com", false},
		{nil, "http://", false},
		{nil, "http://exa%00mple.com", false},
		{nil, "http://１２７.0.0.1", false},
		{listed, "http://localhost:9", true},
		{listed, "http://a.lan", true},
		{listed, "http://127.0.0.1:11434", true},
		{listed, "http://127.0.0.1:22", false},
		{listed, "http://[::1]", true},
		{listed, "http://[::1]:81", false},
		{open, "http://10.0.0.1", true},
		{open, "http://localhost", true},
		{open, "http://169.254.169.254", false},
		{open, "http://0.0.0.0", false},
	} {
		u, err := url.Parse(c.url)
		if err == nil {
			err = c.e.CheckURL(u)
		} else if c.want {
			t.Fatal(err)
		}
		if (err == nil) != c.want {
			t.Errorf("%s: %v, want allowed %v", c.url, err, c.want)
		}
		if _, parse := errors.AsType[*url.Error](err); err != nil && !parse && !fault.Is(err, fault.Denied) {
			t.Errorf("%s: class %s", c.url, fault.ClassOf(err))
		}
	}
	if _, err := NewEgress(EgressConfig{AllowHosts: []string{"http://x"}}); !fault.Is(err, fault.Config) {
		t.Errorf("a URL as allowed host: %v", err)
	}
}

// nameServer answers every question for an IPv4 address with what addr returns.
func nameServer(t *testing.T, addr func(n int64) [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	var asked atomic.Int64
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12
			for end < n && buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			end += 5 // the zero, type and class
			if end > n {
				continue
			}
			reply := append([]byte(nil), buf[:end]...)
			reply[2], reply[3] = 0x81, 0x80
			copy(reply[6:12], []byte{0, 0, 0, 0, 0, 0})
			if binary.BigEndian.Uint16(reply[end-4:]) == 1 {
				reply[7] = 1
				ip := addr(asked.Add(1))
				reply = append(reply, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ip[0], ip[1], ip[2], ip[3])
			}
			if _, err := conn.WriteTo(reply, from); err != nil {
				return
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func server(t *testing.T, h http.HandlerFunc) (base string, port string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, port
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	t.Cleanup(c.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestANameThatResolvesToAPrivateAddressIsRefused(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	_, port := server(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	loopback := nameServer(t, func(int64) [4]byte { return [4]byte{127, 0, 0, 1} })
	_, err := get(t, HTTPClient(HTTPConfig{Egress: egress(t, EgressConfig{Resolver: loopback})}), "http://evil.example.com:"+port)
	if !fault.Is(err, fault.Denied) || hits.Load() != 0 {
		t.Fatalf("error %v, %d requests arrived", err, hits.Load())
	}
	allowed := egress(t, EgressConfig{Resolver: loopback, AllowHosts: []string{"good.example.com:" + port}})
	if _, err := get(t, HTTPClient(HTTPConfig{Egress: allowed}), "http://good.example.com:"+port); err != nil || hits.Load() != 1 {
		t.Fatalf("an allowed host: %v, %d requests arrived", err, hits.Load())
	}
}

func TestANameThatChangesItsAnswerGainsNothing(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	_, port := server(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	rebinding := nameServer(t, func(n int64) [4]byte {
		if n == 1 {
			return [4]byte{93, 184, 215, 14}
		}
		return [4]byte{127, 0, 0, 1}
	})
	e := egress(t, EgressConfig{Resolver: rebinding})
	if addrs, err := rebinding.LookupNetIP(t.Context(), "ip4", "evil.example.com"); err != nil || addrs[0].Unmap().IsLoopback() {
		t.Fatalf("the first answer: %v, %v", addrs, err)
	}
	conn, err := e.DialContext(t.Context(), "tcp", "evil.example.com:"+port)
	if err == nil {
		conn.Close()
	}
	if !fault.Is(err, fault.Denied) || hits.Load() != 0 {
		t.Fatalf("the second answer: %v, %d requests arrived", err, hits.Load())
	}
}

func TestEveryRedirectHopIsChecked(t *testing.T) {
	t.Parallel()
	var inner atomic.Int64
	_, innerPort := server(t, func(http.ResponseWriter, *http.Request) { inner.Add(1) })
	outer, outerPort := server(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	})
	e := egress(t, EgressConfig{AllowHosts: []string{"127.0.0.1:" + outerPort}})
	for _, to := range []string{"http://127.0.0.1:" + innerPort, "http://localhost:" + innerPort, "http://[::ffff:127.0.0.1]:" + innerPort,
		"http://2130706433:" + innerPort, "ftp://127.0.0.1:" + outerPort, "http://u:p@127.0.0.1:" + outerPort, "file:///etc/passwd"} {
		_, err := get(t, HTTPClient(HTTPConfig{Egress: e}), outer+"/?to="+url.QueryEscape(to))
		if !fault.Is(err, fault.Denied) || inner.Load() != 0 {
			t.Errorf("redirect to %s: %v, %d requests arrived", to, err, inner.Load())
		}
	}
	if _, err := get(t, HTTPClient(HTTPConfig{Egress: e}), outer+"/?to=/"); err != nil {
		t.Errorf("a redirect to itself: %v", err)
	}
	refusing := HTTPConfig{Egress: e, Redirect: func(*http.Request, []*http.Request) error { return fault.New(fault.Waiting, "ask first") }}
	if _, err := get(t, HTTPClient(refusing), outer+"/?to=/"); !fault.Is(err, fault.Waiting) {
		t.Errorf("a hop its owner refuses: %v", err)
	}
}

func TestRedirectsAreBounded(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	base, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		http.Redirect(w, r, "/", http.StatusFound)
	})
	e := egress(t, EgressConfig{AllowPrivate: true})
	if _, err := get(t, HTTPClient(HTTPConfig{Egress: e}), base); !fault.Is(err, fault.Unavailable) || hits.Load() != 1+defaultRedirects {
		t.Errorf("a loop: %v after %d requests", err, hits.Load())
	}
	hits.Store(0)
	if body, err := get(t, HTTPClient(HTTPConfig{Egress: e, MaxRedirects: -1}), base); err != nil || hits.Load() != 1 || !strings.Contains(body, "Found") {
		t.Errorf("redirects off: %q, %v after %d requests", body, err, hits.Load())
	}
}

func TestResponsesAreBounded(t *testing.T) {
	t.Parallel()
	base, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscan(r.URL.Query().Get("n"), &n); err == nil {
			_, _ = io.WriteString(w, strings.Repeat("x", n)) // a client that leaves is the case under test
		}
	})
	e := egress(t, EgressConfig{AllowPrivate: true})
	for _, c := range []struct {
		n, got int
		max    int64
		class  fault.Class
	}{{99, 99, 100, ""}, {100, 100, 100, ""}, {101, 100, 100, fault.Invalid}, {1 << 20, 100, 100, fault.Invalid}, {1 << 20, 1 << 20, -1, ""}} {
		body, err := get(t, HTTPClient(HTTPConfig{Egress: e, MaxBody: c.max}), fmt.Sprintf("%s/?n=%d", base, c.n))
		if len(body) != c.got || fault.ClassOf(err) != c.class {
			t.Errorf("%d bytes under a limit of %d: %d bytes and %v", c.n, c.max, len(body), err)
		}
	}
}

func TestAServerThatNeverAnswersTimesOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	base, _ := server(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	e := egress(t, EgressConfig{AllowPrivate: true})
	_, err := get(t, HTTPClient(HTTPConfig{Egress: e, Timeout: 50 * time.Millisecond}), base)
	if !fault.Is(err, fault.Timeout) {
		t.Errorf("error %v, class %s", err, fault.ClassOf(err))
	}
}

func TestNoProxyIsTakenFromTheEnvironment(t *testing.T) {
	t.Parallel()
	if HTTPClient(HTTPConfig{}).Transport.(*guarded).base.Proxy != nil {
		t.Error("a proxy would connect where the guard cannot look")
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1", "http://[::ffff:a00:1]/", "http://0x7f.1", "http://localhost./", "https://a@b", "http://１２７.1", "http://a:99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		var e *Egress
		if e.CheckURL(u) != nil {
			return
		}
		host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		if u.User != nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
			t.Fatalf("%q passes", text)
		}
		if addr, err := netip.ParseAddr(host); err == nil && (!addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Is4In6() && addr.Unmap().IsLoopback()) {
			t.Fatalf("%q passes", text)
		}
	})
}

// TestAHostOneIsKeptFromIsNotReached, whatever else is allowed, nor looked up.
func TestAHostOneIsKeptFromIsNotReached(t *testing.T) {
	t.Parallel()
	asked := false
	e := egress(t, EgressConfig{
		NotHosts: []string{"api.example.com", "*.kept.example", "one.example:444"}, AllowHosts: []string{"api.example.com"}, AllowPrivate: true,
		Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { asked = true; return nil, errors.New("no") }},
	})
	for address, kept := range map[string]bool{
		"api.example.com:443": true, "API.example.com.:80": true, "a.kept.example:443": true, "one.example:444": true, "one.example:443": false, "example.com:443": false,
	} {
		asked = false
		if err := dial(t, e, address); fault.Is(err, fault.Denied) != kept || asked == kept {
			t.Errorf("%s: %v, looked up %v", address, err, asked)
		}
	}
	if err := e.CheckURL(&url.URL{Scheme: "https", Host: "api.example.com"}); !fault.Is(err, fault.Denied) {
		t.Errorf("%v", err)
	}
	if _, err := NewEgress(EgressConfig{NotHosts: []string{"a b"}}); !fault.Is(err, fault.Config) {
		t.Errorf("%v", err)
	}
}
