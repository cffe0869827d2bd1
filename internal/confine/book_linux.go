package confine

import (
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	maxDenials = 64   // distinct ones of a job; the rest is counted in one
	maxTarget  = 1024 // bytes of a target
)

// book collects what a job was refused. Each distinct refusal is told to the daemon
// when it is first seen; how often it happened is told at the end.
type book struct {
	ch      *channel
	watcher *watcher // nil: nothing is seen

	mu   sync.Mutex
	tmp  string // a directory to be removed at the end, "" for none
	seen []*denied
	more int
}

func newBook(ch *channel) *book { return &book{ch: ch} }

func (b *book) note(what, target string) {
	target = strings.ToValidUTF8(strings.ReplaceAll(target, "\x00", ""), "\uFFFD")
	for len(target) > maxTarget || !utf8.ValidString(target) {
		target = strings.ToValidUTF8(target[:min(len(target), maxTarget)], "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.seen, func(d *denied) bool { return d.What == what && d.Target == target })
	switch {
	case i >= 0:
		b.seen[i].Count++
	case len(b.seen) >= maxDenials:
		b.more++
	default:
		d := &denied{What: what, Target: target, Count: 1}
		b.seen = append(b.seen, d)
		told := *d
		_ = b.ch.send(report{Denied: &told}) // the daemon is gone: the lifeline says so too
	}
}

// close waits for what has been seen but not judged and returns all of it.
func (b *book) close() []denied {
	if b.watcher != nil {
		b.watcher.drain()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]denied, 0, len(b.seen)+1)
	for _, d := range b.seen {
		out = append(out, *d)
	}
	if b.more > 0 {
		out = append(out, denied{What: "more", Target: "not told apart", Count: b.more})
	}
	return out
}

// keep remembers the job's temporary directory.
func (b *book) keep(tmp string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tmp = tmp
}

// clear removes the job's temporary directory, when nothing of it is left.
func (b *book) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tmp != "" {
		_ = os.RemoveAll(b.tmp) // what stays is the system's to sweep
	}
}
