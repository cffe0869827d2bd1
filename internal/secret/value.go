package secret

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Value is the value of a secret. It prints as "(hidden)" in every format, in JSON
// and in logs.
type Value struct {
	name  string
	text  string
	hosts []string
}

const hidden = "(hidden)"

// Name is the name of the secret.
func (v Value) Name() string { return v.name }

// Reveal returns the value. Call it where it is sent, not before.
func (v Value) Reveal() string { return v.text }

// Bound reports whether the secret is bound to hosts.
func (v Value) Bound() bool { return len(v.hosts) > 0 }

// For refuses a URL that a bound secret must not be sent to: another host than those
// it is bound to, or one that is reached without TLS. This machine's own address may
// be without.
func (v Value) For(u *url.URL) error {
	if !v.Bound() {
		return nil
	}
	host := strings.ToLower(u.Hostname())
	if !slices.ContainsFunc(v.hosts, func(bound string) bool { return matches(bound, host, u.Port()) }) {
		return fault.New(fault.Denied, "secret %s is for %s and is not sent to %s", v.name, strings.Join(v.hosts, ", "), host).
			WithHint("ombud secret set %s --host HOST binds it anew", v.name)
	}
	if u.Scheme != "https" && !loopback(host) {
		return fault.New(fault.Denied, "secret %s is not sent to %s without TLS", v.name, host).WithHint("use https://")
	}
	return nil
}

func matches(bound, host, port string) bool {
	if at, only, has := cutPort(bound); has {
		if only != port {
			return false
		}
		bound = at
	}
	if domain, wild := strings.CutPrefix(bound, "*"); wild {
		return strings.HasSuffix(host, domain) && len(host) > len(domain)
	}
	return bound == host
}

func cutPort(s string) (host, port string, has bool) {
	if host, port, err := net.SplitHostPort(s); err == nil {
		return host, port, true
	}
	return s, "", false
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

var hostForm = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

var portForm = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)

const maxHosts = 16

func checkHosts(hosts []string) ([]string, error) {
	if len(hosts) > maxHosts {
		return nil, fault.New(fault.Invalid, "a secret is bound to at most %d hosts", maxHosts)
	}
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		host, port, has := cutPort(h)
		_, err := netip.ParseAddr(host)
		if len(h) > 260 || err != nil && !hostForm.MatchString(host) || has && !portForm.MatchString(port) {
			return nil, fault.New(fault.Invalid, "%q is not a host such as api.example.com, *.example.com or localhost:8080", fault.Cut(h, 80)).
				WithHint("in small letters, without https:// and without a path")
		}
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out, nil
}

// String hides the value.
func (v Value) String() string { return hidden }

// Format hides the value from every verb, %#v and %x too.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText hides the value from encoders.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the value from structured logs.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }
