package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// holds is for how many calls an approval is meant.
type holds struct {
	once, conversation, always bool
	yes                        bool // do not ask whether that is meant
}

func (h *holds) flags(c *cobra.Command) {
	c.Flags().BoolVar(&h.once, "once", false, "for this call alone (the default)")
	c.Flags().BoolVar(&h.conversation, "for-conversation", false, "and for later calls in its conversation that need the same")
	c.Flags().BoolVar(&h.always, "always", false, "and for all later calls that need the same")
	c.Flags().BoolVar(&h.yes, "yes", false, "do not ask whether --always is meant")
}

// standing is what the daemon is asked to keep, after it was shown. What is kept
// for ever is confirmed: by a person on a terminal, by --yes without one.
func (a *app) standing(ctx context.Context, h *holds, id string, deny bool) (string, error) {
	chosen := 0
	for _, set := range []bool{h.once, h.conversation, h.always} {
		if set {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return "", fault.New(fault.Usage, "--once, --for-conversation and --always exclude each other")
	case deny && (h.conversation || h.always):
		return "", fault.New(fault.Usage, "only a yes can hold for later calls").WithHint("ombud caps grant … --deny refuses them all")
	case !h.conversation && !h.always:
		return "", nil
	}
	q, err := a.openApproval(ctx, id)
	if err != nil {
		return "", err
	}
	if q.Form != nil { // before it is said what would stand
		return "", fault.New(fault.Invalid, "%s has to be filled in by a person each time, so no approval of it can stand", oneLine(q.ID)).
			WithHint("approve it for this call alone")
	}
	where, kept := "in every conversation", wire.StandingAlways
	if h.conversation {
		where, kept = "in conversation "+oneLine(q.Conversation), wire.StandingConversation
	}
	a.note("from now on %s is not asked %s about:", oneLine(q.Subject), where)
	for _, s := range q.Scopes {
		a.note("  %s", oneLine(s))
	}
	a.note("take it back with: ombud caps list, ombud caps revoke ID")
	if h.conversation || h.yes {
		return kept, nil
	}
	if !isTerminal(a.stdin) {
		return "", fault.New(fault.Usage, "--always is confirmed on a terminal, or with --yes")
	}
	fmt.Fprint(a.stderr, "always? [y/N] ")
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return "", fault.New(fault.Cancelled, "nothing was approved")
	}
	return kept, nil
}

// openApproval is the one open question whose id begins so.
func (a *app) openApproval(ctx context.Context, id string) (q wire.Approval, err error) {
	const most = 1000
	list, err := a.client.ApprovalsList(ctx, wire.ApprovalsListRequest{Limit: most})
	if err != nil {
		return q, err
	}
	found := 0
	for _, x := range list.Approvals {
		if x.State == "open" && strings.HasPrefix(x.ID, id) {
			q, found = x, found+1
		}
	}
	switch {
	case found == 0 || id == "":
		return q, fault.New(fault.NotFound, "no open question %q", id).WithHint("ombud inbox")
	case found > 1:
		return q, fault.New(fault.Invalid, "several questions begin with %q", id).WithHint("give more of the id")
	}
	return q, nil
}
