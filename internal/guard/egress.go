package guard

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// EgressConfig says what besides, or instead of, the public internet can be reached.
type EgressConfig struct {
	AllowHosts   []string      // `host`, `*.domain`, each with an optional `:port`; these may be private. Default: none
	OnlyHosts    []string      // written alike; where there are any, no other host is reached. Default: none
	NotHosts     []string      // written alike; these are not reached by their names, whatever else is said. Default: none
	AllowPrivate bool          // loopback and private networks for every host. Default: false
	Resolver     *net.Resolver // default: the system's
}

// Egress decides which addresses a connection may go to. It looks at the address
// when the socket is about to connect, so a name that answers differently the
// second time gains nothing. Link-local (where clouds keep their credentials),
// multicast, tunnels and reserved ranges are refused whatever is allowed.
// A nil Egress allows the public internet only.
type Egress struct {
	hosts    []scope.Scope
	only     []scope.Scope // nil: every host
	not      []scope.Scope
	private  bool
	resolver *net.Resolver
}

// NewEgress returns the guard for cfg.
func NewEgress(cfg EgressConfig) (*Egress, error) {
	e := &Egress{private: cfg.AllowPrivate, resolver: cfg.Resolver}
	var err error
	if e.hosts, err = hostScopes(cfg.AllowHosts); err != nil {
		return nil, err
	}
	if e.only, err = hostScopes(cfg.OnlyHosts); err != nil {
		return nil, err
	}
	if e.not, err = hostScopes(cfg.NotHosts); err != nil {
		return nil, err
	}
	return e, nil
}

func hostScopes(hosts []string) (out []scope.Scope, err error) {
	for _, h := range hosts {
		if _, err := netip.ParseAddr(h); err == nil {
			h = bracket(h)
		}
		s, err := scope.Parse("http:" + h)
		if err != nil {
			return nil, fault.New(fault.Config, "allowed host: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// ForOrigin returns the guard of a client that has one server to talk to: host and
// port of base, an address as it stands in the configuration, also if they are
// private. Nothing else is reached, so a key sent there goes nowhere else.
func ForOrigin(base string) (*Egress, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, fault.New(fault.Config, "%q is not an http address", base)
	}
	host, port, err := target(u)
	if err != nil {
		return nil, fault.New(fault.Config, "%w", err)
	}
	origin := []string{bracket(host) + ":" + port}
	return NewEgress(EgressConfig{AllowHosts: origin, OnlyHosts: origin})
}

// allows reports whether host may be private. It refuses a host that is none of
// the only ones, or one of those it is kept from. Host is normalised.
func (e *Egress) allows(host, port string) (private bool, err error) {
	if e == nil {
		return false, nil
	}
	need, err := scope.Of("http", bracket(host)+":"+port)
	if err != nil {
		return false, fault.New(fault.Denied, "%w", err)
	}
	covers := func(s scope.Scope) bool { return s.Covers(need) }
	if slices.ContainsFunc(e.not, covers) {
		return false, fault.New(fault.Denied, "connection to %s:%s is refused: this client is kept from that host", bracket(host), port)
	}
	if e.only != nil && !slices.ContainsFunc(e.only, covers) {
		return false, fault.New(fault.Denied, "connection to %s:%s is refused: it is not among the hosts this client may reach", bracket(host), port)
	}
	return e.private || slices.ContainsFunc(e.hosts, covers), nil
}

// CheckURL refuses a URL whose text alone shows that it is not to be called. It
// resolves nothing: DialContext judges the address.
func (e *Egress) CheckURL(u *url.URL) error {
	host, port, err := target(u)
	if err != nil {
		return err
	}
	allowed, err := e.allows(host, port)
	if err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return check(addr, allowed)
	}
	if local(host) && !allowed {
		return refused(host, "this machine")
	}
	return nil
}

// target is where a client connects to for u, in one spelling.
func target(u *url.URL) (host, port string, err error) {
	port = u.Port()
	switch {
	case u.Scheme == "http" && port == "":
		port = "80"
	case u.Scheme == "https" && port == "":
		port = "443"
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "", fault.New(fault.Denied, "scheme %q: only http and https are called", u.Scheme)
	}
	if u.User != nil {
		return "", "", fault.New(fault.Denied, "a user or password in a URL is refused")
	}
	name := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	if host, err = scope.Host(name); err != nil {
		return "", "", fault.New(fault.Denied, "%w", err)
	}
	return host, port, nil
}

// local reports whether a name means this machine by convention.
func local(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain" ||
		host == "ip6-localhost" || host == "ip6-loopback"
}

// check judges one address.
func check(addr netip.Addr, allowed bool) error {
	switch far, what := classify(addr); {
	case far == public, far == private && allowed:
		return nil
	default:
		return refused(addr.String(), what)
	}
}

func refused(name, what string) error {
	return fault.New(fault.Denied, "connection to %s is refused: %s", name, what).
		WithHint("tools.web.allow_private opens this machine and its networks to the fetch tool; tools.web.allow_hosts can limit it to some hosts")
}

const dialTimeout = 10 * time.Second

// DialContext connects like net.Dialer to "host:port" over TCP, after the check
// of every address it tries.
func (e *Egress) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fault.New(fault.Denied, "network %q: only tcp is dialled", network)
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "dial: %w", err)
	}
	host, err := scope.Host(bracket(name))
	if err != nil {
		return nil, fault.New(fault.Denied, "dial: %w", err)
	}
	allowed, err := e.allows(host, port)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		Timeout: dialTimeout,
		ControlContext: func(_ context.Context, _, target string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(target)
			if err != nil {
				return fault.New(fault.Denied, "dial: address %q: %w", target, err)
			}
			return check(ap.Addr(), allowed)
		},
	}
	if e != nil {
		d.Resolver = e.resolver
	}
	return d.DialContext(ctx, network, net.JoinHostPort(host, port))
}

func bracket(name string) string {
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}
