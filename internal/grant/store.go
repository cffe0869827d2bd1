package grant

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/vault"
)

// versionKey is the row that changes with every change, so that a reader knows
// from one row whether what it keeps in memory still holds.
const versionKey = "grants.version"

const columns = "id, subject, effect, conversation, expires, body, revoked, revoked_by"

// body is the sealed whole of a grant.
type body struct {
	Subject      string `json:"subject"`
	Scope        string `json:"scope"`
	Effect       Effect `json:"effect"`
	Conversation string `json:"conversation,omitempty"`
	Origin       string `json:"origin"`
	By           string `json:"by"`
	At           int64  `json:"at"`
	Expires      int64  `json:"expires,omitempty"`
}

func (g *Grants) sealed(x Grant) ([]byte, error) {
	raw, err := json.Marshal(body{x.Subject, x.Scope.String(), x.Effect, x.Conversation, x.Origin, x.By, x.At, x.Expires})
	if err != nil {
		return nil, fault.New(fault.Internal, "grant %s: %w", x.ID, err)
	}
	return g.vault.Seal(vault.GrantBody, x.ID, raw), nil
}

func (g *Grants) scan(scan func(...any) error) (x Grant, err error) {
	var raw []byte
	if err := scan(&x.ID, &x.Subject, &x.Effect, &x.Conversation, &x.Expires, &raw, &x.Revoked, &x.RevokedBy); err != nil {
		return x, err
	}
	plain, err := g.vault.Open(vault.GrantBody, x.ID, raw)
	if err != nil {
		return x, err
	}
	var b body
	if err := json.Unmarshal(plain, &b); err != nil {
		return x, fault.New(fault.Verification, "grant %s: %w", x.ID, err)
	}
	if b.Subject != x.Subject || b.Effect != x.Effect || b.Conversation != x.Conversation || b.Expires != x.Expires {
		return x, fault.New(fault.Verification, "grant %s: the row was changed after it was sealed", x.ID)
	}
	x.Origin, x.By, x.At = b.Origin, b.By, b.At
	// A base that this ombud does not know is the zero scope, which matches nothing.
	if x.Scope, err = scope.Parse(b.Scope); err != nil && x.Effect != Allow && x.Effect != Standing {
		return x, fault.New(fault.Verification, "grant %s takes away %q, which this ombud cannot read: %w", x.ID, b.Scope, err)
	}
	return x, nil
}

func (g *Grants) insert(ctx context.Context, tx *db.Tx, x Grant) error {
	raw, err := g.sealed(x)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO grants (id, subject, effect, scope, conversation, expires, body, revoked, revoked_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '')`,
		x.ID, x.Subject, string(x.Effect), g.vault.Blind(vault.GrantScope, x.Scope.String()), x.Conversation, x.Expires, raw)
	return err
}

// same returns the unrevoked grant of the same subject, conversation, effect and
// scope, if there is one.
func (g *Grants) same(ctx context.Context, tx *db.Tx, n New) (Grant, bool, error) {
	x, err := g.scan(tx.QueryRow(ctx, "SELECT "+columns+` FROM grants
		WHERE subject = $1 AND conversation = $2 AND effect = $3 AND scope = $4 AND revoked = 0`,
		n.Subject, n.Conversation, string(n.Effect), g.vault.Blind(vault.GrantScope, n.Scope.String())).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return x, false, nil
	}
	return x, err == nil, err
}

func (g *Grants) load(ctx context.Context, q db.Q, id string) (Grant, error) {
	x, err := g.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM grants WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.New(fault.NotFound, "no grant %q", clip(id)).WithHint("ombud caps list")
	}
	return x, err
}

// Find returns the id of the one grant that begins with prefix. It does not open
// the row, so that a damaged one can be revoked. Errors: NotFound, Invalid if
// several do.
func (g *Grants) Find(ctx context.Context, prefix string) (string, error) {
	var ids []string
	err := g.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], "SELECT id FROM grants WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 2",
			prefix, id.Behind(prefix))
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0 || prefix == "":
		return "", fault.New(fault.NotFound, "no grant %q", clip(prefix)).WithHint("ombud caps list")
	case len(ids) > 1:
		return "", fault.New(fault.Invalid, "several grants begin with %q", clip(prefix)).WithHint("give more of the id")
	}
	return ids[0], nil
}

// Get returns a grant.
func (g *Grants) Get(ctx context.Context, id string) (out Grant, err error) {
	err = g.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = g.load(ctx, q, id)
		return err
	})
	return out, err
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	Subject string
	Ended   bool   // revoked ones too
	Before  string // an id, exclusive, to go on behind
	Limit   int    // default 100, at most 1000
}

// List returns grants, the newest first.
func (g *Grants) List(ctx context.Context, f Filter) (out []Grant, err error) {
	where, args := []string{"1 = 1"}, []any{}
	narrow := func(condition, value string) {
		if value != "" {
			args = append(args, value)
			where = append(where, condition+strconv.Itoa(len(args)))
		}
	}
	narrow("subject = $", f.Subject)
	narrow("id < $", f.Before)
	if !f.Ended {
		where = append(where, "revoked = 0")
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	args = append(args, min(f.Limit, maxLive))
	err = g.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Grant, error) { return g.scan(r.Scan) },
			"SELECT "+columns+" FROM grants WHERE "+strings.Join(where, " AND ")+" ORDER BY id DESC LIMIT $"+strconv.Itoa(len(args)), args...)
		return err
	})
	return out, err
}

// levelBody is the sealed whole of a level.
type levelBody struct {
	Level policy.Level `json:"level"`
	By    string       `json:"by"`
	At    int64        `json:"at"`
}

func levelRow(subject, area string) string { return subject + "\x00" + area }

func (g *Grants) scanLevel(r *db.Rows) (l Level, err error) {
	var raw []byte
	if err := r.Scan(&l.Subject, &l.Area, &raw); err != nil {
		return l, err
	}
	plain, err := g.vault.Open(vault.LevelBody, levelRow(l.Subject, l.Area), raw)
	if err != nil {
		return l, err
	}
	var b levelBody
	if err := json.Unmarshal(plain, &b); err != nil {
		return l, fault.New(fault.Verification, "level of %s: %w", l.Subject, err)
	}
	l.Level, l.By, l.At = b.Level, b.By, b.At
	return l, nil
}

func (g *Grants) levels(ctx context.Context, q db.Q, subject string) ([]Level, error) {
	return db.All(ctx, q, g.scanLevel, "SELECT subject, area, body FROM levels WHERE subject = $1 ORDER BY area", subject)
}

// LevelsOf returns the levels set for a subject, the one for all areas first.
func (g *Grants) LevelsOf(ctx context.Context, subject string) (out []Level, err error) {
	err = g.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = g.levels(ctx, q, subject)
		return err
	})
	return out, err
}

// Usual is the level where none is set.
func (g *Grants) Usual() policy.Level { return g.usual }

func encodeLevel(l Level) ([]byte, error) {
	raw, err := json.Marshal(levelBody{l.Level, l.By, l.At})
	if err != nil {
		return nil, fault.New(fault.Internal, "level of %s: %w", l.Subject, err)
	}
	return raw, nil
}
