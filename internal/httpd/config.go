package httpd

import (
	"net/netip"
	"time"
)

// Config says where to listen and for whom. That it lets nobody in who must not is
// checked where it is written: in package config.
type Config struct {
	Address     netip.AddrPort
	Chosen      bool     // somebody wrote Address: a port that is taken is an error
	Hosts       []string // names a request may call this host by, besides those of loopback; lower case
	BehindProxy bool     // a proxy in front has TLS
	Cert, Key   string   // files of TLS; none: without

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

// onlyHere reports whether nobody but programs of this machine can ask, as far as can be
// told: a proxy or a tunnel asks for others.
func (c Config) onlyHere() bool {
	return c.Address.Addr().IsLoopback() && !c.BehindProxy && len(c.Hosts) == 0
}
