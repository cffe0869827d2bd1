package scope

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// hostPattern is a normalised host, every host below a domain, or any host.
type hostPattern struct {
	name string // "" means any host; "*.example.com" every host below example.com
	port uint16 // 0 means any port
}

func (h hostPattern) String() string {
	name := h.name
	switch {
	case name == "":
		name = "*"
	case strings.Contains(name, ":"):
		name = "[" + name + "]"
	}
	if h.port != 0 {
		name += ":" + strconv.Itoa(int(h.port))
	}
	return name
}

func (h hostPattern) covers(need hostPattern) bool {
	return (h.port == 0 || h.port == need.port) && hostCovers(h.name, need.name)
}

// overlaps is exact: two host patterns nest or share nothing.
func (h hostPattern) overlaps(o hostPattern) bool {
	return (h.port == 0 || o.port == 0 || h.port == o.port) && (hostCovers(h.name, o.name) || hostCovers(o.name, h.name))
}

func hostCovers(held, need string) bool {
	if held == "" || held == need {
		return true
	}
	return strings.HasPrefix(held, "*.") && len(need) > len(held)-1 && strings.HasSuffix(need, held[1:])
}

// Host returns the one spelling of a host that ombud compares: lower case,
// without the dot at its end, addresses in their shortest form. It refuses what
// two parsers could read differently: names outside ASCII (to be written in their
// xn-- form), zones, empty labels, and numbers that are not a dotted IPv4 address.
func Host(name string) (string, error) {
	host, err := normalHost(name)
	if err != nil {
		return "", fault.New(fault.Invalid, "host %q: %w", clip(name), err)
	}
	return host, nil
}

func normalHost(name string) (string, error) {
	if inner, ok := strings.CutPrefix(name, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok || !strings.Contains(inner, ":") {
			return "", errText("brackets hold an IPv6 address")
		}
		name = inner
	}
	if strings.Contains(name, ":") {
		addr, err := netip.ParseAddr(name)
		if err != nil || addr.Zone() != "" {
			return "", errText("not an IPv6 address without zone")
		}
		return addr.String(), nil
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", errText("a label is empty, too long or holds something else than letters, digits, - and _")
		}
	}
	if len(name) > 253 {
		return "", errText("the name is over 253 bytes")
	}
	if numeric(labels[len(labels)-1]) {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return "", errText("it ends in a number and is not an IPv4 address in dotted decimal")
		}
		return addr.String(), nil
	}
	return name, nil
}

// numeric reports whether a last label makes some parsers read an IPv4 address.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return digits(label)
}

// compileHost reads `host`, `*.domain` or `*`, each with an optional `:port`.
func compileHost(text string, literal bool) (hostPattern, error) {
	name, port := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") && strings.Count(text[:i], ":") == 0 ||
		i > 0 && text[i-1] == ']' {
		name, port = text[:i], text[i+1:]
		if port == "" {
			return hostPattern{}, errText("the port is empty")
		}
	}
	return hostOf(name, port, literal)
}

func hostOf(name, port string, literal bool) (hostPattern, error) {
	var h hostPattern
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '+' {
			return hostPattern{}, errText("the port is not a number from 1 to 65535")
		}
		h.port = uint16(n)
	}
	if name == "*" && !literal {
		return h, nil
	}
	rest, below := strings.CutPrefix(name, "*.")
	below = below && !literal
	if !below {
		rest = name
	}
	host, err := normalHost(rest)
	if err != nil {
		return hostPattern{}, err
	}
	if below {
		if _, err := netip.ParseAddr(host); err == nil {
			return hostPattern{}, errText("an address has no hosts below it")
		}
		host = "*." + host
	}
	h.name = host
	return h, nil
}

// urlPattern is what of a URL a scope compares besides its host.
type urlPattern struct {
	scheme string
	path   string // "" or "/a/b": dot segments resolved, no slash at the end
	opaque bool   // servers disagree on where the path leads: only an equal one or the whole origin covers it
}

var defaultPort = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// compileURL reads origin and path with the parser of the HTTP client.
func compileURL(text string, literal bool) (urlPattern, hostPattern, error) {
	fail := func(reason string) (urlPattern, hostPattern, error) {
		return urlPattern{}, hostPattern{}, errText(reason)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fail("it is not a URL")
	case u.Opaque != "" || u.Host == "" || u.Scheme == "":
		return fail("it has no scheme or no host, as in https://example.com/docs")
	case u.User != nil:
		return fail("a user or password in a URL is refused")
	case !literal && (u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#")):
		return fail("query and fragment do not limit anything; leave them out")
	case strings.HasSuffix(u.Host, ":"):
		return fail("the port is empty")
	}
	port := u.Port()
	if port == "" {
		port = defaultPort[u.Scheme]
	}
	if port == "" {
		return fail("this scheme has no usual port; write it")
	}
	name := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	host, err := hostOf(name, port, literal)
	if err != nil {
		return urlPattern{}, hostPattern{}, err
	}
	p, opaque := cleanURLPath(u.EscapedPath())
	return urlPattern{scheme: u.Scheme, path: p, opaque: opaque}, host, nil
}

// cleanURLPath resolves dot segments, also percent-encoded ones, and gives every
// other character one spelling. Opaque is set, and the path left as it is, where
// servers disagree on what it means: an encoded or reversed slash, an empty
// segment, a semicolon.
func cleanURLPath(escaped string) (clean string, opaque bool) {
	var segs []string
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	for i, part := range parts {
		seg := respell(part)
		if seg == "" && i < len(parts)-1 ||
			strings.Contains(seg, "%2F") || strings.Contains(seg, "%5C") || strings.Contains(seg, ";") {
			return escaped, true
		}
		switch seg {
		case "", ".":
		case "..":
			segs = segs[:max(0, len(segs)-1)]
		default:
			segs = append(segs, seg)
		}
	}
	if len(segs) == 0 {
		return "", false
	}
	return "/" + strings.Join(segs, "/"), false
}

// respell decodes the encoded characters that never need it and writes all
// others that are encoded, or should be, with upper-case digits.
func respell(seg string) string {
	raw, err := url.PathUnescape(seg)
	if err != nil { // cannot happen: EscapedPath is valid
		return seg
	}
	const free = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@"
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(raw) {
		if c := raw[i]; strings.IndexByte(free, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func (u *urlPattern) text(h hostPattern) string {
	if port := defaultPort[u.scheme]; port == strconv.Itoa(int(h.port)) {
		h.port = 0
	}
	return u.scheme + "://" + h.String() + u.path
}

func (u *urlPattern) covers(need *urlPattern) bool {
	if u.scheme != need.scheme {
		return false
	}
	if u.path == "" || u.path == need.path && u.opaque == need.opaque {
		return true
	}
	return !u.opaque && !need.opaque && below(need.path, u.path)
}

func (u *urlPattern) overlaps(o *urlPattern) bool {
	if u.scheme != o.scheme {
		return false
	}
	return u.opaque || o.opaque || u.path == o.path || u.path == "" || o.path == "" ||
		below(u.path, o.path) || below(o.path, u.path)
}

// below reports whether path is under dir, on a border between segments.
func below(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}
