package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// Remote is a door in another process, which leads through agent.sock to the daemon. The
// token is that of a job or of a client; each is known by its form. A call whose answer was
// lost is made again once, under its key, so that a daemon that was started anew answers
// it. Renew, if it is not nil, gives another token where the one there is is good no longer.
func Remote(c *wire.AgentClient, token string, renew func(context.Context) (string, error)) Door {
	r := &remote{client: c, renew: renew, token: token}
	if strings.HasPrefix(token, "job_") {
		return jobDoor{r}
	}
	return r
}

// remote is the door of a client.
type remote struct {
	client *wire.AgentClient
	renew  func(context.Context) (string, error)

	mu    sync.Mutex // held while a token is asked for: one is enough for all calls
	token string
}

func (r *remote) current() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// Tools implements Door.
func (r *remote) Tools(ctx context.Context) ([]wire.MCPTool, error) {
	res, err := again(ctx, r, func(token string) (wire.MCPToolsResult, error) {
		return r.client.MCPTools(ctx, wire.MCPTokenRequest{Token: token})
	})
	return res.Tools, err
}

// Call implements Door.
func (r *remote) Call(ctx context.Context, c Call) (wire.JobCallResult, error) {
	return again(ctx, r, func(token string) (wire.JobCallResult, error) {
		return r.client.MCPCall(ctx, wire.MCPCallRequest{Token: token, Tool: c.Tool, Input: c.Input, Key: c.Key, WaitS: int(c.Wait / time.Second)})
	})
}

// again does something that may be done twice, and does it twice if the daemon was lost
// meanwhile or the token is good no longer.
func again[T any](ctx context.Context, r *remote, do func(token string) (T, error)) (T, error) {
	token := r.current()
	out, err := do(token)
	stale := fault.Is(err, fault.Denied) && r.renew != nil
	lost := errors.Is(err, wire.ErrNoDaemon) || fault.Is(err, fault.Unknown) || fault.Is(err, fault.Unavailable)
	if err == nil || ctx.Err() != nil || !stale && !lost {
		return out, err
	}
	if r.renew != nil {
		r.mu.Lock()
		if r.token == token { // else another call has renewed it
			fresh, failed := r.renew(ctx)
			if failed != nil {
				r.mu.Unlock()
				return out, failed
			}
			r.token = fresh
		}
		token = r.token
		r.mu.Unlock()
	}
	return do(token)
}

// jobDoor is the door of a job. Its token is not renewed: a job ends with its work.
type jobDoor struct{ *remote }

// Tools implements Door.
func (j jobDoor) Tools(ctx context.Context) ([]wire.MCPTool, error) {
	res, err := again(ctx, j.remote, func(token string) (wire.JobToolsResult, error) {
		return j.client.JobTools(ctx, wire.JobTokenRequest{Token: token})
	})
	out := make([]wire.MCPTool, 0, len(res.Tools))
	for _, t := range res.Tools {
		out = append(out, wire.MCPTool{
			Name: t.Name, Description: t.Description, Input: t.Input, ReadOnly: t.ReadOnly, Destructive: !t.ReadOnly, Repeatable: t.ReadOnly,
		})
	}
	return out, err
}

// Call implements Door.
func (j jobDoor) Call(ctx context.Context, c Call) (wire.JobCallResult, error) {
	return again(ctx, j.remote, func(token string) (wire.JobCallResult, error) {
		return j.client.JobCall(ctx, wire.JobCallRequest{Token: token, Tool: c.Tool, Input: c.Input, Key: c.Key, WaitS: int(c.Wait / time.Second)})
	})
}
