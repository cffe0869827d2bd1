package pairing

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Bounds of a code.
const (
	codeLen   = 8 // letters of 5 bits
	CodeLife  = 10 * time.Minute
	perSender = 5  // wrong guesses of one sender
	perCode   = 20 // wrong guesses of all
)

// letters are those of a code: no two look alike.
const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Code is a code as the operator is shown it.
type Code struct {
	ID      string
	Text    string // XXXX-XXXX
	Channel string // the only one it is good on; "" for any
	Expires int64  // Unix microseconds
}

// errCode is the answer to every code that is not good, whatever the cause.
var errCode = fault.New(fault.Denied, "this code is not good here").
	WithHint("send the code from ombud channel pair within ten minutes, in a direct chat; each is good once")

// Start makes a code. The one made before is good no longer.
func (p *Pairing) Start(ctx context.Context, channel, by string) (Code, error) {
	raw := make([]byte, codeLen)
	if _, err := rand.Read(raw); err != nil {
		return Code{}, fault.New(fault.Internal, "no system randomness: %w", err)
	}
	for i, b := range raw {
		raw[i] = letters[b&31]
	}
	c := Code{ID: id.New("pair"), Text: string(raw[:4]) + "-" + string(raw[4:]), Channel: channel}
	err := p.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		clock, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		c.Expires = clock + CodeLife.Microseconds()
		if _, err := tx.Exec(ctx, "UPDATE pair_codes SET closed = $1 WHERE closed = 0", tx.Now()); err != nil {
			return err
		}
		// Guesses are only worth keeping while their code is good.
		if _, err := tx.Exec(ctx, "DELETE FROM pair_guesses"); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO pair_codes (id, code, channel, created, expires, closed, wrong) VALUES ($1, $2, $3, $4, $5, 0, 0)",
			c.ID, p.digest(c.ID, c.Text), channel, tx.Now(), c.Expires)
		if err != nil {
			return err
		}
		_, err = p.audit.AppendTx(ctx, tx, audit.Entry{Kind: "pair.started", Actor: by, Subject: c.ID, Outcome: "ok"})
		return err
	})
	return c, err
}

// normal is a code as a person may have typed it.
func normal(text string) string {
	text = strings.ToUpper(strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, text))
	return strings.NewReplacer("O", "0", "I", "1", "L", "1").Replace(text)
}

func (p *Pairing) digest(codeID, text string) []byte {
	return p.vault.MAC("pair.code", []byte(codeID), []byte(normal(text)))
}

// RedeemTx pairs a sender with the operator if text is the code, in the
// transaction of the message that brought it. Every failure is the same Denied,
// which the caller may answer and then commit: that the guess was wrong is counted.
func (p *Pairing) RedeemTx(ctx context.Context, tx *db.Tx, s Sender, name, chat string, group bool, text string) (Identity, error) {
	if err := s.check(); err != nil {
		return Identity{}, err
	}
	clock, err := tx.Clock(ctx)
	if err != nil {
		return Identity{}, err
	}
	var codeID, channel string
	var kept []byte
	var wrong int64
	err = tx.QueryRow(ctx, "SELECT id, code, channel, wrong FROM pair_codes WHERE closed = 0 AND expires > $1", clock).
		Scan(&codeID, &kept, &channel, &wrong)
	if none := errors.Is(err, sql.ErrNoRows); err != nil && !none {
		return Identity{}, err
	} else if none {
		return Identity{}, errCode
	}
	mine, err := p.wrongOf(ctx, tx, codeID, s)
	if err != nil {
		return Identity{}, err
	}
	right := hmac.Equal(p.digest(codeID, text), kept)
	if !right || mine >= perSender || wrong >= perCode || group || chat == "" || channel != "" && channel != s.Channel {
		if err := p.missed(ctx, tx, codeID, s); err != nil {
			return Identity{}, err
		}
		return Identity{}, errCode
	}
	n, err := tx.Exec(ctx, "UPDATE pair_codes SET closed = $1 WHERE id = $2 AND closed = 0", tx.Now(), codeID)
	if err == nil && n == 0 {
		err = errCode
	}
	if err != nil {
		return Identity{}, err
	}
	return p.addTx(ctx, tx, Identity{Sender: s, Standing: Operator, Name: name, Chat: chat, By: codeID})
}

func (p *Pairing) wrongOf(ctx context.Context, tx *db.Tx, codeID string, s Sender) (n int64, err error) {
	err = tx.QueryRow(ctx, "SELECT wrong FROM pair_guesses WHERE code = $1 AND sender = $2", codeID, p.key(s)).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n, err
}

// missed counts a guess. Those of a sender who is shut out count against nobody
// else: one sender cannot use up a code.
func (p *Pairing) missed(ctx context.Context, tx *db.Tx, codeID string, s Sender) error {
	n, err := tx.Exec(ctx, `INSERT INTO pair_guesses (code, sender, wrong) VALUES ($1, $2, 1)
		ON CONFLICT (code, sender) DO UPDATE SET wrong = pair_guesses.wrong + 1 WHERE pair_guesses.wrong < $3`, codeID, p.key(s), perSender)
	if err != nil || n == 0 {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE pair_codes SET wrong = wrong + 1, closed = CASE WHEN wrong + 1 >= $1 THEN $2 ELSE closed END WHERE id = $3`,
		perCode, tx.Now(), codeID)
	return err
}
