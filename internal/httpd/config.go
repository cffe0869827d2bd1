package httpd

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Config says where to listen and for whom.
type Config struct {
	Address     string   // IP:port, or localhost:port
	Chosen      bool     // somebody wrote Address: a port that is taken is an error
	Hosts       []string // names a request may call this host by, besides those of loopback; lower case
	BehindProxy bool     // a proxy in front has TLS
	Cert, Key   string   // files of TLS; none: without
	Admin       bool     // an admin token is configured

	MaxConns int           // at once; default 256
	Head     time.Duration // for the head of a request; default 5 s
	Read     time.Duration // for all of it; default 30 s
	Write    time.Duration // for the answer; default 60 s
	Idle     time.Duration // between requests; default 60 s
	Again    time.Duration // between looks whether a port is free; default 15 s
}

// Limits.
const (
	maxHead = 16 << 10
	maxBody = 17 << 20 // what is mounted bounds its own, and more tightly
)

func (c Config) filled() Config {
	for _, d := range []struct {
		at   *time.Duration
		dflt time.Duration
	}{{&c.Head, 5 * time.Second}, {&c.Read, 30 * time.Second}, {&c.Write, time.Minute}, {&c.Idle, time.Minute}, {&c.Again, 15 * time.Second}} {
		if *d.at <= 0 {
			*d.at = d.dflt
		}
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 256
	}
	return c
}

// Check refuses what must not be listened on.
func (c Config) Check() error {
	addr, err := ParseAddress(c.Address)
	if err != nil {
		return err
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return fault.New(fault.Config, "TLS needs a certificate and its key")
	case addr.Addr().IsLoopback():
		return nil
	case !c.Admin:
		return fault.New(fault.Config, "%s can be reached from other machines, and there is no admin token", c.Address).
			WithHint("ombud secret set admin-token, and listen.admin_token: secret:admin-token; or listen on 127.0.0.1")
	case c.Cert == "" && !c.BehindProxy:
		return fault.New(fault.Config, "%s can be reached from other machines, and without TLS", c.Address).
			WithHint("listen.tls_cert and listen.tls_key, or a proxy that has TLS and listen.behind_proxy: true")
	}
	return nil
}

// ParseAddress reads IP:port, or localhost:port for 127.0.0.1.
func ParseAddress(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil && strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	addr, err1 := netip.ParseAddr(host)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err1 != nil || err2 != nil || addr.Zone() != "" {
		return netip.AddrPort{}, fault.New(fault.Config, "%q is no address to listen on", text).WithHint("127.0.0.1:7331, [::1]:7331 or 0.0.0.0:7331")
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// onlyHere reports whether nobody but programs of this machine can ask, as far as can be
// told: a proxy or a tunnel asks for others.
func (c Config) onlyHere() bool {
	addr, err := ParseAddress(c.Address)
	return err == nil && addr.Addr().IsLoopback() && !c.BehindProxy && len(c.Hosts) == 0
}
