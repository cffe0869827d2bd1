package cron

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// TestWhatCannotBeReadIsRefused has for each mistake what the message and the hint
// must hold.
func TestWhatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, msg, hint string }{
		{"", "it is empty", "five or six"},
		{"  \t ", "it is empty", "five or six"},
		{"CRON_TZ=UTC", "it is empty", "five or six"},
		{"* * * *", "it has 4 fields", "weekday"},
		{"0 0 1 1 * * 2027", "it has 7 fields", "year"},
		{"61 * * * *", "minute, column 1: 61 is above 59", "from 0 to 59"},
		{"60 * * * *", "minute, column 1: 60 is above 59", "begins at 0"},
		{"0  24 * * *", "hour, column 4: 24 is above 23", "begins at 0"},
		{"0 0 0 * *", "day of the month, column 5: 0 is below 1", "from 1 to 31"},
		{"0 0 32 * *", "day of the month, column 5: 32 is above 31", "from 1 to 31"},
		{"0 0 1 13 *", "month, column 7: 13 is above 12", "from 1 to 12"},
		{"0 0 * * 8", "weekday, column 9: 8 is above 7", "from 0 to 7"},
		{"0 0 99999999999999999999 * *", "column 5", "from 1 to 31"},
		{"0 0 * * mon,tus", `weekday, column 13: "tus" is no weekday`, "nearest name is tue"},
		{"0 0 * * monday", `"monday" is no weekday`, "nearest name is mon"},
		{"0 0 * janu *", `month, column 7: "janu" is no month`, "nearest name is jan"},
		{"0 0 * * xyzzy", "xyzzy", "from 0 to 7 or a name from sun to sat"},
		{"x 0 * * *", `minute, column 1: "x" is no minute`, "number from 0 to 59"},
		{"-5 0 * * *", "minute, column 1: a value is missing", "number"},
		{"+5 0 * * *", `minute, column 1: "+5"`, "number"},
		{"5- 0 * * *", "minute, column 3: a value is missing", "number"},
		{"1,,2 0 * * *", "minute, column 3: an element of the list is empty", "comma"},
		{"1, 0 * * *", "minute, column 3: an element", "comma"},
		{"*/0 0 * * *", "minute, column 3: the step of */0", "N from 1 to 59"},
		{"*/ 0 * * *", "minute, column 3: the step", "*/N"},
		{"1-5/-2 0 * * *", "minute, column 5: the step", "1-5/N"},
		{"1/2/3 0 * * *", "minute, column 3: the step", "1/N"},
		{"*-5 0 * * *", "minute, column 1", "number"},
		{"0 22-2 * * *", "hour, column 3: 22-2 begins after it ends", "22-23,0-2"},
		{"0 0 * * sat-mon", "weekday, column 9: sat-mon begins after", "6,0-1"},
		{"0 0 * nov-jan *", "month, column 7", "11-12,1"},
		{"0 0 31 2 *", "column 5: none of its months has a day 31", "feb ends on day 29"},
		{"0 0 30,31 feb *", "day 30", "day 29"},
		{"0 0 31 4,6,9,11 *", "day 31", "apr ends on day 30"},
		{"0 0 0 31 2 ?", "column 7: none", "day 29"},
		{"0 0 L * *", "L, W", "28-31"},
		{"0 0 L-3 * *", "L, W", "28-31"},
		{"0 0 15W * *", "15W", "28-31"},
		{"0 0 * * 5L", "5L", "date"},
		{"0 0 * * mon#1", "mon#1", "weekday"},
		{"H H * * *", "hashed", "jitter"},
		{"@dayly", "there is no @dayly", "@daily"},
		{"@reboot", "@reboot", "an event"},
		{"@blue", "@blue", "@every"},
		{"@daily 5", `column 8: "5" comes after`, "remove"},
		{"@every", "one duration", "@every 90s"},
		{"@every 1 h", "2 words", "@every 90s"},
		{"@every soon", `column 8: "soon" is no duration`, "@every 90s"},
		{"@every 500ms", "whole seconds", "1s"},
		{"@every 1.5s", "whole seconds", "1s"},
		{"@every 0s", "whole seconds", "1s"},
		{"@every -5m", "-5m", "@every"},
		{"@every 1h-5m", "no duration", "@every"},
		{"@every 99999999d", "too long", "@every"},
		{"@every 100000d100000d", "no duration", "@every"},
		{"@every 200000w", "too long", "@every"},
		{"@every 105000d20000h", "", ""},
		{"@every 105000d2000000h", "too long", "@every"},
		{"@at tomorrow", `"tomorrow" is no instant`, "@at 2026"},
		{"@at 2026-05-01 09:00", "2 words", "@at 2026"},
		{"@at 0000-01-01T00:00:00Z", "year", "@at"},
		{"@at 9999-12-31T23:59:59-01:00", "year", "@at"},
		{"\xff 0 * * *", "not UTF-8", "five or six"},
		{strings.Repeat("1,", 600) + "1 * * * *", "longer than", "five or six"},
	} {
		_, err := Parse(c.spec, time.UTC)
		if c.msg == "" && err == nil {
			continue
		}
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.msg) || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%q: %v (%s), want %q (%s)", c.spec, err, fault.HintOf(err), c.msg, c.hint)
		}
	}
}

func TestCanonicalText(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"0 9 * * MON-Fri":               "0 9 * * 1-5",
		"0 0 9 ? jan,JUL 7":             "0 9 * 1,7 0",
		"30 0 9 * * *":                  "30 0 9 * * *",
		"*/1 */5 5/20 */90 * ?":         "* */5 5 1 * *",
		"0 0 * * fri-sun":               "0 0 * * 5-7",
		"0 0 * * 7-2":                   "0 0 * * 0-2",
		"@midnight":                     "0 0 * * *",
		"@WEEKLY":                       "0 0 * * 0",
		"@yearly":                       "0 0 1 1 *",
		"CRON_TZ=europe/BERLIN @hourly": "CRON_TZ=Europe/Berlin 0 * * * *",
		"TZ=UTC  5  4 * * *":            "CRON_TZ=UTC 5 4 * * *",
		"@every 1h90m":                  "@every 2h30m",
		"@every 1w60d1s":                "@every 67d1s",
		"@every 1.5h":                   "@every 1h30m",
		"@at 2026-05-01t09:00:00+02:00": "@at 2026-05-01T07:00:00Z",
		"0-59 1-23 * * 0-7":             "0-59 1-23 * * 0-7",
		"0 5/9 2/10 * *":                "0 5-23/9 2-31/10 * *",
		"0 0 29 2 *":                    "0 0 29 2 *",
		"0 0 31 2 mon":                  "0 0 31 2 1",
	} {
		s, err := Parse(spec, nil)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if s.String() != want {
			t.Errorf("%s is %s, want %s", spec, s, want)
		}
	}
}

func TestNotesTellWhatIsProbablyNotMeant(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]int{"*/90 * * * *": 1, "0 0 1 * mon": 1, "0 0 */2 * mon": 1, "0 0 1 * *": 0, "*/10 9-17 * * 1-5": 0} {
		s, err := Parse(spec, time.UTC)
		if err != nil || len(s.Notes()) != want {
			t.Errorf("%s: %v, %v", spec, s.Notes(), err)
		}
	}
}

func TestUnknownZoneSuggestsNearOnes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Europe/Berln": "Europe/Berlin", "Berlin": "Europe/Berlin", "europe berlin": "Europe/Berlin", "New York": "America/New_York",
		"America/Berlin": "Europe/Berlin", "Asia/Calcuta": "Asia/Calcutta", "PST": "America/Los_Angeles", "CEST": "Europe/Berlin",
		"UTC+2": "Etc/GMT-2", "+02:00": "Etc/GMT-2", "GMT-10": "Etc/GMT+10", "utcc": "UTC",
		"right/Europe/Berlin": "leave out", "": "Europe/Berlin", "+99": "IANA", "qwertyuiop": "IANA", "../etc/passwd": "IANA", "Europe/": "IANA",
		strings.Repeat("x", 100): "IANA",
	} {
		_, err := Zone(name)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), want) {
			t.Errorf("%q: %v (%s), want %s", name, err, fault.HintOf(err), want)
		}
		if _, err := Parse("CRON_TZ="+name+" @daily", nil); err == nil {
			t.Errorf("CRON_TZ=%s is read", name)
		}
	}
	for name, want := range map[string]string{"utc": "UTC", "EUROPE/BERLIN": "Europe/Berlin", "local": time.Local.String(), "Etc/GMT+3": "Etc/GMT+3"} {
		if loc, err := Zone(name); err != nil || loc.String() != want {
			t.Errorf("%q is %v, %v", name, loc, err)
		}
	}
}

// FuzzParse holds for any text: no panic; what is read has a canonical text that
// reads as the same schedule; what is read fires, later than asked.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"0 9 * * mon-fri", "*/5 * * * * *", "0 0 29 2 *", "5/20 1-7/2 ? jan,7 7", "@every 1w2d3h4m5s", "@at 2026-05-01T09:00:00.5+02:00",
		"CRON_TZ=Pacific/Apia 0 12 30 12 *", "TZ=america/sao_paulo @daily", "0 0 31 2 *", "@reboot", "1,,2 * * * *", "0 0 L * 5#2", "\u2003* * * * *",
	} {
		f.Add(spec, int64(1325000000))
	}
	f.Fuzz(func(t *testing.T, spec string, at int64) {
		s, err := Parse(spec, time.UTC)
		if err != nil {
			if (!fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Unavailable)) || fault.HintOf(err) == "" {
				t.Fatalf("%q: %v has no class or no hint", spec, err)
			}
			return
		}
		text := s.String()
		again, err := Parse(text, time.UTC)
		if err != nil || again.String() != text {
			t.Fatalf("%q is %q is %v: %v", spec, text, again, err)
		}
		now := time.Unix(at%4e9, 0)
		next, ok := s.Next(now)
		if ok != (s.kind != once || s.at.After(now)) || ok && !next.After(now) {
			t.Fatalf("%q after %s: %s, %v", spec, now, next, ok)
		}
		if !slices.EqualFunc(s.Upcoming(now, 5), again.Upcoming(now, 5), time.Time.Equal) {
			t.Fatalf("%q and %q differ after %s", spec, text, now)
		}
	})
}
