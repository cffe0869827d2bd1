package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/wire"
)

// Door is all that one client of the protocol gets to see of ombud. It is safe for
// concurrent use.
type Door interface {
	// Tools are the tools the client can try now.
	Tools(ctx context.Context) ([]wire.MCPTool, error)
	// Call makes a call and waits for what it comes to; for a person no longer than
	// c.Wait, after which the answer has class Waiting. A refusal of the call is in the
	// answer. The error says that nothing can be called: Denied if the client is none any
	// more, Conflict if c.Key belongs to another call, Unavailable if there is no room now.
	Call(ctx context.Context, c Call) (wire.JobCallResult, error)
}

// Call is a call a client wants made.
type Call struct {
	Tool  string // as the client was told its name
	Input json.RawMessage
	Key   string        // the same key is the same call, however often it is sent
	Wait  time.Duration // for a person
}

// Doors are several doors as one: the tools of all, the first winning where a name is
// taken twice, and each call through the door that offers its tool.
func Doors(first Door, others ...Door) Door {
	if len(others) == 0 {
		return first
	}
	return doors(append([]Door{first}, others...))
}

type doors []Door

// Tools implements Door.
func (d doors) Tools(ctx context.Context) (all []wire.MCPTool, err error) {
	seen := map[string]bool{}
	for _, one := range d {
		list, err := one.Tools(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if name := nameOf(t); !seen[name] {
				seen[name] = true
				all = append(all, t)
			}
		}
	}
	return all, nil
}

// Call implements Door. What nobody offers the first refuses in its own words.
func (d doors) Call(ctx context.Context, c Call) (wire.JobCallResult, error) {
	for _, one := range d {
		list, err := one.Tools(ctx)
		if err != nil {
			return wire.JobCallResult{}, err
		}
		for _, t := range list {
			if t.Name == c.Tool || nameOf(t) == c.Tool {
				return one.Call(ctx, c)
			}
		}
	}
	return d[0].Call(ctx, c)
}
