package cron

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// want is a schedule as its author means it, made beside its text and not from
// it: the oracle shares nothing with the parser.
type want struct {
	text string
	sets [6]set // second to weekday
}

type set struct {
	values     map[int]bool
	wild, star bool
}

// drawSet draws one field and its text in one of the forms the format has.
func drawSet(t *rapid.T, u unit, forms string) (string, set) {
	out := set{values: map[int]bool{}}
	add := func(low, high, step int) {
		n := 0
		for v := low; v <= high; v += step {
			out.values[v], n = true, n+1
		}
		out.wild = out.wild || step > 1 && n > 1
	}
	in := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, u.name+" "+label) }
	var text string
	switch form := forms[in("form", 0, len(forms)-1)]; form {
	case '*':
		out.star = true
		add(u.min, u.max, 1)
		text = rapid.SampledFrom([]string{"*", "?"}).Draw(t, "star")
	case '/':
		step := in("step", 2, u.max)
		add(u.min, u.max, step)
		text = fmt.Sprintf("*/%d", step)
	case '-':
		low := in("low", u.min, u.max)
		high := in("high", low, u.max)
		add(low, high, 1)
		text = fmt.Sprintf("%d-%d", low, high)
	case '%':
		low := in("low", u.min, u.max)
		high, step := in("high", low, u.max), in("step", 2, 12)
		add(low, high, step)
		text = fmt.Sprintf("%d-%d/%d", low, high, step)
	default:
		var texts []string
		for range in("count", 1, 3) {
			v := in("value", u.min, u.max)
			add(v, v, 1)
			word := fmt.Sprint(v)
			if u.names != nil && rapid.Bool().Draw(t, "named") {
				word = strings.ToUpper(u.names[v-u.min])
			}
			texts = append(texts, word)
		}
		text = strings.Join(texts, ",")
	}
	if len(out.values) == u.max-u.min+1 {
		out.wild = true
	}
	if len(out.values) == 1 {
		out.wild = false
	}
	return text, out
}

// drawWant draws a schedule that fires within days rather than years.
func drawWant(t *rapid.T, seconds bool) want {
	var w want
	forms := [6]string{"n", "*/-%nnn", "*/-%nnnn", "****-n", "****-n", "****-/n"}
	if seconds {
		forms[0] = "*/-nnn"
	}
	var texts []string
	for i, u := range units {
		var text string
		if i == 0 && !seconds {
			w.sets[0] = set{values: map[int]bool{0: true}}
			continue
		}
		text, w.sets[i] = drawSet(t, u, forms[i])
		texts = append(texts, text)
	}
	w.text = strings.Join(texts, " ")
	return w
}

func (w want) date(year int, month time.Month, day int) bool {
	if !w.sets[4].values[int(month)] {
		return false
	}
	byDay := w.sets[3].values[day]
	byWeekday := w.sets[5].values[int(time.Date(year, month, day, 12, 0, 0, 0, time.UTC).Weekday())]
	if !w.sets[3].star && !w.sets[5].star {
		return byDay || byWeekday
	}
	return byDay && byWeekday
}

func (w want) clock(tod int) bool {
	return w.sets[2].values[tod/3600] && w.sets[1].values[tod/60%60] && w.sets[0].values[tod%60]
}

// fires lists what has to fire in [lo, hi), by looking at the clock at each step.
// It looks a day and a half further on both sides, for what a change moves.
func (w want) fires(loc *time.Location, lo, hi, step int64) []int64 {
	const margin = 40 * 3600
	type tick struct{ at, wall, date int64 }
	var ticks []tick
	first := map[int64]int64{} // wall time to the first instant that shows it
	dates := map[int64]bool{}
	dateMatches := map[int64]bool{}
	for at := lo - margin; at < hi+margin; at += step {
		local := time.Unix(at, 0).In(loc)
		y, mo, d := local.Date()
		h, m, s := local.Clock()
		date := time.Date(y, mo, d, 0, 0, 0, 0, time.UTC).Unix()
		wall := date + int64(h*3600+m*60+s)
		ticks = append(ticks, tick{at, wall, date})
		if !w.sets[2].wild && w.clock(int(wall-date)) {
			if _, ok := first[wall]; !ok {
				first[wall] = at
			}
		}
		if !dates[date] {
			dates[date], dateMatches[date] = true, w.date(y, mo, d)
		}
	}
	out := map[int64]bool{}
	afterJump := func(wall int64) {
		for i := 1; i < len(ticks); i++ {
			if ticks[i-1].wall < wall && ticks[i].wall > wall {
				out[ticks[i].at] = true
				return
			}
		}
	}
	fixed := !w.sets[0].wild && !w.sets[1].wild && !w.sets[2].wild
	if !fixed {
		for _, k := range ticks {
			if dateMatches[k.date] && w.clock(int(k.wall-k.date)) {
				out[k.at] = true
			}
		}
	}
	if !w.sets[2].wild {
		for date := range dates {
			if !dateMatches[date] {
				continue
			}
			for hour := range 24 {
				var times []int64
				came := false
				for tod := hour * 3600; tod < hour*3600+3600; tod += int(step) {
					if !w.clock(tod) {
						continue
					}
					wall := date + int64(tod)
					times = append(times, wall)
					at, ok := first[wall]
					came = came || ok
					switch {
					case fixed && ok:
						out[at] = true
					case fixed:
						afterJump(wall)
					}
				}
				if !fixed && !came && len(times) > 0 {
					afterJump(times[0])
				}
			}
		}
	}
	var list []int64
	for at := range out {
		if at >= lo && at < hi {
			list = append(list, at)
		}
	}
	slices.Sort(list)
	return list
}

// got lists what does fire in [lo, hi).
func got(s *Schedule, lo, hi int64) []int64 {
	var out []int64
	at := time.Unix(lo, 0).Add(-time.Nanosecond)
	for {
		next, ok := s.Next(at)
		if !ok || next.Unix() >= hi {
			return out
		}
		if !next.After(at) || next.Nanosecond() != 0 {
			return append(out, -1)
		}
		out, at = append(out, next.Unix()), next
	}
}

func show(loc *time.Location, instants []int64) string {
	var out []string
	for _, at := range instants {
		out = append(out, time.Unix(at, 0).In(loc).Format("Mon 2006-01-02 15:04:05 -0700"))
	}
	return strings.Join(out, "\n")
}
