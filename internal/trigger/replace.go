package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/vault"
)

// changed is the payload of trigger.added, .changed and .removed.
type changed struct {
	RunKind    string `json:"run_kind"`
	Definition string `json:"definition,omitempty"`
	Paused     bool   `json:"paused,omitempty"`
}

// ReplaceTx makes the targets of an owner the given ones. Those that stay the same are
// not touched; what a person paused stays paused, also if it goes and comes back; runs that are under way or in line are
// left alone. Errors: Invalid with the name of the target at fault, and nothing is
// changed if the caller returns it.
func (t *Triggers) ReplaceTx(ctx context.Context, tx *db.Tx, owner string, targets []Target) error {
	seen := map[string]bool{}
	targets = slices.Clone(targets)
	for i, x := range targets {
		targets[i] = x.normal()
		x = targets[i]
		if err := check(owner, x); err != nil {
			return err
		}
		if seen[x.Name] {
			return fault.New(fault.Invalid, "%s is there twice", x.Name)
		}
		seen[x.Name] = true
	}
	if err := t.routesTx(ctx, tx, owner, targets); err != nil {
		return err
	}
	have, err := t.query(ctx, tx, "WHERE owner = $1", owner)
	if err != nil {
		return err
	}
	for _, old := range have {
		if !seen[old.Name] {
			if err := t.removeTx(ctx, tx, old); err != nil {
				return err
			}
		}
	}
	for _, x := range targets {
		i := slices.IndexFunc(have, func(s Standing) bool { return s.Name == x.Name })
		var old *Standing
		if i >= 0 {
			old = &have[i]
		}
		if err := t.putTx(ctx, tx, owner, x, old); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	tx.AfterCommit(t.stale)
	failpoint.Hit("trigger.replaced")
	return nil
}

// normal fills in what is left out.
func (x Target) normal() Target {
	x.On = slices.Clone(x.On)
	for i, on := range x.On {
		if on.Webhook != nil {
			w := on.Webhook.normal()
			x.On[i].Webhook = &w
		}
	}
	return x
}

func (t *Triggers) putTx(ctx context.Context, tx *db.Tx, owner string, x Target, old *Standing) error {
	raw, err := json.Marshal(x)
	if err != nil {
		return fault.New(fault.Internal, "body of a target: %w", err)
	}
	if old != nil && old.Problem == nil && bytes.Equal(old.raw, raw) {
		return nil
	}
	verb := "changed"
	if old == nil {
		verb = "added"
	}
	n, err := tx.Exec(ctx, `INSERT INTO targets (`+columns+`) VALUES ($1, $2, $3, '', $4, 0, '', 0, 0, 0)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, body = excluded.body WHERE targets.owner IN (excluded.owner, $5)`,
		x.Name, owner, t.vault.Seal(vault.TargetBody, x.Name, raw), tx.Now(), gone)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.Conflict, "another has that name")
	}
	var kinds []string
	var times []schedule.Spec
	for _, on := range x.On {
		switch {
		case on.Event != nil:
			kinds = append(kinds, on.Event.Kinds...)
		case on.Schedule != nil:
			times = append(times, specOf(x.Name, *on.Schedule, len(times)+1))
		}
	}
	if err := t.listenTx(ctx, tx, x.Name, kinds); err != nil {
		return err
	}
	if err := t.times.ReplaceTx(ctx, tx, x.Name, times, owner); err != nil {
		return err
	}
	_, err = t.tell(ctx, tx, verb, owner, x.Name, "", changed{x.RunKind, x.Definition, x.Paused})
	return err
}

// specOf is a target's schedule as a row of package schedule.
func specOf(target string, s Schedule, n int) schedule.Spec {
	if s.Name == "" {
		s.Name = strconv.Itoa(n)
	}
	return schedule.Spec{
		Owner: target, Name: s.Name, When: s.When, Zone: s.Zone, Missed: s.Missed, Grace: s.Grace, Overlap: s.Overlap, Jitter: s.Jitter,
		Starts: schedule.Starts{Target: target, Label: label.Of(label.Own, label.OperatorOnly)},
	}
}

// removeTx takes a target away with all that would start it. Its timers stay, and that a
// person paused it: a target that comes back, as a file that was replaced does, finds them.
func (t *Triggers) removeTx(ctx context.Context, tx *db.Tx, old Standing) error {
	if err := t.listenTx(ctx, tx, old.Name, nil); err != nil {
		return err
	}
	if len(old.Schedules()) > 0 || old.Problem != nil {
		if err := t.times.ReplaceTx(ctx, tx, old.Name, nil, old.Owner); err != nil {
			return err
		}
	}
	var err error
	if old.PausedBy != "" {
		_, err = tx.Exec(ctx, "UPDATE targets SET owner = $1 WHERE name = $2", gone, old.Name)
	} else {
		_, err = tx.Exec(ctx, "DELETE FROM targets WHERE name = $1", old.Name)
	}
	if err != nil {
		return err
	}
	_, err = t.tell(ctx, tx, "removed", old.Owner, old.Name, "", changed{old.RunKind, old.Definition, old.Paused})
	return err
}

// Schedules are the schedules among what starts a target.
func (x *Target) Schedules() (out []Schedule) {
	for _, on := range x.On {
		if on.Schedule != nil {
			out = append(out, *on.Schedule)
		}
	}
	return out
}

// listenTx makes the kinds a target listens to the given ones. One it listened to before
// goes on from where it was; a new one hears what comes from now on.
func (t *Triggers) listenTx(ctx context.Context, tx *db.Tx, target string, kinds []string) error {
	had, err := db.All(ctx, tx, db.Column[string], "SELECT kind FROM listeners WHERE target = $1", target)
	if err != nil {
		return err
	}
	for _, kind := range had {
		if slices.Contains(kinds, kind) {
			continue
		}
		if _, err := tx.Exec(ctx, "DELETE FROM listeners WHERE target = $1 AND kind = $2", target, kind); err != nil {
			return err
		}
	}
	head, err := t.log.HeadIn(ctx, tx)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		_, err := tx.Exec(ctx, `INSERT INTO listeners (kind, target, since) VALUES ($1, $2, $3) ON CONFLICT (kind, target) DO NOTHING`, kind, target, head)
		if err != nil {
			return err
		}
	}
	return nil
}
