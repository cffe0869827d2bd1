package cli

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// longestSent is the longest message, in bytes.
const longestSent = 4 << 20

func (a *app) sendCmd() *cobra.Command {
	var req wire.SendRequest
	var wait time.Duration
	c := a.command(spec{
		use:   "send TO [TEXT]",
		short: "send a message to a chat, as yourself",
		long: `TO is CHANNEL:CHAT or CHANNEL:CHAT/THREAD by the ids of its network, where an adapter of yours is the
channel adapter:NAME; the id of a conversation (ombud conversations); local:NAME or operator. Without TEXT it is read from standard input.
It is in the outbox when this returns, and --wait waits until it has gone out: 75 if it has
not by then, 1 if it will not. The same --key is the same message, however often it is sent.`,
		example: "ombud send telegram:10072 \"the build is green\" --wait 30s\nombud send slack:C0123/1712.001 < report.md",
		args:    cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, args []string) error {
		if wait < 0 {
			return fault.New(fault.Usage, "--wait is a time to wait, not %s", wait)
		}
		req.To = args[0]
		if len(args) == 2 {
			req.Text = args[1]
		} else {
			text, err := io.ReadAll(io.LimitReader(a.stdin, longestSent+1))
			if err != nil {
				return fault.New(fault.Unavailable, "read standard input: %w", err)
			}
			if len(text) > longestSent {
				return fault.New(fault.Invalid, "standard input has more than %d bytes: nothing was sent", longestSent)
			}
			req.Text = strings.TrimRight(string(text), "\n")
		}
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
		res, err := a.client.Send(ctx, req)
		if err == nil && wait > 0 {
			res, err = a.sendWait(ctx, res, wait)
		}
		if err != nil {
			return err
		}
		if err := a.show("send/1", res, func(p *page) { sentPage(p, res) }); err != nil {
			return err
		}
		return sentOutcome(res, wait > 0)
	})
	c.Flags().StringVar(&req.Key, "key", "", "the same `key` is the same message")
	c.Flags().DurationVar(&wait, "wait", 0, "wait so long for it to go out, such as 30s")
	return c
}

// sendWait waits for a message to go out. The daemon waits five minutes at most for one call.
func (a *app) sendWait(ctx context.Context, res wire.SendResult, wait time.Duration) (_ wire.SendResult, err error) {
	for over := time.Now().Add(wait); err == nil; {
		left := min(time.Until(over), 5*time.Minute)
		if left <= 0 || res.State != "queued" && res.State != "sending" {
			return res, nil
		}
		res, err = a.client.SendState(ctx, wire.SendStateRequest{ItemID: res.ItemID, WaitS: int(max(time.Second, left).Seconds())})
	}
	return res, err
}

func sentPage(p *page, res wire.SendResult) {
	switch res.State {
	case "delivered":
		p.line("sent %s", p.faint(oneLine(res.Ref)))
	case "uncertain":
		p.line("%s", p.warn("it may or may not have arrived: "+oneLine(res.Error)))
	case "failed", "skipped":
		p.line("%s", p.warn("it was not sent: "+oneLine(cmp.Or(res.Error, res.State))))
	default:
		p.line("in the outbox as %s %s", oneLine(res.ItemID), p.faint(oneLine(res.Error)))
	}
}

func sentOutcome(res wire.SendResult, waited bool) error {
	switch {
	case res.State == "failed", res.State == "skipped":
		return fault.New(fault.Conflict, "it was not sent, and is not tried again by itself").WithHint("ombud dlq shows what can be done")
	case res.State == "uncertain":
		return fault.New(fault.Unknown, "it may or may not have arrived").WithHint("ombud dlq shows what can be done; it is not sent again by itself")
	case waited && res.State != "delivered":
		return fault.New(fault.Unavailable, "it has not gone out yet").WithHint("it is tried again by itself; ombud channel list tells how the channel stands")
	}
	return nil
}
