package whatsapp

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/ombud-run/ombud/internal/fault"
)

// The servers of the ids that one can talk to.
const (
	phoneServer = "s.whatsapp.net"
	lidServer   = "lid"
	groupServer = "g.us"
)

const maxJID = 128 // bytes

// normal returns an id as we compare ids: without the device that wrote (`123:16@…`), a
// phone number as an id of its server, and that server by its one name. What is no id
// stays as it is.
func normal(id string) string {
	id = strings.TrimSpace(id)
	user, server, has := strings.Cut(id, "@")
	if !has {
		if n := digits(id); n != "" && strings.Trim(id, "+0123456789 ()-.") == "" {
			return n + "@" + phoneServer
		}
		return id
	}
	server = strings.ToLower(server)
	if server == "c.us" { // as WhatsApp Web once said it
		server = phoneServer
	}
	if server == phoneServer || server == lidServer {
		user, _, _ = strings.Cut(user, ":") // the device
		user, _, _ = strings.Cut(user, ".") // the agent
		user = strings.TrimPrefix(user, "+")
	}
	return user + "@" + server
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// user is the part of an id before its server.
func user(id string) string {
	u, _, _ := strings.Cut(id, "@")
	return u
}

func isGroup(id string) bool { return strings.HasSuffix(id, "@"+groupServer) }

// talks reports whether an id is of a chat, not of a status, a broadcast or a newsletter.
func talks(id string) bool { return sendable.MatchString(id) }

var sendable = regexp.MustCompile(`^[0-9]{1,32}(-[0-9]{1,32})?@(s\.whatsapp\.net|lid|g\.us)$`)

// target checks the id of a chat before it is given to a program: wacli takes names too,
// and would guess.
func target(chat string) (string, error) {
	id := normal(chat)
	if len(id) > maxJID || !sendable.MatchString(id) {
		return "", fault.New(fault.Invalid, "%q is not the id of a WhatsApp chat", fault.Cut(chat, maxJID))
	}
	return id, nil
}

// line is a name on one line, for people, without what could pass for more than a name.
func line(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, name)
	return fault.Cut(strings.Join(strings.Fields(name), " "), maxName)
}

const maxName = 256 // bytes
