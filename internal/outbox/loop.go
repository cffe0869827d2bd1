package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Start begins to deliver. What a dead daemon left in flight is looked after
// first. It is safe to call twice.
func (o *Outbox) Start(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o.sendsCtx, o.abort = context.WithCancel(context.Background())
	loop, quit := context.WithCancel(context.Background())
	o.started, o.quit = true, quit
	o.loop.Go(func() { o.deliverLoop(loop) })
	return nil
}

// Stop takes no more items, waits at most Options.Grace for sends under way, ends
// them and waits until what is known of them is recorded. It is safe to call twice.
func (o *Outbox) Stop() {
	o.mu.Lock()
	if !o.started {
		o.mu.Unlock()
		return
	}
	o.started = false
	o.quit()
	o.mu.Unlock()
	o.loop.Wait()
	done := make(chan struct{})
	go func() { o.sends.Wait(); close(done) }()
	grace := time.NewTimer(o.opt.Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
	o.abort()
	<-done
}

func (o *Outbox) deliverLoop(ctx context.Context) {
	woken, stop := o.db.Watch(topic)
	defer stop()
	tick := time.NewTicker(o.opt.Poll)
	defer tick.Stop()
	for {
		if err := o.runOnce(ctx); err != nil && ctx.Err() == nil {
			o.opt.Logger.Warn("deliver", "error", err)
			select { // a hint must not make a broken store busier
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Decision is what a person says of an item that did not simply arrive.
type Decision string

// The decisions.
const (
	Resend  Decision = "resend"    // send it again; a possible repeat if it was uncertain
	Arrived Decision = "delivered" // it arrived
	Skip    Decision = "skip"      // leave it
	Resume  Decision = "resume"    // what was in doubt arrived: go on with the rest, which is no repeat
)

// allowed says from which states a decision may be taken.
var allowed = map[Decision][]State{
	Resend:  {Uncertain, Failed, Skipped},
	Arrived: {Uncertain},
	Skip:    {Uncertain, Failed, Queued},
	Resume:  {Uncertain},
}

// Decide settles an item by a person's word. Errors: Invalid, NotFound, Conflict
// if its state does not allow it.
func (o *Outbox) Decide(ctx context.Context, id string, d Decision, by, note string) (out Item, err error) {
	if len(allowed[d]) == 0 || by == "" {
		return Item{}, fault.New(fault.Invalid, "decision %q by %q: it is resend, delivered or skip, by somebody", d, by)
	}
	err = o.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out, err = o.decideTx(ctx, tx, id, d, by, note)
		return err
	})
	return out, err
}

func (o *Outbox) decideTx(ctx context.Context, tx *db.Tx, id string, d Decision, by, note string) (Item, error) {
	out, err := o.move(ctx, tx, id, func(it *Item) error { return decide(tx.Now(), o.db.Time(), it, d) })
	if err != nil {
		return out, err
	}
	if err := o.tell(ctx, tx, &out, KindDecided, by, DecidedData{Item: id, Decision: d, By: by, Note: note}); err != nil {
		return out, err
	}
	return out, o.tellEnd(ctx, tx, &out)
}

// decide applies a decision; now is the time of the transaction, next when an item to be sent
// is due.
func decide(now, next int64, it *Item, d Decision) error {
	if !slices.Contains(allowed[d], it.State) {
		return fault.New(fault.Conflict, "item %s is %s: it cannot be decided as %s", it.ID, it.State, d)
	}
	switch d {
	case Resend, Resume:
		it.PossibleRepeat = it.PossibleRepeat || d == Resend && it.State == Uncertain
		it.State, it.Attempts, it.probes, it.NextAt, it.since = Queued, 0, 0, next, now
	case Arrived:
		it.State, it.DeliveredAt = Delivered, now
	case Skip:
		it.PossibleRepeat = it.PossibleRepeat || it.State == Uncertain // should it be sent after all
		it.State = Skipped
	}
	return nil
}
