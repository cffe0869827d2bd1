//go:build unix

package cli

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedServer is a server that is well, and offers more than was accepted.
func cannedServer() wire.MCPServer {
	return wire.MCPServer{
		Name: "github", URL: "https://api.example.com/mcp", Headers: []string{"Authorization=Bearer {{secret:github}}"}, TimeoutS: 60,
		State: "ready", SinceAt: noon, AddedAt: noon, ChangedAt: noon + 3_600_000_000, Says: "github 1.2", Protocol: "2025-11-25",
		Tools: []wire.MCPServerTool{
			{Tool: "create_issue", Name: "mcp.github.create_issue", State: "offered", Description: "Create an issue.", Needs: []string{"mcp.call:github/create_issue"}, Access: "deny", Why: "role assistant: nothing covers mcp.call"},
			{Tool: "fresh", Name: "mcp.github.fresh", State: "new", Description: "Something\u202e new."},
			{Tool: "bad", Name: "mcp.github.bad", State: "refused", Reason: "input schema: the root has type string, must be object"},
		},
	}
}

func cannedServers(m *ipc.Mux) {
	ill := wire.MCPServer{
		Name: "files", Command: []string{"/usr/bin/npx", "-y", "server-filesystem"}, Env: []string{"KEY=•••"}, Network: "proxy", State: "waiting", Failures: 7, CrashLoop: true,
		Error: "it ended: exit code 1", NextAt: noon + 300_000_000, Tools: []wire.MCPServerTool{}, Extra: []string{"envFile"},
	}
	ipc.Handle(m, wire.MCPServerAdd, func(_ context.Context, req wire.MCPServerAddRequest) (wire.MCPServerResult, error) {
		if req.Name == "taken" {
			return wire.MCPServerResult{}, fault.New(fault.Conflict, "there is a server taken").WithHint("remove it first: ombud mcp rm taken")
		}
		return wire.MCPServerResult{Server: wire.MCPServer{
			Name: req.Name, Command: req.Command, URL: req.URL, Env: req.Env, Headers: req.Headers, Dir: req.Dir, Network: req.Network, Read: req.Read, Write: req.Write,
			Private: req.Private, ClientID: req.ClientID, TimeoutS: req.TimeoutS, State: "starting", Tools: []wire.MCPServerTool{},
		}}, nil
	})
	ipc.Handle(m, wire.MCPServerList, answer[wire.Empty](wire.MCPServerListResult{Servers: []wire.MCPServer{ill, cannedServer()}}))
	ipc.Handle(m, wire.MCPServerTest, func(_ context.Context, req wire.MCPServerRequest) (wire.MCPServerTestResult, error) {
		if req.Name == "files" {
			return wire.MCPServerTestResult{Server: ill, Problem: &wire.Problem{
				Class: fault.Unavailable, Message: "server files does not get ready: it ended: exit code 1", Hint: "ombud mcp logs files",
			}}, nil
		}
		return wire.MCPServerTestResult{Server: cannedServer()}, nil
	})
	ipc.Handle(m, wire.MCPServerDiff, func(_ context.Context, req wire.MCPServerRequest) (wire.MCPServerDiffResult, error) {
		if req.Name == "same" {
			return wire.MCPServerDiffResult{Seen: "s", Diffs: []wire.MCPServerDelta{}}, nil
		}
		return wire.MCPServerDiffResult{Seen: "seen-1", Diffs: []wire.MCPServerDelta{{Tool: "fresh", State: "new", Text: "--- nothing\n+++ offered\n@@ -0,0 +1,1 @@\n+name:\n"}}}, nil
	})
	ipc.Handle(m, wire.MCPServerAccept, func(_ context.Context, req wire.MCPServerAcceptRequest) (wire.MCPServerResult, error) {
		if req.Name != "same" && req.Seen != "seen-1" {
			return wire.MCPServerResult{}, fault.New(fault.Conflict, "it offers something else by now")
		}
		return wire.MCPServerResult{Server: cannedServer()}, nil
	})
	ipc.Handle(m, wire.MCPServerLogs, func(_ context.Context, req wire.MCPServerLogsRequest) (wire.MCPServerLogsResult, error) {
		return wire.MCPServerLogsResult{Lines: []wire.MCPServerLine{{At: noon, Text: strings.Repeat("x", req.Lines) + " listening"}}}, nil
	})
	ipc.Handle(m, wire.MCPServerEnable, func(_ context.Context, req wire.MCPServerEnableRequest) (wire.MCPServerResult, error) {
		return wire.MCPServerResult{Server: cannedServer()}, nil
	})
	ipc.Handle(m, wire.MCPServerRemove, answer[wire.MCPServerRequest](wire.Empty{}))
	ipc.HandleStream(m, wire.MCPServerLogin, func(_ context.Context, req wire.MCPServerRequest, send func(wire.MCPServerBrowse) error) (wire.MCPServerResult, error) {
		return wire.MCPServerResult{Server: cannedServer()}, send(wire.MCPServerBrowse{URL: "https://login.example.com/authorize?state=x"})
	})
}
