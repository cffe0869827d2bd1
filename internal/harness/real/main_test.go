//go:build harness

package real

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/confine"
)

// mcpRole is the first argument of a test binary that is an MCP server.
const mcpRole = "mcp-echo"

// TestMain lets the test binary be the launcher of jobs, and the MCP server that is
// given to the programs.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == mcpRole {
		os.Exit(echo())
	}
	goleak.VerifyTestMain(m)
}

// said is the input of the tool echo.
type said struct {
	Text     string `json:"text" jsonschema:"what to say"`
	Variable string `json:"variable,omitempty" jsonschema:"a variable of its environment to tell"`
}

// echo is an MCP server on standard streams with one tool, which says what it is told
// and the secret of its environment's first half.
func echo() int {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "0.0.1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says what it is told."}, func(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, any, error) {
		text := fmt.Sprintf("echo of %s with %d letters of secret", in.Text, len(os.Getenv(mcpSecret)))
		if in.Variable != "" {
			text += ", and " + os.Getenv(in.Variable)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// mcpSecret is a variable that the server needs and nobody else may see.
const mcpSecret = "ECHO_SECRET"
