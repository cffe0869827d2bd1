package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Run does the steps of a recipe. It is called again from the beginning after a crash, a
// wait or a retry: what k has recorded is not done again. The result is what the named
// steps came to.
func (r *Recipe) Run(ctx context.Context, k Kit, s Start) (json.RawMessage, error) {
	v, err := r.begin(k.Fence, s)
	if err != nil {
		return nil, err
	}
	w := &worker{r: r, k: k}
	if err := w.steps(ctx, r.Steps, v, ""); err != nil {
		return nil, err
	}
	return json.Marshal(v.made(r.Steps))
}

// begin binds the names every recipe has.
func (r *Recipe) begin(fence func(text, from string) string, s Start) (*values, error) {
	v := newValues(fence)
	payload, err := decode(s.Payload)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: the payload is no JSON: %w", r.File, err)
	}
	if payload == nil {
		payload = object{}
	}
	fields, _ := payload.(object)
	if r.Foreign {
		for key, x := range fields {
			v.set(key, x, s.From)
		}
		v.set("trigger", s.Kind, "")
	} else {
		v.set("trigger", object{
			"kind": s.Kind, "name": s.Name, "at": s.At.Format(time.RFC3339), "event": s.Event, "event_kind": s.EventKind,
		}, "")
		inputs, err := r.accept(s.Kind, fields)
		if err != nil {
			return nil, err
		}
		v.set("inputs", inputs, s.From)
		v.set("recipe", r.Name, "")
	}
	v.set("payload", payload, s.From)
	v.set("now", s.Now.Format(time.RFC3339), "")
	v.set("today", s.Now.Format(time.DateOnly), "")
	return v, nil
}

// accept checks what a recipe is started with against its inputs, and fills in what is
// left out. Only who starts it by hand can be told, so only then a missing one is an error.
func (r *Recipe) accept(kind string, payload object) (object, error) {
	out := object{}
	names := make([]string, 0, len(r.Inputs))
	for _, in := range r.Inputs {
		names = append(names, in.Name)
		x, there := payload[in.Name]
		if !there {
			if in.Required && kind == "manual" {
				return nil, fault.New(fault.Invalid, "recipe %s needs the input %s", r.Name, in.Name).WithHint("give it: --payload %s=…", in.Name)
			}
			if in.Default == nil {
				x = object{"text": "", "number": int64(0), "truth": false}[in.Type]
			} else {
				x, _ = decode(in.Default) // it was read when the recipe was
			}
		}
		if text, ok := x.(string); ok && in.Type != "text" {
			raw, err := in.read(text)
			if err != nil {
				return nil, err
			}
			x, _ = decode(raw)
		}
		out[in.Name] = x
	}
	if kind != "manual" || r.Foreign || len(r.Inputs) == 0 {
		return out, nil
	}
	for key := range payload {
		if _, ok := out[key]; !ok {
			return nil, fault.New(fault.Invalid, "recipe %s has no input %q", r.Name, clip(key)).WithHint("%s", nearFix(key, names))
		}
	}
	return out, nil
}

// AcceptJSON checks the payload a recipe is started with, of that kind of trigger, against
// its inputs: Invalid if it may not be started with it.
func (r *Recipe) AcceptJSON(kind string, payload json.RawMessage) error {
	x, err := decode(payload)
	if err != nil {
		return fault.New(fault.Invalid, "the payload is no JSON: %w", err)
	}
	fields, _ := x.(object)
	_, err = r.accept(kind, fields)
	return err
}

// made are the values the steps gave names to.
func (v *values) made(steps []*Step) object {
	out := object{}
	Walk(steps, func(s *Step) {
		if x, ok := v.names[s.As]; ok && s.As != "" {
			out[s.As] = x
		}
	})
	return out
}

// worker does the steps of one execution.
type worker struct {
	r *Recipe
	k Kit
}

// steps does a row of steps. The names recorded begin with in, which tells the rounds of a
// foreach apart.
func (w *worker) steps(ctx context.Context, steps []*Step, v *values, in string) error {
	for _, s := range steps {
		if err := w.step(ctx, s, v, in); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) step(ctx context.Context, s *Step, v *values, in string) error {
	if s.When != nil {
		text, err := s.When.render(v)
		if err != nil {
			return w.r.errOf(s, err)
		}
		if !Truthy(text) {
			w.skip(s, v)
			return w.steps(ctx, s.Else, v, in)
		}
	}
	x, from, err := w.tries(ctx, s, v, in)
	if err != nil {
		if w.k.Unwinding(err) {
			return err
		}
		return w.r.errOf(s, err)
	}
	if s.As != "" {
		v.set(s.As, x, from)
	}
	for _, name := range w.r.bound(s.Else) { // what is not done leaves its names empty
		if _, there := v.names[name]; !there {
			v.set(name, "", "")
		}
	}
	return nil
}

// skip binds the name of a step that is not done to nothing, so that it can be asked for.
func (w *worker) skip(s *Step, v *values) {
	if s.As != "" && !w.r.Foreign {
		v.set(s.As, "", "")
	}
}

// bound are the names that a row of steps can give, one of which may stand twice. KARMAX
// leaves names of steps that are not done unbound, so there are none in its format.
func (r *Recipe) bound(steps []*Step) (out []string) {
	if r.Foreign {
		return nil
	}
	for _, s := range steps {
		if s.As != "" {
			out = append(out, s.As)
		}
		out = append(out, r.bound(s.Else)...)
	}
	return out
}

// tries does a step as often as it may be tried.
func (w *worker) tries(ctx context.Context, s *Step, v *values, in string) (x any, from string, err error) {
	err = repeat(ctx, w.k, s.Retry, in+s.ID, func(name string) error {
		return within(ctx, w.k, s, func(ctx context.Context) (err error) {
			x, from, err = w.do(ctx, s, v, name)
			return err
		})
	})
	return x, from, err
}

// repeat does something until it succeeds, fails for good or has been tried often enough.
// Each try has a name of its own.
func repeat(ctx context.Context, k Flow, r *Retry, step string, do func(name string) error) error {
	if r == nil {
		return do(step)
	}
	pause, name := r.Backoff, step
	if pause <= 0 {
		pause = time.Second
	}
	for n := 1; ; n++ {
		err := do(name)
		if err == nil || n >= r.Attempts || k.Unwinding(err) || !again(err) {
			return err
		}
		name = step + "#" + strconv.Itoa(n+1)
		if err := k.Sleep(ctx, name+"-pause", pause); err != nil {
			return err
		}
		pause = min(2*pause, time.Hour)
	}
}

// again reports whether a failure may be another the next time.
func again(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Invalid, fault.Denied, fault.Unknown, fault.Cancelled, fault.Verification:
		return false
	}
	return true
}

// within does a step within its time.
func within(ctx context.Context, k Flow, s *Step, do func(ctx context.Context) error) error {
	if s.Timeout <= 0 || s.Verb == "wait_signal" {
		return do(ctx)
	}
	inner, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := do(inner)
	if err != nil && !k.Unwinding(err) && inner.Err() != nil && ctx.Err() == nil {
		err = fault.New(fault.Timeout, "timeout of %s: it took longer than %s", s.Verb, s.Timeout)
	}
	return err
}

// arg renders a key of a step.
func (s *Step) arg(v *values, key string) (string, error) { return s.Args[key].render(v) }

// args renders several keys.
func (s *Step) args(v *values, keys ...string) ([]string, error) {
	out := make([]string, len(keys))
	for i, key := range keys {
		text, err := s.arg(v, key)
		if err != nil {
			return nil, err
		}
		out[i] = text
	}
	return out, nil
}

// do does a step. from says whose words its result is.
func (w *worker) do(ctx context.Context, s *Step, v *values, name string) (x any, from string, err error) {
	switch s.Verb {
	case "http":
		x, err = w.http(ctx, s, v, name)
		return x, "the web", err
	case "tool":
		x, err = w.tool(ctx, s, v, name)
		return x, "tool " + s.Args["name"].String(), err
	case "recall":
		x, err = w.recall(ctx, s, v, name)
		return x, "memory", err
	case "wait_signal":
		raw, err := w.k.WaitSignal(ctx, name, s.Args["name"].String(), s.Timeout)
		if err != nil {
			return nil, "", err
		}
		x, err = decode(raw)
		return x, "signal " + s.Args["name"].String(), err
	case "foreach":
		x, err = w.foreach(ctx, s, v, name)
		return x, "foreach", err
	case "parallel":
		x, err = w.parallel(ctx, s, v, name)
		return x, "parallel", err
	}
	if think := w.thinking(s.Verb); think != nil {
		prompt, err := s.arg(v, "text")
		if err != nil {
			return nil, "", err
		}
		text, err := think(ctx, name, prompt)
		return text, "step " + s.ID, err
	}
	return nil, "", w.act(ctx, s, v, name)
}

func (w *worker) thinking(verb string) func(ctx context.Context, step, prompt string) (string, error) {
	switch verb {
	case "ask":
		return w.k.Ask
	case "observe":
		return w.k.Observe
	case "gateway":
		return w.k.Gateway
	case "harness", "delegate":
		return w.k.Harness
	}
	return nil
}

// act does a step that has no result.
func (w *worker) act(ctx context.Context, s *Step, v *values, name string) error {
	keys := map[string][]string{
		"remember": {"fact"}, "notify": {"title", "body"}, "propose": {"title", "summary", "action"},
		"remind": {"title", "due", "notes"}, "send": {"to", "text"}, "sleep": {"for"}, "log": {"level", "text"},
	}
	a, err := s.args(v, keys[s.Verb]...)
	if err != nil {
		return err
	}
	switch s.Verb {
	case "remember":
		return w.k.Remember(ctx, name, a[0])
	case "notify":
		return w.k.Notify(ctx, name, a[0], a[1])
	case "propose":
		return w.k.Propose(ctx, name, a[0], a[1], a[2])
	case "remind":
		return w.k.Remind(ctx, name, a[0], a[1], a[2])
	case "send":
		return w.k.Send(ctx, name, a[0], a[1])
	case "log":
		return w.k.Log(ctx, name, orElse(a[0], "info"), a[1])
	case "run":
		return w.k.Start(ctx, name, s.Args["target"].String())
	case "sleep":
		d, err := Length(a[0])
		if err != nil {
			return err
		}
		return w.k.Sleep(ctx, name, d)
	}
	return fault.New(fault.Internal, "nothing does %q", s.Verb)
}

func orElse(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

func (w *worker) http(ctx context.Context, s *Step, v *values, name string) (any, error) {
	a, err := s.args(v, "url", "method", "body")
	if err != nil {
		return nil, err
	}
	req := Request{Method: orElse(strings.ToUpper(a[1]), http.MethodGet), URL: strings.TrimSpace(a[0]), Body: a[2], Headers: map[string]string{}}
	if strings.ContainsAny(req.URL, "\r\n") {
		return nil, fault.New(fault.Invalid, "the URL has more than one line")
	}
	for _, h := range s.Headers {
		if req.Headers[h.Name], err = h.Value.render(v); err != nil {
			return nil, err
		}
	}
	if s.Input != nil {
		raw, err := s.Input.render(v)
		if err != nil {
			return nil, err
		}
		req.Body = string(raw)
		if _, own := req.Headers["Content-Type"]; !own {
			req.Headers["Content-Type"] = "application/json"
		}
	}
	res, err := w.k.HTTP(ctx, name, req)
	if err != nil {
		return nil, err
	}
	if res.Status < 200 || res.Status > 299 {
		return nil, fault.New(fault.Unavailable, "the answer of the server is %d %s", res.Status, http.StatusText(res.Status))
	}
	return res.Body, nil
}

func (w *worker) tool(ctx context.Context, s *Step, v *values, name string) (any, error) {
	input := json.RawMessage("{}")
	if s.Input != nil {
		raw, err := s.Input.render(v)
		if err != nil {
			return nil, err
		}
		input = raw
	}
	out, err := w.k.Tool(ctx, name, s.Args["name"].String(), input)
	if err != nil {
		return nil, err
	}
	return parts(out, w.r.Foreign), nil
}

// parts is what a tool says: in our format what it says in JSON has parts.
func parts(out string, foreign bool) any {
	if foreign || len(out) == 0 || out[0] != '{' && out[0] != '[' {
		return out
	}
	if x, err := decode(json.RawMessage(out)); err == nil {
		return x
	}
	return out
}

func (w *worker) recall(ctx context.Context, s *Step, v *values, name string) (any, error) {
	a, err := s.args(v, "text", "limit")
	if err != nil {
		return nil, err
	}
	limit := 5
	if a[1] != "" {
		if limit, err = strconv.Atoi(strings.TrimSpace(a[1])); err != nil || limit < 1 || limit > maxItems {
			return nil, fault.New(fault.Invalid, "limit is a whole number from 1 to %d, not %q", maxItems, clip(a[1]))
		}
	}
	hits, err := w.k.Recall(ctx, name, a[0], limit)
	return strings.Join(hits, "\n"), err
}

// render makes JSON of a tree. A text that is one value and nothing else is that value.
func (t *Tree) render(v *values) (json.RawMessage, error) {
	x, err := t.value(v)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(x)
	if err == nil && len(raw) > maxText {
		err = fault.New(fault.Invalid, "the input has %d bytes; at most %d are taken", len(raw), maxText)
	}
	return raw, err
}

func (t *Tree) value(v *values) (any, error) {
	switch {
	case t.Value != nil:
		return t.Value, nil
	case t.Object:
		out := object{}
		for _, f := range t.Fields {
			x, err := f.Value.value(v)
			if err != nil {
				return nil, err
			}
			out[f.Key] = x
		}
		return out, nil
	case t.Array:
		out := make([]any, len(t.Items))
		for i, item := range t.Items {
			x, err := item.value(v)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	}
	if !t.Text.Plain() && !t.Text.foreign {
		if x, ok, err := t.Text.raw(v); ok || err != nil {
			if err == nil && x == nil {
				err = fault.New(fault.Invalid, "%s:%d: the value %s is nothing", t.Text.file, t.Text.at.Line, t.Text)
			}
			return x, err
		}
	}
	return t.Text.render(v)
}

// roundName is the beginning of what a round of a foreach records.
func roundName(step string, i int) string { return fmt.Sprintf("%s/%d/", step, i) }
