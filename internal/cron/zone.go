package cron

import (
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Zone returns the time zone of an IANA name, whatever its case; "Local" is the
// system's own. Its rules come from the system, or from the program if that
// embeds them. The error for an unknown name suggests known ones.
func Zone(name string) (*time.Location, error) {
	bad := func(hint string) error {
		return fault.New(fault.Invalid, "there is no time zone %q", name).WithHint("%s", hint)
	}
	const example = "use an IANA name, for example Europe/Berlin or UTC"
	lower := strings.ToLower(name)
	switch {
	case name == "" || len(name) > 64:
		return nil, bad(example)
	case lower == "local":
		return time.Local, nil //nolint:gosmopolitan // asked for by name
	case strings.HasPrefix(lower, "right/") || strings.HasPrefix(lower, "posix/"):
		return nil, bad("leave out the first part of the name") // "right" counts leap seconds
	}
	for known := range strings.SplitSeq(zoneNames, "\n") {
		if strings.EqualFold(known, name) {
			loc, err := time.LoadLocation(known)
			if err != nil {
				return nil, fault.New(fault.Unavailable, "load the rules of time zone %q: %w", known, err).
					WithHint("install the system's time zone data (package tzdata)")
			}
			return loc, nil
		}
	}
	// A zone younger than the list.
	if loc, err := time.LoadLocation(name); err == nil {
		return loc, nil
	}
	if near := nearZones(lower); len(near) > 0 {
		return nil, bad("did you mean " + strings.Join(near, ", ") + "?")
	}
	return nil, bad(example)
}

// abbreviations people write for a zone, and a place that uses it.
var abbreviations = map[string][]string{
	"pst": {"America/Los_Angeles"}, "pdt": {"America/Los_Angeles"}, "mdt": {"America/Denver"},
	"cst": {"America/Chicago", "Asia/Shanghai"}, "cdt": {"America/Chicago"}, "edt": {"America/New_York"},
	"bst": {"Europe/London"}, "cest": {"Europe/Berlin"}, "eest": {"Europe/Athens"}, "msk": {"Europe/Moscow"},
	"ist": {"Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"}, "jst": {"Asia/Tokyo"}, "kst": {"Asia/Seoul"},
	"sgt": {"Asia/Singapore"}, "aest": {"Australia/Sydney"}, "aedt": {"Australia/Sydney"},
	"nzst": {"Pacific/Auckland"}, "nzdt": {"Pacific/Auckland"}, "z": {"UTC"},
}

// nearZones returns up to three zones that lower may stand for: an abbreviation,
// an offset, a place, or a name mistyped.
func nearZones(lower string) []string {
	if zones, ok := abbreviations[lower]; ok {
		return zones
	}
	lower = strings.ReplaceAll(lower, " ", "_")
	offset := strings.TrimPrefix(strings.TrimPrefix(lower, "utc"), "gmt")
	if hours := strings.TrimLeft(strings.TrimSuffix(offset[min(1, len(offset)):], ":00"), "0"); digits(hours) && len(hours) < 3 {
		// The names with an offset have its sign the other way round.
		switch name := "Etc/GMT"; offset[0] {
		case '+':
			return known(name + "-" + hours)
		case '-':
			return known(name + "+" + hours)
		}
	}
	meant := place(lower)
	var best []string
	least := 3
	for name := range strings.SplitSeq(zoneNames, "\n") {
		full := strings.ToLower(name)
		last := place(full)
		d := distance(lower, full)
		if last != full || meant != lower { // the part of the world may be wrong or missing
			d = min(d, distance(meant, last)+1)
		}
		switch {
		case d > len(meant)/3 && d > 1:
		case d < least:
			best, least = []string{name}, d
		case d == least && len(best) < 3 && least < 3:
			best = append(best, name)
		}
	}
	return best
}

func known(name string) []string {
	if strings.Contains("\n"+zoneNames+"\n", "\n"+name+"\n") {
		return []string{name}
	}
	return nil
}

// place returns the last part of a zone's name.
func place(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// nearest returns the name that text was probably meant to be, or "".
func nearest(text string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := distance(text, name); d < least && d <= len(name)/2 {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to add, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
