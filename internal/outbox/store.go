package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

const columns = `id, seq, conversation, channel, run, ordinal, state, attempts, probes, next_at, owner, queued, since,
	delivered_at, possible_repeat, error_class, body, ref, error`

// aside stands in the place of the number of probes for a queued item that is kept back, and
// that what is not may overtake.
const aside = -1

// ahead is what must not be there for the row o to be claimed: something of its
// conversation in flight, or queued before it. What is kept back comes after all that is not.
const ahead = `(SELECT 1 FROM outbox p WHERE p.conversation = o.conversation AND p.state IN ('queued', 'sending')
	AND (p.state = 'sending' OR p.seq < o.seq AND (p.probes >= 0 OR o.probes < 0) OR p.probes >= 0 AND o.probes < 0))`

// body is the sealed part of an item.
type body struct {
	Recipient string `json:"recipient"`
	Text      string `json:"text"`
	ReplyTo   string `json:"reply_to,omitempty"`
	ChatName  string `json:"chat_name,omitempty"`
	Group     bool   `json:"group,omitempty"`
	Separate  bool   `json:"separate,omitempty"`
	Unasked   bool   `json:"unasked,omitempty"`
	Approval  string `json:"approval,omitempty"`
}

func (o *Outbox) scan(scan func(...any) error) (Item, error) {
	var it Item
	var repeat int64
	var sealed, ref, failure []byte
	err := scan(&it.ID, &it.Seq, &it.Conversation, &it.Channel, &it.Run, &it.Ordinal, &it.State, &it.Attempts, &it.probes,
		&it.NextAt, &it.owner, &it.Queued, &it.since, &it.DeliveredAt, &repeat, &it.ErrorClass, &sealed, &ref, &failure)
	if err != nil {
		return it, err
	}
	it.PossibleRepeat = repeat == 1
	plain, err1 := o.vault.Open(vault.OutboxBody, it.ID, sealed)
	r, err2 := o.open(vault.OutboxRef, it.ID, ref)
	text, err3 := o.open(vault.OutboxError, it.ID, failure)
	if err := errors.Join(err1, err2, err3); err != nil {
		return it, err
	}
	var c body
	if err := json.Unmarshal(plain, &c); err != nil {
		return it, fault.New(fault.Verification, "body of item %s: %w", it.ID, err)
	}
	it.Recipient, it.Text, it.ReplyTo, it.ChatName, it.Group, it.Separate = c.Recipient, c.Text, c.ReplyTo, c.ChatName, c.Group, c.Separate
	it.Unasked, it.Approval = c.Unasked, c.Approval
	it.Ref, it.Error = r, text
	return it, nil
}

func (o *Outbox) item(r *db.Rows) (Item, error) { return o.scan(r.Scan) }

func (o *Outbox) open(f vault.Field, row string, sealed []byte) (string, error) {
	if sealed == nil {
		return "", nil
	}
	plain, err := o.vault.Open(f, row, sealed)
	return string(plain), err
}

// seal keeps the absence of a text visible: "" is NULL.
func (o *Outbox) seal(f vault.Field, row, text string) []byte {
	if text == "" {
		return nil
	}
	return o.vault.Seal(f, row, []byte(text))
}

func (o *Outbox) insert(ctx context.Context, tx *db.Tx, it *Item, digest []byte) error {
	plain, err := json.Marshal(body{it.Recipient, it.Text, it.ReplyTo, it.ChatName, it.Group, it.Separate, it.Unasked, it.Approval})
	if err != nil {
		return fault.New(fault.Internal, "body of item %s: %w", it.ID, err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO outbox (`+columns+`, digest, recipient, lease)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $19, $9, '', $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, 0)
		ON CONFLICT (run, ordinal) DO NOTHING`,
		it.ID, it.Seq, it.Conversation, it.Channel, it.Run, it.Ordinal, it.State, it.Attempts, it.NextAt, it.Queued, it.since,
		it.DeliveredAt, it.ErrorClass, o.vault.Seal(vault.OutboxBody, it.ID, plain), o.seal(vault.OutboxRef, it.ID, it.Ref),
		o.seal(vault.OutboxError, it.ID, it.Error), digest, o.vault.Blind(vault.OutboxRecipient, it.Channel+" "+it.Recipient), it.probes)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, "result %d of %s was put into the outbox meanwhile", it.Ordinal, it.Run)
	}
	return err
}

// same finds the item that already is this result.
func (o *Outbox) same(ctx context.Context, tx *db.Tx, m Message, digest []byte) (Item, bool, error) {
	type twin struct {
		id      string
		ordinal int
		digest  []byte
	}
	twins, err := db.All(ctx, tx, func(r *db.Rows) (t twin, err error) {
		err = r.Scan(&t.id, &t.ordinal, &t.digest)
		return t, err
	}, "SELECT id, ordinal, digest FROM outbox WHERE run = $1 AND (ordinal = $2 OR digest = $3) ORDER BY ordinal", m.Run, m.Ordinal, digest)
	if err != nil {
		return Item{}, false, err
	}
	found := ""
	for _, t := range twins {
		switch {
		case t.ordinal == m.Ordinal && !bytes.Equal(t.digest, digest):
			return Item{}, false, fault.New(fault.Conflict, "result %d of %s is in the outbox with other content", m.Ordinal, m.Run)
		case t.ordinal == m.Ordinal, found == "" && !m.Separate:
			found = t.id
		}
	}
	if found == "" {
		return Item{}, false, nil
	}
	it, err := o.load(ctx, tx, found)
	return it, err == nil, err
}

func (o *Outbox) busy(ctx context.Context, tx *db.Tx, conversation string) (bool, error) {
	var n int64
	err := tx.QueryRow(ctx, `SELECT 1 FROM outbox WHERE conversation = $1 AND state IN ('queued', 'sending') LIMIT 1`, conversation).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return true, err
}

// keptBack reports whether something of the conversation is kept back.
func (o *Outbox) keptBack(ctx context.Context, tx *db.Tx, conversation string) (bool, error) {
	var n int64
	err := tx.QueryRow(ctx, `SELECT count(*) FROM outbox WHERE conversation = $1 AND state IN ('queued', 'sending') AND probes < 0`, conversation).Scan(&n)
	return n > 0, err
}

// errStale is returned when a row is no longer what its mover thinks it is.
var errStale = fault.New(fault.Conflict, "the item was moved meanwhile")

// move changes one row by a function of what it is. The write is guarded: a row
// that somebody else moved is left as it is (errStale).
func (o *Outbox) move(ctx context.Context, tx *db.Tx, id string, change func(it *Item) error) (Item, error) {
	it, err := o.load(ctx, tx, id)
	if err != nil {
		return it, err
	}
	old := it
	if err := change(&it); err != nil {
		return it, err
	}
	n, err := tx.Exec(ctx, `UPDATE outbox SET state = $1, attempts = $2, probes = $3, next_at = $4, owner = $5, since = $6,
			delivered_at = $7, possible_repeat = $8, error_class = $9, ref = $10, error = $11
		WHERE id = $12 AND state = $13 AND owner = $14 AND attempts = $15`,
		it.State, it.Attempts, it.probes, it.NextAt, it.owner, it.since, it.DeliveredAt, flag(it.PossibleRepeat), it.ErrorClass,
		o.seal(vault.OutboxRef, it.ID, it.Ref), o.seal(vault.OutboxError, it.ID, it.Error), id, old.State, old.owner, old.Attempts)
	if err == nil && n == 0 {
		err = errStale
	}
	if err == nil && (old.State == Failed || old.State == Uncertain) {
		err = o.exhume(ctx, tx, &it)
	}
	tx.Notify(topic)
	return it, err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Get returns an item.
func (o *Outbox) Get(ctx context.Context, id string) (it Item, err error) {
	err = o.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		it, err = o.load(ctx, q, id)
		return err
	})
	return it, err
}

func (o *Outbox) load(ctx context.Context, q db.Q, id string) (Item, error) {
	it, err := o.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM outbox WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return it, fault.New(fault.NotFound, "no item %s in the outbox", id)
	}
	return it, err
}

// LastTx returns the last items of a conversation, the newest first.
func (o *Outbox) LastTx(ctx context.Context, tx *db.Tx, conversation string, limit int) ([]Item, error) {
	return db.All(ctx, tx, o.item, "SELECT "+columns+" FROM outbox WHERE conversation = $1 ORDER BY seq DESC LIMIT $2", conversation, limit)
}

// NextTx is the ordinal of the next result of a run that is not its answer, which is 0.
func (o *Outbox) NextTx(ctx context.Context, tx *db.Tx, run string) (n int, err error) {
	err = tx.QueryRow(ctx, "SELECT COALESCE(MAX(ordinal), 0) + 1 FROM outbox WHERE run = $1", run).Scan(&n)
	return n, err
}

// Waiting is how many items of a channel wait to go out.
func (o *Outbox) Waiting(ctx context.Context, channel string) (n int64, err error) {
	err = o.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM outbox WHERE channel = $1 AND state IN ('queued', 'sending')", channel).Scan(&n)
	})
	return n, err
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	State        State
	Conversation string
	Channel      string
	Run          string
	Before       int64 // Seq, exclusive, to go on behind
	Limit        int   // default 100, at most 1000
}

// List returns items, the newest first.
func (o *Outbox) List(ctx context.Context, f Filter) (out []Item, err error) {
	where, args := []string{"1 = 1"}, []any{}
	narrow := func(condition string, value any) {
		args = append(args, value)
		where = append(where, condition+strconv.Itoa(len(args)))
	}
	for _, c := range []struct{ condition, value string }{
		{"state = $", string(f.State)}, {"conversation = $", f.Conversation}, {"channel = $", f.Channel}, {"run = $", f.Run},
	} {
		if c.value != "" {
			narrow(c.condition, c.value)
		}
	}
	if f.Before > 0 {
		narrow("seq < $", f.Before)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args = append(args, min(limit, 1000))
	err = o.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, o.item, "SELECT "+columns+" FROM outbox WHERE "+strings.Join(where, " AND ")+
			" ORDER BY seq DESC LIMIT $"+strconv.Itoa(len(args)), args...)
		return err
	})
	return out, err
}
