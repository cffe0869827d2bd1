package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Outgoing is a message handed to an adapter.
type Outgoing struct {
	Key     string // to settle it by; the same however often it is handed out
	Account string
	Chat    string
	Thread  string
	Text    string // Markdown
	ReplyTo string
	Again   bool // it was handed out before: send it only if it surely was not sent
}

// Result says what became of an outgoing message.
type Result string

// The results.
const (
	Sent    Result = "sent"     // with the network's id of it
	NotSent Result = "not_sent" // surely not; to be tried again
	Refused Result = "refused"  // surely not, and it never will be
	Unknown Result = "unknown"  // nobody can tell
)

// Settlement is an adapter's word on a message.
type Settlement struct {
	Credential string
	Key        string
	Result     Result
	Ref        string        // of Sent
	Error      string        // of the others, for people
	RetryAfter time.Duration // of NotSent
}

const (
	maxHandout = 32 // messages of one answer
	maxEarly   = 1024
	maxWait    = 55 * time.Second
)

// line is what one adapter is to send. It is the outbox's Sender for it.
type line struct {
	r    *Remote
	name string

	mu      sync.Mutex
	removed bool
	waiting map[string]*handout
	early   map[string]Settlement // settlements that came while nothing waited for them
	changed chan struct{}         // closed and replaced when something is to be handed out
	asked   int64                 // when the adapter last asked, Unix µs
	heard   int64                 // when it last delivered
	said    int64                 // when it last sent

	pace    channel.Pace
	unknown channel.Unknown
}

var _ outbox.Prober = (*line)(nil)

// handout is an item between the outbox and the adapter.
type handout struct {
	out   Outgoing
	seq   int64
	times int           // it was handed out
	until time.Time     // it is the adapter's until then
	done  chan struct{} // closed with the settlement
	what  Settlement
	taken chan struct{} // closed when it is first handed out
}

func newLine(r *Remote, name string) *line {
	return &line{r: r, name: name, waiting: map[string]*handout{}, early: map[string]Settlement{}, changed: make(chan struct{})}
}

func (l *line) setRemoved(removed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed = removed
	for key, h := range l.waiting {
		if removed && h.times == 0 { // nobody will ask for it
			delete(l.waiting, key)
			h.what = Settlement{Key: key, Result: Refused, Error: errRemoved(l.name).Error()}
			close(h.done)
		}
	}
	l.wake()
}

func (l *line) isRemoved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removed
}

func (l *line) state(a *Adapter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.Asked, a.Heard, a.Said, a.Waiting = l.asked, l.heard, l.said, len(l.waiting)
}

func (l *line) heardOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = l.r.DB.Time()
}

// Send implements outbox.Sender.
func (l *line) Send(ctx context.Context, it outbox.Item) (outbox.Receipt, error) {
	ad, set, err := l.where(ctx, it)
	if err != nil {
		return outbox.Receipt{}, err
	}
	now := time.UnixMicro(l.r.DB.Time())
	if err := l.pace.Quiet(set, it, now); err != nil {
		return outbox.Receipt{}, err
	}
	chat := ad.Account + "\x00" + ad.Chat
	if err := l.pace.Say(set, chat, now); err != nil { // one, into whatever it is split there
		return outbox.Receipt{}, err
	}
	h, err := l.put(ad, it, it.PossibleRepeat)
	if err != nil {
		l.pace.Unsaid(chat)
		return outbox.Receipt{}, err
	}
	defer l.drop(h)
	offer := time.NewTimer(l.r.cfg.Offer)
	defer offer.Stop()
	select {
	case <-h.done:
		return h.what.receipt()
	case <-h.taken:
	case <-offer.C:
		if l.takeBack(h) {
			l.pace.Unsaid(chat)
			return outbox.Receipt{}, &outbox.RetryAfter{After: l.r.cfg.Pause, Err: fault.New(fault.Unavailable, "adapter %s does not ask for messages", l.name)}
		}
	case <-ctx.Done():
		if l.takeBack(h) {
			l.pace.Unsaid(chat)
			return outbox.Receipt{}, fault.New(fault.Unavailable, "not handed to adapter %s: %w", l.name, context.Cause(ctx))
		}
	}
	select {
	case <-h.done:
		return h.what.receipt()
	case <-ctx.Done():
		return outbox.Receipt{}, fault.New(fault.Unknown, "adapter %s took it and did not settle it: %w", l.name, context.Cause(ctx))
	}
}

// Probe implements outbox.Prober: the adapter is handed the item again and says
// what became of it, or sends it now if it surely was not sent.
func (l *line) Probe(ctx context.Context, it outbox.Item) (outbox.Answer, outbox.Receipt, error) {
	ad, _, err := l.where(ctx, it)
	if err != nil {
		return outbox.CannotTell, outbox.Receipt{}, err
	}
	h, err := l.put(ad, it, true)
	if err != nil {
		return outbox.CannotTell, outbox.Receipt{}, err
	}
	defer l.drop(h)
	select {
	case <-h.done:
	case <-ctx.Done():
		return outbox.CannotTell, outbox.Receipt{}, fault.New(fault.Unavailable, "adapter %s cannot be asked: %w", l.name, context.Cause(ctx))
	}
	switch h.what.Result {
	case Sent:
		return outbox.Happened, outbox.Receipt{Ref: h.what.Ref}, nil
	case NotSent, Refused:
		return outbox.DidNotHappen, outbox.Receipt{}, nil
	}
	return outbox.CannotTell, outbox.Receipt{}, nil
}

// receipt is a settlement as the outbox wants it.
func (s Settlement) receipt() (outbox.Receipt, error) {
	switch s.Result {
	case Sent:
		return outbox.Receipt{Ref: s.Ref}, nil
	case NotSent:
		err := fault.New(fault.Unavailable, "not sent: %s", s.Error)
		if s.RetryAfter > 0 {
			return outbox.Receipt{}, &outbox.RetryAfter{After: s.RetryAfter, Err: err}
		}
		return outbox.Receipt{}, err
	case Refused:
		return outbox.Receipt{}, fault.New(fault.Invalid, "refused: %s", s.Error)
	}
	return outbox.Receipt{}, fault.New(fault.Unknown, "the adapter cannot tell whether it was sent: %s", s.Error)
}

// where is where an item is to be said, and what the operator has said of the adapter.
func (l *line) where(ctx context.Context, it outbox.Item) (agent.Address, channel.Settings, error) {
	var conv agent.Conversation
	var set channel.Settings
	removed := l.isRemoved()
	err := l.r.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if conv, err = l.r.Conversations.ConversationIn(ctx, q, it.Conversation); err == nil {
			set, err = l.r.settings(ctx, q, l.name)
		}
		removed = removed || fault.Is(err, fault.NotFound) && conv.ID != ""
		return err
	})
	if removed {
		return conv.Address, set, errRemoved(l.name)
	}
	if err != nil {
		return conv.Address, set, fault.New(fault.Unavailable, "where to send it: %w", err)
	}
	return conv.Address, set, nil
}

func errRemoved(name string) error { return fault.New(fault.Denied, "adapter %s was removed", name) }

// put lets an item wait for the adapter to ask.
func (l *line) put(ad agent.Address, it outbox.Item, again bool) (*handout, error) {
	h := &handout{seq: it.Seq, done: make(chan struct{}), taken: make(chan struct{}), out: Outgoing{
		Key: it.ID, Account: ad.Account, Chat: ad.Chat, Thread: ad.Thread, Text: it.Text, ReplyTo: it.ReplyTo, Again: again,
	}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.removed {
		return nil, errRemoved(l.name)
	}
	if s, ok := l.early[it.ID]; ok {
		delete(l.early, it.ID)
		h.what = s
		close(h.done)
		return h, nil
	}
	l.waiting[it.ID] = h
	l.wake()
	return h, nil
}

// wake tells those who ask; the caller holds l.mu.
func (l *line) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *line) drop(h *handout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[h.out.Key] == h {
		delete(l.waiting, h.out.Key)
	}
}

// takeBack ends the offer of an item unless it was handed out just now.
func (l *line) takeBack(h *handout) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.times > 0 {
		return false
	}
	delete(l.waiting, h.out.Key)
	return true
}

// Next hands out messages, the oldest first. With none it waits, for at most wait
// and not beyond ctx, and returns none.
func (r *Remote) Next(ctx context.Context, credential, account string, limit int, wait time.Duration) ([]Outgoing, error) {
	l, _, err := r.check(ctx, credential)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || limit > maxHandout {
		limit = maxHandout
	}
	over := time.NewTimer(min(max(wait, 0), maxWait))
	defer over.Stop()
	for {
		out, changed, due := l.take(account, limit)
		if len(out) > 0 {
			return out, nil
		}
		again := time.NewTimer(due)
		select {
		case <-changed:
		case <-again.C:
		case <-over.C:
			again.Stop()
			return nil, nil
		case <-ctx.Done():
			again.Stop()
			return nil, context.Cause(ctx)
		}
		again.Stop()
		if _, _, err := r.check(ctx, credential); err != nil { // removed while it waited
			return nil, err
		}
	}
}

// take hands out what is nobody's now. due is when to look again.
func (l *line) take(account string, limit int) (out []Outgoing, changed <-chan struct{}, due time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = l.r.DB.Time()
	now := time.Now()
	due = maxWait
	var free []*handout
	for _, h := range l.waiting {
		switch {
		case account != "" && h.out.Account != account:
		case h.times > 0 && now.Before(h.until):
			due = min(due, h.until.Sub(now))
		default:
			free = append(free, h)
		}
	}
	slices.SortFunc(free, func(a, b *handout) int { return int(a.seq - b.seq) })
	for _, h := range free[:min(limit, len(free))] {
		o := h.out
		o.Again = o.Again || h.times > 0
		if h.times == 0 {
			close(h.taken)
		}
		h.times++
		h.until = now.Add(l.r.cfg.Lease)
		out = append(out, o)
	}
	return out, l.changed, due
}

// Ack settles a message that was handed out. Settling it again changes nothing.
// Errors: Denied, Invalid, NotFound if the message is none of this adapter's.
func (r *Remote) Ack(ctx context.Context, s Settlement) error {
	l, _, err := r.check(ctx, s.Credential)
	if err != nil {
		return err
	}
	if !slices.Contains([]Result{Sent, NotSent, Refused, Unknown}, s.Result) {
		return fault.New(fault.Invalid, "result %q is none of sent, not_sent, refused, unknown", s.Result)
	}
	if len(s.Ref) > maxPart || len(s.Error) > 4096 {
		return fault.New(fault.Invalid, "ref has at most %d bytes and error 4096", maxPart)
	}
	s.Credential = ""
	if l.settle(s) {
		return nil
	}
	it, err := r.Outbox.Get(ctx, s.Key)
	if fault.Is(err, fault.NotFound) || err == nil && it.Channel != Prefix+l.name {
		return fault.New(fault.NotFound, "no message %q of this adapter", s.Key)
	}
	if err != nil {
		return err
	}
	return l.late(ctx, s, it)
}

// settle gives the settlement to whoever waits for it.
func (l *line) settle(s Settlement) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.waiting[s.Key]
	if h == nil || h.times == 0 && s.Result != Sent {
		return false
	}
	delete(l.waiting, s.Key)
	if s.Result == Sent {
		l.said = l.r.DB.Time()
	}
	h.what = s
	close(h.done)
	return true
}

// late takes a settlement that nothing waits for any more, or not yet: the outbox
// is about to ask what became of the item, or has given up asking.
func (l *line) late(ctx context.Context, s Settlement, it outbox.Item) error {
	switch {
	case it.State == outbox.Delivered || it.State == outbox.Skipped || s.Result == Unknown:
		return nil
	case it.State == outbox.Uncertain && s.Result == Sent:
		_, err := l.r.Outbox.Decide(ctx, it.ID, outbox.Arrived, Prefix+l.name, "settled late")
		if fault.Is(err, fault.Conflict) {
			return nil
		}
		return err
	case it.State == outbox.Uncertain || it.State == outbox.Failed:
		return nil // a person decides
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.early) >= maxEarly {
		clear(l.early) // they are hints: without one the adapter is asked again
	}
	l.early[s.Key] = s
	return nil
}
