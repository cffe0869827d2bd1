package guard

import "net/netip"

// reach says how an address relates to the public internet.
type reach uint8

const (
	public    reach = iota
	private         // this machine or its own networks: reachable where allowed
	forbidden       // never the address of a service one means to call
)

// ranges lists what is not public. The first match counts, so a narrow range
// stands before a wide one. IPv6 outside 2000::/3 is forbidden without a row.
var ranges = []struct {
	prefix netip.Prefix
	reach  reach
	what   string
}{
	{netip.MustParsePrefix("10.0.0.0/8"), private, "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), private, "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), private, "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), private, "shared by a carrier (CGNAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), private, "loopback"},
	{netip.MustParsePrefix("::1/128"), private, "loopback"},
	{netip.MustParsePrefix("fc00::/7"), private, "unique local"},

	{netip.MustParsePrefix("0.0.0.0/8"), forbidden, "unspecified"},
	{netip.MustParsePrefix("169.254.0.0/16"), forbidden, "link-local"},
	{netip.MustParsePrefix("192.0.0.0/24"), forbidden, "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), forbidden, "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), forbidden, "6to4 relay"},
	{netip.MustParsePrefix("198.18.0.0/15"), forbidden, "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), forbidden, "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), forbidden, "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), forbidden, "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), forbidden, "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), forbidden, "reserved"},

	{netip.MustParsePrefix("::/128"), forbidden, "unspecified"},
	{netip.MustParsePrefix("::/96"), forbidden, "IPv4-compatible"},
	{netip.MustParsePrefix("64:ff9b::/96"), forbidden, "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), forbidden, "NAT64"},
	{netip.MustParsePrefix("2001::/23"), forbidden, "reserved for protocols (Teredo, ORCHID)"},
	{netip.MustParsePrefix("2001:db8::/32"), forbidden, "documentation"},
	{netip.MustParsePrefix("2002::/16"), forbidden, "6to4"},
	{netip.MustParsePrefix("3fff::/20"), forbidden, "documentation"},
	{netip.MustParsePrefix("fe80::/10"), forbidden, "link-local"},
	{netip.MustParsePrefix("ff00::/8"), forbidden, "multicast"},
}

var globalUnicast = netip.MustParsePrefix("2000::/3")

// classify returns how far away addr is, and why. An IPv4 address mapped into
// IPv6 is judged as the IPv4 address that a connection to it reaches.
func classify(addr netip.Addr) (reach, string) {
	if !addr.IsValid() || addr.Zone() != "" {
		return forbidden, "not an address, or one with a zone"
	}
	addr = addr.Unmap()
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r.reach, r.what
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return forbidden, "not global unicast"
	}
	return public, "public"
}
