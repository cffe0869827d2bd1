package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/wire"
)

// maxText is what message.send takes.
const maxText = 1 << 20

// How often a daemon that was lost is looked for before giving up, and how long
// between: a daemon that dies of the same message again and again is not helped
// by the fifth start.
const (
	maxLost  = 4
	lostWait = 250 * time.Millisecond
)

// errAsked ends a watch because the person has to decide first.
var errAsked = errors.New("a decision is needed")

// send puts a message into a conversation. Its key makes it one message however
// often it has to be sent: when the daemon is lost before it answered, another
// one is found or started and asked again.
func (a *app) send(ctx context.Context, conversation, text string) (wire.MessageSendResult, error) {
	req := wire.MessageSendRequest{Conversation: conversation, Text: text, Key: id.New("cli")}
	var res wire.MessageSendResult
	taken := false // perhaps: it went out and nothing came back
	err := a.persist(ctx, func() (err error) {
		res, err = a.client.MessageSend(ctx, req)
		taken = taken || isLost(err) && !errors.Is(err, wire.ErrNoDaemon)
		return err
	})
	if err != nil && taken {
		err = fault.New(fault.ClassOf(err), "%w; whether the message was stored is not known", err).
			WithHint("look at ombud runs before you send it again")
	}
	return res, err
}

// watch follows a turn to its end, over the deaths of daemons too; again is called
// when it begins anew. It ends with errAsked when view says so.
func (a *app) watch(ctx context.Context, run string, view func(wire.TurnNote) error, again func()) (wire.TurnResult, error) {
	var res wire.TurnResult
	first := true
	err := a.persist(ctx, func() (err error) {
		if !first {
			again()
		}
		first = false
		res, err = a.client.TurnWatch(ctx, wire.TurnWatchRequest{RunID: run}, view)
		return err
	})
	return res, err
}

// persist makes a call that may be made again, until a daemon answers it. A
// daemon that answers "unavailable" gets one more chance: it may be stopping.
func (a *app) persist(ctx context.Context, call func() error) error {
	for lost, refused := 0, 0; ; {
		err := call()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return whyEnded(ctx)
		case isLost(err) && lost < maxLost:
			lost++
		case fault.Is(err, fault.Unavailable) && refused == 0:
			refused++
		default:
			return err
		}
		if n := lost + refused; n > 1 || refused > 0 { // one death is followed at once
			wait := time.NewTimer(lostWait << n)
			select {
			case <-ctx.Done():
				wait.Stop()
				return whyEnded(ctx)
			case <-wait.C:
			}
		}
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
	}
}

// whyEnded says why a context ended: its cause, if it was given one, is for people.
func whyEnded(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return fault.New(fault.Cancelled, "interrupted")
	}
	return cause
}

// isLost reports whether a call failed because of the connection, not because of
// what the daemon answered.
func isLost(err error) bool {
	if errors.Is(err, wire.ErrNoDaemon) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	_, network := errors.AsType[*net.OpError](err)
	return network
}

// turnError is how a turn that ended otherwise than completed is told; nil for
// one that completed. The class decides the exit code.
func turnError(res wire.TurnResult) error {
	var class fault.Class
	var text string
	switch res.Outcome {
	case "completed":
		return nil
	case "cancelled":
		class, text = fault.Cancelled, "the turn was cancelled"
	case "timed_out":
		class, text = fault.Timeout, "the turn ran out of time"
	case "over_budget":
		class, text = fault.Denied, "the budget does not allow more"
	case "parked", "escalated":
		class, text = fault.Waiting, "the turn waits for a person"
	case "step_limit":
		class, text = fault.Conflict, "the turn took all the steps it may take"
	case "looping":
		class, text = fault.Conflict, "the turn repeated itself and was ended"
	default:
		class, text = fault.Conflict, "the turn ended as "+res.Outcome
	}
	hint := "ombud explain " + res.RunID
	if p := res.Error; p != nil {
		if text = p.Message; res.Outcome == "failed" {
			class = p.Class
		}
		if p.Hint != "" {
			hint = p.Hint
		}
	}
	return fault.New(class, "%s", text).WithHint("%s", hint)
}

// waiting is the error of a turn that cannot go on before a person decides.
func waiting(n int) error {
	return fault.New(fault.Waiting, "waiting for your decision on %s", plural(int64(n), "call"))
}

// printer shows a reply while it is written and makes sure that in the end the
// recorded one stands there: pieces on the way are hints only.
type printer struct {
	w      io.Writer
	stream bool   // pieces as they come
	shown  string // of the piece of text being written, cleaned
}

func (p *printer) delta(text string) {
	if !p.stream {
		return
	}
	text = guard.CleanText(text)
	p.shown += text
	_, _ = io.WriteString(p.w, text) // the final reply tells of a broken pipe
}

// pause ends the line, before something else is written to the terminal.
func (p *printer) pause() {
	if p.shown != "" && !strings.HasSuffix(p.shown, "\n") {
		_, _ = io.WriteString(p.w, "\n")
	}
	p.shown = ""
}

// finish writes what is missing of the recorded reply.
func (p *printer) finish(reply string) error {
	reply = guard.CleanText(reply)
	rest, ok := strings.CutPrefix(reply, p.shown)
	switch {
	case reply == "" && p.shown == "", ok && rest == "" && strings.HasSuffix(reply, "\n"):
		return nil
	case !ok: // something else was streamed: the whole reply once more, by itself
		p.pause()
		rest = reply
	}
	if !strings.HasSuffix(rest, "\n") {
		rest += "\n"
	}
	p.shown = ""
	_, err := io.WriteString(p.w, rest)
	return outputFault(err)
}
