package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// DryNow is the clock of a dry run.
var DryNow = time.Date(2026, 8, 10, 9, 0, 0, 0, time.UTC)

// Tried is one step of a dry run.
type Tried struct {
	Step  string            `json:"step"`
	Verb  string            `json:"verb"`
	Line  int               `json:"line"`
	Input map[string]string `json:"input,omitempty"`
	Needs []string          `json:"needs,omitempty"` // scopes
	// Verdict is what becomes of it: allow, ask or deny, "" if it needs nothing.
	Verdict string `json:"verdict,omitempty"`
	Answer  string `json:"answer,omitempty"` // the canned result
}

// Trial is a dry run.
type Trial struct {
	Steps  []Tried         `json:"steps"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Try does a recipe without doing anything: the clock stands at DryNow, every answer is
// canned, nothing waits. judge says what policy would say to a scope; nil leaves it open.
func (r *Recipe) Try(ctx context.Context, kind string, payload json.RawMessage, judge func(need string) string) Trial {
	k := &dryKit{r: r, judge: judge, lines: map[string]int{}}
	Walk(r.Steps, func(s *Step) { k.lines[s.ID] = s.Line })
	start := Start{Kind: kind, Name: "dry-run", At: DryNow, Now: DryNow, Payload: payload}
	result, err := r.Run(ctx, k, start)
	out := Trial{Steps: k.steps, Result: result}
	if err != nil {
		out.Error = err.Error()
		if hint := fault.HintOf(err); hint != "" {
			out.Error += "\n  try: " + hint
		}
	}
	return out
}

// dryKit notes what it is asked to do.
type dryKit struct {
	r     *Recipe
	judge func(need string) string
	lines map[string]int

	mu    sync.Mutex
	steps []Tried
}

var _ Kit = (*dryKit)(nil)

// note records a step. parts are the names and values of what it was given.
func (k *dryKit) note(step, verb, answer string, needs []string, parts ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := Tried{Step: step, Verb: verb, Answer: answer, Needs: needs, Input: map[string]string{}}
	id := step[strings.LastIndexByte(step, '/')+1:]
	if i := strings.IndexByte(id, '#'); i > 0 {
		id = id[:i]
	}
	t.Line = k.lines[id]
	for i := 0; i+1 < len(parts); i += 2 {
		if parts[i+1] != "" {
			t.Input[parts[i]] = parts[i+1]
		}
	}
	if k.judge != nil {
		for _, need := range needs {
			t.Verdict = stricter(t.Verdict, k.judge(need))
		}
	}
	k.steps = append(k.steps, t)
}

// stricter is the one of two verdicts that decides.
func stricter(a, b string) string {
	for _, v := range []string{"deny", "ask", "allow"} {
		if a == v || b == v {
			return v
		}
	}
	return b
}

func (k *dryKit) think(step, verb, need, prompt string) (string, error) {
	answer := "(the answer of " + verb + ")"
	k.note(step, verb, answer, []string{need}, "text", prompt)
	return answer, nil
}

func (k *dryKit) Ask(_ context.Context, step, prompt string) (string, error) {
	return k.think(step, "ask", "tool:agent.ask", prompt)
}

func (k *dryKit) Observe(_ context.Context, step, prompt string) (string, error) {
	return k.think(step, "observe", "tool:agent.ask", prompt)
}

func (k *dryKit) Gateway(_ context.Context, step, prompt string) (string, error) {
	return k.think(step, "gateway", "llm.call:summary", prompt)
}

func (k *dryKit) Harness(_ context.Context, step, prompt string) (string, error) {
	return k.think(step, "harness", "harness:default", prompt)
}

func (k *dryKit) Fence(text, from string) string {
	return "«data from " + from + "»\n" + text + "\n«end of data»"
}

func (k *dryKit) HTTP(_ context.Context, step string, req Request) (Response, error) {
	u, err := url.Parse(req.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Response{}, fault.New(fault.Invalid, "%q is no address of the web", clip(req.URL))
	}
	base := "net.post"
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		base = "net.fetch"
	}
	parts := []string{"method", req.Method, "url", req.URL, "body", req.Body}
	for name, value := range req.Headers {
		parts = append(parts, "header "+name, value)
	}
	k.note(step, "http", "(the page)", needOf(base, req.URL), parts...)
	return Response{Status: 200, Body: "(the page)"}, nil
}

// needOf is the scope of a literal qualifier, nil if there is none.
func needOf(base, qualifier string) []string {
	s, err := scope.Of(base, qualifier)
	if err != nil {
		return nil
	}
	return []string{s.String()}
}

func (k *dryKit) Tool(_ context.Context, step, name string, input json.RawMessage) (string, error) {
	k.note(step, "tool", "(the answer of "+name+")", nil, "name", name, "input", string(input))
	return "(the answer of " + name + ")", nil
}

func (k *dryKit) Recall(_ context.Context, step, query string, limit int) ([]string, error) {
	k.note(step, "recall", "(what is remembered)", []string{"memory.read"}, "text", query, "limit", fmt.Sprint(limit))
	return []string{"(what is remembered)"}, nil
}

func (k *dryKit) Remember(_ context.Context, step, fact string) error {
	k.note(step, "remember", "", []string{"memory.write"}, "fact", fact)
	return nil
}

func (k *dryKit) Notify(_ context.Context, step, title, body string) error {
	k.note(step, "notify", "", []string{"notify.send:operator"}, "title", title, "body", body)
	return nil
}

func (k *dryKit) Propose(_ context.Context, step, title, summary, action string) error {
	k.note(step, "propose", "", []string{"tool:propose"}, "title", title, "summary", summary, "action", action)
	return nil
}

func (k *dryKit) Remind(_ context.Context, step, title, due, notes string) error {
	k.note(step, "remind", "", []string{"remind.write"}, "title", title, "due", due, "notes", notes)
	return nil
}

func (k *dryKit) Send(_ context.Context, step, to, text string) error {
	k.note(step, "send", "", needOf("channel.send", to), "to", to, "text", text)
	return nil
}

func (k *dryKit) Log(_ context.Context, step, level, text string) error {
	k.note(step, "log", "", nil, "level", level, "text", text)
	return nil
}

func (k *dryKit) Sleep(_ context.Context, step string, d time.Duration) error {
	k.note(step, "sleep", "", nil, "for", d.String())
	return nil
}

func (k *dryKit) WaitSignal(_ context.Context, step, name string, timeout time.Duration) (json.RawMessage, error) {
	within := ""
	if timeout > 0 {
		within = timeout.String()
	}
	k.note(step, "wait_signal", "{}", nil, "name", name, "timeout", within)
	return json.RawMessage("{}"), nil
}

func (k *dryKit) Start(_ context.Context, step, target string) error {
	k.note(step, "run", "", needOf("loop", strings.TrimPrefix(target, "loop:")), "target", target)
	return nil
}

// Parallel does the branches one after the other: a dry run has an order.
func (k *dryKit) Parallel(ctx context.Context, step, how string, _ int, branches []Strand) ([]Ended, error) {
	k.note(step, "parallel", "", nil, "join", how)
	var out []Ended
	for _, b := range branches {
		raw, err := b.Do(ctx)
		e := Ended{Name: b.Name, State: "done", Result: raw}
		if err != nil {
			if how == "all" {
				return nil, err
			}
			e.State, e.Error = "failed", err.Error()
		}
		out = append(out, e)
	}
	return out, nil
}

func (k *dryKit) Unwinding(error) bool { return false }
