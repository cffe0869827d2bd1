package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
)

// localZone is the name of the system's own zone.
const localZone = "Local"

// maxRules is how many rules are kept read. Of many schedules most have one of few.
const maxRules = 1024

// rules reads rules and keeps what it has read: the zone is the slow part.
type rules struct {
	mu sync.Mutex
	m  map[[2]string]*cron.Schedule
}

// read is the function read, but for the name of the rule.
func (r *rules) read(when, zone string) (*cron.Schedule, error) {
	key := [2]string{when, zone}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.m[key]; ok {
		return c, nil
	}
	c, _, err := read(when, zone)
	if err != nil {
		return nil, err
	}
	if r.m == nil || len(r.m) >= maxRules {
		r.m = map[[2]string]*cron.Schedule{}
	}
	r.m[key] = c
	return c, nil
}

// of is the rule of a schedule, counting from its anchor.
func (r *rules) of(x *Schedule) (*cron.Schedule, error) {
	c, err := r.read(x.When, x.Zone)
	if err != nil {
		return nil, err
	}
	return c.Anchored(time.UnixMicro(x.Anchor)), nil
}

// location is the zone of a schedule, for people; UTC if it cannot be read.
func (r *rules) location(x *Schedule) *time.Location {
	if c, err := r.read(x.When, x.Zone); err == nil {
		return c.Location()
	}
	return time.UTC
}

// read parses a rule and says what it is: state belongs to that text.
func read(when, zone string) (c *cron.Schedule, rule string, err error) {
	loc, err := cron.Zone(zone)
	if err != nil {
		return nil, "", err
	}
	if c, err = cron.Parse(when, loc); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256([]byte(c.String() + "\x00" + c.Location().String()))
	return c, hex.EncodeToString(sum[:8]), nil
}

// due is when a nominal instant is due: with its jitter, which is drawn from the
// schedule and the instant, and so always the same.
func (x *Schedule) due(instant int64) int64 {
	if x.Jitter <= 0 || instant == Never {
		return instant
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(x.ID + "\x00" + strconv.FormatInt(instant, 10))) // it never fails
	// The low bits of FNV of like texts are alike.
	mixed := h.Sum64() * 0x9e3779b97f4a7c15 >> 16
	return instant + int64(mixed%uint64(x.Jitter.Microseconds()))
}

// after is the first nominal instant later than t, or Never.
func after(c *cron.Schedule, t int64) int64 {
	next, ok := c.Next(time.UnixMicro(t))
	if !ok {
		return Never
	}
	return next.UnixMicro()
}

// before is the last nominal instant earlier than t, and false if there is none.
func before(c *cron.Schedule, t int64) (int64, bool) {
	last, ok := c.Prev(time.UnixMicro(t))
	return last.UnixMicro(), ok
}

// Show writes an instant in the schedule's zone, in RFC 3339.
func (x *Schedule) Show(us int64) string {
	c, _, err := read(x.When, x.Zone)
	if err != nil {
		return show(us, time.UTC)
	}
	return show(us, c.Location())
}
