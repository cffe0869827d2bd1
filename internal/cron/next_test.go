package cron

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // a machine without zone data runs these tests too

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"
)

func must(t testing.TB, spec, zone string) *Schedule {
	t.Helper()
	loc, err := Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(spec, loc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClockChanges has a row for each kind of change there is: all that fires
// between two instants, in local time.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, zone, spec, from, to string
		want                       []string
	}{
		{"fixed in a gap", "Europe/Berlin", "30 2 * * *", "2026-03-28T00:00", "2026-03-31T00:00",
			[]string{"03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"}},
		{"fixed in an overlap", "Europe/Berlin", "30 2 * * *", "2026-10-24T00:00", "2026-10-27T00:00",
			[]string{"10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"}},
		{"fixed at the end of a gap", "Europe/Berlin", "0 2,3 * * *", "2026-03-29T00:00", "2026-03-30T00:00",
			[]string{"03-29 03:00 +0200"}},
		{"list around a gap", "Europe/Berlin", "0,30 1-3 * * *", "2026-03-29T00:00", "2026-03-30T00:00",
			[]string{"03-29 01:00 +0100", "03-29 01:30 +0100", "03-29 03:00 +0200", "03-29 03:30 +0200"}},
		{"cadence over a gap", "Europe/Berlin", "*/30 * * * *", "2026-03-29T01:00", "2026-03-29T04:00",
			[]string{"03-29 01:00 +0100", "03-29 01:30 +0100", "03-29 03:00 +0200", "03-29 03:30 +0200"}},
		{"cadence in an overlap", "Europe/Berlin", "*/30 * * * *", "2026-10-25T01:30", "2026-10-25T03:30",
			[]string{"10-25 01:30 +0200", "10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100", "10-25 03:00 +0100"}},
		{"hourly in an overlap", "Europe/Berlin", "15 * * * *", "2026-10-25T01:00", "2026-10-25T04:00",
			[]string{"10-25 01:15 +0200", "10-25 02:15 +0200", "10-25 02:15 +0100", "10-25 03:15 +0100"}},
		{"mixed, hour lost", "Europe/Berlin", "*/15 2 * * *", "2026-03-29T00:00", "2026-03-30T00:00",
			[]string{"03-29 03:00 +0200"}},
		{"mixed, both passes", "Europe/Berlin", "*/30 2 * * *", "2026-10-25T00:00", "2026-10-26T00:00",
			[]string{"10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100"}},
		{"steps of hours are a cadence", "Europe/Berlin", "0 */2 * * *", "2026-03-29T00:00", "2026-03-29T07:00",
			[]string{"03-29 00:00 +0100", "03-29 04:00 +0200", "03-29 06:00 +0200"}},
		{"a step that leaves one value is no cadence", "America/Sao_Paulo", "0 */24 * * *", "2018-11-03T00:00", "2018-11-06T00:00",
			[]string{"11-03 00:00 -0300", "11-04 01:00 -0200", "11-05 00:00 -0200"}},
		{"fixed in both changes", "America/New_York", "30 1 * * *", "2026-10-31T00:00", "2026-11-03T00:00",
			[]string{"10-31 01:30 -0400", "11-01 01:30 -0400", "11-02 01:30 -0500"}},
		{"gap", "America/New_York", "30 2 * * *", "2026-03-08T00:00", "2026-03-09T00:00",
			[]string{"03-08 03:00 -0400"}},
		{"London", "Europe/London", "30 1 * * *", "2026-03-29T00:00", "2026-03-31T00:00",
			[]string{"03-29 02:00 +0100", "03-30 01:30 +0100"}},
		{"half an hour forward", "Australia/Lord_Howe", "15 2 * * *", "2025-10-05T00:00", "2025-10-07T00:00",
			[]string{"10-05 02:30 +1100", "10-06 02:15 +1100"}},
		{"half an hour back", "Australia/Lord_Howe", "45 1 * * *", "2026-04-05T00:00", "2026-04-07T00:00",
			[]string{"04-05 01:45 +1100", "04-06 01:45 +1030"}},
		{"half an hour, cadence", "Australia/Lord_Howe", "*/15 * * * *", "2026-04-05T01:15", "2026-04-05T02:15",
			[]string{"04-05 01:15 +1100", "04-05 01:30 +1100", "04-05 01:45 +1100", "04-05 01:30 +1030", "04-05 01:45 +1030", "04-05 02:00 +1030"}},
		{"half an hour of a mixed one is not lost", "Australia/Lord_Howe", "*/20 2 * * *", "2025-10-05T00:00", "2025-10-06T00:00",
			[]string{"10-05 02:40 +1100"}},
		{"no midnight, Brazil", "America/Sao_Paulo", "@daily", "2018-11-03T00:00", "2018-11-06T00:00",
			[]string{"11-03 00:00 -0300", "11-04 01:00 -0200", "11-05 00:00 -0200"}},
		{"midnight twice, Brazil", "America/Sao_Paulo", "@daily", "2018-02-17T00:00", "2018-02-19T00:00",
			[]string{"02-17 00:00 -0200", "02-18 00:00 -0300"}},
		{"an evening twice, Brazil", "America/Sao_Paulo", "30 23 * * *", "2018-02-17T00:00", "2018-02-19T00:00",
			[]string{"02-17 23:30 -0200", "02-18 23:30 -0300"}},
		{"no midnight, Lebanon", "Asia/Beirut", "0 0 * * *", "2024-03-30T00:00", "2024-04-01T12:00",
			[]string{"03-30 00:00 +0200", "03-31 01:00 +0300", "04-01 00:00 +0300"}},
		{"no midnight, Egypt", "Africa/Cairo", "10 0 * * fri", "2024-04-25T00:00", "2024-05-04T00:00",
			[]string{"04-26 01:00 +0300", "05-03 00:10 +0300"}},
		{"a gap up to midnight keeps the date of its job", "America/Nuuk", "30 23 * * sat", "2024-03-30T00:00", "2024-04-07T00:00",
			[]string{"03-31 00:00 -0100", "04-06 23:30 -0100"}},
		{"a date that is not there", "Pacific/Apia", "0 12 * * *", "2011-12-29T00:00", "2012-01-01T00:00",
			[]string{"12-29 12:00 -1000", "12-31 12:00 +1400"}},
		{"a cadence over a date that is not there", "Pacific/Apia", "0 */12 * * *", "2011-12-29T00:00", "2012-01-01T00:00",
			[]string{"12-29 00:00 -1000", "12-29 12:00 -1000", "12-31 00:00 +1400", "12-31 12:00 +1400"}},
		{"a mixed one over a date that is not there", "Pacific/Apia", "*/30 12 * * *", "2011-12-29T13:00", "2012-01-01T00:00",
			[]string{"12-31 12:00 +1400", "12-31 12:30 +1400"}},
		{"a weekday that is not there", "Pacific/Apia", "0 12 * * fri", "2011-12-24T00:00", "2012-01-07T00:00",
			[]string{"01-06 12:00 +1400"}},
		{"a date that is not there, 1993", "Pacific/Kwajalein", "0 9 * * *", "1993-08-20T00:00", "1993-08-23T00:00",
			[]string{"08-20 09:00 -1200", "08-22 09:00 +1200"}},
		{"most of a date twice, 1969", "Pacific/Kwajalein", "0 9 * * *", "1969-09-29T00:00", "1969-10-02T00:00",
			[]string{"09-29 09:00 +1100", "09-30 09:00 +1100", "10-01 09:00 -1200"}},
		{"winter time is the exception, Ireland", "Europe/Dublin", "30 1 * * *", "2026-10-24T00:00", "2026-10-27T00:00",
			[]string{"10-24 01:30 +0100", "10-25 01:30 +0100", "10-26 01:30 +0000"}},
		{"two hours forward, Troll", "Antarctica/Troll", "0 2 * * *", "2022-03-26T12:00", "2022-03-28T12:00",
			[]string{"03-27 03:00 +0200", "03-28 02:00 +0200"}},
		{"two hours back, Troll", "Antarctica/Troll", "*/30 2 * * *", "2022-10-30T00:00", "2022-10-31T00:00",
			[]string{"10-30 02:00 +0200", "10-30 02:30 +0200", "10-30 02:00 +0000", "10-30 02:30 +0000"}},
		{"Ramadan begins", "Africa/Casablanca", "30 2 * * *", "2024-03-09T00:00", "2024-03-12T00:00",
			[]string{"03-09 02:30 +0100", "03-10 02:30 +0100", "03-11 02:30 +0000"}},
		{"Ramadan ends", "Africa/Casablanca", "30 2 * * *", "2024-04-13T00:00", "2024-04-16T00:00",
			[]string{"04-13 02:30 +0000", "04-14 03:00 +0100", "04-15 02:30 +0100"}},
		{"the base moves, no summer time", "Asia/Pyongyang", "15 0 * * *", "2018-05-04T00:00", "2018-05-06T12:00",
			[]string{"05-04 00:15 +0830", "05-05 00:15 +0900", "05-06 00:15 +0900"}},
		{"the base moves back", "Asia/Pyongyang", "45 23 * * *", "2015-08-14T00:00", "2015-08-16T00:00",
			[]string{"08-14 23:45 +0900", "08-15 23:45 +0830"}},
		{"three hours back", "Antarctica/Casey", "0 1 * * *", "2010-03-04T00:00", "2010-03-07T00:00",
			[]string{"03-04 01:00 +1100", "03-05 01:00 +1100", "03-06 01:00 +0800"}},
		{"double summer time", "Europe/London", "30 2 * * *", "1941-05-03T00:00", "1941-05-06T00:00",
			[]string{"05-03 02:30 +0100", "05-04 03:00 +0200", "05-05 02:30 +0200"}},
		{"an offset with seconds", "Africa/Monrovia", "30 0 * * *", "1972-01-06T00:00", "1972-01-08T12:00",
			[]string{"01-06 00:30 -0044", "01-07 00:44 +0000", "01-08 00:30 +0000"}},
		{"a leap year's last day, far off", "Europe/Berlin", "0 12 30,31 12 *", "2096-12-01T00:00", "2097-12-31T00:00",
			[]string{"12-30 12:00 +0100", "12-31 12:00 +0100", "12-30 12:00 +0100"}},
		{"seconds", "Europe/Berlin", "59 59 1 * * *", "2026-03-29T00:00", "2026-03-30T00:00",
			[]string{"03-29 01:59 +0100"}},
		{"each second of a lost minute", "Europe/Berlin", "* 30 2 * * *", "2026-03-29T00:00", "2026-03-30T00:00",
			[]string{"03-29 03:00 +0200"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := must(t, c.spec, c.zone)
			at := func(text string) time.Time {
				out, err := time.ParseInLocation("2006-01-02T15:04", text, s.Location())
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			instants, more := s.Between(at(c.from).Add(-time.Second), at(c.to).Add(-time.Second), 20)
			var texts []string
			for _, i := range instants {
				texts = append(texts, i.Format("01-02 15:04 -0700"))
			}
			if more || !slices.Equal(texts, c.want) {
				t.Errorf("%s in %s\n got %q\nwant %q", c.spec, c.zone, texts, c.want)
			}
		})
	}
}

// TestJustBeforeAGap asks from instants close to it, where a search that rounds
// would go over it.
func TestJustBeforeAGap(t *testing.T) {
	t.Parallel()
	for zone, gap := range map[string]string{
		"America/New_York": "2026-03-08T07:00:00Z", "Europe/London": "2026-03-29T01:00:00Z",
		"Australia/Lord_Howe": "2025-10-04T15:30:00Z",
	} {
		jump, err := time.Parse(time.RFC3339, gap)
		if err != nil {
			t.Fatal(err)
		}
		hour := jump.Add(-time.Second).In(must(t, "@daily", zone).Location()).Hour() + 1
		s := must(t, "10 "+itoa(hour)+" * * *", zone)
		for _, before := range []time.Duration{1, time.Second, 30 * time.Second, 59 * time.Second, time.Minute, 61 * time.Second, 9 * time.Hour} {
			if next, ok := s.Next(jump.Add(-before)); !ok || !next.Equal(jump) {
				t.Errorf("%s, %s before the gap: %s", zone, before, next)
			}
		}
		if next, _ := s.Next(jump); next.Sub(jump) < 22*time.Hour {
			t.Errorf("%s fires again at %s", zone, next)
		}
	}
}

func itoa(n int) string { return string([]byte{byte('0' + n/10), byte('0' + n%10)}) }

// toolchainZones reads the names that the toolchain embeds.
func toolchainZones(t testing.TB) []string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("there is no go command")
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip("the toolchain has no zone archive")
	}
	defer archive.Close()
	var out []string
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			out = append(out, f.Name)
		}
	}
	slices.Sort(out)
	return out
}

func TestZoneNamesAreThoseOfTheToolchain(t *testing.T) {
	t.Parallel()
	have := strings.Split(zoneNames, "\n")
	for _, name := range toolchainZones(t) {
		if !slices.Contains(have, name) {
			t.Errorf("zones.go lacks %s", name)
		}
	}
}

func allZones(t testing.TB) []*time.Location {
	t.Helper()
	var out []*time.Location
	for name := range strings.SplitSeq(zoneNames, "\n") {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Logf("not on this machine: %v", err)
			continue
		}
		out = append(out, loc)
	}
	return out
}

// changes lists the instants from year to year at which a zone's offset changes.
func changes(loc *time.Location, fromYear, toYear int) []int64 {
	var out []int64
	offset := func(at int64) int { _, o := time.Unix(at, 0).In(loc).Zone(); return o }
	const step = 6 * 3600
	end := time.Date(toYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for at := time.Date(fromYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); at < end; at += step {
		if offset(at) == offset(at+step) {
			continue
		}
		low, high := at, at+step
		for high-low > 1 {
			if mid := (low + high) / 2; offset(mid) == offset(low) {
				low = mid
			} else {
				high = mid
			}
		}
		out = append(out, high)
	}
	return out
}

// TestEveryChangeOfEveryZone compares with the oracle around each change of each
// zone in thirty years, one drawn schedule a change.
func TestEveryChangeOfEveryZone(t *testing.T) {
	t.Parallel()
	pool := rapid.Custom(func(t *rapid.T) want { return drawWant(t, false) })
	seen := map[string]bool{}
	n, fired := 0, 0
	for _, loc := range allZones(t) {
		for i, change := range changes(loc, 2005, 2035) {
			_, before := time.Unix(change-1, 0).In(loc).Zone()
			_, after := time.Unix(change, 0).In(loc).Zone()
			// Zones that are links, and that change together, need one look.
			key := fmt.Sprint(change, before, after)
			if seen[key] || testing.Short() && i%8 != 0 {
				continue
			}
			seen[key] = true
			w := pool.Example(n)
			n++
			fired += compare(t, w, loc, change-26*3600, change+26*3600, 60)
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d changes, %d firings", n, fired)
}

func compare(t interface {
	Helper()
	Errorf(string, ...any)
}, w want, loc *time.Location, lo, hi, step int64) int {
	t.Helper()
	s, err := Parse(w.text, loc)
	if err != nil {
		return 0 // it never fires
	}
	expected, actual := w.fires(loc, lo, hi, step), got(s, lo, hi)
	if !slices.Equal(expected, actual) {
		t.Errorf("%s in %s\n got\n%s\nwant\n%s", w.text, loc, show(loc, actual), show(loc, expected))
		return len(actual)
	}
	// A caller asks from anywhere, such as the second pass of an hour.
	for at := lo; at < hi; at += 1021 {
		i, _ := slices.BinarySearch(expected, at+1)
		if next, ok := s.Next(time.Unix(at, 0)); i < len(expected) && (!ok || next.Unix() != expected[i]) {
			t.Errorf("%s in %s after %s: %s, want %s", w.text, loc, show(loc, []int64{at}), next, show(loc, expected[i:i+1]))
		}
	}
	return len(actual)
}

// TestNextIsTheOracles draws zone, time and schedule, far back and with seconds.
func TestNextIsTheOracles(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		year := rapid.IntRange(1970, 2040).Draw(t, "year")
		if rapid.IntRange(0, 4).Draw(t, "old") == 0 {
			year -= 70 // when offsets had seconds
		}
		middle := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix() + rapid.Int64Range(0, 365*24*60).Draw(t, "minute")*60
		if list := changes(loc, year, year+1); len(list) > 0 && rapid.IntRange(0, 3).Draw(t, "near") > 0 {
			middle = rapid.SampledFrom(list).Draw(t, "change")
		}
		seconds, step := rapid.IntRange(0, 4).Draw(t, "seconds") == 0, int64(60)
		for at := middle - 3*daySeconds; at < middle+3*daySeconds; at += hourSeconds {
			if _, offset := time.Unix(at, 0).In(loc).Zone(); offset%60 != 0 || middle%60 != 0 || seconds {
				step = 1
			}
		}
		compare(t, drawWant(t, seconds), loc, middle-8*3600, middle+16*3600, step)
	})
}

// TestChangesThatComeTogether draws zones that no government had: two changes in
// one direction within hours.
func TestChangesThatComeTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := time.Date(2026, 5, 3, rapid.IntRange(0, 23).Draw(t, "hour"), 0, 0, 0, time.UTC).Unix()
		second := first + 600*rapid.Int64Range(1, 60).Draw(t, "apart")
		shift := func(label string) int64 { return 600 * rapid.Int64Range(1, 30).Draw(t, label) }
		one, two := shift("one"), shift("two")
		w := drawWant(t, false)
		mixed := w.sets[1].wild && !w.sets[2].wild
		if back := rapid.Bool().Draw(t, "back"); back {
			one, two = -one, -two
		} else if mixed {
			return // an hour lost in two pieces is nobody's case
		}
		loc := zoneOf(t, 0, change{first, one}, change{second, one + two})
		compare(t, w, loc, first-20*3600, first+26*3600, 60)
	})
}

type change struct{ at, offset int64 }

// zoneOf makes a zone in the format of RFC 9636, version 1.
func zoneOf(t interface{ Fatal(...any) }, offset int64, list ...change) *time.Location {
	u32 := func(v ...int64) (out []byte) {
		for _, n := range v {
			out = binary.BigEndian.AppendUint32(out, uint32(n))
		}
		return out
	}
	data := append([]byte("TZif"), make([]byte, 16)...)
	data = append(data, u32(0, 0, 0, int64(len(list)), int64(len(list)+1), 2)...)
	for _, c := range list {
		data = append(data, u32(c.at)...)
	}
	for i := range list {
		data = append(data, byte(i+1))
	}
	data = append(append(data, u32(offset)...), 0, 0)
	for _, c := range list {
		data = append(append(data, u32(c.offset)...), 0, 0)
	}
	loc, err := time.LoadLocationFromTZData("Made/Up", append(data, 'X', 0))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestFixedTimeOncePerDate counts over thirty years of each zone: a job at a time
// of day has one firing a date that exists, in order, and a second look gives the same.
func TestFixedTimeOncePerDate(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		s, err := Parse(itoa(minute)+" "+itoa(hour)+" * * *", loc)
		if err != nil {
			t.Fatal(err)
		}
		year := rapid.IntRange(2005, 2033).Draw(t, "year")
		from, to := time.Date(year, 1, 1, 0, 0, 0, 0, loc), time.Date(year+2, 1, 1, 0, 0, 0, 0, loc)
		dates := map[string]bool{}
		for at := from; at.Before(to); at = at.Add(15 * time.Minute) {
			dates[at.Format(time.DateOnly)] = true
		}
		instants, _ := s.Between(from.Add(-time.Second), to.Add(-time.Second), 1000)
		if len(instants) != len(dates) {
			t.Errorf("%d firings on %d dates", len(instants), len(dates))
		}
		jumps := changes(loc, year-1, year+3)
		for i, at := range instants {
			if i > 0 && !at.After(instants[i-1]) {
				t.Errorf("%s does not follow %s", at, instants[i-1])
			}
			if matches := at.Hour() == hour && at.Minute() == minute && at.Second() == 0; !matches && !slices.Contains(jumps, at.Unix()) {
				t.Errorf("%s is neither the time nor the end of a gap", at)
			}
			if again, _ := s.Next(at.Add(-1)); !again.Equal(at) {
				t.Errorf("asked again just before %s: %s", at, again)
			}
			if back, _ := s.Prev(at.Add(1)); !back.Equal(at) {
				t.Errorf("the last up to %s: %s", at, back)
			}
		}
	})
}

// TestPrevIsTheInverseOfNext holds for anything that fires.
func TestPrevIsTheInverseOfNext(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		s, err := Parse(drawWant(t, true).text, rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			return
		}
		at := time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "at"), rapid.Int64Range(0, 1).Draw(t, "ns"))
		prev, ok := s.Prev(at)
		next, ok2 := s.Next(prev)
		if !ok || !ok2 || !prev.Before(at) || next.Before(at) {
			t.Errorf("%s: before %s comes %s, and after that %s", s, at, prev, next)
		}
		instants, more := s.Between(prev, prev.Add(1e6*time.Second), 7)
		n, more2 := s.Count(prev, prev.Add(1e6*time.Second), 7)
		if len(instants) != n || more != more2 {
			t.Errorf("%d instants (more: %v), counted %d (%v)", len(instants), more, n, more2)
		}
	})
}

// TestOrdinaryDaysAreRobfigs compares with the library that most Go programs use,
// where its bugs cannot show: it skips what a clock jumps over and doubles what a
// clock shows twice.
func TestOrdinaryDaysAreRobfigs(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	var compared atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		var texts []string
		for i, u := range units {
			if i > 0 || rapid.Bool().Draw(t, "seconds") {
				forms := "*/-%nn"
				if i > 2 {
					forms = "****/-%n"
				}
				text, _ := drawSet(t, u, forms)
				texts = append(texts, text)
			}
		}
		spec, loc := strings.Join(texts, " "), rapid.SampledFrom(zones).Draw(t, "zone")
		s, err := Parse(spec, loc)
		if err != nil {
			return
		}
		// Its zone comes from the text or the time zone of the process.
		theirs, err := parser.Parse("CRON_TZ=" + loc.String() + " " + spec)
		if err != nil {
			t.Fatalf("%s: they refuse it: %v", spec, err)
		}
		at := time.Unix(rapid.Int64Range(0, 2e9).Draw(t, "at"), 0).In(loc)
		for range 20 {
			mine, _ := s.Next(at)
			their := theirs.Next(at)
			later := mine
			if their.After(mine) {
				later = their
			}
			// They look for midnights on the way, so the days on both sides matter too.
			changed := slices.ContainsFunc(changes(loc, at.Year()-1, later.Year()+2), func(c int64) bool {
				return c > at.Unix()-2*daySeconds && c < later.Unix()+2*daySeconds
			})
			if !changed && !their.IsZero() { // they give up after five years
				compared.Add(1)
				if !mine.Equal(their) {
					t.Fatalf("%s in %s after %s: %s, they say %s", spec, loc, at, mine, their)
				}
			}
			at = mine
		}
	})
	t.Logf("%d instants compared", compared.Load())
}

func TestEveryCountsFromItsAnchor(t *testing.T) {
	t.Parallel()
	day := func(y int, m time.Month, d, h int) time.Time { return time.Date(y, m, d, h, 0, 0, 0, time.UTC) }
	anchor := time.Date(2026, 1, 1, 10, 0, 0, 250_000_999, time.UTC)
	s := must(t, "@every 60d", "UTC").Anchored(anchor)
	kept := anchor.Truncate(time.Microsecond)
	for _, c := range []struct{ after, want time.Time }{
		{day(1990, 1, 1, 0), kept.AddDate(0, 0, 60)},
		{anchor, kept.AddDate(0, 0, 60)},
		{kept.AddDate(0, 0, 60).Add(-1), kept.AddDate(0, 0, 60)},
		{kept.AddDate(0, 0, 60), kept.AddDate(0, 0, 120)},
		{kept.AddDate(0, 0, 60*10000).Add(5 * time.Hour), kept.AddDate(0, 0, 60*10001)},
		{day(9999, 12, 1, 0), time.Time{}},
		{day(30000, 12, 1, 0), time.Time{}},
	} {
		got, ok := s.Next(c.after)
		if !got.Equal(c.want) || ok == c.want.IsZero() {
			t.Errorf("after %s: %s, %v, want %s", c.after, got, ok, c.want)
		}
	}
	if prev, ok := s.Prev(kept.AddDate(0, 0, 120)); !ok || !prev.Equal(kept.AddDate(0, 0, 60)) {
		t.Errorf("before the second comes %s", prev)
	}
	if prev, ok := s.Prev(kept.AddDate(0, 0, 60)); ok {
		t.Errorf("before the first comes %s", prev)
	}
	if prev, ok := s.Prev(day(99999, 1, 1, 0)); !ok || prev.Year() != 9999 {
		t.Errorf("the last of all is %s", prev)
	}
	second := must(t, "@every 1s", "UTC").Anchored(day(1, 1, 1, 1))
	if n, more := second.Count(day(1, 1, 1, 1), day(9999, 1, 1, 0), 1000); n != 1000 || !more {
		t.Errorf("counted %d, %v", n, more)
	}
	if n, more := s.Count(anchor, kept.AddDate(0, 0, 601), 1000); n != 10 || more {
		t.Errorf("counted %d, %v", n, more)
	}
}

func TestTheEndsOfTime(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"} {
		for _, spec := range []string{"@hourly", "@daily", "*/5 12 * * *", "0 0 29 2 *"} {
			s := must(t, spec, zone)
			at := time.Date(9996, 1, 1, 0, 0, 0, 0, time.UTC)
			for range 20 {
				next, ok := s.Next(at)
				if !ok {
					break
				}
				if _, err := next.MarshalText(); err != nil || !next.After(at) {
					t.Fatalf("%s in %s: %s after %s: %v", spec, zone, next, at, err)
				}
				at = next
			}
			for _, far := range []time.Time{time.Unix(lastUnix, 1), time.Unix(1<<50, 0), time.Unix(1<<62, 0)} {
				if next, ok := s.Next(far); ok {
					t.Errorf("%s in %s fires at %s", spec, zone, next)
				}
				if prev, ok := s.Prev(far); !ok || prev.UTC().Year() < 9996 {
					t.Errorf("%s in %s: the last of all is %s", spec, zone, prev)
				}
			}
			for _, old := range []time.Time{{}, time.Unix(-1<<61, 0), time.Unix(-1<<50, 0)} {
				if next, ok := s.Next(old); !ok || next.UTC().Year() > 5 {
					t.Errorf("%s in %s: the first is %s", spec, zone, next)
				}
				if prev, ok := s.Prev(time.Unix(-1<<61, 0)); ok {
					t.Errorf("%s in %s: before all is %s", spec, zone, prev)
				}
			}
		}
	}
	s := must(t, "0 0 29 2 *", "Europe/Berlin")
	if next, _ := s.Next(time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)); next.Year() != 2104 {
		t.Errorf("the leap day after 2096 is %s", next)
	}
	at := must(t, "@at 9999-12-31T23:59:59Z", "Pacific/Kiritimati")
	next, ok := at.Next(time.Now())
	if _, err := next.MarshalText(); !ok || err != nil {
		t.Errorf("%s, %v, %v", next, ok, err)
	}
	if _, ok := at.Next(next); ok {
		t.Error("once fired twice")
	}
	if prev, ok := at.Prev(next.Add(1)); !ok || !prev.Equal(next) {
		t.Errorf("once, before: %s", prev)
	}
}

// TestALongGapOfADenseScheduleIsCheap would not end if each second were looked at.
func TestALongGapOfADenseScheduleIsCheap(t *testing.T) {
	t.Parallel()
	s := must(t, "* * * * * *", "Europe/Berlin")
	from, to := time.Date(1026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if n, more := s.Count(from, to, 1000); n != 1000 || !more {
		t.Errorf("%d, %v", n, more)
	}
	if last, ok := s.Prev(to.Add(1)); !ok || !last.Equal(to) {
		t.Errorf("the newest is %s", last)
	}
	if up := s.Upcoming(from, 5); len(up) != 5 || !up[4].Equal(from.Add(5*time.Second)) {
		t.Errorf("upcoming %s", up)
	}
}

func TestCalendarIsPackageTimes(t *testing.T) {
	t.Parallel()
	for day := days(-1, 1, 1); day < days(10001, 1, 1); day++ {
		at := time.Unix(day*daySeconds, 0).UTC()
		y, m, d := civil(day)
		if y != at.Year() || m != int(at.Month()) || d != at.Day() || days(y, m, d) != day {
			t.Fatalf("day %d is %d-%d-%d, want %s", day, y, m, d, at)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, spec, zone string }{
		{"minutely", "* * * * *", "Europe/Berlin"},
		{"daily", "30 2 * * *", "Europe/Berlin"},
		{"weekdays", "*/10 9-17 * * mon-fri", "America/New_York"},
		{"yearly", "0 12 1 1 *", "Europe/Berlin"},
		{"leapday", "0 0 29 2 *", "Europe/Berlin"},
		{"leapday-cadence", "*/5 * 29 2 *", "America/New_York"},
		{"leapday-mixed", "*/5 2 29 2 *", "Australia/Lord_Howe"},
		{"every", "@every 90m", "UTC"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := must(b, c.spec, c.zone)
			// From after a leap day before 2100, eight years from the next, within the rules that go on for ever.
			at := time.Date(2096, 3, 2, 0, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(at)
			}
		})
	}
	b.Run("prev", func(b *testing.B) {
		s, at := must(b, "30 2 * * *", "Europe/Berlin"), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		for b.Loop() {
			s.Prev(at)
		}
	})
	b.Run("count1000", func(b *testing.B) {
		s, at := must(b, "* * * * *", "Europe/Berlin"), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		for b.Loop() {
			s.Count(at, at.AddDate(5, 0, 0), 1000)
		}
	})
}
