package recipe

import (
	"fmt"
	"slices"
	"strings"
)

// Describe says in English when a recipe runs and what it may do, for whoever decides
// whether to have it.
func (r *Recipe) Describe() []string {
	out := []string{"It runs " + join2(r.Starts(nil), " and ") + "."}
	var does []string
	Walk(r.Steps, func(s *Step) {
		if text := s.says(); !slices.Contains(does, text) {
			does = append(does, text)
		}
	})
	out = append(out, "It may:")
	for _, d := range does {
		out = append(out, "  - "+d)
	}
	if len(r.Grants) == 0 {
		return append(out, "It is granted nothing beside the role recipe.")
	}
	out = append(out, "Beside the role recipe it is granted:")
	for _, g := range r.Grants {
		out = append(out, "  - "+g.Scope)
	}
	return out
}

func join2(list []string, last string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + last + list[len(list)-1]
}

// Starts says in English what starts a recipe. unmounted says why a webhook is not mounted,
// "" if it is; nil leaves that open.
func (r *Recipe) Starts(unmounted func(*Recipe, Webhook) string) (out []string) {
	for _, on := range r.On {
		switch {
		case on.Schedule != nil:
			zone := ""
			if on.Schedule.Zone != "" {
				zone = " in " + on.Schedule.Zone
			}
			out = append(out, fmt.Sprintf("at the times %q%s", on.Schedule.When, zone))
		case on.Event != nil:
			text := "on each event " + on.Event.Kind
			if len(on.Event.Where) > 0 {
				var keys []string
				for _, m := range on.Event.Where {
					keys = append(keys, m.Key)
				}
				text += " whose " + join2(keys, " and ") + " fit"
			}
			out = append(out, text)
		case on.Webhook != nil:
			how := "proved by " + on.Webhook.Verify
			switch {
			case on.Webhook.Verify == "open":
				how = "from anybody who can reach it"
			case on.Webhook.Verify == "" && unmounted == nil:
				how = "mounted when the configuration says how it proves itself"
			case on.Webhook.Verify == "":
				if how = unmounted(r, *on.Webhook); how == "" {
					how = "as the configuration says"
				}
			}
			out = append(out, fmt.Sprintf("on a request to %s (%s)", on.Webhook.Path, how))
		case on.Manual:
			out = append(out, "when you start it")
		}
	}
	return out
}

// says is a step in English.
func (s *Step) says() string {
	v := verbOf(s.Verb)
	text := v.Says
	switch s.Verb {
	case "http":
		text += " " + place(s.Args["url"])
		if m := s.Args["method"]; m != nil && m.String() != "GET" {
			text += " (" + m.String() + ")"
		}
	case "tool", "wait_signal":
		text += " " + s.Args["name"].String()
	case "send":
		text += " " + place(s.Args["to"])
	case "run":
		text += " " + s.Args["target"].String()
	case "sleep":
		text += " " + place(s.Args["for"])
	case "parallel":
		var names []string
		for _, b := range s.Join.Branches {
			names = append(names, b.Name)
		}
		text += ": " + join2(names, " and ")
	case "foreach":
		text += fmt.Sprintf(" of a list (at most %d)", s.Foreach.Limit)
	}
	return text
}

// place is a text as far as it does not depend on a value.
func place(t *Template) string {
	if t.Plain() {
		return t.String()
	}
	begin, _, _ := strings.Cut(t.String(), "{{")
	if begin == "" {
		return "whoever a value names"
	}
	return begin + "…"
}
