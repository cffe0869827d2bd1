package slack

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	maxChannels = 500 // whose place is kept
	maxThreads  = 100
)

// cursor is how far what Slack tells was taken in. Its JSON is committed with messages.
type cursor struct {
	Channels map[string]string `json:"c"` // channel → ts up to which nothing is missing
	Threads  map[string]string `json:"t"` // channel/ts of the root → ts of the last message in it
}

// readCursor reads one. What is not one is as none: no more is lost than what was written
// while nobody listened.
func readCursor(s string) cursor {
	c := cursor{}
	if json.Unmarshal([]byte(s), &c) != nil {
		c = cursor{}
	}
	keep := func(in map[string]string, most int) map[string]string {
		out := map[string]string{}
		for k, ts := range in {
			ch, root, thread := strings.Cut(k, "/")
			if _, ok := micros(root); thread && !ok || !isID(ch) {
				continue
			}
			if _, ok := micros(ts); ok {
				put(out, k, ts, most)
			}
		}
		return out
	}
	c.Channels, c.Threads = keep(c.Channels, maxChannels), keep(c.Threads, maxThreads)
	return c
}

func (c cursor) String() string {
	data, err := json.Marshal(c)
	if err != nil { // strings always marshal
		return ""
	}
	return string(data)
}

// put sets a ts that is later than the one that is there. The oldest makes room.
func put(in map[string]string, key, ts string, most int) {
	if !later(ts, in[key]) {
		return
	}
	in[key] = ts
	for len(in) > most {
		oldest := key
		for k := range in {
			if later(in[oldest], in[k]) {
				oldest = k
			}
		}
		delete(in, oldest)
	}
}

func later(a, b string) bool {
	x, _ := micros(a)
	y, _ := micros(b)
	return x > y
}

// spoke notes that a message in a thread was taken in.
func (c cursor) spoke(ch, thread, ts string) {
	if thread != "" {
		put(c.Threads, ch+"/"+thread, ts, maxThreads)
	}
}

// threads are those of a channel that somebody spoke in last, at most n.
func (c cursor) threads(ch string, after string, n int) (roots []string) {
	type root struct{ ts, last string }
	var all []root
	for k, last := range c.Threads {
		if in, ts, _ := strings.Cut(k, "/"); in == ch && later(last, after) {
			all = append(all, root{ts, last})
		}
	}
	slices.SortFunc(all, func(a, b root) int { return cmp.Or(compare(b.last, a.last), compare(a.ts, b.ts)) })
	for _, r := range all[:min(n, len(all))] {
		roots = append(roots, r.ts)
	}
	return roots
}

func compare(a, b string) int {
	x, _ := micros(a)
	y, _ := micros(b)
	return cmp.Compare(x, y)
}

// horizon is how far back a history is read.
const horizon = 12 * time.Hour
