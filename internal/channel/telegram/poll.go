package telegram

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

const (
	firstPause   = time.Second
	longestPause = time.Minute
	contested    = 30 * time.Second // between polls while another program has the updates
	maxAnswering = 10 * time.Second // to tell Telegram that a press was seen
)

func slogErr(err error) slog.Attr { return slog.String("error", err.Error()) }

// run is one Run of an adapter.
type run struct {
	*adapter
	in channel.Intake

	me       channel.Me
	known    bool  // who the bot is and where to go on from; asked again after trouble
	offset   int64 // the first update that is not committed, 0 for whatever waits
	up       bool  // as was told last
	stuck    bool  // what came in last could not be kept
	taken    bool  // another program had the updates last
	failures int   // in a row
}

// Run polls until ctx ends or Telegram refuses the token. It waits as long as Telegram asks
// it to, and longer from try to try, up to a minute.
func (a *adapter) Run(ctx context.Context, in channel.Intake) error {
	defer a.calls.CloseIdleConnections()
	defer a.polls.CloseIdleConnections()
	r := &run{adapter: a, in: in}
	for {
		err := r.once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			r.failures, r.taken = 0, false
			continue
		case fault.Is(err, fault.Denied):
			return err
		}
		r.up, r.known, r.taken = false, false, fault.Is(err, fault.Conflict)
		in.Down(err)
		if err := a.wait(ctx, r.pause(err)); err != nil {
			return err
		}
	}
}

// pause is how long to wait after an error.
func (r *run) pause(err error) time.Duration {
	if d := retryAfter(err); d > 0 {
		return d
	}
	if r.taken {
		return contested
	}
	d := min(firstPause<<min(r.failures, 16), longestPause)
	r.failures++
	return d
}

// once fetches what waits and hands it over.
func (r *run) once(ctx context.Context) error {
	if !r.known {
		if err := r.begin(ctx); err != nil {
			return err
		}
	}
	updates, err := r.fetch(ctx)
	if err != nil {
		return err
	}
	if !r.stuck {
		r.tellUp()
	}
	r.stuck = true
	if err := r.hand(ctx, updates); err != nil {
		return fault.New(fault.Unavailable, "keep what was written: %w", err)
	}
	r.stuck = false
	r.tellUp()
	return nil
}

func (r *run) tellUp() {
	if !r.up {
		r.in.Up(r.me)
		r.up = true
	}
}

// begin asks who the bot is, and the store where to go on.
func (r *run) begin(ctx context.Context) (err error) {
	if r.me, err = r.Check(ctx); err != nil {
		return err
	}
	cursor, err := r.in.Cursor(ctx)
	if err != nil {
		return fault.New(fault.Unavailable, "read where to go on: %w", err)
	}
	r.offset = r.parse(cursor)
	r.known = true
	return nil
}

// parse reads a cursor, <bot>:<offset>. One of another bot's says nothing: its updates have
// other numbers.
func (r *run) parse(cursor string) int64 {
	bot, text, _ := strings.Cut(cursor, ":")
	offset, err := strconv.ParseInt(text, 10, 64)
	if bot != r.me.ID || err != nil || offset < 0 {
		return 0
	}
	return offset
}

func (r *run) cursor() string { return r.me.ID + ":" + strconv.FormatInt(r.offset, 10) }

type getUpdates struct {
	Offset  int64    `json:"offset,omitempty"`
	Timeout int      `json:"timeout"` // seconds
	Allowed []string `json:"allowed_updates"`
}

// fetch makes a poll. The first one after trouble does not wait, so that it is soon known
// whether all is well; but one that waits is what another program's poll ends.
func (r *run) fetch(ctx context.Context) ([]update, error) {
	p := getUpdates{Offset: r.offset, Allowed: wanted}
	if r.up || r.taken {
		p.Timeout = int(r.poll / time.Second)
	}
	began := r.now()
	var raw []json.RawMessage
	if err := r.do(ctx, r.polls, "getUpdates", p, &raw); err != nil {
		return nil, connected(err)
	}
	if len(raw) == 0 && p.Timeout > 0 && r.now().Sub(began) < firstPause {
		return nil, r.wait(ctx, firstPause) // a gateway that does not let a poll wait is not to be flooded
	}
	updates := make([]update, 0, len(raw))
	for _, one := range raw {
		u, err := decode(one)
		if err != nil || u.ID <= 0 {
			return nil, fault.New(fault.Unavailable, "getUpdates: an update has no id")
		}
		updates = append(updates, u)
	}
	return updates, nil
}

// hand hands updates over in their order. The offset moves with each message that was
// kept, and behind the last with those that are none.
func (r *run) hand(ctx context.Context, updates []update) error {
	committed := true
	for _, u := range updates {
		m, ok := u.received(r.me, r.now())
		r.offset = u.ID + 1
		committed = ok
		if ok {
			m.Cursor = r.cursor()
			if err := r.in.Take(ctx, m); err != nil {
				return err
			}
		}
		r.beside(ctx, u)
	}
	if committed {
		return nil
	}
	return r.in.Advance(ctx, r.cursor())
}

// beside does what an update asks for beside its message.
func (r *run) beside(ctx context.Context, u update) {
	switch {
	case u.broken != nil:
		r.log.WarnContext(ctx, "telegram update cannot be read", "update_id", u.ID, "error", u.broken.Error())
	case u.Press != nil:
		r.answer(ctx, u.Press.ID)
	case u.Message != nil && u.Message.MigrateTo != 0:
		r.log.WarnContext(ctx, "telegram group has become a supergroup", "chat", u.Message.Chat.ID, "supergroup", u.Message.MigrateTo)
	case u.Membership != nil:
		r.log.InfoContext(ctx, "telegram membership of a chat", "chat", u.Membership.Chat.ID, "status", oneLine(fault.Cut(u.Membership.New.Status, maxData)))
	}
}

type callbackAnswer struct {
	ID string `json:"callback_query_id"`
}

// answer tells Telegram that a press was seen, so that the button stops turning. Nothing
// else hangs on it.
func (r *run) answer(ctx context.Context, press string) {
	ctx, cancel := context.WithTimeout(ctx, min(maxAnswering, r.call))
	defer cancel()
	if err := r.do(ctx, r.calls, "answerCallbackQuery", callbackAnswer{press}, nil); err != nil {
		r.log.WarnContext(ctx, "telegram press was not answered", slogErr(err))
	}
}
