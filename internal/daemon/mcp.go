package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/mcp/asks"
	mcpclient "github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/wire"
)

// maxListed is how much of what a server says of a tool is in a list, in bytes.
const maxListed = 200

// maxKeptPart bounds what is kept of a picture or the like in a result of a server.
const maxKeptPart = 64 << 20

// openServers constructs the servers whose tools can be called, and makes known what was
// accepted of them. None is reached yet.
func (d *Daemon) openServers(ctx context.Context) error {
	d.servers = mcpclient.New(mcpclient.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Tools: d.tools, Dir: d.o.Instance.MCPDir, Secret: d.secrets.Resolve,
		Redact: d.hide.String, Hold: d.hold.Held, Version: d.o.Version, Logger: d.log,
		Launch: func(ctx context.Context, s confine.Spec) (supervise.Child, error) {
			job, err := d.confined.launcher.Start(ctx, s)
			if err != nil {
				return nil, err
			}
			return job, nil
		},
		Know: func(name, value string) { d.hide.Register(name, []byte(value)) },
		Keep: func(ctx context.Context, b []byte) (string, error) {
			ref, err := d.blobs.Put(ctx, bytes.NewReader(b), maxKeptPart)
			return ref.ID, err
		},
		Tell: func(ctx context.Context, tx *db.Tx, cause, text string) error {
			return d.agents.NoticeTx(ctx, tx, cause, text)
		},
		Ask: d.mcpAsks.Ask,
	}, mcpclient.Config{})
	return d.servers.Open(ctx)
}

// fillAsks gives what answers the questions of servers the parts it uses.
func (d *Daemon) fillAsks(kinds *run.Kinds) error {
	d.asksDeps = asks.Deps{Runs: d.runs, Jobs: d.jobs, Budget: d.budget, Models: d.agents, Hide: d.hide, Logger: d.log}
	return kinds.Add(d.mcpAsks.Kind())
}

// serverMethods are the operator's methods about servers.
func (d *Daemon) serverMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.MCPServerAdd, d.serverAdd)
	ipc.Handle(m, wire.MCPServerList, func(ctx context.Context, _ wire.Empty) (wire.MCPServerListResult, error) {
		out := wire.MCPServerListResult{Servers: []wire.MCPServer{}}
		for _, i := range d.servers.List() {
			s, err := d.wireServer(ctx, i)
			if err != nil {
				return out, err
			}
			for n := range s.Tools { // test NAME shows them whole
				s.Tools[n].Description, _ = guard.CutText(s.Tools[n].Description, maxListed)
			}
			out.Servers = append(out.Servers, s)
		}
		return out, nil
	})
	ipc.Handle(m, wire.MCPServerTest, func(ctx context.Context, req wire.MCPServerRequest) (out wire.MCPServerTestResult, err error) {
		info, notReady := d.servers.Test(ctx, req.Name)
		if info.Spec.Name == "" || ctx.Err() != nil {
			return out, notReady
		}
		if out.Server, err = d.wireServer(ctx, info); err != nil {
			return out, err
		}
		if notReady != nil {
			out.Problem = &wire.Problem{Class: fault.ClassOf(notReady), Message: notReady.Error(), Hint: fault.HintOf(notReady)}
		}
		return out, nil
	})
	ipc.Handle(m, wire.MCPServerDiff, func(_ context.Context, req wire.MCPServerRequest) (wire.MCPServerDiffResult, error) {
		diffs, seen, err := d.servers.Diff(req.Name)
		out := wire.MCPServerDiffResult{Seen: seen, Diffs: []wire.MCPServerDelta{}}
		for _, x := range diffs {
			out.Diffs = append(out.Diffs, wire.MCPServerDelta{Tool: x.Tool, State: x.State, Text: x.Text})
		}
		return out, err
	})
	ipc.Handle(m, wire.MCPServerAccept, func(ctx context.Context, req wire.MCPServerAcceptRequest) (wire.MCPServerResult, error) {
		return d.serverResult(ctx)(d.servers.Accept(ctx, req.Name, req.Seen, byOperator))
	})
	ipc.Handle(m, wire.MCPServerEnable, func(ctx context.Context, req wire.MCPServerEnableRequest) (wire.MCPServerResult, error) {
		return d.serverResult(ctx)(d.servers.Enable(ctx, req.Name, req.On, byOperator))
	})
	ipc.Handle(m, wire.MCPServerLogs, func(_ context.Context, req wire.MCPServerLogsRequest) (wire.MCPServerLogsResult, error) {
		n := req.Lines
		if n <= 0 {
			n = 1000
		}
		lines, err := d.servers.Logs(req.Name, n)
		out := wire.MCPServerLogsResult{Lines: []wire.MCPServerLine{}}
		for _, l := range lines {
			out.Lines = append(out.Lines, wire.MCPServerLine{At: l.At.UnixMicro(), Text: l.Text})
		}
		return out, err
	})
	ipc.Handle(m, wire.MCPServerRemove, func(ctx context.Context, req wire.MCPServerRequest) (wire.Empty, error) {
		return wire.Empty{}, d.servers.Remove(ctx, req.Name, byOperator)
	})
	ipc.HandleStream(m, wire.MCPServerLogin, func(ctx context.Context, req wire.MCPServerRequest, send func(wire.MCPServerBrowse) error) (wire.MCPServerResult, error) {
		err := d.servers.Login(ctx, req.Name, byOperator, func(url string) error { return send(wire.MCPServerBrowse{URL: url}) })
		if err != nil {
			return wire.MCPServerResult{}, err
		}
		return d.serverResult(ctx)(d.servers.Test(ctx, req.Name))
	})
}

// serverResult makes the answer of what the servers return.
func (d *Daemon) serverResult(ctx context.Context) func(mcpclient.Info, error) (wire.MCPServerResult, error) {
	return func(i mcpclient.Info, err error) (out wire.MCPServerResult, _ error) {
		if err == nil {
			out.Server, err = d.wireServer(ctx, i)
		}
		return out, err
	}
}

func (d *Daemon) serverAdd(ctx context.Context, req wire.MCPServerAddRequest) (out wire.MCPServerResult, err error) {
	s := mcpclient.Spec{
		Name: req.Name, Command: req.Command, Dir: req.Dir, Network: req.Network, Read: req.Read, Write: req.Write, URL: req.URL,
		Private: req.Private, ClientID: req.ClientID, Reads: req.Reads, Repeatable: req.Repeatable,
		Timeout: time.Duration(req.TimeoutS) * time.Second, Disabled: req.Disabled, NoElicitation: req.NoElicit, Sampling: req.Sampling,
	}
	if s.Env, err = assignments(req.Env); err != nil {
		return out, err
	}
	if s.Headers, err = assignments(req.Headers); err != nil {
		return out, err
	}
	for _, x := range req.Extra {
		if s.Extra == nil {
			s.Extra = map[string]json.RawMessage{}
		}
		s.Extra[x.Name] = x.Value
	}
	if err := s.Check(); err != nil {
		return out, err
	}
	for _, name := range s.Secrets() {
		if err := d.secrets.Check(ctx, name); err != nil {
			return out, err
		}
	}
	return d.serverResult(ctx)(d.servers.Add(ctx, s, byOperator))
}

// assignments reads NAME=VALUE. The error does not repeat them: they may be secret.
func assignments(texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Invalid, "a variable or a header is given as NAME=VALUE")
		}
		out[name] = value
	}
	return out, nil
}

func (d *Daemon) wireServer(ctx context.Context, i mcpclient.Info) (wire.MCPServer, error) {
	s := i.Spec
	out := wire.MCPServer{
		Name: s.Name, Command: s.Command, URL: s.URL, Env: mcpclient.Hidden(s.Env), Dir: s.Dir, Network: s.Network, Read: s.Read, Write: s.Write,
		Headers: mcpclient.Hidden(s.Headers), Private: s.Private, ClientID: s.ClientID, Reads: s.Reads, Repeatable: s.Repeatable,
		TimeoutS: int(s.CallTimeout() / time.Second), NoElicit: s.NoElicitation, Sampling: s.Sampling, Extra: slices.Sorted(maps.Keys(s.Extra)), State: string(i.State), SinceAt: i.Since, PID: i.PID,
		Failures: i.Failures, CrashLoop: i.Loops, Error: i.Error, Hint: i.Hint, NextAt: i.Next, AddedAt: i.Added, ChangedAt: i.Changed,
		Says: i.Says, Protocol: i.Protocol, Cut: i.Cut, LoggedIn: i.LoggedIn, Noise: i.Noise, Tools: []wire.MCPServerTool{},
	}
	if out.Network == "" && !s.Remote() {
		out.Network = "proxy"
	}
	for _, t := range i.Tools {
		w := wire.MCPServerTool{
			Tool: t.Tool, Name: t.Name, State: t.State, Reason: t.Reason, Description: t.Description, Needs: t.Needs, ReadOnly: t.ReadOnly, Repeatable: t.Repeatable,
		}
		if t.State == mcpclient.StateOffered {
			var err error
			if w.Access, w.Why, err = d.mayCall(ctx, t.Name, t.Needs); err != nil {
				return out, err
			}
		}
		out.Tools = append(out.Tools, w)
	}
	return out, nil
}

// mayCall is what the default agent may do with a tool now whose needs do not depend on
// its input, and why not more.
func (d *Daemon) mayCall(ctx context.Context, name string, needs []string) (access, why string, err error) {
	def, err := d.tools.Get(name)
	if fault.Is(err, fault.NotFound) {
		return "", "", nil // it has just changed
	}
	if err != nil {
		return "", "", err
	}
	in, err := d.agents.DefaultInput(ctx)
	if err != nil {
		return "", "", err
	}
	in.Tool = policy.ToolFacts{Name: def.Name, Irreversible: def.Irreversible}
	for _, text := range needs {
		need, err := scope.Parse(text)
		if err != nil {
			return "", "", err
		}
		in.Scopes = append(in.Scopes, need)
	}
	decided := policy.Decide(&in)
	for _, r := range decided.Reasons {
		why = r.Text // the first says most: a role comes before grants
		break
	}
	return decided.Effect.String(), why, nil
}

// serverNotices are the servers that offer other than what was accepted, or are gone again
// and again, each in a line.
func (d *Daemon) serverNotices() (out []string) {
	for _, i := range d.servers.List() {
		switch name := i.Spec.Name; {
		case i.Loops:
			out = append(out, fmt.Sprintf("the MCP server %s was gone %d times in a row: %s (ombud mcp test %s)", name, i.Failures, i.Error, name))
		case i.Changed > 0:
			out = append(out, fmt.Sprintf("the MCP server %s offers other tools than you accepted (ombud mcp diff %s)", name, name))
		}
	}
	return out
}

// serverCheck is doctor's line about servers.
func (d *Daemon) serverCheck() wire.Check {
	c := wire.Check{ID: "mcp.servers", Status: "ok"}
	var parts []string
	for _, i := range d.servers.List() {
		what := string(i.State)
		switch {
		case i.Loops:
			c.Status, c.Hint = "fail", "ombud mcp test NAME reaches one and says what is wrong; ombud mcp logs NAME has what it says"
			what += ": " + i.Error
		case i.Error != "":
			if c.Status == "ok" {
				c.Status, c.Hint = "warn", "ombud mcp test NAME reaches one and says what is wrong"
			}
			what += ": " + i.Error
		case i.Changed > 0:
			if c.Status == "ok" {
				c.Status, c.Hint = "warn", "ombud mcp diff NAME shows what is new; it is not used before ombud mcp accept NAME"
			}
			what += " and offers other tools than you accepted"
		}
		parts = append(parts, i.Spec.Name+" is "+what)
	}
	if c.Detail = strings.Join(parts, "; "); len(parts) == 0 {
		c.Detail = "none"
	}
	return c
}
