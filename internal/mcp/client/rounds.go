package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// asksBack is what an answer asks for before the call is made again.
type asksBack struct {
	asks  mcp.InputRequestMap
	state string
	more  bool
}

// rounds makes a request, and makes it again with what its answer asks for. do makes it.
func (t *talk) rounds(ctx context.Context, do func(answers mcp.InputResponseMap, state string) (asksBack, error)) error {
	var answers mcp.InputResponseMap
	state := ""
	for range maxRounds {
		back, err := do(answers, state)
		if visits, is := visitsOf(err); is && t.v.elicits {
			if err := t.visit(ctx, visits); err != nil {
				return err
			}
			continue
		}
		if err != nil || !back.more {
			return err
		}
		if !t.v.elicits && !t.v.samples {
			return t.v.asksBack()
		}
		if len(back.asks) == 0 { // it is busy
			if err := pause(ctx, busyPause); err != nil {
				return err
			}
		}
		if answers, err = t.answers(ctx, back.asks); err != nil {
			return err
		}
		state = back.state
	}
	return answered{fault.New(fault.Unavailable, "%s asked for something %d times and gave no result", t.v.name, maxRounds)}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answers are what an answer of the server asks for, one after the other.
func (t *talk) answers(ctx context.Context, asks mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	out := mcp.InputResponseMap{}
	for _, key := range slices.Sorted(maps.Keys(asks)) {
		var got mcp.InputResponse
		var err error
		switch p := asks[key].(type) {
		case *mcp.ElicitParams:
			if !t.v.elicits {
				return nil, t.v.asksBack()
			}
			got, err = t.elicit(ctx, p, false)
		case *mcp.CreateMessageWithToolsParams:
			if !t.v.samples {
				return nil, t.v.asksBack()
			}
			got, err = t.sample(ctx, p)
		default:
			return nil, t.v.asksBack()
		}
		if err != nil {
			return nil, t.unanswered(err)
		}
		out[key] = got
	}
	return out, ctx.Err()
}

// unanswered is the end of a call whose question could not be put: the server got no
// answer to it, and has said that it does nothing without.
func (t *talk) unanswered(err error) error {
	if w, ok := errors.AsType[*jsonrpc.Error](err); ok {
		why := strings.Join(append([]string{w.Message}, t.notes()...), "; ")
		return answered{fault.New(fault.Denied, "%s asks for something before it answers, which it was not given: %s", t.v.name, guard.OneLine(why, 500))}
	}
	return answered{err}
}

// visitsOf are the addresses that have to be opened before a call can be made, if an error
// says so.
func visitsOf(err error) (list []*mcp.ElicitParams, is bool) {
	w, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || w.Code != mcp.CodeURLElicitationRequired {
		return nil, false
	}
	var data struct {
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	if json.Unmarshal(w.Data, &data) != nil || len(data.Elicitations) == 0 {
		return nil, false
	}
	for _, p := range data.Elicitations {
		if p == nil || p.Mode != "url" && (p.Mode != "" || p.URL == "") {
			return nil, false
		}
	}
	return data.Elicitations, true
}

// visit has addresses opened. That a person agrees means that they are done there.
func (t *talk) visit(ctx context.Context, list []*mcp.ElicitParams) error {
	for _, p := range list {
		res, err := t.elicit(ctx, p, true)
		if err != nil {
			return t.unanswered(err)
		}
		if res.Action != string(Accept) {
			why := strings.Join(t.notes(), "; ")
			return answered{fault.New(fault.Denied, "%s wants an address opened before it does this: %s", t.v.name, guard.OneLine(why, 500))}
		}
	}
	return ctx.Err()
}
