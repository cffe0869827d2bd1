package channel

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// Kinds of event, on the stream channel:<name>.
const (
	KindAdded   = "channel.added"
	KindChanged = "channel.changed"
	KindRemoved = "channel.removed"
	KindTrouble = "channel.trouble"
	KindWorks   = "channel.works"
)

// row is a channel as it is kept.
type row struct {
	name    string
	kind    string
	body    body
	paused  bool
	added   int64 // Unix µs
	removed int64 // 0 while it is not
}

// body is the sealed part of a channel.
type body struct {
	Name     string   `json:"name"`
	Settings Settings `json:"settings"`
	Me       Me       `json:"me"` // as the network said last
	By       string   `json:"by"`
}

func (c *Channels) rows(ctx context.Context) (list []row, err error) {
	err = c.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err = db.All(ctx, q, func(r *db.Rows) (x row, err error) {
			var paused int64
			var sealed []byte
			if err := r.Scan(&x.name, &x.kind, &sealed, &paused, &x.added, &x.removed); err != nil {
				return x, err
			}
			x.paused = paused != 0
			x.body, err = c.openBody(x.name, sealed)
			return x, err
		}, "SELECT name, kind, body, paused, added, removed FROM channels ORDER BY name LIMIT 1000")
		return err
	})
	return list, err
}

func (c *Channels) openBody(name string, sealed []byte) (b body, err error) {
	plain, err := c.Vault.Open(vault.ChannelBody, name, sealed)
	if err == nil {
		err = json.Unmarshal(plain, &b)
	}
	if err == nil && b.Name != name {
		err = fault.New(fault.Verification, "the row of channel %s is not what was stored", name)
	}
	return b, err
}

// insertTx writes a channel that was not there, or was removed. Conflict if there is one.
func (c *Channels) insertTx(ctx context.Context, tx *db.Tx, x row) error {
	sealed, err := c.sealBody(x)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `INSERT INTO channels (name, kind, body, cursor, paused, added, removed) VALUES ($1, $2, $3, NULL, 0, $4, 0)
		ON CONFLICT (name) DO UPDATE SET kind = $2, body = $3, cursor = NULL, paused = 0, added = $4, removed = 0 WHERE channels.removed <> 0`,
		x.name, x.kind, sealed, x.added)
	if err == nil && n == 0 {
		err = errTaken(x.name)
	}
	return err
}

// putTx writes a channel that is there. NotFound if it was removed meanwhile.
func (c *Channels) putTx(ctx context.Context, tx *db.Tx, x row) error {
	sealed, err := c.sealBody(x)
	if err != nil {
		return err
	}
	paused := int64(0)
	if x.paused {
		paused = 1
	}
	n, err := tx.Exec(ctx, "UPDATE channels SET body = $1, paused = $2, removed = $3 WHERE name = $4 AND removed = 0", sealed, paused, x.removed, x.name)
	if err == nil && n == 0 {
		err = fault.New(fault.NotFound, "channel %s was removed", x.name)
	}
	return err
}

func (c *Channels) sealBody(x row) ([]byte, error) {
	x.body.Name = x.name
	plain, err := json.Marshal(x.body)
	if err != nil {
		return nil, fault.New(fault.Internal, "body of channel %s: %w", x.name, err)
	}
	return c.Vault.Seal(vault.ChannelBody, x.name, plain), nil
}

// tellTx leaves the event of a change and its record.
func (c *Channels) tellTx(ctx context.Context, tx *db.Tx, x row, kind, by string) error {
	_, err := c.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "channel:" + x.name, Kind: kind, Actor: by, Expect: eventlog.Any,
		Data: changeData{Name: x.name, Kind: x.kind, Paused: x.paused, Settings: x.body.Settings},
	})
	if err != nil {
		return err
	}
	_, err = c.Audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: "channel:" + x.name, Outcome: "ok"})
	return err
}

// changeData is the payload of channel.added, channel.changed and channel.removed.
type changeData struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Paused   bool     `json:"paused"`
	Settings Settings `json:"settings"`
}

// healthData is the payload of channel.trouble and channel.works.
type healthData struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
}

func (c *Channels) cursor(ctx context.Context, name string) (cursor string, err error) {
	err = c.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		var sealed []byte
		if err := q.QueryRow(ctx, "SELECT cursor FROM channels WHERE name = $1", name).Scan(&sealed); err != nil || sealed == nil {
			return err
		}
		plain, err := c.Vault.Open(vault.ChannelCursor, name, sealed)
		cursor = string(plain)
		return err
	})
	return cursor, err
}

func (c *Channels) cursorTx(ctx context.Context, tx *db.Tx, name, cursor string) error {
	_, err := tx.Exec(ctx, "UPDATE channels SET cursor = $1 WHERE name = $2", c.Vault.Seal(vault.ChannelCursor, name, []byte(cursor)), name)
	return err
}

// The states of a piece.
const (
	waiting = "waiting" // it surely was not sent
	sending = "sending" // a send was begun, and what came of it is not known
	sent    = "sent"
)

// piece is a part of an item of the outbox.
type piece struct {
	n     int
	body  markup.Piece
	state string
	ref   string
	at    int64 // when it came into its state, Unix µs
}

func (c *Channels) pieces(ctx context.Context, q db.Q, item string) ([]piece, error) {
	return db.All(ctx, q, func(r *db.Rows) (p piece, err error) {
		var sealed, ref []byte
		if err := r.Scan(&p.n, &sealed, &p.state, &ref, &p.at); err != nil {
			return p, err
		}
		plain, err1 := c.Vault.Open(vault.ChannelPiece, pieceKey(item, p.n), sealed)
		if ref != nil {
			plainRef, err := c.Vault.Open(vault.ChannelRef, pieceKey(item, p.n), ref)
			err1, p.ref = errors.Join(err1, err), string(plainRef)
		}
		if err1 != nil {
			return p, err1
		}
		return p, json.Unmarshal(plain, &p.body)
	}, "SELECT n, body, state, ref, at FROM channel_pieces WHERE item = $1 ORDER BY n", item)
}

// keepPieces keeps the parts an item was rendered to, unless it has some.
func (c *Channels) keepPieces(ctx context.Context, item string, rendered []markup.Piece) (list []piece, err error) {
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if list, err = c.pieces(ctx, tx, item); err != nil || len(list) > 0 {
			return err
		}
		for n, p := range rendered {
			plain, err := json.Marshal(p)
			if err != nil {
				return fault.New(fault.Internal, "piece %d of %s: %w", n, item, err)
			}
			_, err = tx.Exec(ctx, "INSERT INTO channel_pieces (item, n, body, state, ref, at) VALUES ($1, $2, $3, $4, NULL, $5)",
				item, n, c.Vault.Seal(vault.ChannelPiece, pieceKey(item, n), plain), waiting, tx.Now())
			if err != nil {
				return err
			}
			list = append(list, piece{n: n, body: p, state: waiting, at: tx.Now()})
		}
		return nil
	})
	return list, err
}

// movePiece records what became of a piece. It reports false if the piece is not in the
// state it is moved from.
func (c *Channels) movePiece(ctx context.Context, item string, n int, from, to, ref string) (moved bool, err error) {
	var sealed []byte
	if ref != "" {
		sealed = c.Vault.Seal(vault.ChannelRef, pieceKey(item, n), []byte(ref))
	}
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		changed, err := tx.Exec(ctx, "UPDATE channel_pieces SET state = $1, ref = $2, at = $3 WHERE item = $4 AND n = $5 AND state = $6",
			to, sealed, tx.Now(), item, n, from)
		moved = changed > 0
		return err
	})
	return moved, err
}

// Forget drops the parts of messages that went out long ago.
func (c *Channels) Forget(ctx context.Context) error {
	const month = int64(30 * 24 * 3600 * 1e6)
	before := c.DB.Time() - month
	_, err := c.DB.Drain(ctx, `DELETE FROM channel_pieces WHERE item IN (SELECT p.item FROM channel_pieces p JOIN outbox o ON o.id = p.item
		WHERE p.at < $1 AND o.state IN ('delivered', 'skipped') ORDER BY p.at LIMIT 1000)`, before)
	if err == nil { // those of previews are of no item
		_, err = c.DB.Drain(ctx, `DELETE FROM channel_pieces WHERE item IN (SELECT item FROM channel_pieces WHERE at < $1 AND item LIKE $2 ORDER BY at LIMIT 1000)`,
			before, previewItem("%"))
	}
	return err
}
