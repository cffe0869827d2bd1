package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) conversationsCmd() *cobra.Command {
	var limit int
	list := a.command(spec{
		use:     "list",
		short:   "conversations, last used first",
		example: "ombud conversations list",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.ConversationsList(ctx, wire.ConversationsListRequest{Limit: limit})
		if err != nil {
			return err
		}
		return a.show("conversations/1", res, func(p *page) {
			if len(res.Conversations) == 0 {
				p.line("no conversations")
				return
			}
			t := table{head: []string{"NAME", "CHANNEL", "MESSAGES", "QUEUED", "LAST", "ID"}}
			for _, c := range res.Conversations {
				t.add(short(c.Name, 32), c.Channel, fmt.Sprint(c.Messages), fmt.Sprint(c.Queued), p.clock(c.LastAt), c.ID)
			}
			p.table(t)
		})
	})
	limitFlag(list.Flags(), &limit, 1000, "how many (default 100, at most 1000)")
	reset := a.command(spec{
		use:     "reset [NAME]",
		short:   "start a conversation afresh; nothing is deleted",
		example: "ombud conversations reset\nombud conversations reset work",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		req := wire.ConversationsResetRequest{}
		if len(args) > 0 {
			req.Conversation = args[0]
		}
		res, err := a.client.ConversationsReset(ctx, req)
		if err != nil {
			return err
		}
		return a.show("conversation-reset/1", res, func(p *page) { p.line("%s starts afresh", res.Conversation.Name) })
	})
	return byDefault(a.noun(spec{
		use: "conversations", short: "chats, each with its own order and history",
		example: "ombud conversations\nombud conversations reset work",
	}, list, reset), list)
}
