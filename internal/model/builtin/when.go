package builtin

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The words of time. A number with nothing around it is a time of day only behind
// "at".
const (
	numberWords = `an?|one|two|three|four|five|six|seven|eight|nine|ten|fifteen|twenty|thirty|forty|forty-five|sixty|ninety`
	amount      = `(?:\d{1,6}\s*|(?:` + numberWords + `)\s+)(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)\b`
	amounts     = `(?:half an hour|` + amount + `(?:,?\s*(?:and\s+)?` + amount + `)*)`
	relative    = `(?:in\s+` + amounts + `|` + amounts + `\s+from\s+now)`
	weekdays    = `monday|tuesday|wednesday|thursday|friday|saturday|sunday`
	day         = `(?:today|tonight|tomorrow|the day after tomorrow|(?:on\s+|next\s+|this\s+)?(?:` + weekdays + `)|(?:on\s+)?\d{4}-\d{2}-\d{2})`
	clock       = `(?:at\s+\d{1,2}(?:[:.h]\d{2})?(?:\s*(?:[ap]\.?m\b\.?|o['’]clock))?|\d{1,2}(?::\d{2})?\s*(?:[ap]\.?m\b\.?)|\d{1,2}:\d{2}|(?:at\s+)?(?:noon|midnight)|(?:in\s+the|this)\s+(?:morning|afternoon|evening)|morning|afternoon|evening)`
	absolute    = `(?:` + day + `(?:,?\s+` + clock + `)?|` + clock + `(?:,?\s+` + day + `)?)`
	whenWords   = `(?:` + relative + `|` + absolute + `)`
)

// compiled is an expression that is compiled when it is first needed: those of times are long,
// and a daemon with a model needs none.
func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	whenFirst  = compiled(`(?is)^(?:for\s+)?(` + whenWords + `)\s*(?:[,:;-]\s*|\s+|$)(?:to\s+|that\s+|about\s+|of\s+)?(.*)$`)
	whenLast   = compiled(`(?is)^(?:to\s+|that\s+|about\s+|of\s+)?(.+?)[,;]?\s+(?:for\s+)?(` + whenWords + `)$`)
	amountRE   = compiled(`(?i)(?:(\d{1,6})\s*|\b(` + numberWords + `)\s+)(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)\b`)
	relativeRE = compiled(`(?i)^` + relative + `$`)
	dateRE     = compiled(`\d{4}-\d{2}-\d{2}`)
	weekdayRE  = compiled(`(?i)\b(` + weekdays + `)\b`)
	clockRE    = compiled(`(?i)(?:\bat\s+)?\b(\d{1,2})(?:[:.h](\d{2}))?(?:\s*([ap])\.?m\b)?`)
)

var numbers = map[string]int{
	"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
	"fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "forty-five": 45, "sixty": 60, "ninety": 90,
}

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

var weekday = map[string]time.Weekday{
	"monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday, "thursday": time.Thursday,
	"friday": time.Friday, "saturday": time.Saturday, "sunday": time.Sunday,
}

// farthest is how far ahead a reminder may be.
const farthest = 10 * 366 * 24 * time.Hour

// maxReminder is the longest wish we look for a time in.
const maxReminder = 8 << 10

// moment is when a reminder is due: in a while, or at a time.
type moment struct {
	in time.Duration
	at time.Time
}

// splitWhen takes the time out of the front or the end of text and returns what
// is left. It reports false if there is none.
func splitWhen(text string) (words, rest string, ok bool) {
	text = strings.Trim(text, " \t\r\n.!?,;:")
	if len(text) > maxReminder {
		return "", text[:strings.LastIndexByte(text[:40], ' ')+1] + "…", false
	}
	if m := whenFirst().FindStringSubmatch(text); m != nil {
		return m[1], strings.TrimSpace(m[2]), true
	}
	if m := whenLast().FindStringSubmatch(text); m != nil {
		return m[2], strings.TrimSpace(m[1]), true
	}
	return "", text, false
}

// parseWhen reads the words splitWhen found. problem says what is wrong with them.
func parseWhen(words string, now time.Time) (m moment, problem string) {
	words = strings.ToLower(words)
	if relativeRE().MatchString(words) {
		return parseRelative(words)
	}
	y, mo, d := now.Date()
	dayGiven := true
	switch {
	case strings.Contains(words, "the day after tomorrow"):
		d += 2
	case strings.Contains(words, "tomorrow"):
		d++
	case strings.Contains(words, "today"), strings.Contains(words, "tonight"):
	case dateRE().MatchString(words):
		date, err := time.Parse(time.DateOnly, dateRE().FindString(words))
		if err != nil {
			return moment{}, "there is no such date"
		}
		y, mo, d = date.Date()
		words = dateRE().ReplaceAllString(words, "")
	case weekdayRE().MatchString(words):
		ahead := (int(weekday[weekdayRE().FindString(words)]) - int(now.Weekday()) + 7) % 7
		if ahead == 0 {
			ahead = 7
		}
		d += ahead
	default:
		dayGiven = false
	}
	hour, minute, twelve, problem := parseClock(words)
	if problem != "" {
		return moment{}, problem
	}
	at := time.Date(y, mo, d, hour, minute, 0, 0, now.Location())
	if !dayGiven && !at.After(now) {
		if twelve && hour < 12 && time.Date(y, mo, d, hour+12, minute, 0, 0, now.Location()).After(now) {
			at = time.Date(y, mo, d, hour+12, minute, 0, 0, now.Location())
		} else {
			at = time.Date(y, mo, d+1, hour, minute, 0, 0, now.Location())
		}
	}
	if !at.After(now) {
		return moment{}, "that is in the past"
	}
	if at.Sub(now) > farthest {
		return moment{}, "that is more than ten years away"
	}
	return moment{at: at}, ""
}

func parseRelative(words string) (moment, string) {
	if strings.Contains(words, "half an hour") {
		return moment{in: 30 * time.Minute}, ""
	}
	var sum time.Duration
	for _, m := range amountRE().FindAllStringSubmatch(words, -1) {
		n, ok := numbers[m[2]]
		if !ok {
			n, _ = strconv.Atoi(m[1]) // at most six digits
		}
		sum += time.Duration(n) * units[m[3][0]]
		if sum > farthest {
			return moment{}, "that is more than ten years away"
		}
	}
	if sum <= 0 {
		return moment{}, "that is now"
	}
	return moment{in: sum}, ""
}

// parseClock reads the time of day, 9 in the morning if there is none. twelve says
// that the person may have meant the afternoon.
func parseClock(words string) (hour, minute int, twelve bool, problem string) {
	m := clockRE().FindStringSubmatch(words)
	if m == nil {
		switch {
		case strings.Contains(words, "midnight"):
			return 24, 0, false, "" // the coming one
		case strings.Contains(words, "noon") && !strings.Contains(words, "afternoon"):
			return 12, 0, false, ""
		case strings.Contains(words, "afternoon"):
			return 15, 0, false, ""
		case strings.Contains(words, "evening"), strings.Contains(words, "tonight"):
			return 19, 0, false, ""
		}
		return 9, 0, false, ""
	}
	hour, _ = strconv.Atoi(m[1]) // two digits
	minute, _ = strconv.Atoi("0" + m[2])
	half := m[3]
	if half == "" && hour >= 1 && hour < 12 && (strings.Contains(words, "afternoon") || strings.Contains(words, "evening") || strings.Contains(words, "tonight")) {
		half = "p"
	}
	if minute > 59 || hour > 23 || half != "" && (hour < 1 || hour > 12 && m[3] != "") {
		return 0, 0, false, "there is no such time of day"
	}
	switch {
	case half == "p" && hour < 12:
		hour += 12
	case half == "a" && hour == 12:
		hour = 0
	}
	twelve = half == "" && hour >= 1 && hour < 12 && m[2] == ""
	return hour, minute, twelve, ""
}

// set returns the call that sets a reminder.
func (m moment) set(text string) action {
	if m.in > 0 {
		return call("remind.set", remindIn{Text: text, InSeconds: int64(m.in / time.Second)})
	}
	return call("remind.set", remindAt{Text: text, At: m.at.Format(time.RFC3339)})
}
