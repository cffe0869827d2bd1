package outbox

import (
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// maxProbes is how often a channel that is down is asked what became of an item.
const maxProbes = 8

// runOnce begins to deliver what is due and looks after what is in doubt. The
// sends go on after it, see the sends group.
func (o *Outbox) runOnce(ctx context.Context) error {
	var failed error
	if o.opt.Held() {
		return nil
	}
	for _, channel := range o.senders.names() {
		plain, rows, err := o.senders.get(channel)
		if err != nil {
			return err
		}
		_, err = o.dispatch(ctx, channel, plain, rows)
		failed = errors.Join(failed, err)
		if plain != nil {
			_, err = o.lookAfterDoubt(ctx, channel, plain)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// free is how many more sends a channel may have under way.
func (o *Outbox) free(channel string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opt.PerChannel - o.flying[channel]
}

// fly runs fn beside the others; its place is free again when it ends.
func (o *Outbox) fly(channel string, fn func()) {
	o.mu.Lock()
	o.flying[channel]++
	o.mu.Unlock()
	o.sends.Go(func() {
		defer func() {
			o.mu.Lock()
			o.flying[channel]--
			o.mu.Unlock()
			o.db.Wake(topic)
		}()
		fn()
	})
}

// dispatch takes the heads of a channel's conversations that are due.
func (o *Outbox) dispatch(ctx context.Context, channel string, plain Sender, rows TxSender) (int, error) {
	free := o.free(channel)
	if free <= 0 {
		return 0, nil
	}
	var due []string
	err := o.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		due, err = db.All(ctx, q, db.Column[string], `SELECT o.id FROM outbox o WHERE o.channel = $1 AND o.state = 'queued' AND o.next_at <= $2
			AND NOT EXISTS `+ahead+` ORDER BY o.seq LIMIT $3`, channel, o.db.Time(), free)
		return err
	})
	if err != nil || len(due) == 0 {
		return 0, err
	}
	if rows != nil {
		for _, id := range due {
			if err := o.deliverTx(ctx, id, rows); err != nil {
				return 0, err
			}
		}
		return len(due), nil
	}
	items, err := o.claim(ctx, due)
	for _, it := range items {
		o.fly(channel, func() { o.deliver(it, plain) })
	}
	return len(items), err
}

// claim takes the items that are still the heads of their conversations, each in
// one guarded statement.
func (o *Outbox) claim(ctx context.Context, ids []string) (items []Item, err error) {
	err = o.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		items = nil
		clock, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		for _, id := range ids {
			n, err := tx.Exec(ctx, `UPDATE outbox AS o SET state = 'sending', owner = $1, lease = $2, attempts = attempts + 1
				WHERE o.id = $3 AND o.state = 'queued' AND NOT EXISTS `+ahead, o.node, clock+o.lease.Microseconds(), id)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			it, err := o.load(ctx, tx, id)
			if err != nil {
				return err
			}
			items = append(items, it)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// deliver sends one claimed item and records what came of it.
func (o *Outbox) deliver(it Item, s Sender) {
	receipt, err := o.send(it, s)
	_, canProbe := s.(Prober)
	o.record(it, func(ctx context.Context, tx *db.Tx, cur *Item) error {
		if cur.State != Sending || cur.owner != o.node {
			// Another node thought us dead. What we know is better than its doubt.
			if err != nil || cur.State != Sending && cur.State != Uncertain {
				return errStale
			}
		}
		o.settle(tx, cur, receipt, err, canProbe)
		return nil
	})
}

func (o *Outbox) send(it Item, s Sender) (r Receipt, err error) {
	ctx, cancel := context.WithTimeoutCause(o.sendsCtx, o.opt.SendTimeout,
		fault.New(fault.Timeout, "channel %s did not answer within %s", it.Channel, o.opt.SendTimeout))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			o.opt.Logger.Error("a channel panicked", "channel", it.Channel, "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "channel %s panicked: %v", it.Channel, p)
		}
	}()
	failpoint.Hit("outbox.send.before")
	r, err = s.Send(ctx, it)
	failpoint.Hit("outbox.send.after")
	if err != nil && ctx.Err() != nil && judge(err) == doubt {
		err = context.Cause(ctx)
	}
	return r, err
}

// settle writes into the item what a try came to.
func (o *Outbox) settle(tx *db.Tx, it *Item, r Receipt, err error, canProbe bool) {
	it.owner, it.probes = "", max(it.probes, 0)
	if err == nil {
		it.State, it.Ref, it.DeliveredAt = Delivered, r.Ref, tx.Now()
		it.ErrorClass, it.Error = "", ""
		return
	}
	it.ErrorClass, it.Error = fault.ClassOf(err), err.Error()
	switch judge(err) {
	case tryAgain:
		pause, asked := o.backoff(it.Attempts), false
		if wait, ok := errors.AsType[*RetryAfter](err); ok {
			pause, asked = max(wait.After, 0), true
			if wait.Kept {
				it.since, it.Attempts = tx.Now(), it.Attempts-1
			}
			if wait.Aside {
				it.probes = aside
			}
		}
		it.State, it.NextAt = Queued, o.db.Time()+pause.Microseconds()
		if !asked && it.Attempts >= o.opt.Attempts || tx.Now()-it.since >= o.opt.GiveUp.Microseconds() {
			it.State = Failed
		}
	case giveUp:
		it.State = Failed
	case doubt:
		it.State = Uncertain
		if canProbe { // it stays at the head until the channel has been asked
			it.State, it.NextAt, it.probes = Sending, o.db.Time(), 0
		}
	}
}

// record commits what became of an item. The message is out by now, so it does not
// give up while the store is merely unavailable; only when the daemon ends does
// the item stay in flight, to be in doubt at the next start.
func (o *Outbox) record(it Item, change func(ctx context.Context, tx *db.Tx, cur *Item) error) {
	pause := 100 * time.Millisecond
	for {
		err := o.db.InTx(context.WithoutCancel(o.sendsCtx), func(ctx context.Context, tx *db.Tx) error {
			cur, err := o.move(ctx, tx, it.ID, func(cur *Item) error { return change(ctx, tx, cur) })
			if err != nil {
				return err
			}
			return o.tellEnd(ctx, tx, &cur)
		})
		if err == nil {
			return
		}
		o.opt.Logger.Warn("record a delivery", "item", it.ID, "channel", it.Channel, "error", err)
		if !fault.Is(err, fault.Unavailable) {
			return
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 5*time.Second)
		case <-o.sendsCtx.Done():
			return
		}
	}
}

// sendTx delivers by rows inside tx. On an error nothing but the count of tries
// has changed and tx can go on.
func (o *Outbox) sendTx(ctx context.Context, tx *db.Tx, s TxSender, it *Item) error {
	it.Attempts++
	next := *it
	err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fault.New(fault.Internal, "channel %s panicked: %v", it.Channel, p)
			}
		}()
		r, err := s.SendTx(ctx, tx, next)
		if err != nil {
			return err
		}
		o.settle(tx, &next, r, nil, false)
		return o.tellEnd(ctx, tx, &next)
	})
	if err == nil {
		*it = next
	}
	return err
}

// certain turns what would be doubt into a retry: delivery by rows that failed was
// rolled back.
func certain(err error) error {
	if err != nil && judge(err) == doubt {
		return fault.New(fault.Unavailable, "%w", err)
	}
	return err
}

// deliverTx delivers a queued item of a channel whose delivery is rows.
func (o *Outbox) deliverTx(ctx context.Context, id string, s TxSender) error {
	err := o.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var head int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM outbox o WHERE o.id = $1 AND o.state = 'queued' AND NOT EXISTS "+ahead, id).Scan(&head); err != nil {
			return err
		}
		if head == 0 {
			return errStale
		}
		it, err := o.move(ctx, tx, id, func(it *Item) error {
			if err := o.sendTx(ctx, tx, s, it); err != nil {
				o.settle(tx, it, Receipt{}, certain(err), false)
			}
			return nil
		})
		if err != nil || it.State == Delivered {
			return err // its event was left by sendTx
		}
		return o.tellEnd(ctx, tx, &it)
	})
	if errors.Is(err, errStale) {
		return nil
	}
	return err
}

// lookAfterDoubt takes over items in flight whose owner is gone or has left them
// in doubt, and probes them or sets them aside.
func (o *Outbox) lookAfterDoubt(ctx context.Context, channel string, s Sender) (int, error) {
	free := o.free(channel)
	if free <= 0 {
		return 0, nil
	}
	var ids []string
	err := o.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], `SELECT id FROM outbox WHERE state = 'sending' AND channel = $1 AND owner <> $2
			AND next_at <= $3 ORDER BY seq LIMIT $4`, channel, o.node, o.db.Time(), free)
		return err
	})
	if err != nil {
		return 0, err
	}
	prober, canProbe := s.(Prober)
	taken := 0
	for _, id := range ids {
		it, err := o.takeOver(ctx, id, canProbe)
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return taken, err
		}
		taken++
		if canProbe {
			o.fly(channel, func() { o.probe(it, prober) })
		}
	}
	return taken, nil
}

// takeOver makes this node the owner of an item in doubt. Without a probe to come
// it is uncertain from then on.
func (o *Outbox) takeOver(ctx context.Context, id string, canProbe bool) (it Item, err error) {
	others := int64(0) // on SQLite every other owner is dead
	if o.db.Postgres() {
		others = 1
	}
	err = o.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		clock, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `UPDATE outbox SET owner = $1, lease = $2, probes = probes + 1
			WHERE id = $3 AND state = 'sending' AND owner <> $1 AND (owner = '' OR lease <= $4 OR $5 = 0)`,
			o.node, clock+o.lease.Microseconds(), id, clock, others)
		if err == nil && n == 0 {
			err = errStale
		}
		if err != nil {
			return err
		}
		if canProbe {
			it, err = o.load(ctx, tx, id)
			return err
		}
		it, err = o.move(ctx, tx, id, func(it *Item) error {
			o.settle(tx, it, Receipt{}, errInterrupted, false)
			return nil
		})
		if err != nil {
			return err
		}
		return o.tellEnd(ctx, tx, &it)
	})
	return it, err
}

var errInterrupted = fault.New(fault.Unknown, "the daemon died while it was sent: it may or may not have arrived")

// probe asks the channel what became of an item in doubt.
func (o *Outbox) probe(it Item, s Prober) {
	answer, receipt, err := o.ask(it, s)
	o.record(it, func(_ context.Context, tx *db.Tx, cur *Item) error {
		if cur.State != Sending || cur.owner != o.node {
			return errStale
		}
		switch {
		case err != nil && judge(err) == tryAgain && cur.probes < maxProbes:
			pause, asked := Wait(err) // a channel that knows when it can tell is asked then
			if !asked {
				pause = o.backoff(cur.probes)
			}
			cur.owner, cur.NextAt = "", o.db.Time()+max(pause, 0).Microseconds()
		case err != nil:
			o.settle(tx, cur, Receipt{}, fault.New(fault.Unknown, "it may or may not have arrived, and the channel could not be asked: %w", err), false)
		case answer == Happened:
			o.settle(tx, cur, receipt, nil, false)
		case answer == DidNotHappen:
			cur.State, cur.owner, cur.NextAt, cur.probes = Queued, "", o.db.Time()+o.backoff(cur.Attempts).Microseconds(), 0
			if cur.Attempts >= o.opt.Attempts || tx.Now()-cur.since >= o.opt.GiveUp.Microseconds() {
				cur.State = Failed // it surely was not sent, and it was tried as often as anything is
				cur.ErrorClass, cur.Error = fault.Unavailable, "it was tried "+strconv.Itoa(cur.Attempts)+" times, and was never sent"
			}
		default:
			o.settle(tx, cur, Receipt{}, fault.New(fault.Unknown, "it may or may not have arrived: the channel cannot tell"), false)
		}
		return nil
	})
}

func (o *Outbox) ask(it Item, s Prober) (a Answer, r Receipt, err error) {
	ctx, cancel := context.WithTimeoutCause(o.sendsCtx, o.opt.SendTimeout,
		fault.New(fault.Timeout, "channel %s did not answer within %s", it.Channel, o.opt.SendTimeout))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Internal, "channel %s panicked: %v", it.Channel, p)
		}
	}()
	return s.Probe(ctx, it)
}
