package channel

import (
	"context"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/policy"
)

// Askers are the agents, as far as a message is judged with them.
type Askers interface {
	// PressTx decides a question by a button, and says what came of it.
	PressTx(ctx context.Context, tx *db.Tx, approval string, yes bool, by string) (notice string, err error)
	// NoticeTx tells the operator, once for each cause.
	NoticeTx(ctx context.Context, tx *db.Tx, cause, text string) error
}

// Judging is the one rule set by which messages are judged, whatever network they come
// from and whoever carries them.
type Judging struct {
	Channel  string
	Account  string // ombud's own, on the network
	Named    bool   // the account is named where somebody is allowed: the channel has none of its own
	Settings Settings
	Senders  Senders
	Agents   Askers
	Unknown  *Unknown // of the channel
	Now      time.Time
}

// Inbound is a message as the agents take it, not yet judged.
func Inbound(channel, account string, m Received) agent.Inbound {
	in := agent.Inbound{
		Address: agent.Address{Channel: channel, Account: account, Chat: m.Chat, Thread: m.Thread, Group: m.Group},
		Title:   m.Title, Sender: m.Sender, SenderName: m.SenderName, Text: m.Text, Written: m.At, Key: m.Chat + "\x00" + m.ID,
		Source: label.Untrusted(channel + "/" + m.Sender), Tier: policy.Untrusted,
	}
	if in.Title == "" && !m.Group {
		in.Title = m.SenderName
	}
	if m.Group {
		in.Ref = m.ID
	}
	return in
}

// Judge decides, in the transaction that takes a message in, who sent it and whether it is
// for ombud. A message that settles something is answered with the notice and starts no
// turn.
func (j Judging) Judge(ctx context.Context, tx *db.Tx, m Received, in *agent.Inbound) (notice string, settled bool, err error) {
	said := Said{
		Sender: pairing.Sender{Channel: j.Channel, Account: j.Account, User: m.Sender}, Name: m.SenderName, Chat: m.Chat, Group: m.Group,
	}
	if code, is := PairCode(m.Text); is && !m.Bot && m.Press == nil {
		in.Text = Redacted
		if m.Group { // a code that others have read is good no longer to anybody's mind; it is not tried
			in.Overheard = true
			return "", false, nil
		}
		return j.pair(ctx, tx, said, code, in)
	}
	who, err := j.Senders.Of(ctx, tx, said.Sender)
	if err != nil {
		return "", false, err
	}
	said.Rank(who, in)
	if m.Forwarded { // whoever passes a stranger's words on does not make them an order
		in.Source, in.Control = label.Untrusted(j.Channel+"/forwarded"), false
	}
	if m.Press != nil {
		return j.press(ctx, tx, m, in)
	}
	why := Addressed(m, j.Settings.Groups[m.Chat])
	if why != NotAsked && who.Standing == pairing.Stranger && !j.Settings.answers(m.Group) {
		why = NotAsked
		if err := j.tellOfStranger(ctx, tx, m); err != nil {
			return "", false, err
		}
	}
	in.Addressed, in.Overheard = string(why), why == NotAsked
	if in.Overheard {
		in.Control = false
	}
	return "", false, nil
}

// pair tries a code. Wrong ones are answered so often within an hour, and no more: whoever
// guesses on is an event, and the operator is told once.
func (j Judging) pair(ctx context.Context, tx *db.Tx, said Said, code string, in *agent.Inbound) (notice string, settled bool, err error) {
	notice, wrong, err := said.Pair(ctx, tx, j.Senders, code)
	if err != nil || !wrong {
		return notice, err == nil, err
	}
	answer, tell := j.Unknown.Wrong(said.User, j.Now)
	if answer {
		return notice, true, nil
	}
	in.Overheard = true
	if !tell {
		return "", false, nil
	}
	err = j.Agents.NoticeTx(ctx, tx, id.New("chn"), "Somebody tries pairing codes on "+j.Channel+", the last was "+word(said.User)+
		". They are not answered for an hour. Only a code that ombud channel pair made is good, for ten minutes and once, and twenty wrong ones end it.")
	return "", false, err
}

func (j Judging) press(ctx context.Context, tx *db.Tx, m Received, in *agent.Inbound) (notice string, settled bool, err error) {
	if !in.Control {
		in.Overheard = true // only the operator decides
		return "", false, nil
	}
	in.Addressed = string(Pressed)
	notice, err = j.Agents.PressTx(ctx, tx, m.Press.Approval, m.Press.Yes, "operator@"+j.Channel)
	return notice, err == nil, err
}

// tellOfStranger tells the operator, once for each, that somebody unknown wrote.
func (j Judging) tellOfStranger(ctx context.Context, tx *db.Tx, m Received) error {
	if !j.Unknown.MayTell(m.Sender, j.Now) {
		return nil // they are told when the stranger writes again, or were
	}
	allow := "ombud channel allow " + j.Channel + " " + word(m.Sender)
	if j.Named && j.Account != "" {
		allow += " --account " + word(j.Account)
	}
	err := j.Agents.NoticeTx(ctx, tx, "stranger:"+j.Channel+":"+m.Sender,
		"Somebody you do not know wrote on "+j.Channel+", and was not answered: "+word(m.Sender)+". To have them answered: "+allow)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.Invalid) {
		return nil // it was said before
	}
	return err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_][A-Za-z0-9@%+=:,./_-]*$`)

// word is an id as one word of a shell: a stranger chooses it on some networks, and the
// operator is asked to paste it.
func word(id string) string {
	id = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, id)
	if plainWord.MatchString(id) {
		return id
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}
