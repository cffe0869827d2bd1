package daemon

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/grant"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/wire"
)

// unset is what a person writes to take a level or an access level back.
const unset = "default"

func accessSubject(name string) string {
	if name == "" {
		return "agent:" + agent.Default
	}
	return name
}

func (d *Daemon) accessShow(ctx context.Context, req wire.AccessShowRequest) (out wire.Access, err error) {
	out.Subject = accessSubject(req.Subject)
	if err := d.knownSubject(ctx, out.Subject); err != nil {
		return out, err
	}
	out.Level, out.Usual = d.grants.Usual().String(), true
	list, err := d.grants.LevelsOf(ctx, out.Subject)
	if err != nil {
		return out, err
	}
	for _, l := range list {
		if l.Area == "" {
			out.Level, out.Usual = l.Level.String(), false
			continue
		}
		out.Areas = append(out.Areas, wire.AccessArea{Area: l.Area, Level: l.Level.String()})
	}
	for _, l := range policy.Levels() {
		out.Levels = append(out.Levels, wire.LevelDoc{Level: l.String(), Doc: l.Doc()})
	}
	inForce, err := d.grants.InForce(ctx, out.Subject, "")
	if err != nil {
		return out, err
	}
	for _, x := range inForce {
		name, preset := strings.CutPrefix(x.Origin, grant.FromPreset+":")
		if !preset {
			continue
		}
		shown, err := d.wireGrant(ctx, x)
		if err != nil {
			return out, err
		}
		out.Preset, out.Limits = name, append(out.Limits, shown)
	}
	return out, nil
}

func (d *Daemon) accessSet(ctx context.Context, req wire.AccessSetRequest) (wire.Access, error) {
	subject := accessSubject(req.Subject)
	if err := d.knownSubject(ctx, subject); err != nil {
		return wire.Access{}, err
	}
	var level policy.Level
	if req.Level != unset {
		if err := level.UnmarshalText([]byte(req.Level)); err != nil {
			return wire.Access{}, err
		}
	}
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return d.grants.SetLevelTx(ctx, tx, subject, req.Area, level, req.Level != unset, grant.Operator)
	})
	if err != nil && !(req.Level == unset && fault.Is(err, fault.NotFound)) {
		return wire.Access{}, err
	}
	return d.accessShow(ctx, wire.AccessShowRequest{Subject: subject})
}

func (d *Daemon) accessScope(ctx context.Context, req wire.AccessScopeRequest) (wire.Access, error) {
	subject := accessSubject(req.Subject)
	if err := d.knownSubject(ctx, subject); err != nil {
		return wire.Access{}, err
	}
	preset := grant.Preset{Name: unset}
	if req.Preset != unset {
		var err error
		if preset, err = grant.NewPreset(req.Preset, d.workspace(d.o.Config.Config), config.Home()); err != nil {
			return wire.Access{}, err
		}
	}
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := d.grants.PresetTx(ctx, tx, subject, preset, grant.Operator)
		return err
	})
	if err != nil {
		return wire.Access{}, err
	}
	return d.accessShow(ctx, wire.AccessShowRequest{Subject: subject})
}
