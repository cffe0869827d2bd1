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

// EgressConfig says what besides the public internet can be reached.
type EgressConfig struct {
	AllowHosts   []string      `yaml:"allow_hosts"`   // `host`, `*.domain`, each with an optional `:port`; these may be private. Default: none
	AllowPrivate bool          `yaml:"allow_private"` // loopback and private networks for every host. Default: false
	Resolver     *net.Resolver `yaml:"-"`             // default: the system's
}

// Egress decides which addresses a connection may go to. It looks at the address
// when the socket is about to connect, so a name that answers differently the
// second time gains nothing. Link-local (where clouds keep their credentials),
// multicast, tunnels and reserved ranges are refused whatever is allowed.
// A nil Egress allows the public internet only.
type Egress struct {
	hosts    []scope.Scope
	private  bool
	resolver *net.Resolver
}

// NewEgress returns the guard for cfg.
func NewEgress(cfg EgressConfig) (*Egress, error) {
	e := &Egress{private: cfg.AllowPrivate, resolver: cfg.Resolver}
	for _, h := range cfg.AllowHosts {
		s, err := scope.Parse("http:" + h)
		if err != nil {
			return nil, fault.New(fault.Config, "allowed host: %w", err)
		}
		e.hosts = append(e.hosts, s)
	}
	return e, nil
}

// allows reports whether host may be private. Host is normalised.
func (e *Egress) allows(host, port string) bool {
	if e == nil || e.private {
		return e != nil
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	need, err := scope.Of("http", host+":"+port)
	return err == nil && slices.ContainsFunc(e.hosts, func(s scope.Scope) bool { return s.Covers(need) })
}

// CheckURL refuses a URL whose text alone shows that it is not to be called. It
// resolves nothing: DialContext judges the address.
func (e *Egress) CheckURL(u *url.URL) error {
	port := u.Port()
	switch {
	case u.Scheme == "http" && port == "":
		port = "80"
	case u.Scheme == "https" && port == "":
		port = "443"
	case u.Scheme != "http" && u.Scheme != "https":
		return fault.New(fault.Denied, "scheme %q: only http and https are called", u.Scheme)
	}
	if u.User != nil {
		return fault.New(fault.Denied, "a user or password in a URL is refused")
	}
	name := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	host, err := scope.Host(name)
	if err != nil {
		return fault.New(fault.Denied, "%w", err)
	}
	allowed := e.allows(host, port)
	if addr, err := netip.ParseAddr(host); err == nil {
		return check(addr, allowed)
	}
	if local(host) && !allowed {
		return refused(host, "this machine")
	}
	return nil
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
		WithHint("private networks can be allowed by host in egress.allow_hosts")
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
	allowed := e.allows(host, port)
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
