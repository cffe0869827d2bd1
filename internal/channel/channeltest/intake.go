// Package channeltest has what tests of adapters hand messages to.
package channeltest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

// Intake keeps what an adapter hands over, as the store would: a message once, the cursor
// with it. It is safe for concurrent use.
type Intake struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	taken   []channel.Received
	seen    map[string]bool
	again   int
	cursor  string
	ups     []channel.Me
	downs   []error
	arrived map[string]string
	lost    []string
	fail    int
	slow    time.Duration
}

var _ channel.Intake = (*Intake)(nil)

// NewIntake returns an empty one.
func NewIntake() *Intake {
	return &Intake{changed: make(chan struct{}), seen: map[string]bool{}, arrived: map[string]string{}}
}

func (i *Intake) change(fn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fn()
	close(i.changed)
	i.changed = make(chan struct{})
}

// Take keeps a message, unless the store is to fail.
func (i *Intake) Take(ctx context.Context, m channel.Received) (err error) {
	i.mu.Lock()
	slow := i.slow
	i.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	i.change(func() {
		if i.fail > 0 {
			i.fail--
			err = fault.New(fault.Unavailable, "the store is away")
			return
		}
		key := m.Chat + "\x00" + m.ID
		if m.Press == nil && i.seen[key] {
			i.again++
		} else if !m.Own {
			i.seen[key] = true
			i.taken = append(i.taken, m)
		}
		if m.Cursor != "" {
			i.cursor = m.Cursor
		}
	})
	return err
}

// Cursor is the one that was kept last.
func (i *Intake) Cursor(context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cursor, nil
}

// Advance keeps a cursor.
func (i *Intake) Advance(_ context.Context, cursor string) (err error) {
	i.change(func() {
		if i.fail > 0 {
			i.fail--
			err = fault.New(fault.Unavailable, "the store is away")
			return
		}
		i.cursor = cursor
	})
	return err
}

// Arrived keeps what arrived late.
func (i *Intake) Arrived(_ context.Context, key, ref string) error {
	i.change(func() { i.arrived[key] = ref })
	return nil
}

// Lost keeps what did not arrive after all.
func (i *Intake) Lost(_ context.Context, key, ref, reason string) error {
	i.change(func() { i.lost = append(i.lost, key+" "+ref+": "+reason) })
	return nil
}

// Up notes that the connection stands.
func (i *Intake) Up(me channel.Me) { i.change(func() { i.ups = append(i.ups, me) }) }

// Down notes trouble.
func (i *Intake) Down(err error) { i.change(func() { i.downs = append(i.downs, err) }) }

// FailNext makes the next n messages and cursors find no store.
func (i *Intake) FailNext(n int) { i.change(func() { i.fail = n }) }

// Slow makes each message take its time.
func (i *Intake) Slow(d time.Duration) { i.change(func() { i.slow = d }) }

// Seen is what was kept so far.
type Seen struct {
	Taken   []channel.Received
	Again   int // messages that came again
	Cursor  string
	Ups     []channel.Me
	Downs   []error
	Arrived map[string]string
	Lost    []string // key, ref and reason
}

// Now tells what was kept so far.
func (i *Intake) Now() Seen {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := Seen{Taken: slices.Clone(i.taken), Again: i.again, Cursor: i.cursor, Ups: slices.Clone(i.ups), Downs: slices.Clone(i.downs), Arrived: map[string]string{}, Lost: slices.Clone(i.lost)}
	maps.Copy(s.Arrived, i.arrived)
	return s
}

// Until waits until what was kept is as a test wants it, and returns it and true, or false
// when ctx has ended.
func (i *Intake) Until(ctx context.Context, is func(Seen) bool) (Seen, bool) {
	for {
		i.mu.Lock()
		changed := i.changed
		i.mu.Unlock()
		s := i.Now()
		if is(s) {
			return s, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return i.Now(), false
		}
	}
}
