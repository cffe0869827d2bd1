package channel

import (
	"context"
	"regexp"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
)

// Senders says who a sender is, and takes a pairing code.
type Senders interface {
	Of(ctx context.Context, q db.Q, s pairing.Sender) (pairing.Identity, error)
	OperatorChats(ctx context.Context, q db.Q, channel string) ([]pairing.Identity, error)
	OperatorChat(ctx context.Context, q db.Q, channel, account, chat string) (pairing.Identity, error)
	RedeemTx(ctx context.Context, tx *db.Tx, s pairing.Sender, name, chat string, group bool, text string) (pairing.Identity, error)
}

// Said is what of a message its authority depends on, and nothing it says.
type Said struct {
	pairing.Sender
	Name  string
	Chat  string
	Group bool
}

// Rank sets what a message may do by who sent it. The operator is the one reader of the
// direct chat they were paired in; elsewhere they are somebody known.
func (s Said) Rank(i pairing.Identity, in *agent.Inbound) {
	switch {
	case i.OperatorIn(s.Chat, s.Group):
		in.Tier, in.Source, in.Audience, in.Control = policy.Paired, label.Operator, label.OperatorOnly, true
	case i.Standing != pairing.Stranger:
		in.Tier = policy.SemiTrusted
	}
}

// Redacted stands in the record for a message that held a pairing code.
const Redacted = "/pair (code)"

// bare is a code without the slash, which some networks keep for themselves.
var bare = regexp.MustCompile(`(?i)^\s*pair\s+([0-9A-Z]{4}-?[0-9A-Z]{4})\s*$`)

// PairCode returns the code of a message that is a /pair.
func PairCode(text string) (string, bool) {
	if m := bare.FindStringSubmatch(text); m != nil {
		return m[1], true
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return "", false
	}
	command, _, _ := strings.Cut(words[0], "@") // as networks write a command to somebody
	if !strings.EqualFold(command, "/pair") {
		return "", false
	}
	return strings.Join(words[1:], ""), true
}

// Pair uses a code up, and says what the sender is told. wrong says that it was none.
func (s Said) Pair(ctx context.Context, tx *db.Tx, senders Senders, code string) (notice string, wrong bool, err error) {
	_, err = senders.RedeemTx(ctx, tx, s.Sender, s.Name, s.Chat, s.Group, code)
	if fault.Is(err, fault.Denied) {
		return "This code is not good here. It has to be sent in a direct chat, within ten minutes, and works once.", true, nil
	}
	if err != nil {
		return "", false, err
	}
	return "Paired: you are the operator in this chat. Reading is free here; what changes something asks you first.", false, nil
}
