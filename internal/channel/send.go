package channel

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

var _ outbox.Prober = (*line)(nil)

// pieceKey is the stable key of a piece.
func pieceKey(item string, n int) string { return item + "/" + strconv.Itoa(n) }

func keyParts(key string) (item string, n int, ok bool) {
	item, text, ok := strings.Cut(key, "/")
	n, err := strconv.Atoi(text)
	return item, n, ok && err == nil && n >= 0
}

func allSent(list []piece) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(p piece) bool { return p.state != sent })
}

func (c *Channels) readPieces(ctx context.Context, item string) (list []piece, err error) {
	err = c.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err = c.pieces(ctx, q, item)
		return err
	})
	return list, err
}

// Send implements outbox.Sender: it sends what of an item was not sent yet. What is not sent
// because the channel is in trouble waits as long as that lasts, however often it was tried.
func (l *line) Send(ctx context.Context, it outbox.Item) (outbox.Receipt, error) {
	r, err := l.sendRest(ctx, it)
	if _, wait := outbox.Wait(err); !wait && fault.Is(err, fault.Unavailable) && l.inTrouble() {
		err = &outbox.RetryAfter{After: min(time.Second<<min(max(it.Attempts-1, 0), 6), time.Minute), Err: err}
	}
	return r, err
}

func (l *line) inTrouble() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf != nil || l.mute != nil
}

func (l *line) sendRest(ctx context.Context, it outbox.Item) (outbox.Receipt, error) {
	a, err := l.ready()
	if err != nil {
		return outbox.Receipt{}, l.notYet(err)
	}
	at, err := l.place(ctx, it)
	if err != nil {
		return outbox.Receipt{}, err
	}
	if left := l.shutFor(at); left > 0 {
		return outbox.Receipt{}, &outbox.RetryAfter{After: left, Err: fault.New(fault.Unavailable, "the network asked to wait")}
	}
	list, err := l.c.readPieces(ctx, it.ID)
	if err == nil {
		if err := l.keptBack(it, list); err != nil {
			return outbox.Receipt{}, err
		}
	}
	if err == nil && len(list) == 0 {
		list, err = l.c.keepPieces(ctx, it.ID, a.Render(l.c.Hide(it.Text)))
	}
	if err != nil {
		return outbox.Receipt{}, fault.New(fault.Unavailable, "the parts of the message: %w", err)
	}
	for i := range list {
		if list[i].state == sent {
			continue
		}
		if err := l.sendPiece(ctx, a, it, at, list, i); err != nil {
			return outbox.Receipt{}, err
		}
	}
	return outbox.Receipt{Ref: list[0].ref}, nil
}

// notYet is why nothing can be sent now; what waits because the operator paused the channel
// waits as long as that lasts.
func (l *line) notYet(err error) error {
	if fault.Is(err, fault.Unavailable) {
		return &outbox.RetryAfter{After: 10 * time.Second, Err: err, Kept: l.rowOf().paused}
	}
	return err
}

// place is where an item is to be said. Another account than the conversation's says nothing
// in it: on its network the same id may be another chat, and to whoever reads it somebody
// else speaks.
func (l *line) place(ctx context.Context, it outbox.Item) (Place, error) {
	var conv agent.Conversation
	err := l.c.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		conv, err = l.c.Agents.ConversationIn(ctx, q, it.Conversation)
		return err
	})
	if err != nil {
		return Place{}, fault.New(fault.Unavailable, "where to send it: %w", err)
	}
	was := conv.Address.Account
	if _, me := l.settings(); was != "" && me.ID != "" && was != me.ID {
		return Place{}, fault.New(fault.Denied, "it belongs to a conversation of the account %s, and channel %s is %s now", was, l.name, me.ID)
	}
	return Place{Chat: conv.Address.Chat, Thread: conv.Address.Thread}, nil
}

// sendPiece sends one piece. Its row says so before the network hears of it.
func (l *line) sendPiece(ctx context.Context, a Adapter, it outbox.Item, at Place, list []piece, i int) error {
	p := &list[i]
	from := p.state
	if from == sending && !it.PossibleRepeat {
		return fault.New(fault.Unknown, "part %d of %d was begun and may have arrived", i+1, len(list))
	}
	if i == 0 && from == waiting && it.Approval == "" {
		ref, done, err := l.intoPreview(ctx, a, it, l.outgoing(it, at, list, i))
		l.shut(at, err)
		if done {
			p.state, p.ref = sent, ref
			_, err = l.c.movePiece(ctx, it.ID, p.n, waiting, sent, ref)
		}
		if err != nil || done {
			return err
		}
	}
	if err := l.mayGo(at.Chat); err != nil {
		return err
	}
	if moved, err := l.c.movePiece(ctx, it.ID, p.n, from, sending, ""); err != nil || !moved {
		l.pace.Unsaid(at.Chat)
		return fault.New(fault.Unavailable, "part %d could not be begun: %w", i+1, err)
	}
	failpoint.Hit("channel.send.before")
	ref, err := l.put(ctx, a, l.outgoing(it, at, list, i))
	failpoint.Hit("channel.send.after")
	l.noteSaying(err)
	if err == nil {
		p.state, p.ref = sent, ref
		return l.keepSent(it.ID, p.n, ref)
	}
	l.shut(at, err)
	if outbox.SurelyNotSent(err) {
		l.pace.Unsaid(at.Chat)
		if _, failed := l.c.movePiece(context.WithoutCancel(ctx), it.ID, p.n, sending, from, ""); failed != nil {
			return fault.New(fault.Unknown, "part %d was not sent, and that could not be recorded: %w", i+1, err)
		}
	}
	return err
}

// keepSent records that a piece arrived. It is out by now: an error leaves it in doubt.
func (l *line) keepSent(item string, n int, ref string) error {
	l.mu.Lock()
	l.said = l.c.DB.Time()
	l.mu.Unlock()
	if _, err := l.c.movePiece(context.Background(), item, n, sending, sent, ref); err != nil {
		return fault.New(fault.Unknown, "it was sent, and that could not be recorded: %w", err)
	}
	return nil
}

func (l *line) outgoing(it outbox.Item, at Place, list []piece, i int) Outgoing {
	out := Outgoing{Place: at, Key: pieceKey(it.ID, list[i].n), Piece: list[i].body}
	if i == 0 {
		out.ReplyTo = it.ReplyTo
	}
	if i == len(list)-1 {
		out.Approval = it.Approval
	}
	return out
}

func (l *line) put(ctx context.Context, a Adapter, out Outgoing) (ref string, err error) {
	defer caught(l, "sending", &err)
	return a.Send(ctx, out)
}

// Probe implements outbox.Prober: it finds out what became of the piece in doubt.
func (l *line) Probe(ctx context.Context, it outbox.Item) (outbox.Answer, outbox.Receipt, error) {
	list, err := l.c.readPieces(ctx, it.ID)
	if err != nil {
		return outbox.CannotTell, outbox.Receipt{}, fault.New(fault.Unavailable, "the parts of the message: %w", err)
	}
	doubt := slices.IndexFunc(list, func(p piece) bool { return p.state == sending })
	if doubt < 0 {
		return outcome(list), receiptOf(list), nil
	}
	a, err := l.ready()
	if err != nil {
		return outbox.CannotTell, outbox.Receipt{}, err
	}
	p, ok := a.(Prober)
	if !ok {
		return outbox.CannotTell, outbox.Receipt{}, nil
	}
	at, err := l.place(ctx, it)
	if err != nil {
		return outbox.CannotTell, outbox.Receipt{}, err
	}
	answer, ref, err := l.look(ctx, p, l.outgoing(it, at, list, doubt), time.UnixMicro(list[doubt].at))
	if err != nil || answer == outbox.CannotTell {
		return outbox.CannotTell, outbox.Receipt{}, err
	}
	to := waiting
	if answer == outbox.Happened {
		to = sent
		if another, err := l.refOfAnother(ctx, it, list[doubt].n, ref); err != nil || another {
			return outbox.CannotTell, outbox.Receipt{}, err
		}
	}
	if _, err := l.c.movePiece(ctx, it.ID, list[doubt].n, sending, to, ref); err != nil {
		return outbox.CannotTell, outbox.Receipt{}, fault.New(fault.Unavailable, "what became of part %d: %w", doubt+1, err)
	}
	list[doubt].state, list[doubt].ref = to, ref
	return outcome(list), receiptOf(list), nil
}

// maxLately is how many items of a conversation are looked at for a message that is known.
const maxLately = 20

// refOfAnother reports whether a message is known as another piece of the conversation: where
// networks keep no key of ours, a piece is looked for by its words, and the same words may have
// been said a moment before.
func (l *line) refOfAnother(ctx context.Context, it outbox.Item, n int, ref string) (bool, error) {
	if ref == "" {
		return false, nil
	}
	lately, err := l.c.Outbox.List(ctx, outbox.Filter{Conversation: it.Conversation, Channel: l.name, Limit: maxLately})
	if err != nil {
		return false, fault.New(fault.Unavailable, "what was said lately: %w", err)
	}
	for _, other := range lately {
		list, err := l.c.readPieces(ctx, other.ID)
		if err != nil {
			return false, fault.New(fault.Unavailable, "the parts of what was said lately: %w", err)
		}
		if slices.ContainsFunc(list, func(p piece) bool { return p.ref == ref && (other.ID != it.ID || p.n != n) }) {
			return true, nil
		}
	}
	return false, nil
}

func (l *line) look(ctx context.Context, p Prober, out Outgoing, since time.Time) (answer outbox.Answer, ref string, err error) {
	defer caught(l, "asking what became of a message", &err)
	return p.Probe(ctx, out, since)
}

// outcome of an item none of whose pieces is in doubt: what was not sent is sent next.
func outcome(list []piece) outbox.Answer {
	if allSent(list) {
		return outbox.Happened
	}
	return outbox.DidNotHappen
}

func receiptOf(list []piece) outbox.Receipt {
	if len(list) == 0 {
		return outbox.Receipt{}
	}
	return outbox.Receipt{Ref: list[0].ref}
}
