package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// shown is how many chats an error names.
const shown = 20

// Place is the address behind adapter:NAME:CHAT or adapter:NAME:CHAT/THREAD, by the ids of
// the adapter's network. An adapter may serve several accounts: a chat that was heard of is
// its account's, and any other the only account's there is. Errors: NotFound if there is no
// such adapter, naming those there are, or if nothing was heard through it yet; Invalid if it
// is no chat, or it is not known which account's, naming the chats that are known.
func (r *Remote) Place(ctx context.Context, q db.Q, to string) (agent.Address, error) {
	name, chat, _ := strings.Cut(strings.TrimPrefix(to, Prefix), ":")
	names, err := db.All(ctx, q, db.Column[string], "SELECT name FROM adapters WHERE removed = 0 ORDER BY name LIMIT 1000")
	if err != nil {
		return agent.Address{}, err
	}
	switch {
	case len(names) == 0:
		return agent.Address{}, fault.New(fault.NotFound, "no adapter %q: none was added", name).WithHint("ombud channel add --external NAME makes one")
	case !slices.Contains(names, name):
		return agent.Address{}, fault.New(fault.NotFound, "no adapter %q; there are: %s%s", name, Prefix, strings.Join(names, ", "+Prefix))
	}
	known, err := r.Conversations.AddressesOn(ctx, q, Prefix+name)
	if err != nil {
		return agent.Address{}, err
	}
	return place(Prefix+name, chat, known)
}

// place is the address behind CHAT or CHAT/THREAD, given those that are known of a channel.
func place(channel, to string, known []agent.Address) (agent.Address, error) {
	if !good(to) {
		return agent.Address{}, fault.New(fault.Invalid, "%s:%s names no chat: it is %s:CHAT or %s:CHAT/THREAD, by the ids of its network", channel, to, channel, channel).
			WithHint("%s", hint(channel, known))
	}
	whole := agent.Address{Channel: channel, Chat: to} // its id may have a slash
	parted := whole
	parted.Chat, parted.Thread, _ = strings.Cut(to, "/")
	for _, ad := range []agent.Address{whole, parted} {
		for _, thread := range []bool{true, false} { // of a chat that is known, another thread
			accounts := accountsOf(known, func(k agent.Address) bool { return k.Chat == ad.Chat && (k.Thread == ad.Thread || !thread) })
			if len(accounts) == 1 && good(ad.Chat) {
				ad.Account = accounts[0]
				return ad, nil
			}
			if len(accounts) > 1 {
				return agent.Address{}, ambiguous(channel, to, known)
			}
		}
	}
	switch accounts := accountsOf(known, func(agent.Address) bool { return true }); {
	case len(accounts) == 0:
		return agent.Address{}, fault.New(fault.NotFound, "nothing was heard through %s yet, so it is not known which account would say it", channel).
			WithHint("once somebody wrote there, their chat is known: ombud conversations")
	case len(accounts) > 1 || !good(parted.Chat) || strings.HasSuffix(to, "/"):
		return agent.Address{}, ambiguous(channel, to, known)
	default:
		parted.Account = accounts[0]
		return parted, nil
	}
}

func good(id string) bool { return strings.TrimSpace(id) != "" && len(id) <= maxPart }

func accountsOf(known []agent.Address, is func(agent.Address) bool) (out []string) {
	for _, k := range known {
		if is(k) && !slices.Contains(out, k.Account) {
			out = append(out, k.Account)
		}
	}
	return out
}

func ambiguous(channel, to string, known []agent.Address) error {
	return fault.New(fault.Invalid, "%s has several accounts, and it is not known which one %q is a chat of", channel, to).WithHint("%s", hint(channel, known))
}

// hint names the chats that are known.
func hint(channel string, known []agent.Address) string {
	if len(known) == 0 {
		return "no chat of it is known yet"
	}
	var list []string
	for _, k := range known[:min(len(known), shown)] {
		text := fmt.Sprintf("%s:%s", channel, k.Chat)
		if k.Thread != "" {
			text += "/" + k.Thread
		}
		if k.Account != "" {
			text += " of the account " + k.Account
		}
		list = append(list, text)
	}
	return "known are: " + strings.Join(list, ", ") + "; ombud conversations has their ids, which are good too"
}
