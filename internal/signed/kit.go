package signed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/wasmloop"
)

// Bounds of one run, beside its time and its memory.
const (
	maxCalls   = 1000   // host calls that reach something
	maxAny     = 10_000 // host calls of all kinds
	maxLines   = 1000   // lines of log
	maxLog     = 256 << 10
	maxPrinted = 1 << 20
	maxAnswer  = 16 << 20
	maxKept    = 64 << 20 // bytes of the requests and answers that one run records
)

// kit is what the calls of one execution of a module do: the kit of compiled-in loops,
// with a step for each call.
type kit struct {
	*record
	k      *loops.Kit
	config map[string]string
	may    func() error // whether the loop may still run: it may have been removed, or its key revoked

	ctx  context.Context // of the call under way
	step string          // its step
	why  error           // of the end that a call made of the execution

	lines  int    // of log
	behind int    // of these, since the last call
	said   string // the last line on stderr
}

var _ wasmloop.DurableKit = (*kit)(nil)

// told is an error as the runner understands it. One that ends the execution is kept: it is
// what the run's handler returns.
func (k *kit) told(err error) error {
	switch {
	case err == nil:
		return nil
	case k.why != nil || run.Unwinding(err):
		return k.end(err)
	case loops.Refused(err):
		return fmt.Errorf("%w: %w", wasmloop.ErrRefused, err)
	case fault.Is(err, fault.Unknown):
		return fmt.Errorf("%w: %w", wasmloop.ErrUnknown, err)
	}
	return err
}

// end stops the module. The first reason counts.
func (k *kit) end(why error) error {
	if k.why == nil {
		k.why = why
	}
	return wasmloop.ErrStop
}

func (k *kit) Recall(query string, limit int) ([]string, error) {
	facts, err := k.k.Recall(k.ctx, k.step, query, limit)
	return facts, k.told(err)
}

func (k *kit) Remember(fact string) error {
	return k.told(k.k.Remember(k.ctx, k.step, fact))
}

func (k *kit) Notify(title, body string) error {
	return k.told(k.k.Notify(k.ctx, k.step, title, body))
}

func (k *kit) Ask(_ context.Context, prompt string) (string, error) {
	answer, err := k.k.Ask(k.ctx, k.step, prompt)
	return answer, k.told(err)
}

func (k *kit) Harness(_ context.Context, prompt string) (string, error) {
	report, err := k.k.Harness(k.ctx, k.step, prompt)
	return report, k.told(err)
}

// Gateway asks a model without tools: nothing that could be lent is known here, and a name
// that is not known is passed over.
func (k *kit) Gateway(_ context.Context, prompt string, _ ...string) (string, error) {
	answer, err := k.k.Gateway(k.ctx, k.step, prompt)
	return answer, k.told(err)
}

func (k *kit) Summarize(_ context.Context, prompt string) (string, error) {
	text, err := k.k.Summarize(k.ctx, k.step, prompt)
	return text, k.told(err)
}

func (k *kit) HTTP(_ context.Context, method, url string, headers map[string]string, body string) (string, int, error) {
	resp, err := k.k.HTTP(k.ctx, k.step, loops.HTTPRequest{Method: strings.ToUpper(method), URL: url, Headers: headers, Body: body})
	return resp.Body, resp.Status, k.told(err)
}

func (k *kit) Config(key string) string { return k.config[key] }

// HostTool is the setting "hosttool.NAME", else the name: nothing of the host can be run
// from a module, so it is only a word for what a tool is told.
func (k *kit) HostTool(name string) string {
	if path := k.config["hosttool."+name]; path != "" {
		return path
	}
	return name
}

// OperatorChats are the setting "operator_chats", separated by commas, else the chats of
// paired identities.
func (k *kit) OperatorChats() []string {
	if set := k.config["operator_chats"]; set != "" {
		return strings.FieldsFunc(set, func(r rune) bool { return r == ',' || r == ' ' })
	}
	chats, err := k.k.OperatorChats(k.base)
	if err != nil {
		k.Log(k.base, loops.Warn, "the operator's chats cannot be told: "+err.Error(), nil)
	}
	return chats
}

func (k *kit) Propose(title, summary, action string) error {
	return k.told(k.k.Propose(k.ctx, k.step, title, summary, action))
}

func (k *kit) Remind(title, due, notes string) error {
	return k.told(k.k.Remind(k.ctx, k.step, title, due, notes))
}

func (k *kit) Tool(_ context.Context, name string, input map[string]any) (string, error) {
	if input == nil {
		input = map[string]any{}
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	out, err := k.k.Tool(k.ctx, k.step, name, raw)
	if err != nil {
		return "", k.told(err)
	}
	return out, nil
}

func (k *kit) ShortSet(group, key, value string, ttlSeconds int) error {
	ttl := time.Duration(max(0, min(int64(ttlSeconds), maxSeconds))) * time.Second
	return k.told(k.k.ShortSet(k.ctx, k.step, group, key, value, ttl))
}

// maxSeconds is a hundred years.
const maxSeconds = 100 * 366 * 24 * 3600

func (k *kit) ShortGet(group, key string) (string, bool, error) {
	value, found, err := k.k.ShortGet(k.ctx, k.step, group, key)
	return value, found, k.told(err)
}

func (k *kit) ShortAll(group string) ([]wasmloop.ShortMemory, error) {
	all, err := k.k.ShortAll(k.ctx, k.step, group)
	out := make([]wasmloop.ShortMemory, 0, len(all))
	for _, e := range all {
		out = append(out, wasmloop.ShortMemory(e))
	}
	return out, k.told(err)
}

func (k *kit) ShortForget(group, key string) error {
	return k.told(k.k.ShortForget(k.ctx, k.step, group, key))
}

func (k *kit) ChatSummary(jid string) (*wasmloop.ChatSummary, error) {
	raw, err := k.k.ChatSummary(k.ctx, k.step, jid)
	if err != nil || raw == nil {
		return nil, k.told(err)
	}
	var s wasmloop.ChatSummary
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fault.New(fault.Verification, "the summary of a chat: %w", err)
	}
	return &s, nil
}

func (k *kit) SaveChatSummary(s wasmloop.ChatSummary) error {
	if s.ChatJID == "" {
		return fmt.Errorf("%w request: the summary names no chat", wasmloop.ErrMalformed)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return k.told(k.k.SaveChatSummary(k.ctx, k.step, s.ChatJID, raw))
}

func (k *kit) RunLoop(name string) error {
	return k.told(k.k.RunLoop(k.ctx, k.step, name))
}

func (k *kit) Sleep(_ context.Context, d time.Duration) error {
	return k.told(k.k.Sleep(k.ctx, k.step, d))
}

// After takes an object or nothing: a trigger's payload is one.
func (k *kit) After(_ context.Context, id string, d time.Duration, payload json.RawMessage) error {
	if err := named("a timer", id); err != nil {
		return err
	}
	var object map[string]json.RawMessage
	if len(payload) > 0 && json.Unmarshal(payload, &object) != nil {
		return fmt.Errorf("%w request: the payload of a timer is an object", wasmloop.ErrMalformed)
	}
	if object == nil {
		payload = nil
	}
	return k.told(k.k.After(k.ctx, k.step, id, d, payload))
}

func (k *kit) CancelAfter(_ context.Context, id string) error {
	if err := named("a timer", id); err != nil {
		return err
	}
	return k.told(k.k.CancelAfter(k.ctx, k.step, id))
}

func (k *kit) WaitSignal(_ context.Context, name string, timeout time.Duration) (json.RawMessage, error) {
	if err := named("a signal", name); err != nil {
		return nil, err
	}
	payload, err := k.k.WaitSignal(k.ctx, k.step, name, timeout)
	return payload, k.told(err)
}

func (k *kit) Fence(text, from string) string { return k.k.Fence(text, from) }

// Progress is told of what is done now; what is answered from the record is long past.
func (k *kit) Progress(ctx context.Context, text string, done, total int) {
	if !k.replaying() {
		k.k.Progress(ctx, text, done, total)
	}
}

// Log keeps a line under its place behind the last call, so that a run that is done again
// does not keep it twice.
func (k *kit) Log(_ context.Context, level, text string, fields map[string]string) {
	k.behind++
	if k.lines++; k.lines > maxLines {
		return
	}
	if k.lines == maxLines {
		level, text, fields = loops.Warn, fmt.Sprintf("the run has logged %d lines; what follows is not kept", maxLines), nil
	}
	if !slices.Contains([]string{loops.Debug, loops.Info, loops.Warn, loops.Error}, level) {
		level = loops.Info
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text += " " + name + "=" + fields[name]
	}
	err := k.k.Log(k.base, fmt.Sprintf("log/%s.%d", k.place(), k.behind), level, text)
	if err != nil && k.why == nil && run.Unwinding(err) {
		k.why = err // the next call stops
	}
}

// failed is what became of a module that did not return, for whoever reads it: with what it
// said last.
func (k *kit) failed(err error) error {
	if k.said == "" || errors.Is(err, wasmloop.ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w; it said last: %s", err, k.said)
}
