package channel

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// Strangers says whose messages are answered beside those of people the operator listed.
type Strangers string

// The choices.
const (
	Ignore   Strangers = "ignore" // nobody's
	InGroups Strangers = "groups" // those of the members of groups that are listed
	Everyone Strangers = "all"    // everybody's
)

// Settings are what the operator has said of a channel.
type Settings struct { //nolint:recvcheck // who asks has a copy
	Values    map[string]string `json:"values,omitempty"` // the parts of its kind that are not secret
	Agent     string            `json:"agent,omitempty"`  // who answers; "" is the default
	Strangers Strangers         `json:"strangers,omitempty"`
	Groups    map[string]Mode   `json:"groups,omitempty"`  // by the network's id of the chat; in any other ombud is not addressed
	Quiet     string            `json:"quiet,omitempty"`   // 22:00-07:00 Europe/Berlin: what nobody waits for is kept back then
	Away      bool              `json:"away,omitempty"`    // do not disturb: it is kept back until this is off
	Rate      int               `json:"rate,omitempty"`    // messages a minute to one chat, each piece one; 0 is the default
	Notices   bool              `json:"notices,omitempty"` // what the operator is told is also told in their paired chats
	Stream    bool              `json:"stream,omitempty"`  // an answer to the operator is shown as it is written
}

// DefaultRate is how many messages a minute go to one chat.
const DefaultRate = 20

const (
	maxGroups = 1000
	maxID     = 512 // bytes of an id or a name of a network
)

func goodID(text string) bool {
	return text != "" && len(text) <= maxID && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// Set changes one setting by its name, as a person writes it. group takes CHAT:MODE, or
// CHAT: to take a group out of the list.
func (s *Settings) Set(k Kind, name, value string) error {
	bad := func(want string) error {
		return fault.New(fault.Invalid, "%s is %s, not %q", name, want, value)
	}
	switch name {
	case "agent":
		s.Agent = value
	case "strangers":
		if !slices.Contains([]Strangers{Ignore, InGroups, Everyone}, Strangers(value)) {
			return bad("ignore, groups or all")
		}
		s.Strangers = Strangers(value)
	case "group":
		return s.setGroup(value)
	case "quiet":
		if _, err := quietHours(value); err != nil {
			return err
		}
		s.Quiet = value
	case "rate":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 600 {
			return bad("1 to 600 messages a minute")
		}
		s.Rate = n
	case "away", "notices", "stream":
		on, err := onOff(value)
		if err != nil {
			return bad("on or off")
		}
		switch name {
		case "away":
			s.Away = on
		case "notices":
			s.Notices = on
		case "stream":
			s.Stream = on
		}
	default:
		return s.setValue(k, name, value)
	}
	return nil
}

// SetAll changes settings, each NAME=VALUE, in this order. After an error some are changed.
func (s *Settings) SetAll(k Kind, values []string) error {
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return fault.New(fault.Invalid, "a setting is NAME=VALUE, not %q", v)
		}
		if err := s.Set(k, strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

func onOff(value string) (bool, error) {
	switch value {
	case "on", "true", "yes":
		return true, nil
	case "off", "false", "no":
		return false, nil
	}
	return false, fault.New(fault.Invalid, "on or off")
}

func (s *Settings) setGroup(value string) error {
	at := strings.LastIndexByte(value, ':')
	if at < 0 || !goodID(value[:at]) {
		return fault.New(fault.Invalid, "group is CHAT:mention, CHAT:always or CHAT:never, not %q", value).
			WithHint("ombud channel show NAME lists the chats that were seen")
	}
	chat, mode := value[:at], Mode(value[at+1:])
	groups := map[string]Mode{}
	maps.Copy(groups, s.Groups)
	switch mode {
	case "":
		delete(groups, chat)
	case Mention, Always, Never:
		groups[chat] = mode
	default:
		return fault.New(fault.Invalid, "a group is set to mention, always or never, not to %q", mode)
	}
	if len(groups) > maxGroups {
		return fault.New(fault.Invalid, "at most %d groups are listed", maxGroups)
	}
	s.Groups = groups
	return nil
}

func (s *Settings) setValue(k Kind, name, value string) error {
	known := []string{"agent", "away", "group", "notices", "quiet", "rate", "strangers", "stream"}
	for _, p := range k.Needs {
		if p.Secret {
			continue
		}
		known = append(known, p.Name)
		if p.Name == name {
			if len(value) > 4096 || !utf8.ValidString(value) {
				return fault.New(fault.Invalid, "%s is text of at most 4096 bytes", name)
			}
			values := map[string]string{name: value}
			for k, v := range s.Values {
				if k != name {
					values[k] = v
				}
			}
			s.Values = values
			return nil
		}
	}
	return fault.New(fault.Invalid, "a channel of kind %s has no setting %q; there are %s", k.Name, name, strings.Join(known, ", "))
}

// values are those of a kind's parts, with the defaults.
func (s Settings) values(k Kind) map[string]string {
	out := map[string]string{}
	for _, p := range k.Needs {
		if !p.Secret {
			out[p.Name] = p.Default
			if v := s.Values[p.Name]; v != "" {
				out[p.Name] = v
			}
		}
	}
	return out
}

// answers reports whether a stranger is answered.
func (s Settings) answers(group bool) bool {
	return s.Strangers == Everyone || s.Strangers == InGroups && group
}

func (s Settings) rate() int {
	if s.Rate > 0 {
		return s.Rate
	}
	return DefaultRate
}

// quiet is a time of the day, in a zone.
type quiet struct {
	from, to time.Duration // since midnight; from after to goes over midnight
	zone     *time.Location
}

// quietHours reads HH:MM-HH:MM [ZONE]; "" is none.
func quietHours(text string) (q quiet, err error) {
	if text == "" {
		return q, nil
	}
	bad := fault.New(fault.Invalid, "quiet hours are HH:MM-HH:MM and a zone, such as 22:00-07:00 Europe/Berlin, not %q", text)
	hours, zone, _ := strings.Cut(strings.TrimSpace(text), " ")
	from, to, ok := strings.Cut(hours, "-")
	a, err1 := time.Parse("15:04", from)
	b, err2 := time.Parse("15:04", to)
	if !ok || err1 != nil || err2 != nil || a.Equal(b) {
		return q, bad
	}
	q.zone = time.UTC
	if zone = strings.TrimSpace(zone); zone != "" {
		if zone == "Local" {
			return q, bad
		}
		if q.zone, err = time.LoadLocation(zone); err != nil {
			return q, fault.New(fault.Invalid, "there is no zone %q", zone).WithHint("zones are named like Europe/Berlin or UTC")
		}
	}
	day := func(t time.Time) time.Duration {
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	q.from, q.to = day(a), day(b)
	return q, nil
}

// left is how long the quiet hours still last at a time, 0 outside of them.
func (q quiet) left(now time.Time) time.Duration {
	if q.zone == nil {
		return 0
	}
	t := now.In(q.zone)
	day := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second
	switch {
	case q.from < q.to && day >= q.from && day < q.to, q.from > q.to && day < q.to:
		return q.to - day
	case q.from > q.to && day >= q.from:
		return 24*time.Hour - day + q.to
	}
	return 0
}

// keptBack is how long something that nobody waits for is kept back.
func (s Settings) keptBack(now time.Time) time.Duration {
	q, err := quietHours(s.Quiet)
	if err != nil { // it was checked when it was set
		return 0
	}
	left := q.left(now)
	if s.Away {
		left = max(left, 10*time.Minute)
	}
	return left
}
