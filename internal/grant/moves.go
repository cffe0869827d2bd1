package grant

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/vault"
)

// Changed is the payload of grant.added and grant.revoked.
type Changed struct {
	ID           string `json:"grant_id"`
	Subject      string `json:"subject"`
	Scope        string `json:"scope"`
	Effect       Effect `json:"effect"`
	Conversation string `json:"conversation,omitempty"`
	Origin       string `json:"origin"`
	Expires      int64  `json:"expires_at,omitempty"`
	Why          string `json:"why,omitempty"` // of a revocation
}

// LevelSet is the payload of level.set; an empty level was taken back.
type LevelSet struct {
	Subject string `json:"subject"`
	Area    string `json:"area,omitempty"`
	Level   string `json:"level,omitempty"`
	Was     string `json:"was,omitempty"`
}

// The kinds of events of the stream grants:<subject>.
var (
	Added   = eventlog.Kind[Changed]{Name: "grant.added"}
	Removed = eventlog.Kind[Changed]{Name: "grant.revoked"}
	Set     = eventlog.Kind[LevelSet]{Name: "level.set"}
)

func changed(x Grant, why string) Changed {
	return Changed{x.ID, x.Subject, x.Scope.String(), x.Effect, x.Conversation, x.Origin, x.Expires, why}
}

// GrantTx makes a grant. The same one again, with the same end, is the first;
// with another end it replaces the first. Errors: Invalid; Denied if by is not the
// operator; Conflict if the subject has too many.
func (g *Grants) GrantTx(ctx context.Context, tx *db.Tx, n New, by string) (Grant, error) {
	if n.Origin == "" {
		n.Origin = FromOperator
	}
	x := Grant{New: n, ID: id.New("grt"), By: by, At: tx.Now()}
	if err := mayChange(by); err != nil {
		return x, err
	}
	if err := n.Check(tx.Now()); err != nil {
		return x, err
	}
	old, had, err := g.same(ctx, tx, n)
	switch {
	case err != nil:
		return x, err
	case had && old.Expires == n.Expires:
		return old, nil
	case had:
		if err := g.revoke(ctx, tx, old, by, "replaced by "+x.ID); err != nil {
			return x, err
		}
	}
	var live int64
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM grants WHERE subject = $1 AND revoked = 0", n.Subject).Scan(&live); err != nil {
		return x, err
	}
	if live >= maxLive {
		return x, fault.New(fault.Conflict, "%s has %d grants, which is the most that is kept", n.Subject, live).
			WithHint("revoke what is not needed: ombud caps list %s", n.Subject)
	}
	if err := g.insert(ctx, tx, x); err != nil {
		return x, err
	}
	return x, g.record(ctx, tx, Added.New("", changed(x, "")), x.Subject, by, audit.Entry{
		Scopes: []string{x.Scope.String()}, Outcome: string(x.Effect), Reason: originKind(x.Origin),
	})
}

// originKind is the part of an origin that may stand readable in the audit log.
func originKind(origin string) string {
	kind, _, _ := strings.Cut(origin, ":")
	return kind
}

// RevokeTx ends a grant, also one whose row was damaged, which is then told by its
// columns alone. Errors: NotFound; Conflict if it was revoked before; Denied if by
// is not the operator.
func (g *Grants) RevokeTx(ctx context.Context, tx *db.Tx, id, by string) (Grant, error) {
	if err := mayChange(by); err != nil {
		return Grant{}, err
	}
	x, err := g.load(ctx, tx, id)
	why := ""
	if fault.Is(err, fault.Verification) {
		why = err.Error()
	} else if err != nil {
		return x, err
	}
	if err := g.revoke(ctx, tx, x, by, why); err != nil {
		return x, err
	}
	x.Revoked, x.RevokedBy = tx.Now(), by
	return x, nil
}

func (g *Grants) revoke(ctx context.Context, tx *db.Tx, x Grant, by, why string) error {
	n, err := tx.Exec(ctx, "UPDATE grants SET revoked = $1, revoked_by = $2 WHERE id = $3 AND revoked = 0", tx.Now(), by, x.ID)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, "grant %s was revoked before", x.ID)
	}
	if err != nil {
		return err
	}
	return g.record(ctx, tx, Removed.New("", changed(x, why)), x.Subject, by, audit.Entry{
		Scopes: []string{x.Scope.String()}, Outcome: string(x.Effect), Reason: originKind(x.Origin),
	})
}

// record writes event and audit entry of a change and makes readers look anew.
func (g *Grants) record(ctx context.Context, tx *db.Tx, e eventlog.New, subject, by string, entry audit.Entry) error {
	e.Stream, e.Actor = "grants:"+subject, by
	if _, err := g.log.AppendTx(ctx, tx, e); err != nil {
		return err
	}
	entry.Kind, entry.Actor, entry.Subject = e.Kind, by, subject
	if _, err := g.audit.AppendTx(ctx, tx, entry); err != nil {
		return err
	}
	return db.SetMeta(ctx, tx, versionKey, id.New("ver"))
}

// SetLevelTx sets the level of a subject in an area, or everywhere with an empty
// one. With keep false it takes the level back instead. Errors: Invalid for an
// unknown area; Denied if by is not the operator; NotFound if there is no level to
// take back.
func (g *Grants) SetLevelTx(ctx context.Context, tx *db.Tx, subject, area string, level policy.Level, keep bool, by string) error {
	if err := mayChange(by); err != nil {
		return err
	}
	if err := CheckSubject(subject); err != nil {
		return err
	}
	if err := checkArea(area); err != nil {
		return err
	}
	told := LevelSet{Subject: subject, Area: area}
	list, err := g.levels(ctx, tx, subject)
	if fault.Is(err, fault.Verification) {
		told.Was = "unreadable" // a damaged row is replaced, or goes
	} else if err != nil {
		return err
	}
	for _, l := range list {
		if l.Area == area {
			told.Was = l.Level.String()
		}
	}
	switch {
	case !keep && told.Was == "":
		return fault.New(fault.NotFound, "%s has no level of its own%s", subject, inArea(area))
	case !keep:
		_, err = tx.Exec(ctx, "DELETE FROM levels WHERE subject = $1 AND area = $2", subject, area)
	default:
		told.Level = level.String()
		err = g.putLevel(ctx, tx, Level{subject, area, level, by, tx.Now()})
	}
	if err != nil {
		return err
	}
	outcome := told.Level
	if outcome == "" {
		outcome = "unset"
	}
	return g.record(ctx, tx, Set.New("", told), subject, by, audit.Entry{Outcome: outcome, Reason: area})
}

func inArea(area string) string {
	if area == "" {
		return ""
	}
	return " in area " + area
}

func (g *Grants) putLevel(ctx context.Context, tx *db.Tx, l Level) error {
	raw, err := encodeLevel(l)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO levels (subject, area, body) VALUES ($1, $2, $3)
		ON CONFLICT (subject, area) DO UPDATE SET body = excluded.body`,
		l.Subject, l.Area, g.vault.Seal(vault.LevelBody, levelRow(l.Subject, l.Area), raw))
	return err
}

func checkArea(area string) error {
	if area == "" {
		return nil
	}
	if _, err := policy.NewAutonomy(policy.Manual, map[string]policy.Level{area: policy.Manual}); err != nil {
		return fault.New(fault.Invalid, "%q is no area of work", clip(area)).WithHint("%s", fault.HintOf(err))
	}
	return nil
}

// PresetTx puts an access level in the place of the one before: it revokes what
// presets wrote for the subject and writes the rows of this one.
func (g *Grants) PresetTx(ctx context.Context, tx *db.Tx, subject string, p Preset, by string) ([]Grant, error) {
	if err := mayChange(by); err != nil {
		return nil, err
	}
	if err := CheckSubject(subject); err != nil {
		return nil, err
	}
	live, err := g.unrevoked(ctx, tx, subject)
	if err != nil {
		return nil, err
	}
	for _, x := range live {
		if originKind(x.Origin) != FromPreset {
			continue
		}
		if err := g.revoke(ctx, tx, x, by, "access "+p.Name); err != nil {
			return nil, err
		}
	}
	var out []Grant
	for _, r := range p.rows {
		x, err := g.GrantTx(ctx, tx, New{Subject: subject, Scope: r.scope, Effect: r.effect, Origin: FromPreset + ":" + p.Name}, by)
		if err != nil {
			return out, err
		}
		out = append(out, x)
	}
	return out, nil
}

func (g *Grants) unrevoked(ctx context.Context, q db.Q, subject string) ([]Grant, error) {
	return db.All(ctx, q, func(r *db.Rows) (Grant, error) { return g.scan(r.Scan) },
		"SELECT "+columns+" FROM grants WHERE subject = $1 AND revoked = 0 ORDER BY id LIMIT $2", subject, int64(maxLive))
}

// row is a rule of a preset.
type row struct {
	scope  scope.Scope
	effect Effect
}
