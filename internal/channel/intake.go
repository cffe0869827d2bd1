package channel

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/outbox"
)

var (
	_ Intake = (*line)(nil)
	_ Intake = hearing{}
)

// hearing is a line as one run of its adapter sees it: what comes after that run was ended,
// by a pause or because another took its place, is not taken. It comes again to the next.
type hearing struct {
	*line
	ctx context.Context //nolint:containedctx // of the run, which is what it stands for
}

func (h hearing) over() error {
	if h.ctx.Err() != nil {
		return fault.New(fault.Unavailable, "the connection to channel %s was ended", h.name)
	}
	return nil
}

// Up implements Intake.
func (h hearing) Up(me Me) {
	if h.over() == nil {
		h.line.Up(me)
	}
}

// Down implements Intake.
func (h hearing) Down(err error) {
	if h.over() == nil {
		h.line.Down(err)
	}
}

// Advance implements Intake.
func (h hearing) Advance(ctx context.Context, cursor string) error {
	if err := h.over(); err != nil {
		return err
	}
	return h.line.Advance(ctx, cursor)
}

// Take implements Intake.
func (h hearing) Take(ctx context.Context, m Received) error {
	if err := h.over(); err != nil {
		return err
	}
	return h.line.Take(ctx, m)
}

// Up implements Intake.
func (l *line) Up(me Me) {
	l.up(me)
	x := l.rowOf()
	if me.ID == "" || x.body.Me.ID == me.ID && x.body.Me.Name == me.Name {
		return
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if x = l.rowOf(); x.removed != 0 {
		return
	}
	x.body.Me = me
	err := l.c.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error { return l.c.putTx(ctx, tx, x) })
	if err != nil {
		l.c.Logger.Warn("keep who ombud is", "channel", l.name, "error", err)
		return
	}
	l.mu.Lock()
	l.row.body.Me = me
	l.mu.Unlock()
}

// Down implements Intake.
func (l *line) Down(err error) {
	if err != nil {
		l.hearing(err)
	}
}

// Cursor implements Intake.
func (l *line) Cursor(ctx context.Context) (string, error) { return l.c.cursor(ctx, l.name) }

// Advance implements Intake.
func (l *line) Advance(ctx context.Context, cursor string) error {
	if cursor == "" {
		return nil
	}
	if l.c.Held() {
		return errHeld
	}
	return l.c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return l.c.cursorTx(ctx, tx, l.name, cursor) })
}

var errHeld = fault.New(fault.Unavailable, "the instance is held")

// Take implements Intake.
func (l *line) Take(ctx context.Context, m Received) error {
	if l.c.Held() {
		return errHeld
	}
	if m.Own || strings.TrimSpace(m.Text) == "" && m.Press == nil {
		return l.Advance(ctx, m.Cursor)
	}
	if err := m.check(); err != nil {
		l.c.Logger.Warn("a message cannot be taken in", "channel", l.name, "error", err)
		return l.Advance(ctx, m.Cursor)
	}
	if _, me := l.settings(); m.MentionsMe {
		m.Text = withoutName(m.Text, me)
	}
	in := l.inbound(m)
	judge, operator := in.Judge, false
	in.Judge = func(ctx context.Context, tx *db.Tx, in *agent.Inbound) (string, bool, error) {
		notice, settled, err := judge(ctx, tx, in)
		operator = in.Control
		return notice, settled, err
	}
	got, err := l.c.Agents.Intake(ctx, in)
	switch {
	case fault.Is(err, fault.Conflict), fault.Is(err, fault.Invalid):
		// It is recorded as far as it can be; that it comes again would change nothing.
		l.c.Logger.Warn("a message was refused", "channel", l.name, "error", err)
		return l.Advance(ctx, m.Cursor)
	case err != nil:
		return err
	case got.Duplicate:
		return l.Advance(ctx, m.Cursor)
	}
	l.mu.Lock()
	l.heard = l.c.DB.Time()
	l.mu.Unlock()
	if m.Press != nil && operator {
		l.pressed(m)
	}
	if got.Run != "" {
		l.follow(got.Run, Place{Chat: m.Chat, Thread: m.Thread}, operator)
	}
	return nil
}

func (m *Received) check() error {
	if m.Press != nil && m.Text == "" {
		m.Text = "(a button)"
	}
	for _, f := range []struct {
		name, value string
		needed      bool
	}{
		{"id", m.ID, true}, {"chat", m.Chat, true}, {"thread", m.Thread, false}, {"sender", m.Sender, true},
	} {
		if f.needed && strings.TrimSpace(f.value) == "" || f.value != "" && !goodID(f.value) {
			return fault.New(fault.Invalid, "its %s is no text of 1 to %d bytes", f.name, maxID)
		}
	}
	m.Title, m.SenderName = short(m.Title), short(m.SenderName)
	return nil
}

// short bounds a name that is only for people.
func short(name string) string {
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "�"), "\x00", "")
	for len(name) > maxID {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// inbound is a message as the agents take it.
func (l *line) inbound(m Received) agent.Inbound {
	set, me := l.settings()
	in := Inbound(l.name, me.ID, m)
	in.Agent = cmp.Or(set.Agent, agent.Default)
	in.Judge = func(ctx context.Context, tx *db.Tx, in *agent.Inbound) (string, bool, error) {
		if m.Cursor != "" {
			if err := l.c.cursorTx(ctx, tx, l.name, m.Cursor); err != nil {
				return "", false, err
			}
		}
		set, me := l.settings()
		return Judging{
			Channel: l.name, Account: me.ID, Settings: set, Senders: l.c.Senders, Agents: l.c.Agents,
			Unknown: &l.unknown, Now: time.UnixMicro(l.c.DB.Time()),
		}.Judge(ctx, tx, m, in)
	}
	return in
}

// Arrived implements Intake.
func (l *line) Arrived(ctx context.Context, key, ref string) error {
	item, n, ok := keyParts(key)
	if !ok || len(ref) > maxID {
		return nil // it is no key of ours
	}
	it, err := l.c.Outbox.Get(ctx, item)
	if fault.Is(err, fault.NotFound) || err == nil && it.Channel != l.name {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := l.c.movePiece(ctx, item, n, sending, sent, ref); err != nil {
		return err
	}
	// A report may come before the answer that was lost: then nothing moved, and all is known.
	list, err := l.c.readPieces(ctx, item)
	if err != nil || it.State != outbox.Uncertain || len(list) == 0 || slices.ContainsFunc(list, func(p piece) bool { return p.state == sending }) {
		return err
	}
	decision := outbox.Resume
	if allSent(list) {
		decision = outbox.Arrived
	}
	_, err = l.c.Outbox.Decide(ctx, item, decision, l.name, "the network said so later")
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// Lost implements Intake.
func (l *line) Lost(ctx context.Context, key, ref, reason string) error {
	item, n, ok := keyParts(key)
	if !ok || ref == "" || len(ref) > maxID {
		return nil // it is no key of ours
	}
	it, err := l.c.Outbox.Get(ctx, item)
	if fault.Is(err, fault.NotFound) || err == nil && it.Channel != l.name {
		return nil
	}
	if err != nil {
		return err
	}
	if it.State == outbox.Queued || it.State == outbox.Sending {
		return fault.New(fault.Unavailable, "the rest of item %s is not sent yet: the report has to come again", item)
	}
	err = l.c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		list, err := l.c.pieces(ctx, tx, item)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(p piece) bool { return p.n == n && p.state == sent && p.ref == ref })
		if i < 0 || it.State != outbox.Delivered {
			l.c.Logger.Warn("a message did not arrive after all", "channel", l.name, "item", item, "state", string(it.State), "reason", reason)
			return nil // of an earlier try; or a person decides about the whole of it
		}
		// Who wants it sent again sends this piece, and those that arrived stay.
		if _, err := tx.Exec(ctx, "UPDATE channel_pieces SET state = $1, ref = NULL, at = $2 WHERE item = $3 AND n = $4", waiting, tx.Now(), item, n); err != nil {
			return err
		}
		return l.c.Outbox.LostTx(ctx, tx, item, fault.New(fault.Denied, "the network took it, and said later that it did not arrive: %s", reason))
	})
	if fault.Is(err, fault.Conflict) {
		return nil // it was moved meanwhile
	}
	return err
}

// notice tells the operator of the channel's health, with the event and its record.
func (l *line) notice(kind, reason, text string) {
	err := l.c.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := l.c.Log.AppendTx(ctx, tx, eventlog.New{
			Stream: "channel:" + l.name, Kind: kind, Actor: "ombud", Expect: eventlog.Any, Data: healthData{Name: l.name, Reason: reason},
		})
		if err == nil {
			_, err = l.c.Audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: "ombud", Subject: "channel:" + l.name, Outcome: "ok"})
		}
		if err == nil {
			err = l.c.Agents.NoticeTx(ctx, tx, id.New("chn"), text)
		}
		return err
	})
	if err != nil {
		l.c.Logger.Warn("tell of a channel's health", "channel", l.name, "error", err)
	}
}
