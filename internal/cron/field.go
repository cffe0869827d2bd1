package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// unit is what a field counts.
type unit struct {
	name     string
	min, max int
	names    []string // from min on
}

var (
	months   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

const weekdayUnit = "weekday"

// units are the fields in the order of the text.
var units = [6]unit{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of the month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: months},
	{name: weekdayUnit, max: 6, names: weekdays},
}

// field is the set of values one field of a schedule takes.
type field struct {
	mask uint64
	wild bool   // takes every value, or is made by a step
	star bool   // * was written
	text string // canonical
}

func (f field) has(v int) bool { return f.mask>>v&1 == 1 }
func (f field) first() int     { return bits.TrailingZeros64(f.mask) }
func (f field) last() int      { return 63 - bits.LeadingZeros64(f.mask) }

// from returns the first value not less than v.
func (f field) from(v int) (int, bool) {
	if m := f.mask >> v; m != 0 {
		return v + bits.TrailingZeros64(m), true
	}
	return 0, false
}

// reader reads one field and knows where it stands.
type reader struct {
	unit
	spec   string
	column int // of the text read now, from 1, in characters
	notes  []string
}

func (r *reader) fail(hint, format string, args ...any) error {
	return refuse(r.spec, hint, "%s, column %d: %s", r.name, r.column, fmt.Sprintf(format, args...))
}

func refuse(spec, hint, format string, args ...any) error {
	return fault.New(fault.Invalid, "schedule %q: %s", spec, fmt.Sprintf(format, args...)).WithHint("%s", hint)
}

// field reads the list that a field is.
func (r *reader) field(text string) (field, error) {
	var out field
	var texts []string
	for element := range strings.SplitSeq(text, ",") {
		e, err := r.element(element)
		if err != nil {
			return field{}, err
		}
		out.mask |= e.mask
		out.wild = out.wild || e.wild
		out.star = out.star || e.star
		texts = append(texts, e.text)
		r.column += len([]rune(element)) + 1
	}
	out.text = strings.Join(texts, ",")
	if out.star {
		out.text = "*"
	}
	full := uint64(1)<<(r.max+1) - uint64(1)<<r.min
	out.wild = out.mask == full || out.wild && bits.OnesCount64(out.mask) > 1
	return out, nil
}

// element reads *, N, N-M or one of them with a step.
func (r *reader) element(text string) (field, error) {
	if text == "" {
		return field{}, r.fail("leave out the comma, or write a value beside it", "an element of the list is empty")
	}
	base, stepText, stepped := strings.Cut(text, "/")
	low, high, star, err := r.bounds(base)
	if err != nil {
		return field{}, err
	}
	step := 1
	if stepped {
		if step, err = r.step(text, base, stepText); err != nil {
			return field{}, err
		}
		if !star && !strings.Contains(base, "-") {
			high = max(low, r.max) // N/S goes to the end
		}
	}
	out := field{star: star && step == 1, wild: star || step > 1}
	last, count := low, 0
	for v := low; v <= high; v += step {
		value := v
		if r.name == weekdayUnit {
			value = v % 7
		}
		out.mask |= 1 << value
		last, count = value, count+1
	}
	switch {
	case count == 1:
		out.wild, out.text = false, strconv.Itoa(last)
		if stepped && step > r.max-r.min {
			r.notes = append(r.notes, fmt.Sprintf("%s, column %d: %s is longer than the field and only ever gives %d; every counts real time: @every", r.name, r.column, text, last))
		}
	case star && step == 1:
		out.text = "*"
	case star:
		out.text = "*/" + strconv.Itoa(step)
	case step == 1:
		out.text = fmt.Sprintf("%d-%d", low, high)
	default:
		out.text = fmt.Sprintf("%d-%d/%d", low, high, step)
	}
	return out, nil
}

func (r *reader) step(text, base, stepText string) (int, error) {
	step, err := strconv.Atoi(stepText)
	if err == nil && step > 0 && step < 1e6 && digits(stepText) {
		return step, nil
	}
	r.column += len([]rune(base)) + 1
	return 0, r.fail(fmt.Sprintf("write %s/N with N from 1 to %d", base, r.max-r.min), "the step of %s is no number above 0", text)
}

// bounds reads what stands before a step.
func (r *reader) bounds(text string) (low, high int, star bool, err error) {
	if text == "*" || text == "?" {
		return r.min, r.max, true, nil
	}
	lowText, highText, isRange := strings.Cut(text, "-")
	if low, err = r.value(lowText); err != nil || !isRange {
		return low, low, false, err
	}
	column := r.column
	r.column += len([]rune(lowText)) + 1
	if high, err = r.value(highText); err != nil {
		return 0, 0, false, err
	}
	r.column = column
	if r.name == weekdayUnit {
		if low == 7 && high < 7 {
			low = 0
		}
		if high == 0 && low > 0 {
			high = 7 // fri-sun
		}
	}
	if low > high {
		// A week or a day that goes round is two ranges.
		return 0, 0, false, r.fail(fmt.Sprintf("write %s,%s", r.span(low, r.max), r.span(r.min, high)), "%s begins after it ends", text)
	}
	return low, high, false, nil
}

func (r *reader) span(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d-%d", low, high)
}

// value reads a number or a name.
func (r *reader) value(text string) (int, error) {
	lower := strings.ToLower(text)
	for i, name := range r.names {
		if name == lower {
			return r.min + i, nil
		}
	}
	top := r.max
	if r.name == weekdayUnit {
		top = 7
	}
	if digits(text) {
		v, err := strconv.Atoi(text)
		switch {
		case err != nil || v > top:
			hint := fmt.Sprintf("it goes from %d to %d", r.min, top)
			if r.max == 59 && text == "60" || r.max == 23 && text == "24" {
				hint += "; the next one begins at 0"
			}
			return 0, r.fail(hint, "%s is above %d", text, top)
		case v < r.min:
			return 0, r.fail(fmt.Sprintf("it goes from %d to %d", r.min, top), "%s is below %d", text, r.min)
		}
		return v, nil
	}
	return 0, r.unread(text, lower, top)
}

// unread says what is wrong with a text that is neither number nor name.
func (r *reader) unread(text, lower string, top int) error {
	expected := fmt.Sprintf("write a number from %d to %d", r.min, top)
	if r.names != nil {
		expected += " or a name from " + r.names[0] + " to " + r.names[len(r.names)-1]
		if near := nearest(prefix(lower, 3), r.names); near != "" {
			expected = "the nearest name is " + near
		}
	}
	letter := strings.TrimLeft(lower, "0123456789")
	switch {
	case text == "":
		return r.fail(expected, "a value is missing")
	case r.max < 32 && (letter == "l" || letter == "w" || letter == "lw"):
		return r.fail("name the days, for example 28-31, and let the work look at the date", "%s: last days and nearest weekdays (L, W) are not supported", text)
	case strings.Contains(text, "#"):
		return r.fail("name the weekday, and let the work look at the date", "%s: the nth weekday of a month (#) is not supported", text)
	case lower == "h":
		return r.fail(expected+"; the jitter option spreads firings", "%s: a hashed value is not supported", text)
	}
	return r.fail(expected, "%q is no %s", text, r.name)
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func prefix(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n])
	}
	return text
}
