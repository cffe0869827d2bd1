package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Eject writes a recipe as Go: a loop that is done with the same kit, step for step under
// the same names.
func (r *Recipe) Eject() ([]byte, error) {
	e := &ejector{r: r}
	e.line("// Package %s is the recipe %s as a loop.", packageOf(r.Name), r.Name)
	e.line("package %s", packageOf(r.Name))
	e.line("import (\n\"context\"\n\"time\"\n\n\"github.com/ombud-run/ombud/internal/loops\"\n\"github.com/ombud-run/ombud/internal/recipe\"\n\"github.com/ombud-run/ombud/internal/trigger\"\n)")
	e.line("// Loop is the loop. It has no grants of its own: a loop acts by the role first-party.")
	e.line("func Loop() loops.Loop {\nreturn loops.Loop{Name: %q, Description: %q, Run: Run, On: []trigger.On{", strings.ToLower(r.Name), orElse(r.Description, "the recipe "+r.Name))
	for _, on := range r.On {
		e.on(on)
	}
	e.line("}}\n}")
	e.line("// Run does the steps.")
	e.line("func Run(ctx context.Context, k *loops.Kit) error {")
	e.head()
	e.line("if err != nil {\nreturn err\n}\nin := \"\"")
	e.steps(r.Steps)
	e.line("_, _ = in, time.Second\nreturn n.Err()\n}")
	out, err := format.Source(e.buf.Bytes())
	if err != nil {
		return nil, fault.New(fault.Internal, "what was ejected is no Go: %w", err)
	}
	return out, nil
}

// packageOf is a name as that of a package.
func packageOf(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	if out == "" || out[0] >= '0' && out[0] <= '9' {
		out = "recipe" + out
	}
	return out
}

type ejector struct {
	r   *Recipe
	buf bytes.Buffer
}

func (e *ejector) line(format string, args ...any) { fmt.Fprintf(&e.buf, format+"\n", args...) }

func (e *ejector) on(on On) {
	switch {
	case on.Schedule != nil:
		s := on.Schedule
		e.line("{Schedule: &trigger.Schedule{When: %q, Zone: %q, Missed: %q, Grace: %d, Jitter: %d}},", s.When, s.Zone, s.Missed, s.Grace, s.Jitter)
	case on.Event != nil:
		e.line("{Event: &trigger.EventFilter{Kinds: []string{%q}, Where: map[string]trigger.Match{", on.Event.Kind)
		for _, m := range on.Event.Where {
			switch {
			case m.Exists != nil:
				e.line("%q: {Exists: new(%t)},", m.Key, *m.Exists)
			case m.Prefix != "":
				e.line("%q: {Prefix: new(%q)},", m.Key, m.Prefix)
			default:
				e.line("%q: {OneOf: %#v},", m.Key, m.OneOf)
			}
		}
		e.line("}}},")
	case on.Webhook != nil && on.Webhook.Verify == "":
		e.line("// The webhook %s has no secret: say how it proves itself.", on.Webhook.Path)
	case on.Webhook != nil:
		w := on.Webhook
		e.line("{Webhook: &trigger.Webhook{Path: %q, Scheme: %q, Secrets: %#v, Header: %q, IDHeader: %q}},", w.Path, w.Verify, w.Secrets, w.Header, w.IDHeader)
	case on.Manual:
		e.line("{Manual: true},")
	}
}

// head writes what the names of a run depend on.
func (e *ejector) head() {
	e.line("n, err := recipe.NewNames(k, &recipe.Recipe{Name: %q, Foreign: %t,", e.r.Name, e.r.Foreign)
	e.line("On: []recipe.On{")
	for _, on := range e.r.On {
		if on.Schedule != nil {
			e.line("{Schedule: &recipe.Schedule{Zone: %q}},", on.Schedule.Zone)
		}
	}
	e.line("},\nInputs: []recipe.Input{")
	for _, in := range e.r.Inputs {
		instead := ""
		if in.Default != nil {
			instead = fmt.Sprintf(", Default: []byte(%q)", in.Default)
		}
		e.line("{Name: %q, Type: %q, Required: %t%s},", in.Name, in.Type, in.Required, instead)
	}
	e.line("},\n})")
}

const check = "if err := n.Err(); err != nil {\nreturn err\n}"

func (e *ejector) steps(steps []*Step) {
	for _, s := range steps {
		e.line("\n// Line %d: %s", s.Line, s.says())
		if s.When != nil {
			e.line("if n.If(%q) {", s.When.String())
		}
		e.step(s)
		if s.When == nil {
			continue
		}
		if s.As != "" || len(s.Else) > 0 {
			for _, name := range e.r.bound(s.Else) {
				if name != s.As {
					e.line("n.Set(%q, \"\", \"\")", name)
				}
			}
			e.line("} else {")
			if s.As != "" && !e.r.Foreign {
				e.line("n.Set(%q, \"\", \"\")", s.As)
			}
			e.steps(s.Else)
		}
		e.line("}\n%s", check)
	}
}

// step writes a step within its tries and its time.
func (e *ejector) step(s *Step) {
	switch {
	case s.Retry != nil:
		e.line("if err := n.Again(ctx, in+%q, %d, %s, func(step string) error {", s.ID, s.Retry.Attempts, span(s.Retry.Backoff))
	default:
		e.line("{\nstep := in + %q", s.ID)
	}
	if s.Timeout > 0 && s.Verb != "wait_signal" {
		e.line("if err := n.Within(ctx, %s, func(ctx context.Context) error {", span(s.Timeout))
	}
	e.verb(s)
	if s.Timeout > 0 && s.Verb != "wait_signal" {
		e.line("return nil\n}); err != nil {\nreturn err\n}")
	}
	if s.Retry != nil {
		e.line("return nil\n}); err != nil {\nreturn err\n}")
	} else {
		e.line("}")
	}
}

func span(d time.Duration) string { return fmt.Sprintf("%d*time.Millisecond", d.Milliseconds()) }

// arg is a key of a step as Go.
func (s *Step) code(how, key string) string {
	return fmt.Sprintf("n.%s(%s)", how, strconv.Quote(s.Args[key].String()))
}

// call writes a call, whose arguments are rendered first.
func (e *ejector) call(s *Step, from, method string, args ...string) {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = fmt.Sprintf("a%d", i)
		e.line("a%d := %s", i, a)
	}
	e.line(check)
	call := fmt.Sprintf("k.%s(ctx, step, %s)", method, strings.Join(list, ", "))
	e.result(s, from, call)
}

// result writes a call that may have a result, and binds it.
func (e *ejector) result(s *Step, from, call string) {
	switch {
	case verbOf(s.Verb).result == nil:
		e.line("if err := %s; err != nil {\nreturn err\n}", call)
	case s.As == "":
		e.line("if _, err := %s; err != nil {\nreturn err\n}", call)
	default:
		e.line("out, err := %s\nif err != nil {\nreturn err\n}\nn.Set(%q, out, %q)", call, s.As, from)
	}
}

func (e *ejector) verb(s *Step) {
	text := func(key string) string { return s.code("Text", key) }
	switch s.Verb {
	case "ask", "observe", "gateway", "harness", "delegate":
		method := map[string]string{"ask": "Ask", "observe": "Observe", "gateway": "Gateway", "harness": "Harness", "delegate": "Harness"}[s.Verb]
		e.call(s, "step "+s.ID, method, s.code("Prompt", "text"))
	case "http":
		e.http(s)
	case "tool":
		input := "{}"
		if s.Input != nil {
			input = string(s.Input.source())
		}
		e.line("input := n.JSON(%s)\n%s", quote(input), check)
		e.result(s, "tool "+s.Args["name"].String(), fmt.Sprintf("n.Use(k.Tool(ctx, step, %q, input))", s.Args["name"].String()))
	case "recall":
		limit := "5"
		if s.Args["limit"] != nil {
			limit = s.code("Count", "limit")
		}
		e.line("query, limit := %s, %s\n%s", text("text"), limit, check)
		e.result(s, "memory", "n.Lines(k.Recall(ctx, step, query, limit))")
	case "remember":
		e.call(s, "", "Remember", text("fact"))
	case "notify":
		e.call(s, "", "Notify", text("title"), text("body"))
	case "propose":
		e.call(s, "", "Propose", text("title"), text("summary"), text("action"))
	case "remind":
		e.call(s, "", "Remind", text("title"), text("due"), text("notes"))
	case "send":
		e.call(s, "", "Send", text("to"), text("text"))
	case "sleep":
		e.call(s, "", "Sleep", s.code("Length", "for"))
	case "log":
		level := strconv.Quote("info")
		if s.Args["level"] != nil {
			level = text("level")
		}
		e.call(s, "", "Log", level, text("text"))
	case "run":
		e.call(s, "", "RunLoop", strconv.Quote(s.Args["target"].String()))
	case "wait_signal":
		e.result(s, "signal "+s.Args["name"].String(), fmt.Sprintf("n.Value(k.WaitSignal(ctx, step, %q, %s))", s.Args["name"].String(), span(s.Timeout)))
	case "foreach":
		e.foreach(s)
	case "parallel":
		e.parallel(s)
	}
}

func quote(text string) string {
	if strconv.CanBackquote(text) {
		return "`" + text + "`"
	}
	return strconv.Quote(text)
}

func (e *ejector) http(s *Step) {
	e.line("req := loops.HTTPRequest{Method: n.Text(%q), URL: %s, Body: %s, Headers: map[string]string{", orElse(s.Args["method"].String(), "GET"), s.code("URL", "url"), s.code("Text", "body"))
	typed := false
	for _, h := range s.Headers {
		typed = typed || h.Name == "Content-Type"
		e.line("%q: n.Header(%s),", h.Name, quote(h.Value.String()))
	}
	if s.Input != nil && !typed {
		e.line("\"Content-Type\": \"application/json\",")
	}
	e.line("}}")
	if s.Input != nil {
		e.line("req.Body = string(n.JSON(%s))", quote(string(s.Input.source())))
	}
	e.line(check)
	e.line("res, err := k.HTTP(ctx, step, req)\nif err != nil {\nreturn err\n}")
	if s.As == "" {
		e.line("if _, err := n.Answer(res); err != nil {\nreturn err\n}")
		return
	}
	e.line("out, err := n.Answer(res)\nif err != nil {\nreturn err\n}\nn.Set(%q, out, \"the web\")", s.As)
}

func (e *ejector) foreach(s *Step) {
	f := s.Foreach
	if f.In != nil {
		e.line("list, from := n.Items(%s, %d)", quote(f.In.String()), f.Limit)
	} else {
		e.line("from, list := \"\", []any{")
		for _, t := range f.List {
			e.line("n.Text(%s),", quote(t.String()))
		}
		e.line("}")
	}
	e.line(check)
	e.line("made, err := n.Each(ctx, step, %q, list, from, %d, func(ctx context.Context, n *recipe.Names, in string) error {", f.Var, f.Concurrency)
	e.steps(f.Do)
	e.line("_ = in\nreturn n.Err()\n})\nif err != nil {\nreturn err\n}")
	e.bound(s, "foreach")
}

// bound binds what was made, if it has a name.
func (e *ejector) bound(s *Step, from string) {
	if s.As == "" {
		e.line("_ = made")
		return
	}
	e.line("n.Set(%q, made, %q)", s.As, from)
}

func (e *ejector) parallel(s *Step) {
	e.line("made, err := n.Side(ctx, step, %q, %d,", s.Join.How, s.Join.Quorum)
	for _, b := range s.Join.Branches {
		e.line("recipe.Line{Name: %q, Binds: %#v, Do: func(ctx context.Context, n *recipe.Names) error {", b.Name, e.r.bound(b.Steps))
		e.steps(b.Steps)
		e.line("return n.Err()\n}},")
	}
	e.line(")\nif err != nil {\nreturn err\n}")
	e.bound(s, "parallel")
}

// source is a tree as JSON whose texts are the templates.
func (t *Tree) source() json.RawMessage {
	var x any
	switch {
	case t.Value != nil:
		return t.Value
	case t.Object:
		m := map[string]json.RawMessage{}
		for _, f := range t.Fields {
			m[f.Key] = f.Value.source()
		}
		x = m
	case t.Array:
		list := make([]json.RawMessage, len(t.Items))
		for i, item := range t.Items {
			list[i] = item.source()
		}
		x = list
	default:
		x = t.Text.String()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return json.RawMessage("null") // texts and JSON always encode
	}
	return bytes.TrimSpace(b.Bytes())
}
