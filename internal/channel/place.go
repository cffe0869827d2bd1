package channel

import (
	"context"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

var _ agent.Places = (*Channels)(nil)

// Place implements agent.Places: CHANNEL:CHAT or CHANNEL:CHAT/THREAD, by the ids of the
// channel's network.
func (c *Channels) Place(_ context.Context, _ db.Q, to string) (agent.Address, error) {
	name, rest, _ := strings.Cut(to, ":")
	l, err := c.line(name)
	if err != nil {
		return agent.Address{}, err
	}
	chat, thread, _ := strings.Cut(rest, "/")
	if !goodID(chat) || thread != "" && !goodID(thread) {
		return agent.Address{}, fault.New(fault.Invalid, "%q names no chat: it is %s:CHAT or %s:CHAT/THREAD, by the ids of its network", to, name, name)
	}
	_, me := l.settings()
	if me.ID == "" {
		return agent.Address{}, fault.New(fault.Unavailable, "channel %s has not connected yet", name)
	}
	return agent.Address{Channel: name, Account: me.ID, Chat: chat, Thread: thread}, nil
}

// Operators implements agent.Places.
func (c *Channels) Operators(ctx context.Context, q db.Q, ad agent.Address) (bool, error) {
	_, err := c.Senders.OperatorChat(ctx, q, ad.Channel, ad.Account, ad.Chat)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Told implements agent.Places: the operator's chats on the channels that are set to it.
func (c *Channels) Told(ctx context.Context, q db.Q) (out []agent.Address, err error) {
	for _, l := range c.telling() {
		list, err := c.Senders.OperatorChats(ctx, q, l.name)
		if err != nil {
			return nil, err
		}
		_, me := l.settings()
		for _, i := range list {
			if i.Account != me.ID { // it was paired with another account, which is gone
				continue
			}
			out = append(out, agent.Address{Channel: i.Channel, Account: i.Account, Chat: i.Chat})
		}
	}
	return out, nil
}

// telling are the channels in which the operator wants to be told, in order.
func (c *Channels) telling() (lines []*line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if x := l.rowOf(); x.removed == 0 && x.body.Settings.Notices {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b *line) int { return strings.Compare(a.name, b.name) })
	return lines
}
