package keyproxy

import (
	"net/url"
	"strings"
)

// clean reports whether a path, escaped as it will be sent, can be read in one way only:
// no empty segment but the last, none that leads up or stays, also once it is unescaped by
// whoever does that twice, and none that holds a separator in another spelling.
func clean(escaped string) bool {
	if !strings.HasPrefix(escaped, "/") {
		return false
	}
	segments := strings.Split(escaped[1:], "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || s == "" && i < len(segments)-1 {
			return false
		}
		name, _, _ := strings.Cut(plain, ";") // what follows is a parameter to some
		if name == "." || name == ".." || strings.ContainsFunc(plain, ambiguous) {
			return false
		}
	}
	return true
}

func ambiguous(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`/\%?#`, r) }

// below reports whether a clean path is the one of base, or lies below it.
func below(base, escaped string) bool {
	return clean(escaped) && (base == "" || escaped == base || strings.HasPrefix(escaped, base+"/"))
}
