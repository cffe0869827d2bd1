package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
	mcpclient "github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
)

// mcpEchoWord makes this program a server of the Model Context Protocol.
const mcpEchoWord = "mcp-echo"

// mcpEcho answers each call with what it was given.
func mcpEcho() {
	type message struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Method  string          `json:"method,omitempty"`
		Params  struct {
			Arguments json.RawMessage `json:"arguments"`
		} `json:"params"`
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return
		}
		var result string
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"echo","description":"echoes","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			text, err := json.Marshal(string(m.Params.Arguments))
			if err != nil {
				return
			}
			result = `{"content":[{"type":"text","text":` + string(text) + `}]}`
		default:
			if m.ID != nil {
				fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"what?\"}}\n", m.ID)
			}
			continue
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, result)
	}
}

// echoServer is a server behind its walls whose tool was accepted.
func echoServer(b *testing.B, p *parts) {
	b.Helper()
	walls, err := confine.New(confine.Options{Enforce: confine.EnforceBest})
	if err != nil {
		b.Skip(err)
	}
	servers := mcpclient.New(mcpclient.Deps{
		DB: p.db, Vault: p.vault, Log: p.events, Audit: p.audit, Tools: p.tools, Logger: slog.New(slog.DiscardHandler),
		Dir: func(name string) string { return filepath.Join(p.dir, name) },
		Launch: func(ctx context.Context, s confine.Spec) (supervise.Child, error) {
			job, err := walls.Start(ctx, s)
			if err != nil {
				return nil, err
			}
			return job, nil
		},
	}, mcpclient.Config{})
	if err := servers.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := servers.Stop(context.Background()); err != nil {
			b.Error(err)
		}
		walls.Close()
	})
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := servers.Add(b.Context(), mcpclient.Spec{Name: "e", Command: []string{exe, mcpEchoWord}, Network: "none"}, "operator"); err != nil {
		b.Fatal(err)
	}
	if _, err := servers.Test(b.Context(), "e"); err != nil {
		b.Fatal(err)
	}
	_, seen, err := servers.Diff("e")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := servers.Accept(b.Context(), "e", seen, "operator"); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMCPCall is a call of a tool of a server over its standard streams: decided,
// audited, intent and outcome committed. Each commit is one flush of the log.
func BenchmarkMCPCall(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	disk := newProbe(b, p.dir)
	echoServer(b, p)
	level, err := policy.NewAutonomy(policy.Autonomous, nil)
	if err != nil {
		b.Fatal(err)
	}
	need := scope.Must("mcp.call:e/echo")
	who := &act.Authority{
		Subject: "operator", Grants: policy.NewLayer("bench", []policy.Rule{{Effect: policy.Allow, Scope: need}}),
		Tier: policy.Trusted, Standing: []scope.Scope{need}, Autonomy: level,
	}
	const calls = 20
	n := 0
	var flushes []float64
	work := func() (float64, int) {
		var took []float64
		ended := make(chan error, 1)
		p.steps <- func(ctx context.Context, r *run.Run) error {
			defer close(ended)
			for range calls {
				n++
				before, began := p.db.Stats().Batches, time.Now()
				res, err := p.act.Call(ctx, r, act.Call{
					Step: fmt.Sprint("call/", n), Tool: "mcp.e.echo", Input: json.RawMessage(`{"text":"hello"}`), Authority: who,
					Label: label.Of(label.Operator, label.OperatorOnly),
				})
				if err == nil && (res.Status != act.OK || res.Text != `{"text":"hello"}`) {
					err = fmt.Errorf("%s: %s", res.Status, res.Text)
				}
				if err != nil {
					ended <- err
					return err
				}
				took = append(took, micro(time.Since(began)))
				flushes = append(flushes, float64(p.db.Stats().Batches-before))
			}
			return nil
		}
		if _, err := p.runs.Start(b.Context(), run.Spec{Kind: stepsKind, Name: fmt.Sprint("mcp-", n), Actor: "bench"}); err != nil {
			b.Fatal(err)
		}
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		return median(took), calls
	}
	f := figure{name: "MCP call over stdio, sealed + audited, p50", unit: "µs", peer: "raw fsync, µs", target: "≤6 flushes"}
	measure(b, f, disk.once, work)
	p50 := median(flushes)
	annotate(f.name, fmt.Sprintf("%.0f flushes", p50))
	if p50 > 6 {
		b.Errorf("%.0f flushes a call, at most 6", p50)
	}
}
