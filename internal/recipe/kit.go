package recipe

import (
	"context"
	"encoding/json"
	"time"
)

// Kit does what the steps of one run say. Each method that is given a step records what
// it did under that name, and a recorded step is not done again. An error that
// [Kit.Unwinding] knows is the engine's: the run waits or was taken away.
type Kit interface {
	Minds
	Hands
	Flow
}

// Minds are what somebody else thinks about.
type Minds interface {
	Ask(ctx context.Context, step, prompt string) (string, error)
	Observe(ctx context.Context, step, prompt string) (string, error)
	Gateway(ctx context.Context, step, prompt string) (string, error)
	Harness(ctx context.Context, step, prompt string) (string, error)
	// Fence marks a text as data that others wrote.
	Fence(text, from string) string
}

// Hands are what is done.
type Hands interface {
	HTTP(ctx context.Context, step string, r Request) (Response, error)
	// Tool uses a tool; texts in input may be turned into what its schema asks for.
	Tool(ctx context.Context, step, name string, input json.RawMessage) (string, error)
	Recall(ctx context.Context, step, query string, limit int) ([]string, error)
	Remember(ctx context.Context, step, fact string) error
	Notify(ctx context.Context, step, title, body string) error
	Propose(ctx context.Context, step, title, summary, action string) error
	Remind(ctx context.Context, step, title, due, notes string) error
	Send(ctx context.Context, step, to, text string) error
	Log(ctx context.Context, step, level, text string) error
}

// Flow is how a run goes on.
type Flow interface {
	Sleep(ctx context.Context, step string, d time.Duration) error
	WaitSignal(ctx context.Context, step, name string, timeout time.Duration) (json.RawMessage, error)
	// Start starts another recipe or a loop, by its whole name, and waits for its end.
	Start(ctx context.Context, step, target string) error
	Parallel(ctx context.Context, step string, how string, quorum int, branches []Strand) ([]Ended, error)
	// Unwinding reports whether an error ends this execution, not the work.
	Unwinding(err error) bool
}

// Strand is one branch of Parallel.
type Strand struct {
	Name string
	Do   func(ctx context.Context) (json.RawMessage, error)
}

// Ended is how a branch ended.
type Ended struct {
	Name   string
	State  string // done, failed or cancelled
	Result json.RawMessage
	Error  string
}

// Request is what http sends.
type Request struct {
	Method, URL string
	Headers     map[string]string
	Body        string
}

// Response is what came back.
type Response struct {
	Status int
	Body   string
}

// Start is what a run begins with, the same in every execution of it.
type Start struct {
	Kind      string // schedule, event, webhook, manual or timer
	Name      string // of the schedule, the webhook and so on
	At        time.Time
	Event     string // the id of the event that caused it
	EventKind string
	Payload   json.RawMessage
	From      string    // whose words the payload is; "" if they are the operator's or ombud's
	Now       time.Time // when the run was made, in the zone that counts
}
