package delegate

import (
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Harness is a coding agent as it is set up here.
type Harness struct {
	Name     string       // what it is called in a route and in scopes
	CLI      harness.Name // which program it is, harness.ACP for a generic agent
	Program  string       // absolute; "" if it is not on this machine
	Args     []string     // words that come before all others
	Model    string       // of a route that names none; "" leaves it to the program
	BaseURL  string       // of the model's API; "" is the program's own
	Secret   string       // name of the secret with its key; "" for a program that is logged in
	Variable string       // the variable it takes the key in
	Key      string       // with no Secret: the key in the daemon's own environment, "" for none
	Missing  string       // why Program is empty, for people
}

// KeyFrom says where its key comes from, "" if it has none of ombud.
func (h Harness) KeyFrom() string {
	switch {
	case h.Secret != "":
		return "secret:" + h.Secret
	case h.Key != "":
		return "the variable " + h.Variable
	}
	return ""
}

// Route is a harness and a model.
type Route struct{ Harness, Model string }

func (r Route) String() string {
	if r.Model == "" {
		return r.Harness
	}
	return r.Harness + "/" + r.Model
}

// ParseRoute reads "claude", "claude/MODEL" or "claude/*".
func ParseRoute(text string) (Route, error) {
	name, model, _ := strings.Cut(text, "/")
	if name == "" || strings.HasSuffix(text, "/") {
		return Route{}, fault.New(fault.Config, "%q is no route", fault.Cut(text, 100)).
			WithHint("a route is HARNESS, HARNESS/MODEL or HARNESS/*, such as claude/claude-opus-4-6")
	}
	return Route{name, model}, nil
}

// covers reports whether an admitted route lets another run.
func (r Route) covers(other Route, own string) bool {
	if r.Harness != other.Harness {
		return false
	}
	return r.Model == "*" || r.Model == other.Model || r.Model == "" && other.Model == own
}

// vendors are told by how their models are called, wherever the name stands in the id:
// behind a provider or an aggregator it is still their model.
var vendors = []struct {
	cli     harness.Name
	who     string
	markers []string
}{
	{harness.Claude, "Anthropic", []string{"anthropic", "claude"}},
	{harness.Codex, "OpenAI", []string{"openai", "gpt", "codex", "chatgpt", "o1", "o3", "o4"}},
	{harness.Gemini, "Google", []string{"google", "gemini"}},
}

// vendorOf is the harness a model belongs to, "" for a model of nobody we know.
func vendorOf(model string) (cli harness.Name, who string) {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	})
	for _, v := range vendors {
		for _, m := range v.markers {
			is := func(w string) bool { return w == m || len(m) > 2 && strings.HasPrefix(w, m) } // gpt5 is one too
			if slices.ContainsFunc(words, is) {
				return v.cli, v.who
			}
		}
	}
	return "", ""
}

// Want is what a caller asks for; empty fields leave the choice.
type Want struct{ Harness, Model string }

// Resolve chooses a route and says why. It never takes another than the one that was
// asked for. Errors: NotFound for a harness nobody set up; Unavailable if its program is
// not here; Denied if the route is not admitted or the model is another vendor's.
func (s *Service) Resolve(w Want) (Harness, Route, string, error) {
	h, why, err := s.pick(w.Harness)
	if err != nil {
		return h, Route{}, "", err
	}
	route := Route{h.Name, w.Model}
	switch {
	case w.Model != "":
		why += ", the model was asked for"
	case h.Model != "":
		route.Model = h.Model
		why += ", the model is the configured one"
	default:
		why += ", the model is the program's own choice"
	}
	if strings.HasPrefix(route.Model, "-") || strings.ContainsAny(route.Model, " \t\n\x00") {
		return h, route, "", fault.New(fault.Invalid, "%q is no name of a model", fault.Cut(route.Model, 100))
	}
	if cli, who := vendorOf(route.Model); cli != "" && cli != h.CLI {
		return h, route, "", fault.New(fault.Denied, "%s is a model of %s and runs in %s only, not in %s", route.Model, who, cli, h.Name).
			WithHint("ombud delegate %s --model %s …", cli, route.Model)
	}
	if !s.admits(route, h.Model) {
		return h, route, "", fault.New(fault.Denied, "the route %s is not admitted", route).
			WithHint("add %q to delegate.admit in the configuration; ombud harness routes shows what is admitted", route.String())
	}
	if h.Program == "" {
		return h, route, "", fault.New(fault.Unavailable, "%s is not on this machine: %s", h.Name, h.Missing).
			WithHint("install it, or set harnesses.%s.program; ombud harness list shows what was found", h.Name)
	}
	// Seen of opencode: with a key of Anthropic it takes a model of theirs.
	if route.Model == "" && (h.CLI == harness.OpenCode || h.CLI == harness.Pi) {
		return h, route, "", fault.New(fault.Denied, "%s has no model of its own: it would choose one by the keys it finds, also one that runs in its vendor's harness only", h.Name).
			WithHint("set harnesses.%s.model to PROVIDER/MODEL", h.Name)
	}
	return h, route, why, nil
}

// admits reports whether a route may run. Without a list that is every harness with its
// own model.
func (s *Service) admits(r Route, own string) bool {
	if len(s.cfg.Admit) == 0 {
		return r.Model == own
	}
	return slices.ContainsFunc(s.cfg.Admit, func(a Route) bool { return a.covers(r, own) })
}

func (s *Service) pick(name string) (Harness, string, error) {
	why := name + " was asked for"
	if name == "" {
		name, why = s.cfg.Default, s.cfg.Default+" is the default"
	}
	if name == "" {
		for _, h := range s.cfg.Harnesses {
			if h.Program != "" {
				return h, h.Name + " is the first that is on this machine", nil
			}
		}
		return Harness{}, "", fault.New(fault.Unavailable, "no coding agent is on this machine").
			WithHint("install one, such as claude or codex; ombud harness list shows where they are looked for")
	}
	for _, h := range s.cfg.Harnesses {
		if h.Name == name {
			return h, why, nil
		}
	}
	return Harness{}, "", fault.New(fault.NotFound, "no coding agent is called %q", fault.Cut(name, 100)).
		WithHint("known are %s; another one that speaks ACP is set up as harnesses.NAME.acp", strings.Join(s.names(), ", "))
}

func (s *Service) names() (out []string) {
	for _, h := range s.cfg.Harnesses {
		out = append(out, h.Name)
	}
	return out
}
