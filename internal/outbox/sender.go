package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Receipt is what a channel says of a message it took.
type Receipt struct {
	Ref string // the channel's own id of it
}

// Sender sends to the outside. The class of its error says what became of the
// message (doc.go). It must end when its context does: it holds its conversation.
type Sender interface {
	Send(ctx context.Context, it Item) (Receipt, error)
}

// Answer is what a probe finds.
type Answer string

// The answers.
const (
	Happened     Answer = "happened"
	DidNotHappen Answer = "did not happen"
	CannotTell   Answer = "cannot tell"
)

// Prober is a Sender that can find out what became of a message: by Item.ID, if
// the channel keeps a key of ours, or by looking at what it last sent.
type Prober interface {
	Sender
	Probe(ctx context.Context, it Item) (Answer, Receipt, error)
}

// TxSender is a channel whose delivery is rows of this store. SendTx may run twice
// and must do nothing but its statements.
type TxSender interface {
	SendTx(ctx context.Context, tx *db.Tx, it Item) (Receipt, error)
}

// RetryAfter is the error of a channel that asks to wait. Nothing was sent.
type RetryAfter struct {
	After time.Duration
	Err   error
	Kept  bool // the channel was not asked, by the operator's own wish: the wait does not count
	Aside bool // it is this item that waits, not its conversation: what is not kept back may overtake it
}

func (e *RetryAfter) Error() string { return fmt.Sprintf("try again after %s: %v", e.After, e.Err) }

// Unwrap returns the cause.
func (e *RetryAfter) Unwrap() error { return e.Err }

// Senders is the set of channels there are.
type Senders struct {
	mu    sync.RWMutex
	plain map[string]Sender
	rows  map[string]TxSender
}

// NewSenders returns an empty set.
func NewSenders() *Senders {
	return &Senders{plain: map[string]Sender{}, rows: map[string]TxSender{}}
}

// Add adds a channel that sends to the outside; its name must be new.
func (s *Senders) Add(channel string, sender Sender) error {
	return s.add(channel, func() { s.plain[channel] = sender })
}

// AddTx adds a channel whose delivery is rows; its name must be new.
func (s *Senders) AddTx(channel string, sender TxSender) error {
	return s.add(channel, func() { s.rows[channel] = sender })
}

func (s *Senders) add(channel string, put func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if channel == "" || s.plain[channel] != nil || s.rows[channel] != nil {
		return fault.New(fault.Internal, "channel %q has no name or is there already", channel)
	}
	put()
	return nil
}

func (s *Senders) get(channel string) (Sender, TxSender, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	plain, rows := s.plain[channel], s.rows[channel]
	if plain == nil && rows == nil {
		return nil, nil, fault.New(fault.NotFound, "no channel %q; there are: %s", channel, strings.Join(s.lockedNames(), ", "))
	}
	return plain, rows, nil
}

func (s *Senders) lockedNames() []string {
	names := append(slices.Collect(maps.Keys(s.plain)), slices.Collect(maps.Keys(s.rows))...)
	slices.Sort(names)
	return names
}

func (s *Senders) names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lockedNames()
}

// verdict is what an error of a sender means for its item.
type verdict uint8

const (
	tryAgain verdict = iota + 1
	giveUp
	doubt
)

func judge(err error) verdict {
	if _, ok := errors.AsType[*RetryAfter](err); ok {
		return tryAgain
	}
	switch fault.ClassOf(err) {
	case fault.Unavailable:
		return tryAgain
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Permission, fault.Conflict, fault.Config, fault.Verification, fault.Usage:
		return giveUp
	}
	return doubt
}

// SurelyNotSent reports whether an error of a sender promises that nothing was sent.
func SurelyNotSent(err error) bool { return err != nil && judge(err) != doubt }

// Wait is how long a channel asks to wait, if it does.
func Wait(err error) (after time.Duration, asked bool) {
	if wait, ok := errors.AsType[*RetryAfter](err); ok {
		return wait.After, true
	}
	return 0, false
}
