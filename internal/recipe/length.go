package recipe

import (
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

const day = 24 * time.Hour

// maxLength is the longest a recipe may wait: what fits a time.Duration, in whole years.
const maxLength = 290 * 365 * day

// Length reads how long something takes: "20s", "1h30m", "2d", "1w". Days and weeks
// are 24 hours and seven of those.
func Length(s string) (time.Duration, error) {
	bad := fault.New(fault.Invalid, "%q is no length of time", clip(s)).WithHint("write it as 20s, 1h30m, 2d or 1w")
	rest, sum := strings.TrimSpace(s), time.Duration(0)
	if rest == "" {
		return 0, bad
	}
	for _, u := range []struct {
		name string
		is   time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		n, after, found := strings.Cut(rest, u.name)
		if !found {
			continue
		}
		k, err := strconv.ParseInt(n, 10, 32)
		if err != nil || k < 0 || k > int64(maxLength/u.is) {
			return 0, bad
		}
		sum, rest = sum+time.Duration(k)*u.is, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > maxLength {
			return 0, bad
		}
		sum += d
	}
	if sum <= 0 || sum > maxLength {
		return 0, bad
	}
	return sum, nil
}

// clip cuts a text for a message.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
