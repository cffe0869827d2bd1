package httpd

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestOnlyThisHostIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{Hosts: []string{"hooks.example.com"}}, Deps{}, nil)
	for host, status := range map[string]int{
		"localhost": 200, "localhost:7331": 200, "LOCALHOST": 200, "localhost.": 200, "127.0.0.1": 200, "127.0.0.1:1": 200, "127.8.9.1": 200,
		"[::1]": 200, "[::1]:7331": 200, "[::ffff:127.0.0.1]": 200, "hooks.example.com": 200, "Hooks.Example.com:443": 200,

		"evil.example": 421, "localhost.evil.example": 421, "evil-localhost": 421, "127.0.0.1.evil.example": 421, "10.0.0.1": 421, "0.0.0.0": 421,
		"127.1": 421, "2130706433": 421, "0x7f.0.0.1": 421, "[::]": 421, "[fe80::1]": 421, "example.com": 421, "x.hooks.example.com": 421,
		"localhost:0": 421, "localhost:99999": 421, "localhost:07331": 421, "localhost:": 421, "[127.0.0.1]": 421, "::1": 421,
	} {
		res, body := raw(t, s, get("/health", "Host: "+host))
		want(t, "Host "+host, res, body, status)
	}
	for _, bad := range []string{
		"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",                                  // no host at all
		"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n", // two
		"GET /health HTTP/1.1\r\nHost: local host\r\nConnection: close\r\n\r\n",
	} {
		if res, _ := raw(t, s, bad); res.StatusCode < 400 {
			t.Errorf("%q is answered %d", bad, res.StatusCode)
		}
	}
	// The name in the request line counts, as HTTP says.
	if res, body := raw(t, s, "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("an absolute URL of another host is answered %d %s", res.StatusCode, body)
	}
}

func TestNoOtherSitesPageMayAsk(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, Deps{}, map[string]http.HandlerFunc{"/m": hello})
	for _, c := range []struct {
		head   string
		status int
	}{
		{"Origin: http://localhost:7331", 200},
		{"Origin: https://localhost:7331", 200}, // a proxy has TLS
		{"Sec-Fetch-Site: none", 200},
		{"Sec-Fetch-Site: same-origin", 200},
		{"Origin: null", 403},
		{"Origin: http://localhost", 403},
		{"Origin: http://localhost:7332", 403},
		{"Origin: http://127.0.0.1:7331", 403},
		{"Origin: http://evil.example", 403},
		{"Origin: http://localhost:7331.evil.example", 403},
		{"Origin: http://localhost:7331@evil.example", 403},
		{"Origin: http://localhost:7331/", 403},
		{"Origin: file://localhost:7331", 403},
		{"Origin: ", 403},
		{"Origin: http://localhost:7331\r\nOrigin: http://evil.example", 403},
		{"Sec-Fetch-Site: cross-site", 403},
		{"Sec-Fetch-Site: same-site", 403},
	} {
		for _, path := range []string{"/health", "/m/x"} {
			res, body := raw(t, s, get(path, c.head))
			want(t, path+" "+c.head, res, body, c.status)
		}
	}
}

func TestNoTokenIsTakenFromAURL(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, Deps{}, nil)
	for query, status := range map[string]int{
		"a=b": 200, "tokens=3": 200, "token=x": 400, "a=b&access_token=x": 400, "API_KEY=x": 400, "%74oken=x": 400, "a;token=x": 400, "token": 400,
		"secret=%zz": 400,
	} {
		res, body := raw(t, s, get("/health?"+query))
		want(t, query, res, body, status)
	}
}

// A host that is taken is one of ours, however it is written.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "[::1]:80", "127.0.0.1:", "hooks.example.com.", "[::1%25lo]", "a:b:c", "[", "]:1", "\x00", "localhost\n"} {
		f.Add(s)
	}
	s := &Server{cfg: Config{Address: netip.MustParseAddrPort("10.1.2.3:80"), Hosts: []string{"hooks.example.com"}}}
	f.Fuzz(func(t *testing.T, host string) {
		name, port, ok := splitHost(host)
		if !ok {
			if s.knows(host) {
				t.Fatalf("%q cannot be read and is known", host)
			}
			return
		}
		if strings.ContainsAny(port, ":[]") || name == "" {
			t.Fatalf("%q is read as %q and %q", host, name, port)
		}
		if !s.knows(host) || name == "localhost" || name == "hooks.example.com" {
			return
		}
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Unmap().IsLoopback() && addr.String() != "10.1.2.3" {
			t.Fatalf("%q is taken for this host", host)
		}
	})
}

// An origin that is taken is, as a browser reads it, of the host that is asked for.
func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"http://localhost:7331", "null", "http://a@b", "http:///", "https://localhost", "http://[::1]:7331", "http://localhost:7331#"} {
		f.Add(s, "localhost:7331")
	}
	f.Fuzz(func(t *testing.T, origin, host string) {
		if !sameOrigin(origin, host) {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			t.Fatalf("%q is taken", origin)
		}
		name, _, ok := splitHost(host)
		if !ok || strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) != name {
			t.Fatalf("%q is taken for %q", origin, host)
		}
	})
}
