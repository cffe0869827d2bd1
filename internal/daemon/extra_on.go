//go:build failpoint

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/trigger"
)

// extraTools are the outside world of the crash campaign: tools whose effect is a
// line in the file that CRASH_WORLD names. They do not exist in what we ship.
func (d *Daemon) extraTools() []registrar {
	path := os.Getenv("CRASH_WORLD")
	if path == "" {
		return nil
	}
	return []registrar{crashWorld(path)}
}

type crashWorld string

// Register adds one tool for each way an interrupted call is treated.
func (w crashWorld) Register(r *tool.Registry) error {
	for _, t := range []struct {
		name   string
		repeat tool.Repeat
		probe  func(context.Context, tool.Invocation) (tool.ProbeResult, error)
	}{
		{"crash.once", tool.AtMostOnce, nil},
		{"crash.repeat", tool.Repeatable, nil},
		{"crash.probed", tool.Probed, w.probe},
	} {
		def := tool.Definition{
			Name: t.name, Description: "leaves a line outside, for the crash campaign",
			Input: json.RawMessage(`{"type":"object","properties":{"line":{"type":"string"},"ask":{"type":"boolean"},"wait_ms":{"type":"integer"}},"required":["line"],"additionalProperties":false}`),
			Kind:  tool.Effect, Repeat: t.repeat, Timeout: 10 * time.Second, MaxOutput: 1 << 16, Source: label.Own,
			Scopes: crashScopes, Probe: t.probe,
			Summary: func(json.RawMessage) string { return t.name },
		}
		if err := r.Add(def, w.write); err != nil {
			return err
		}
	}
	return nil
}

type crashInput struct {
	Line string `json:"line"`
	Ask  bool   `json:"ask"`
	Wait int    `json:"wait_ms"` // before the line is left
}

// crashScopes lets the script choose what policy says: tool:crash or tool:crash-ask.
func crashScopes(input json.RawMessage) ([]scope.Scope, error) {
	var in crashInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	name := "tool:crash"
	if in.Ask {
		name = "tool:crash-ask"
	}
	s, err := scope.Parse(name)
	return []scope.Scope{s}, err
}

func (w crashWorld) write(ctx context.Context, in tool.Invocation) (tool.Output, error) {
	var input crashInput
	if err := json.Unmarshal(in.Input, &input); err != nil {
		return tool.Output{}, err
	}
	select {
	case <-time.After(time.Duration(input.Wait) * time.Millisecond):
	case <-ctx.Done():
		return tool.Output{}, ctx.Err()
	}
	f, err := os.OpenFile(string(w), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return tool.Output{}, err
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s\t%s\n", input.Line, in.Key); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: "left " + input.Line}, nil
}

func (w crashWorld) probe(_ context.Context, in tool.Invocation) (tool.ProbeResult, error) {
	f, err := os.Open(string(w))
	if os.IsNotExist(err) {
		return tool.ProbeResult{State: tool.NotDone}, nil
	}
	if err != nil {
		return tool.ProbeResult{}, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line, key, _ := strings.Cut(lines.Text(), "\t"); key == in.Key {
			return tool.ProbeResult{State: tool.Done, Output: tool.Output{Text: "left " + line}}, nil
		}
	}
	return tool.ProbeResult{State: tool.NotDone}, nil
}

// extraLoops are the loops of the crash campaign: one that takes every verb, and one it
// runs.
func (d *Daemon) extraLoops() []loops.Loop {
	if os.Getenv("CRASH_WORLD") == "" {
		return nil
	}
	on := []trigger.On{{Manual: true}, {Timer: true}}
	return []loops.Loop{
		{Name: "crash", Description: "takes every verb, for the crash campaign", On: on, Run: crashLoop},
		{Name: "crash-inner", Description: "is run by crash", On: on, Run: func(ctx context.Context, k *loops.Kit) error {
			_, err := k.Tool(ctx, "tool", "crash.repeat", json.RawMessage(`{"line":"inner"}`))
			return err
		}},
	}
}

func crashLoop(ctx context.Context, k *loops.Kit) error {
	if k.Trigger().Kind == trigger.ByTimer {
		return k.Log(ctx, "again", loops.Info, "the timer came with "+string(k.Trigger().Payload))
	}
	line := func(text string) json.RawMessage { return json.RawMessage(`{"line":"` + text + `"}`) }
	var reply string
	for _, do := range []func() error{
		func() error { _, err := k.Tool(ctx, "repeat", "crash.repeat", line("loop-repeat")); return err },
		func() error { _, err := k.Tool(ctx, "probed", "crash.probed", line("loop-probed")); return err },
		func() error { _, err := k.Tool(ctx, "once", "crash.once", line("loop-once")); return err },
		func() (err error) { reply, err = k.Ask(ctx, "ask", "five"); return err },
		func() error { _, err := k.Observe(ctx, "observe", "five"); return err },
		func() error { _, err := k.Gateway(ctx, "gateway", "five"); return err },
		func() error { return k.Remember(ctx, "remember", "The loop said "+reply+".") },
		func() error { _, err := k.Recall(ctx, "recall", "loop said", 3); return err },
		func() error { return k.ShortSet(ctx, "set", "g", "k", reply, time.Hour) },
		func() error { _, _, err := k.ShortGet(ctx, "get", "g", "k"); return err },
		func() error { return k.Log(ctx, "log", loops.Info, "half of it is done") },
		func() error { return k.Propose(ctx, "propose", "a proposal", "", "one") },
		func() error {
			return k.Remind(ctx, "remind", "a reminder", time.Now().Add(time.Hour).Format(time.RFC3339), "")
		},
		func() error { return k.After(ctx, "after", "soon", time.Millisecond, json.RawMessage(`{"n":1}`)) },
		func() error { return k.After(ctx, "later", "later", time.Hour, nil) },
		func() error { return k.CancelAfter(ctx, "cancel", "later") },
		func() error { return k.Sleep(ctx, "sleep", time.Millisecond) },
		func() error { return k.RunLoop(ctx, "run", "crash-inner") },
		func() error {
			_, err := k.Step(ctx, "step", func(context.Context) (json.RawMessage, error) { return json.RawMessage(`1`), nil })
			return err
		},
		func() error { return k.Send(ctx, "send", "operator", "sent by the loop") },
		func() error { return k.Notify(ctx, "notify", "done", "told by the loop") },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
