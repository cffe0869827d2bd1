package config

import (
	"net/netip"
	"regexp"
	"strings"
)

// DefaultListen is where the network listener is unless somebody says otherwise.
const DefaultListen = "127.0.0.1:7331"

// Off turns the network listener off.
const Off = "off"

// Listen is for the one network listener.
type Listen struct {
	Address     netip.AddrPort // zero: Off
	Hosts       []string       // none
	BehindProxy bool           // false
	Cert, Key   string         // absolute; "" is none
	AdminToken  string         // name of the secret; "" is none
}

var hostNameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func parseListen(v value) (netip.AddrPort, error) {
	s, err := v.one()
	if err != nil || s == Off {
		return netip.AddrPort{}, err
	}
	if rest, ok := strings.CutPrefix(s, "localhost:"); ok {
		s = "127.0.0.1:" + rest
	}
	addr, perr := netip.ParseAddrPort(s)
	if perr != nil || addr.Addr().Zone() != "" {
		return addr, &complaint{item: -1, msg: "is neither off nor an address such as 127.0.0.1:7331", near: nearest(s, []string{Off})}
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

func parseHostNames(v value) ([]string, error) {
	return v.manyOf(func(s string) bool { return len(s) <= 253 && hostNameRE.MatchString(s) },
		"the name of a host: small letters, without https:// and without a port")
}

// checkListen refuses a listener that others can reach without being kept out.
func (l *loader) checkListen() {
	c := l.out.Config.Listen
	if (c.Cert == "") != (c.Key == "") {
		has, lacks := "listen.tls_cert", "listen.tls_key"
		if c.Cert == "" {
			has, lacks = lacks, has
		}
		l.problem(l.where(has), has, "", "it needs %s beside it", lacks)
	}
	if !c.Address.IsValid() || c.Address.Addr().IsLoopback() {
		return // off, not understood, or for this machine alone
	}
	const path = "listen.address"
	if c.AdminToken == "" {
		l.problem(l.where(path), path, "", "%s can be reached from other machines: that needs listen.admin_token", c.Address)
	}
	if c.Cert == "" && !c.BehindProxy {
		l.problem(l.where(path), path, "", "%s can be reached from other machines: that needs listen.tls_cert and listen.tls_key, or a proxy that has TLS and listen.behind_proxy: true", c.Address)
	}
}

// Wrote reports whether somebody wrote a key, or one below it.
func (l *Loaded) Wrote(path string) bool {
	for key, s := range l.settings {
		if (key == path || strings.HasPrefix(key, path+".")) && s.value.at.Kind != FromDefault && s.value.at.Kind != "" {
			return true
		}
	}
	return false
}
