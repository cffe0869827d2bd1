package recipe

import (
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/trigger"
)

// target is what starts a recipe, in the words of package trigger.
func (l *Library) target(r *Recipe, hash string) trigger.Target {
	t := trigger.Target{Name: Subject(r.Name), RunKind: RunKind, Definition: hash, Busy: run.Queue, Paused: !r.Enabled}
	for _, on := range r.On {
		switch {
		case on.Schedule != nil:
			s := on.Schedule
			t.On = append(t.On, trigger.On{Schedule: &trigger.Schedule{
				When: s.When, Zone: s.Zone, Missed: schedule.Missed(s.Missed), Grace: s.Grace, Jitter: s.Jitter,
			}})
		case on.Event != nil:
			f := &trigger.EventFilter{Kinds: []string{on.Event.Kind}, Where: map[string]trigger.Match{}}
			for _, m := range on.Event.Where {
				f.Where[m.Key] = m.match()
			}
			t.On = append(t.On, trigger.On{Event: f})
		case on.Webhook != nil:
			if w, ok := l.mount(r.Name, *on.Webhook); ok {
				t.On = append(t.On, trigger.On{Webhook: &w})
			}
		case on.Manual:
			t.On = append(t.On, trigger.On{Manual: true})
		}
	}
	return t
}

func (m Match) match() trigger.Match {
	switch {
	case m.Exists != nil:
		return trigger.Match{Exists: m.Exists}
	case m.Prefix != "":
		return trigger.Match{Prefix: &m.Prefix}
	}
	return trigger.Match{OneOf: m.OneOf}
}

// mount is how a webhook proves itself. One whose format has no place for a secret is
// mounted only if the operator has said how.
func (l *Library) mount(name string, w Webhook) (trigger.Webhook, bool) {
	out := trigger.Webhook{Path: w.Path, Scheme: trigger.Scheme(w.Verify), Secrets: w.Secrets, Header: w.Header, IDHeader: w.IDHeader}
	if w.Verify != "" {
		return out, true
	}
	switch how := l.d.Mount(name); how {
	case "":
		return out, false
	case "open":
		out.Scheme = trigger.Open
	default:
		out.Scheme, out.Secrets = trigger.Generic, []string{how}
	}
	return out, true
}

// Mounted reports why a webhook of a recipe is not mounted, "" if it is.
func (l *Library) Mounted(r *Recipe, w Webhook) string {
	if _, ok := l.mount(r.Name, w); ok {
		return ""
	}
	return "not mounted: " + r.Name + " has no secret; name one, or open, in the configuration: recipes.webhooks"
}
