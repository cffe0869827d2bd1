package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxText is far above the longest schedule that says something (all six fields
// listed out have 550 characters).
const maxText = 1000

// shorthand is a schedule with a name of its own.
type shorthand struct{ name, text string }

var shorthands = []shorthand{
	{"@hourly", "0 * * * *"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@weekly", "0 0 * * 0"},
	{"@monthly", "0 0 1 * *"},
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
}

// token is a word of the text and the column it begins in, from 1, in characters.
type token struct {
	text   string
	column int
}

// Parse reads a schedule. It follows the clock of zone unless the text names
// another one; nil is UTC. An error is of class Invalid and says in its hint what
// to write instead.
func Parse(spec string, zone *time.Location) (*Schedule, error) {
	if zone == nil {
		zone = time.UTC
	}
	if len(spec) > maxText || !utf8.ValidString(spec) {
		return nil, refuse(prefix(strings.ToValidUTF8(spec, "?"), 40)+"…", "write a cron expression of five or six fields",
			"the text is longer than %d bytes or not UTF-8", maxText)
	}
	s := &Schedule{loc: zone}
	tokens := split(spec)
	if len(tokens) > 0 {
		if name, ok := zonePrefix(tokens[0].text); ok {
			loc, err := Zone(name)
			if err != nil {
				return nil, err
			}
			s.loc, s.zoned = loc, true
			tokens = tokens[1:]
		}
	}
	var err error
	switch {
	case len(tokens) == 0:
		err = refuse(spec, "write five or six fields, or @daily, @every 1h, …", "it is empty")
	case strings.HasPrefix(tokens[0].text, "@"):
		err = s.parseName(spec, tokens)
	default:
		err = s.parseFields(spec, tokens)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func zonePrefix(text string) (string, bool) {
	if name, ok := strings.CutPrefix(text, "CRON_TZ="); ok {
		return name, true
	}
	return strings.CutPrefix(text, "TZ=")
}

func split(spec string) []token {
	var out []token
	column, inside := 0, false
	for _, r := range spec {
		column++
		switch {
		case unicode.IsSpace(r):
			inside = false
		case inside:
			out[len(out)-1].text += string(r)
		default:
			out, inside = append(out, token{string(r), column}), true
		}
	}
	return out
}

func (s *Schedule) parseName(spec string, tokens []token) error {
	name := strings.ToLower(tokens[0].text)
	switch {
	case name == "@every":
		return s.parseEvery(spec, tokens)
	case name == "@at":
		return s.parseAt(spec, tokens)
	case len(tokens) > 1:
		return refuse(spec, "remove what follows "+name, "column %d: %q comes after a name that stands alone", tokens[1].column, tokens[1].text)
	}
	names := []string{"@every", "@at"}
	for _, sh := range shorthands {
		if sh.name == name {
			return s.parseFields(spec, split(sh.text))
		}
		names = append(names, sh.name)
	}
	hint := "the names are " + strings.Join(names, ", ")
	switch near := nearest(name, names); {
	case name == "@reboot":
		hint = "a start of the daemon is an event, not a time"
	case near != "":
		hint = "the nearest name is " + near
	}
	return refuse(spec, hint, "column %d: there is no %s", tokens[0].column, tokens[0].text)
}

func (s *Schedule) parseEvery(spec string, tokens []token) error {
	const hint = "write a duration, for example @every 90s, @every 1h30m or @every 60d"
	if len(tokens) != 2 {
		return refuse(spec, hint, "@every takes one duration, and there are %d words", len(tokens)-1)
	}
	d, err := duration(tokens[1].text)
	switch {
	case err != nil:
		return refuse(spec, hint, "column %d: %q is %v", tokens[1].column, tokens[1].text, err)
	case d < time.Second || d%time.Second != 0:
		return refuse(spec, "the shortest is 1s, and there are only whole seconds", "column %d: %q is no number of whole seconds", tokens[1].column, tokens[1].text)
	}
	s.kind, s.period = every, int64(d/time.Second)
	return nil
}

// duration reads what time.ParseDuration does, and w and d before it: a day is 24
// hours here.
func duration(text string) (time.Duration, error) {
	bad, long := errors.New("no duration"), errors.New("too long: the longest is 290 years")
	var total time.Duration
	for _, u := range []struct {
		name   string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, rest, ok := strings.Cut(text, u.name)
		if !ok {
			continue
		}
		if !digits(number) {
			return 0, bad
		}
		const longest = 290 * 365 * 24 * time.Hour // a time.Duration holds little more
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > int64((longest-total)/u.length) {
			return 0, long
		}
		if total, text = total+time.Duration(n)*u.length, rest; text == "" {
			return total, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || strings.ContainsAny(text, "+-") {
		return 0, bad
	}
	if total += d; total < d {
		return 0, long
	}
	return total, nil
}

func (s *Schedule) parseAt(spec string, tokens []token) error {
	const hint = "write date, time and offset, for example @at 2026-05-01T09:00:00+02:00"
	if len(tokens) != 2 {
		return refuse(spec, hint, "@at takes one instant, and there are %d words", len(tokens)-1)
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(tokens[1].text))
	if err != nil {
		return refuse(spec, hint, "column %d: %q is no instant of RFC 3339", tokens[1].column, tokens[1].text)
	}
	// The store keeps microseconds: an instant between two would fire again.
	s.kind, s.at = once, at.UTC().Truncate(time.Microsecond)
	if year := s.at.Year(); year < 1 || year > 9999 {
		return refuse(spec, hint, "column %d: the year is not from 1 to 9999", tokens[1].column)
	}
	return nil
}

func (s *Schedule) parseFields(spec string, tokens []token) error {
	if len(tokens) == 5 {
		tokens = append([]token{{"0", 1}}, tokens...)
	}
	if len(tokens) != 6 {
		hint := "write [second] minute hour day month weekday, with * for any"
		if len(tokens) == 7 {
			hint = "leave out the last one: there is no field for the year; once is @at"
		}
		return refuse(spec, hint, "it has %d fields, and five or six are needed", len(tokens))
	}
	into := [6]*field{&s.second, &s.minute, &s.hour, &s.day, &s.month, &s.weekday}
	for i, t := range tokens {
		r := &reader{unit: units[i], spec: spec, column: t.column}
		f, err := r.field(t.text)
		if err != nil {
			return err
		}
		*into[i] = f
		s.notes = append(s.notes, r.notes...)
	}
	if !s.can() {
		m := s.month.first()
		return refuse(spec, fmt.Sprintf("%s ends on day %d", months[m-1], monthLength(2000, m)),
			"day of the month, column %d: none of its months has a day %d, so it would never fire", tokens[3].column, s.day.first())
	}
	if !s.day.star && !s.weekday.star {
		s.notes = append(s.notes, "day of the month and weekday are both given: either is enough")
	}
	return nil
}

// String returns the schedule in canonical form: read again it is the same one,
// and two that say the same in the same words have the same text.
func (s *Schedule) String() string {
	var out string
	if s.zoned {
		out = "CRON_TZ=" + s.loc.String() + " "
	}
	switch s.kind {
	case once:
		return out + "@at " + s.at.Format(time.RFC3339Nano)
	case every:
		return out + "@every " + periodText(s.period)
	}
	if s.second.text != "0" {
		out += s.second.text + " "
	}
	return out + strings.Join([]string{s.minute.text, s.hour.text, s.day.text, s.month.text, s.weekday.text}, " ")
}

func periodText(seconds int64) string {
	var out strings.Builder
	for _, u := range []struct {
		name    string
		seconds int64
	}{{"d", daySeconds}, {"h", hourSeconds}, {"m", 60}, {"s", 1}} {
		if n := seconds / u.seconds; n > 0 {
			fmt.Fprintf(&out, "%d%s", n, u.name)
			seconds -= n * u.seconds
		}
	}
	return out.String()
}
