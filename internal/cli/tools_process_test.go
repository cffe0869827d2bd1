//go:build unix

package cli

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedProcess is a tool process that is well; cannedLoop is one that is not.
func cannedProcess() wire.ToolProcess {
	return wire.ToolProcess{
		Name: "words", Command: []string{"/usr/bin/python3", "/srv/words.py"}, Scopes: []string{"tool:words.*"}, Network: "none", TimeoutS: 60,
		State: "ready", SinceAt: noon, AddedAt: noon, ChangedAt: noon + 3_600_000_000,
		Tools: []wire.ToolProcessTool{
			{Name: "words.count", Description: "Count words.", Says: "tool:words.count", Needs: []string{"tool:words.count"}, Access: "deny", Why: "role assistant: nothing covers tool:words.count"},
			{Name: "words.all", Says: "fs.read", Refused: "it asks for fs.read, which is more than the operator allowed: tool:words.*"},
		},
	}
}

func cannedLoop() wire.ToolProcess {
	return wire.ToolProcess{
		Name: "weather", Command: []string{"/opt/weather"}, Scopes: []string{"tool:weather"}, Network: "proxy", State: "waiting", Failures: 7, CrashLoop: true,
		Error: "it ended: exit code 1", NextAt: noon + 300_000_000, Tools: []wire.ToolProcessTool{},
	}
}

func cannedProcesses(m *ipc.Mux) {
	ipc.Handle(m, wire.ToolsAdd, func(_ context.Context, req wire.ToolsAddRequest) (wire.ToolsAddResult, error) {
		if req.Name == "words" {
			return wire.ToolsAddResult{}, fault.New(fault.Conflict, "there is a tool process words").WithHint("remove it first: ombud tools rm words")
		}
		return wire.ToolsAddResult{Process: wire.ToolProcess{
			Name: req.Name, Command: req.Command, Scopes: req.Scopes, Narrow: req.Narrow, Network: req.Network, Secrets: req.Secrets, Read: req.Read,
			Write: req.Write, Reads: req.Reads, Repeatable: req.Repeatable, TimeoutS: req.TimeoutS, State: "starting", Tools: []wire.ToolProcessTool{},
		}}, nil
	})
	ipc.Handle(m, wire.ToolsRemove, answer[wire.ToolsRemoveRequest](wire.Empty{}))
	ipc.Handle(m, wire.ToolsTest, func(_ context.Context, req wire.ToolsTestRequest) (wire.ToolsTestResult, error) {
		if req.Name == "weather" {
			return wire.ToolsTestResult{Process: cannedLoop(), Problem: &wire.Problem{
				Class: fault.Unavailable, Message: "tool process weather does not get ready: it ended: exit code 1", Hint: "ombud logs",
			}}, nil
		}
		out := wire.ToolsTestResult{Process: cannedProcess()}
		if req.Tool != "" {
			out.Call = &wire.ToolsTestCall{RunID: "run_9", Status: "ok", Text: req.Tool + " of " + string(req.Input), TookUS: 1500, Label: "from untrusted:tool:words"}
		}
		if strings.Contains(string(req.Input), "boom") {
			out.Call.Status, out.Call.Class, out.Call.Text = "unknown", fault.Unknown, "it died"
		}
		return out, nil
	})
}
