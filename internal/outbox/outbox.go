package outbox

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// topic is notified when an item may be claimed or has ended.
const topic = "outbox"

// MaxText is the longest text of an item in bytes; channels split what is too
// long for them.
const MaxText = 4 << 20

// State is where an item stands.
type State string

// The states; doc.go has the moves between them.
const (
	Queued    State = "queued"
	Sending   State = "sending"
	Delivered State = "delivered"
	Uncertain State = "uncertain"
	Failed    State = "failed"
	Skipped   State = "skipped"
)

// Message is something to be said.
type Message struct {
	Conversation string // orders what goes out
	Channel      string // which Sender
	Recipient    string // as the channel names it
	Run          string // whose result it is: a run, or the id of another cause
	Ordinal      int    // which result of Run it is; stable when Run is done again
	Text         string // Markdown; the channel renders it
	ReplyTo      string // the channel's id of what it answers, if any
	ChatName     string
	Group        bool
	Separate     bool   // the same text said twice in a run is meant twice
	Unasked      bool   // nobody waits for it: a channel may keep it back in quiet hours
	Approval     string // the question it asks, if it asks for a yes or no
}

// Item is a Message in the outbox. Times are Unix microseconds.
type Item struct {
	Message
	ID             string
	Seq            int64
	State          State
	Attempts       int
	NextAt         int64 // not before, while queued
	Queued         int64
	DeliveredAt    int64
	Ref            string // the channel's own id of it
	PossibleRepeat bool   // it may have arrived at a try before the present one
	ErrorClass     fault.Class
	Error          string // of the last try

	owner  string
	probes int
	since  int64 // when it was last told to go out
}

// Options tune an Outbox; zero fields have defaults.
type Options struct {
	Attempts    int           // tries of a channel that is down; default 12 (about 17 minutes)
	GiveUp      time.Duration // how long a message may wait for a channel at all; default 24 h
	SendTimeout time.Duration // of one send or probe; default 60 s
	PerChannel  int           // sends at once on a channel; default 16
	Poll        time.Duration // longest sleep between looks at the store; default 1 s
	Grace       time.Duration // how long Stop waits for sends under way; default 10 s
	// OnTrouble joins the commit that makes an item failed or uncertain: the place to
	// tell the turn and the person. It may run twice.
	OnTrouble func(ctx context.Context, tx *db.Tx, it Item) error
	// Held is asked before anything is sent or probed: while it is true everything
	// waits. Default never.
	Held   func() bool
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Attempts <= 0 {
		o.Attempts = 12
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&o.GiveUp, 24 * time.Hour}, {&o.SendTimeout, time.Minute}, {&o.Poll, time.Second}, {&o.Grace, 10 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	if o.PerChannel <= 0 {
		o.PerChannel = 16
	}
	if o.OnTrouble == nil {
		o.OnTrouble = func(context.Context, *db.Tx, Item) error { return nil }
	}
	if o.Held == nil {
		o.Held = func() bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Outbox keeps and delivers the items of one store. It is safe for concurrent use.
type Outbox struct {
	db      *db.DB
	vault   *vault.Vault
	log     *eventlog.Log
	senders *Senders
	opt     Options
	node    string        // this process, one boot
	lease   time.Duration // how long another node leaves a send of ours alone

	mu       sync.Mutex
	flying   map[string]int // sends under way, by channel
	started  bool
	quit     context.CancelFunc // ends the loop
	abort    context.CancelFunc // ends the sends
	sendsCtx context.Context
	loop     sync.WaitGroup
	sends    sync.WaitGroup
}

// New returns the outbox of d. Channels may be added to senders until Start.
func New(d *db.DB, v *vault.Vault, l *eventlog.Log, senders *Senders, o Options) *Outbox {
	o = o.withDefaults()
	b := &Outbox{
		db: d, vault: v, log: l, senders: senders, opt: o, node: id.New("boot"),
		lease: o.SendTimeout + 30*time.Second, flying: map[string]int{},
	}
	b.sendsCtx, b.abort = context.WithCancel(context.Background())
	return b
}

func (m *Message) check() error {
	for _, f := range []struct{ name, value string }{
		{"conversation", m.Conversation}, {"channel", m.Channel}, {"run", m.Run},
	} {
		if f.value == "" || !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0) {
			return fault.New(fault.Internal, "an item of the outbox needs a %s, in UTF-8", f.name)
		}
	}
	switch {
	case m.Ordinal < 0:
		return fault.New(fault.Internal, "an item of the outbox cannot be result %d of its run", m.Ordinal)
	case m.Text == "":
		return fault.New(fault.Invalid, "there is nothing to send")
	case len(m.Text) > MaxText:
		return fault.New(fault.Invalid, "a message has at most %d bytes, not %d", MaxText, len(m.Text))
	}
	return nil
}

// AppendTx puts a message into the outbox as part of tx: it goes out if and only
// if tx commits. A channel whose delivery is rows delivers in tx itself when
// nothing of the conversation is ahead. The same result appended again returns
// the first item. Errors: NotFound if there is no such channel, naming those there
// are; Conflict if (run, ordinal) is another message.
func (o *Outbox) AppendTx(ctx context.Context, tx *db.Tx, m Message) (Item, error) {
	if err := m.check(); err != nil {
		return Item{}, err
	}
	_, rows, err := o.senders.get(m.Channel)
	if err != nil {
		return Item{}, err
	}
	digest := o.digest(m)
	first, found, err := o.same(ctx, tx, m, digest)
	if err != nil || found {
		return first, err
	}
	// When an item is due is of the clock on the wall, as it is compared with; the time of a
	// transaction never goes back, and what were due by it would wait until the wall has caught up.
	it := Item{Message: m, ID: id.New("obx"), State: Queued, Queued: tx.Now(), since: tx.Now(), NextAt: o.db.Time()}
	if it.Seq, err = tx.Next(ctx, "outbox"); err != nil {
		return it, err
	}
	if m.Unasked { // behind its like that is kept back
		if kept, err := o.keptBack(ctx, tx, m.Conversation); err != nil {
			return it, err
		} else if kept {
			it.probes = aside
		}
	}
	if rows != nil {
		if err := o.sendAtOnce(ctx, tx, rows, &it); err != nil {
			return it, err
		}
	}
	if err := o.insert(ctx, tx, &it, digest); err != nil {
		return it, err
	}
	switch it.State {
	case Queued:
		tx.Notify(topic)
	case Failed:
		return it, o.tellEnd(ctx, tx, &it)
	}
	return it, nil
}

// sendAtOnce delivers in the transaction that appends, unless something of the
// conversation is ahead. The error is the store's; that of the channel is in it.
func (o *Outbox) sendAtOnce(ctx context.Context, tx *db.Tx, s TxSender, it *Item) error {
	busy, err := o.busy(ctx, tx, it.Conversation)
	if err != nil || busy || o.opt.Held() {
		return err
	}
	if err := o.sendTx(ctx, tx, s, it); err != nil {
		o.settle(tx, it, Receipt{}, certain(err), false)
	}
	return nil
}

// digest tells whether two messages of a run say the same.
func (o *Outbox) digest(m Message) []byte {
	return o.vault.MAC("outbox.digest", []byte(m.Conversation), []byte(m.Channel), []byte(m.Recipient), []byte(m.Text))
}

// backoff is the pause after the n-th try, n from 1.
func (o *Outbox) backoff(n int) time.Duration {
	return min(time.Second<<min(max(n-1, 0), 10), 5*time.Minute)
}
