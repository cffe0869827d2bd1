package signed

import (
	"context"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/wasmloop"
)

// Order is an approval: what the operator said yes to, having seen the preview.
type Order struct {
	SHA256 string // of the file that was shown
	By     string
	From   string // where it came from, for people

	Name      string   // the loop's name, as the operator typed it; needed where Preview.Name is set
	Unsigned  []string // the lines that no signature covers, as they were confirmed
	Downgrade bool     // an older version is meant
	Upgrade   bool     // a version of it has to be there
	Disabled  bool     // nothing starts it until it is enabled
}

// needs is what an approval lacks, nil if nothing.
func (o Order) needs(p Preview) error {
	name := p.Manifest.Name
	denied := func(format string, args ...any) *fault.Error { return fault.New(fault.Denied, format, args...) }
	switch {
	case o.Upgrade && p.Replaces == nil:
		return notInstalled(name)
	case p.Name != "" && o.Name == "":
		return denied("%s is not installed without its name being typed: %s", name, p.Name).WithHint("type it where you are asked, or --name %s", name)
	case o.Name != "" && o.Name != name:
		return denied("the loop is called %s, and %q was typed", name, o.Name).WithHint("nothing was changed")
	case p.Downgrade != "" && !o.Downgrade:
		return denied("%s: %s", name, p.Downgrade).WithHint("--downgrade if you mean it")
	}
	for _, line := range p.Unsigned {
		if !slices.Contains(o.Unsigned, line) {
			return denied("%s: no signature covers %q, and it was not confirmed", name, line).WithHint("--accept-unsigned confirms every such line")
		}
	}
	return nil
}

// changedData is the payload of loop.installed, .upgraded and .removed.
type changedData struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	SHA256  string        `json:"sha256"`
	Was     string        `json:"was,omitempty"` // the version before
	Tier    wasmloop.Tier `json:"tier,omitempty"`
	May     []string      `json:"may,omitempty"`
}

// Install installs what was inspected, or replaces the version that is there. It takes
// effect with its commit; runs that are under way go on with what they have. Errors: those
// of Inspect, Denied with what the approval lacks, Conflict if something it rests on has
// changed.
func (l *Library) Install(ctx context.Context, o Order) (x Installed, err error) {
	data, err := l.uploaded(o.SHA256)
	if err != nil {
		return x, err
	}
	a, p, seen, err := l.inspect(ctx, o.SHA256, data)
	if err != nil {
		return x, err
	}
	if err := o.needs(p); err != nil {
		return x, err
	}
	if err := l.d.Prepare(ctx, a); err != nil {
		return x, refusal(err)
	}
	if err := l.keep(ctx, p.Manifest.Name, o.SHA256, data); err != nil {
		return x, err
	}
	failpoint.Hit("signed.kept")
	err = l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := l.standingIn(ctx, tx, p.Manifest.Name)
		if err != nil {
			return err
		}
		if !seen.same(now) {
			return fault.New(fault.Conflict, "what is installed or trusted was changed meanwhile").WithHint("look at it again: ombud loop inspect")
		}
		x = installed(p, o, seen.old, tx.Now())
		if err := l.wholeTx(ctx, tx, o.SHA256, len(data)); err != nil {
			return err
		}
		if err := l.replacedTx(ctx, tx, p, x); err != nil || !o.Disabled {
			return err
		}
		_, err = l.d.Targets.PauseTx(ctx, tx, x.Subject(), o.By)
		return err
	})
	if err != nil {
		return x, err
	}
	l.used(o.SHA256)
	l.slog.Info("a loop was installed", "loop", x.Name, "version", x.Manifest.Version, "sha256", x.SHA256, "tier", x.Tier)
	return x, nil
}

func installed(p Preview, o Order, old *Installed, now int64) Installed {
	x := Installed{
		Name: p.Manifest.Name, SHA256: p.SHA256, At: now, Manifest: p.Manifest, Format: p.Format, Tier: p.Verdict.Tier,
		Publisher: p.Verdict.Publisher, Registry: p.Verdict.Registry, By: o.By, From: o.From, First: now,
	}
	if old != nil && old.Problem == nil {
		x.First = old.First
		if p.Another == "" { // what was set was meant for the publisher that it had
			x.Settings = old.Settings
		}
	}
	return x
}

// replacedTx writes what an install changes.
func (l *Library) replacedTx(ctx context.Context, tx *db.Tx, p Preview, x Installed) error {
	if err := l.putTx(ctx, tx, x); err != nil {
		return err
	}
	verb, data := "installed", changedData{Name: x.Name, Version: x.Manifest.Version, SHA256: x.SHA256, Tier: x.Tier, May: p.May}
	text := "The loop " + x.Name + " " + x.Manifest.Version + " was installed. It may:"
	more := p.May
	if p.Replaces != nil {
		verb, data.Was = "upgraded", p.Replaces.Manifest.Version
		text = "The loop " + x.Name + " was " + data.Was + " and is " + x.Manifest.Version + " now."
		if p.Repairs {
			text = "The loop " + x.Name + " " + x.Manifest.Version + " was installed again: what was kept of it was damaged."
		}
		if more = p.More; len(more) > 0 {
			text += " It may now also:"
		}
	}
	if len(more) > 0 {
		text += "\n- " + strings.Join(more, "\n- ")
	}
	if len(p.Less) > 0 {
		text += "\nNo longer:\n- " + strings.Join(p.Less, "\n- ")
	}
	more, less := reach(x.Manifest), []string(nil)
	if p.Replaces != nil && p.Diff != nil {
		more, less = p.Diff.Added, p.Diff.Removed
	}
	return l.toldTx(ctx, tx, told{verb: verb, by: x.By, data: data, text: text, more: more, less: less})
}

// reach is what a manifest declares, as its capability diff names it.
func reach(m wasmloop.Manifest) []string {
	return wasmloop.DiffCapabilities(wasmloop.Entry{}, m).Added
}

// told is a change of one loop, as it is recorded.
type told struct {
	verb, by   string
	data       changedData
	text       string
	more, less []string // of what it may do
}

// toldTx makes what starts the loops what their rows say now, and records the change.
func (l *Library) toldTx(ctx context.Context, tx *db.Tx, c told) error {
	if err := l.targetsTx(ctx, tx); err != nil {
		return err
	}
	subject := Subject(c.data.Name)
	for _, e := range []audit.Entry{
		{Kind: "loop", Reason: c.verb + " " + c.data.Version},
		{Kind: "grant", Reason: "loop " + c.verb, Scopes: c.more},
		{Kind: "revoke", Reason: "loop " + c.verb, Scopes: c.less},
	} {
		if e.Kind != "loop" && len(e.Scopes) == 0 {
			continue
		}
		e.Actor, e.Subject, e.Outcome = c.by, subject, "ok"
		if _, err := l.d.Audit.AppendTx(ctx, tx, e); err != nil {
			return err
		}
	}
	evs, err := l.d.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: subject, Kind: "loop." + c.verb, Actor: c.by, Data: c.data, Expect: eventlog.Any,
	})
	if err != nil {
		return err
	}
	failpoint.Hit("signed." + c.verb)
	return l.d.Tell(ctx, tx, evs[0].ID, c.text)
}

// Remove takes a loop away with all that starts it and all that it may do. Runs that are
// under way may do nothing any more. Errors: NotFound.
func (l *Library) Remove(ctx context.Context, name, by string) (x Installed, err error) {
	name = strings.TrimPrefix(name, prefix)
	err = l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if x, err = l.getIn(ctx, tx, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM signed_loops WHERE name = $1", name); err != nil {
			return err
		}
		return l.toldTx(ctx, tx, told{
			verb: "removed", by: by, data: changedData{Name: name, Version: x.Manifest.Version, SHA256: x.SHA256},
			text: "The loop " + name + " " + x.Manifest.Version + " was removed.", less: reach(x.Manifest),
		})
	})
	return x, err
}
