package signed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/wasmloop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

// made is one host call as it was first made: the step that is kept in front of the call's
// own. By it a call that is made again is known.
type made struct {
	Call    string `json:"call"`    // the host function
	Request []byte `json:"request"` //
	At      int64  `json:"at"`      // Unix µs
	Attempt int    `json:"attempt"`

	n    int
	step string
	seq  int64
}

// The step of call n is h/n, and what was made is h/n/made.
const (
	callPrefix = "h/"
	madeSuffix = "/made"
	madeKind   = "host call"
	stepPrefix = "s/"
	begunStep  = "/begun"
)

// record matches the calls of one execution with those that were made in earlier ones.
type record struct {
	r    *run.Run
	base context.Context // of the execution
	now  func() int64    // Unix µs

	n      int                  // calls so far
	steps  map[string]made      // by the name of the call's step
	newest map[int]made         // that were made as call n in an earlier execution
	latest string               // the step of the call that was made or answered last
	names  func(fn string) bool // whether the installed version names a host function
	kept   int                  // bytes of the requests and answers so far

	mu     sync.Mutex
	within bool // a call is under way
	halted bool
	barred error // why the loop may not go on, if that is why it was halted
}

// newRecord reads what the run has made.
func newRecord(ctx context.Context, r *run.Run, now func() int64) (*record, error) {
	c := &record{r: r, base: ctx, now: now, steps: map[string]made{}, newest: map[int]made{}}
	var bad error
	r.Any(func(s run.Step) bool {
		step, is := strings.CutSuffix(s.Name, madeSuffix)
		if !is || s.Kind != madeKind || s.State != run.Done {
			return false
		}
		var m made
		if err := json.Unmarshal(s.Result, &m); err != nil {
			bad = fault.New(fault.Verification, "the step %s of run %s: %w", s.Name, r.ID(), err)
			return true
		}
		m.n, m.step, m.seq = numberOf(step), step, s.Seq
		c.steps[step] = m
		if m.seq > c.newest[m.n].seq {
			c.newest[m.n] = m
		}
		return false
	})
	return c, bad
}

func numberOf(step string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(step, callPrefix), "~")
	n, _ := strconv.Atoi(digits) // we wrote it
	return n
}

// match finds the step of the next call and the request to make it with. A call that was
// made with the same request is that one. Within an attempt of the run the execution is the
// same one all along, put away and done again: there a call of the same host function at the
// same place is the one that was made, whatever its request says now, and goes on as it was
// begun. Any other is new.
func (c *record) match(ctx context.Context, call string, request []byte) (step string, with []byte, err error) {
	c.n++
	step = callPrefix + strconv.Itoa(c.n)
	other := step + "~" + short(call, request)
	for _, name := range []string{step, other} {
		if m, there := c.steps[name]; there && m.Call == call && bytes.Equal(m.Request, request) {
			c.latest = name
			return name, request, nil
		}
	}
	if m := c.newest[c.n]; m.step != "" && m.Attempt == c.r.Record().Attempt && m.Call == call && toolOf(m) == toolOf(made{Call: call, Request: request}) {
		c.latest = m.step
		return m.step, m.Request, nil
	}
	if !c.names(call) {
		return "", nil, fmt.Errorf("%w: the version that is installed now does not name %q under host", wasmloop.ErrRefused, call)
	}
	if _, taken := c.steps[step]; taken {
		step = other
	}
	c.latest = step
	return step, request, c.make(ctx, step, made{Call: call, Request: bytes.Clone(request), n: c.n})
}

// toolOf is the tool that a call calls; to call another is no repetition.
func toolOf(m made) string {
	var in abi.ToolCall
	if m.Call != wasmloop.FnTool || json.Unmarshal(m.Request, &in) != nil {
		return ""
	}
	return in.Name
}

// short tells requests apart.
func short(call string, request []byte) string {
	sum := sha256.Sum256(append([]byte(call+"\x00"), request...))
	return hex.EncodeToString(sum[:6])
}

// make records a call that is about to be made. It rides with the commit of the call.
func (c *record) make(ctx context.Context, step string, m made) error {
	m.At, m.Attempt, m.step = c.now(), c.r.Record().Attempt, step
	spec := run.StepSpec{Name: step + madeSuffix, Kind: madeKind, Policy: run.Policy{Kind: run.Repeatable}, Lazy: true}
	_, err := c.r.Do(ctx, spec, func(context.Context) run.Outcome {
		raw, err := json.Marshal(m)
		if err != nil {
			return run.Fail(err)
		}
		return run.Succeed(raw)
	})
	c.steps[step] = m
	return err
}

// replaying reports whether the next call was made in an earlier execution.
func (c *record) replaying() bool { return c.newest[c.n+1].At > 0 }

// clock is the wall clock of the module: while calls are answered from the record, the time
// at which the next of them was made.
func (c *record) clock() time.Time {
	if at := c.newest[c.n+1].At; at > 0 {
		return time.UnixMicro(at)
	}
	return time.UnixMicro(c.now())
}

// place is where the module is, in the steps of its calls.
func (c *record) place() string {
	if c.latest == "" {
		return "0"
	}
	return strings.TrimPrefix(c.latest, callPrefix)
}

// enter begins a call; it fails once the daemon stops.
func (c *record) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halted {
		return c.stopping()
	}
	c.within = true
	return nil
}

// exit ends it.
func (c *record) exit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.within = false
	if c.halted {
		return c.stopping()
	}
	return nil
}

// stopping is why a halted module does not go on: the loop may not, or by the engine's word,
// which begins no step any more, the daemon stops.
func (c *record) stopping() error {
	if c.barred != nil {
		return c.barred
	}
	_, err := c.r.Step(c.base, "stopping", run.Policy{Kind: run.Repeatable}, func(context.Context) (json.RawMessage, error) { return nil, nil })
	return err
}

// halt stops the module when the daemon stops, or when the loop is barred: at once if it
// computes, else behind the call it waits for. All it did is recorded, and one that is not
// barred goes on at the next start.
func (c *record) halt(stop func(), barred error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halted {
		return
	}
	c.halted, c.barred = true, barred
	if !c.within {
		stop()
	}
}

// around does one host call of the module as a step.
func (k *kit) around(ctx context.Context, c wasmloop.Call, do func(context.Context, []byte) ([]byte, error)) (answer []byte, err error) {
	if k.why != nil {
		return nil, wasmloop.ErrStop
	}
	if err := k.may(); err != nil {
		return nil, k.end(err)
	}
	if err := k.enter(); err != nil {
		return nil, k.end(err)
	}
	defer func() {
		if stop := k.exit(); stop != nil {
			answer, err = nil, k.end(stop)
		}
	}()
	if k.n >= maxCalls {
		return nil, k.end(fault.New(fault.Invalid, "%s made %d host calls that reach something, the most one run can", k.k.Subject(), maxCalls))
	}
	if err := k.keep(len(c.Request)); err != nil {
		return nil, err
	}
	step, request, err := k.match(ctx, c.Name, c.Request)
	if err != nil {
		return nil, k.told(err)
	}
	k.ctx, k.step, k.behind = ctx, step, 0
	answer, err = do(ctx, request)
	if over := k.keep(len(answer)); over != nil && err == nil {
		return nil, over
	}
	return answer, err
}

// keep counts what is recorded, and ends a module of which it is too much.
func (k *kit) keep(n int) error {
	if k.kept += n; k.kept > maxKept {
		return k.end(fault.New(fault.Invalid, "%s made and got more than %d MiB of requests and answers, the most one run can", k.k.Subject(), maxKept>>20))
	}
	return nil
}

// ended is the record of a step of the module's own, with where the module was at its end:
// the calls within it are not made again where it is answered from here.
type ended struct {
	Result json.RawMessage `json:"result"`
	Calls  int             `json:"calls"`
	Latest string          `json:"latest,omitempty"`
	Behind int             `json:"behind,omitempty"`
	Kept   int             `json:"kept,omitempty"`
	Label  label.Label     `json:"label"`
}

// StepBegin returns what a step of the module came to. One that must not be done twice is
// unknown where it was begun, no host call was made in it, and nobody can tell whether the
// module came to its end: only a call leaves something outside of the module, and those are
// in the record.
func (k *kit) StepBegin(_ context.Context, name string, once bool) (json.RawMessage, bool, error) {
	if err := named("a step", name); err != nil {
		return nil, false, err
	}
	if k.why != nil {
		return nil, false, wasmloop.ErrStop
	}
	if raw, done := k.k.Done(stepPrefix + name); done {
		var e ended
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, false, fault.New(fault.Verification, "the step %q: %w", name, err)
		}
		k.n, k.latest, k.behind, k.kept = max(k.n, e.Calls), e.Latest, e.Behind, max(k.kept, e.Kept)
		k.k.ReadJSON(e.Label, e.Result)
		return e.Result, true, nil
	}
	if !once {
		return nil, false, nil
	}
	return nil, false, k.begin(stepPrefix + name)
}

// begin records that a step that must not be done twice is begun.
func (k *kit) begin(step string) error {
	attempt := k.r.Record().Attempt
	if s, there := k.r.Recorded(step + begunStep + strconv.Itoa(attempt)); there {
		if k.callBehind(s.Seq) {
			return nil // it stopped at a call
		}
		return fmt.Errorf("%w: it was begun, and the daemon ended before it did", wasmloop.ErrUnknown)
	}
	spec := run.StepSpec{Name: step + begunStep + strconv.Itoa(attempt), Kind: "begun"}
	_, err := k.r.DoTx(k.base, spec, func(context.Context, *db.Tx) run.Outcome { return run.Succeed(nil) })
	return k.told(err)
}

// callBehind reports whether a call was recorded behind a step.
func (c *record) callBehind(seq int64) bool {
	return c.r.Any(func(s run.Step) bool { return s.Kind == madeKind && s.Seq > seq })
}

const maxName = 200

// named refuses a name that not every store can keep, which would fail in the middle of what
// is done under it.
func named(what, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%w request: %s has a name of 1 to %d bytes without a NUL", wasmloop.ErrMalformed, what, maxName)
	}
	return nil
}

// StepEnd records what a step came to.
func (k *kit) StepEnd(_ context.Context, name string, result json.RawMessage) error {
	if k.why != nil {
		return wasmloop.ErrStop
	}
	if err := k.keep(len(result)); err != nil {
		return err
	}
	raw, err := json.Marshal(ended{
		Result: result, Calls: k.n, Latest: k.latest, Behind: k.behind, Kept: k.kept, Label: k.k.Label(),
	})
	if err != nil {
		return err
	}
	_, err = k.k.Step(k.base, stepPrefix+name, func(context.Context) (json.RawMessage, error) { return raw, nil })
	return k.told(err)
}
