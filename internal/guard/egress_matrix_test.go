package guard

import (
	"compress/gzip"
	"context"
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

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ombud-run/ombud/internal/fault"
)

// special has one address at least of every range that is not the public internet,
// and of every way to write an IPv4 address into an IPv6 one.
var special = []string{
	"10.0.0.1", "127.0.0.1", "127.255.255.254", "172.16.0.1", "192.168.0.1", "100.64.0.1", "100.127.255.254", "::1", "fc00::1", "fd12:3456::1",
	"0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
	"224.0.0.251", "240.0.0.1", "255.255.255.255", "::", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "3fff::1", "100::1",
	"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", // mapped
	"::127.0.0.1",                                    // compatible
	"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", // NAT64
	"64:ff9b:1::10.0.0.1",               // NAT64, local prefix
	"2002:7f00:1::", "2002:a9fe:a9fe::", // 6to4
	"2001:0:7f00:1::", // Teredo
}

// nameTable answers for the names of a table, each with its one address, and says
// that there is no other name.
func nameTable(t *testing.T, table map[string]netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := answer(buf[:n], table); reply != nil {
				_, _ = conn.WriteTo(reply, from) // a client that has gone needs none
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answer(query []byte, table map[string]netip.Addr) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	addr, known := table[strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")]
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA && addr.Is4():
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}}}
	case q.Type == dnsmessage.TypeAAAA && addr.Is6():
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// TestNoWayLeadsToAnAddressThatIsNotPublic crosses the addresses with the ways a
// client comes to one: written in the URL, dialled, behind a name, and behind a
// redirect, written or named. A request that got through would be answered by a
// server of the test or hang; a refusal is of class denied.
func TestNoWayLeadsToAnAddressThatIsNotPublic(t *testing.T) {
	t.Parallel()
	table := map[string]netip.Addr{}
	name := func(i int) string { return fmt.Sprintf("n%d.example.com", i) }
	for i, text := range special {
		table[name(i)] = netip.MustParseAddr(text)
	}
	outer, outerPort := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	})
	var inner atomic.Int64
	_, port := server(t, func(http.ResponseWriter, *http.Request) { inner.Add(1) })
	e := egress(t, EgressConfig{Resolver: nameTable(t, table), AllowHosts: []string{"127.0.0.1:" + outerPort}})
	client := HTTPClient(HTTPConfig{Egress: e, Timeout: 10 * time.Second})
	fetch := func(u string) error { _, err := get(t, client, u); return err }
	through := func(to string) string { return outer + "/?to=" + url.QueryEscape(to) }
	for i, text := range special {
		literal := "http://" + net.JoinHostPort(text, port) + "/"
		named := "http://" + name(i) + ":" + port + "/"
		for way, err := range map[string]error{
			"in the URL":       fetch(literal),
			"behind a name":    fetch(named),
			"redirected":       fetch(through(literal)),
			"redirected, name": fetch(through(named)),
			"dialled":          dial(t, e, net.JoinHostPort(text, port)),
			"dialled, name":    dial(t, e, name(i)+":"+port),
		} {
			if !fault.Is(err, fault.Denied) {
				t.Errorf("%s %s: %v, want denied", text, way, err)
			}
		}
	}
	if n := inner.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func dial(t *testing.T, e *Egress, address string) error {
	t.Helper()
	conn, err := e.DialContext(t.Context(), "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

// TestNoSpellingLeadsToThisMachine: the forms by which parsers have disagreed on
// what host a URL names, direct and behind a redirect.
func TestNoSpellingLeadsToThisMachine(t *testing.T) {
	t.Parallel()
	outer, outerPort := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusSeeOther)
	})
	var inner atomic.Int64
	_, port := server(t, func(http.ResponseWriter, *http.Request) { inner.Add(1) })
	e := egress(t, EgressConfig{Resolver: nameTable(t, nil), AllowHosts: []string{"127.0.0.1:" + outerPort}})
	client := HTTPClient(HTTPConfig{Egress: e, Timeout: 10 * time.Second})
	for _, spelling := range []string{
		"http://2130706433:%s/", "http://0x7f000001:%s/", "http://0x7f.0.0.1:%s/", "http://017700000001:%s/", "http://0177.0.0.1:%s/",
		"http://0177.0.0.01:%s/", "http://127.1:%s/", "http://127.0.1:%s/", "http://127.0.0.1.:%s/", "http://0:%s/", "http://00.0.0.0:%s/",
		"http://localhost:%s/", "http://localhost.:%s/", "http://LocalHost:%s/", "http://a.localhost:%s/", "http://a.localhost.:%s/",
		"http://ip6-localhost:%s/", "http://localhost.localdomain:%s/", "http://[::1]:%s/", "http://[0:0:0:0:0:0:0:1]:%s/", "http://[::ffff:7f00:1]:%s/",
		"http://[::1%%25lo]:%s/", "http://1:%s/", "http://①②⑦.0.0.1:%s/", "http://127。0。0。1:%s/", "http://127%%2e0%%2e0%%2e1:%s/",
		"http://user@127.0.0.1:%s/", "http://user:pw@127.0.0.1:%s/", "http://example.com@127.0.0.1:%s/", "http://127.0.0.1:%s@example.com/",
		"http://127.0.0.1:%s\\@example.com/", "http://127.0.0.1\\@example.com:%s/", "http:\\\\127.0.0.1:%s/", "http:/\\127.0.0.1:%s/",
		"http://127.0.0.1:%s#@example.com/", "http://127.0.0.1:%s?@example.com/", "//127.0.0.1:%s/", "HTTP://127.0.0.1:%s/",
		"http://127.0.0.1:%s%%00.example.com/", "http://example.com%%00@127.0.0.1:%s/", "http://\t127.0.0.1:%s/", "ws://127.0.0.1:%s/",
		"gopher://127.0.0.1:%s/", "unix:///run/x?%s", "jar:http://127.0.0.1:%s/!/",
	} {
		to := fmt.Sprintf(spelling, port)
		if u, err := url.Parse(to); err == nil && u.IsAbs() {
			if err := e.CheckURL(u); !fault.Is(err, fault.Denied) {
				t.Errorf("%q: %v, want denied", to, err)
			}
		}
		if _, err := get(t, client, outer+"/?to="+url.QueryEscape(to)); err == nil {
			t.Errorf("redirected to %q: followed", to)
		}
	}
	if n := inner.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestOnlyTheHostsThatAreNamedAreReached(t *testing.T) {
	t.Parallel()
	var other atomic.Int64
	_, otherPort := server(t, func(http.ResponseWriter, *http.Request) { other.Add(1) })
	base, port := server(t, func(http.ResponseWriter, *http.Request) {})
	loop := netip.MustParseAddr("127.0.0.1")
	for what, cfg := range map[string]EgressConfig{
		"allowed and only": {OnlyHosts: []string{"127.0.0.1:" + port}, AllowHosts: []string{"127.0.0.1:" + port}},
		"private and only": {OnlyHosts: []string{"127.0.0.1:" + port}, AllowPrivate: true},
	} {
		cfg.Resolver = nameTable(t, map[string]netip.Addr{"other.example.com": loop})
		e := egress(t, cfg)
		client := HTTPClient(HTTPConfig{Egress: e})
		if _, err := get(t, client, base); err != nil {
			t.Errorf("%s: the host itself: %v", what, err)
		}
		for _, u := range []string{"http://127.0.0.1:" + otherPort, "http://other.example.com:" + port, "https://1.1.1.1", "http://127.0.0.2:" + port} {
			if _, err := get(t, client, u); !fault.Is(err, fault.Denied) {
				t.Errorf("%s: %s: %v, want denied", what, u, err)
			}
		}
		if err := dial(t, e, "1.1.1.1:443"); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: dialled past it: %v", what, err)
		}
	}
	if e := egress(t, EgressConfig{OnlyHosts: []string{"127.0.0.1:" + port}}); !fault.Is(dial(t, e, "127.0.0.1:"+port), fault.Denied) {
		t.Error("naming a host as the only one makes it private as well")
	}
	if other.Load() != 0 {
		t.Errorf("%d requests arrived elsewhere", other.Load())
	}
	if _, err := NewEgress(EgressConfig{OnlyHosts: []string{"::1", "[::1]:80", "10.0.0.1", "*.lan"}}); err != nil {
		t.Error(err)
	}
}

func TestForOriginReachesOneServer(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"http://127.0.0.1:11434/v1": "127.0.0.1:11434", "https://api.example.com/v1": "api.example.com:443", "http://[::1]:8080": "[::1]:8080",
		"http://LOCALHOST": "localhost:80", "https://host.:8443/": "host:8443",
	} {
		e, err := ForOrigin(base)
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		if len(e.only) != 1 || e.only[0].String() != "http:"+want {
			t.Errorf("%s reaches %v, want %s", base, e.only, want)
		}
	}
	for _, base := range []string{"", "example.com", "ftp://example.com", "http://u:p@example.com", "http://exa mple", "http://0x7f.1", "http://:80", "file:///x"} {
		if _, err := ForOrigin(base); !fault.Is(err, fault.Config) {
			t.Errorf("%q: %v, want a configuration error", base, err)
		}
	}
	// Where clouds keep their credentials stays out of reach even if configured.
	e, err := ForOrigin("http://169.254.169.254/latest")
	if err == nil {
		err = dial(t, e, "169.254.169.254:80")
	}
	if !fault.Is(err, fault.Denied) {
		t.Errorf("link-local as a configured server: %v", err)
	}
}

func TestACompressedBodyCountsAsWhatItBecomes(t *testing.T) {
	t.Parallel()
	base, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.Copy(z, io.LimitReader(zeros{}, 64<<20)) // a client that leaves is the case under test
		_ = z.Close()
	})
	body, err := get(t, HTTPClient(HTTPConfig{Egress: egress(t, EgressConfig{AllowPrivate: true}), MaxBody: 1 << 20}), base)
	if len(body) != 1<<20 || !fault.Is(err, fault.Invalid) {
		t.Errorf("%d bytes and %v", len(body), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestABodyThatDripsTimesOut(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-r.Context().Done():
				return
			case <-tick.C:
				_, _ = io.WriteString(w, "x") // the client leaves: that is the case under test
				w.(http.Flusher).Flush()
			}
		}
	}))
	t.Cleanup(s.Close)
	defer close(stop)
	body, err := get(t, HTTPClient(HTTPConfig{Egress: egress(t, EgressConfig{AllowPrivate: true}), Timeout: 200 * time.Millisecond}), s.URL)
	if err == nil || fault.ClassOf(err) != fault.Timeout {
		t.Errorf("%d bytes and %v", len(body), err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	base, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 64 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 16<<10))
		}
	})
	if _, err := get(t, HTTPClient(HTTPConfig{Egress: egress(t, EgressConfig{AllowPrivate: true})}), base); err == nil {
		t.Error("a megabyte of headers is taken")
	}
}
