package httpd

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// admit refuses a request that is not for this host, that another site's page made, or
// that has a token in its URL.
func (s *Server) admit(r *http.Request) *refusal {
	if !s.knows(r.Host) {
		return &refusal{http.StatusMisdirectedRequest, fault.Denied, "this host is not called that; listen.hosts names what it is called"}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return &refusal{http.StatusForbidden, fault.Denied, "a page of another site asks"}
	}
	if origins := r.Header["Origin"]; len(origins) > 1 || len(origins) == 1 && !sameOrigin(origins[0], r.Host) {
		return &refusal{http.StatusForbidden, fault.Denied, "a page of another site asks"}
	}
	if r.URL.RawQuery != "" && hasToken(r.URL.RawQuery) {
		return &refusal{http.StatusBadRequest, fault.Invalid, "a token does not belong into a URL: send it in a header"}
	}
	return nil
}

// knows reports whether a request's Host is a name of this host.
func (s *Server) knows(host string) bool {
	name, _, ok := splitHost(host)
	if !ok {
		return false
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		listens := s.cfg.Address.Addr()
		return addr.Zone() == "" && (addr.Unmap().IsLoopback() || !listens.IsUnspecified() && addr.Unmap() == listens) ||
			slices.Contains(s.cfg.Hosts, name)
	}
	return name == "localhost" || slices.Contains(s.cfg.Hosts, name)
}

// splitHost reads host or host:port as a Host header has it: the name in lower case and
// without a final dot, and the port, "" if there is none.
func splitHost(text string) (name, port string, ok bool) {
	if len(text) > 255+6 {
		return "", "", false
	}
	name = text
	if rest, v6 := strings.CutPrefix(text, "["); v6 {
		var closed bool
		if name, port, closed = strings.Cut(rest, "]"); !closed {
			return "", "", false
		}
		if addr, err := netip.ParseAddr(name); err != nil || !addr.Is6() {
			return "", "", false
		}
		if port != "" && port[0] != ':' {
			return "", "", false
		}
		port = strings.TrimPrefix(port, ":")
		if port == "" && strings.HasSuffix(text, ":") {
			return "", "", false
		}
	} else if host, after, there := strings.Cut(text, ":"); there {
		if name, port = host, after; port == "" {
			return "", "", false
		}
	}
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return "", "", false
		}
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name, port, name != ""
}

// sameOrigin reports whether an Origin is a page of the host a request is for.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Opaque != "" || origin != u.Scheme+"://"+u.Host {
		return false
	}
	name, port, ok := splitHost(u.Host)
	want, wantPort, wantOK := splitHost(host)
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		port = usual
	}
	if wantPort == "" {
		wantPort = usual
	}
	return ok && wantOK && name == want && port == wantPort
}

// tokens are names of parameters that hold what lets somebody in.
var tokens = []string{"token", "access_token", "auth_token", "api_key", "apikey", "auth", "authorization", "password", "secret"}

// hasToken reports whether a query has such a parameter, also one that cannot be read.
func hasToken(query string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
		if slices.Contains(tokens, strings.ToLower(key)) {
			return true
		}
	}
	return false
}
