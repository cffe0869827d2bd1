package wasmloop

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Kit is what the host does on the guest's behalf. It is injected, so the runner has no
// opinion about where memory or HTTP live. An error that wraps [ErrRefused] is told to the
// guest as a refusal, any other as a failure; its text goes to the log only, but for Tool,
// whose errors the guest reads.
type Kit interface { //nolint:interfacebloat // what a loop can ask of a host
	Recall(query string, limit int) ([]string, error)
	Remember(fact string) error
	Notify(title, body string) error
	Ask(ctx context.Context, prompt string) (string, error)
	HTTP(ctx context.Context, method, url string, headers map[string]string, body string) (string, int, error)

	Config(key string) string
	HostTool(name string) string
	Harness(ctx context.Context, prompt string) (string, error)
	Gateway(ctx context.Context, prompt string, lend ...string) (string, error)
	Summarize(ctx context.Context, prompt string) (string, error)
	Propose(title, summary, action string) error
	Remind(title, due, notes string) error
	// Tool calls a tool by name. Integrations reach a loop through here and nowhere else,
	// so adding one costs no ABI.
	Tool(ctx context.Context, name string, input map[string]any) (string, error)
	ShortSet(group, key, value string, ttlSeconds int) error
	ShortGet(group, key string) (string, bool, error)
	ShortAll(group string) ([]ShortMemory, error)
	ChatSummary(jid string) (*ChatSummary, error)
	SaveChatSummary(ChatSummary) error
	RunLoop(name string) error
	ShortForget(group, key string) error
	OperatorChats() []string
}

// ErrRefused is a call that the loop may not make.
var ErrRefused = errors.New("refused")

// ErrStop ends the module at once, if a Kit or Around returns it, and Run with an error that
// wraps it: the host goes on with the run later, or not at all.
var ErrStop = errors.New("stopped by the host")

// ShortMemory is one short-term working note.
type ShortMemory = abi.ShortMemory

// ChatSummary is the stored summary of one chat.
type ChatSummary = abi.ChatSummary

// Gate decides what a loop may reach: the broker of the described system, in one method.
type Gate interface {
	// Allow returns nil, or why the loop may not: class is tool, http or memory, value the
	// tool's name, the host, or the namespace (with ":write" to change it).
	Allow(ctx context.Context, class, value string) error
}

// Options configure a Runner.
type Options struct {
	// Namespace is the memory that the loop works in, where its manifest names none.
	Namespace string
	Kit       Kit
	// Grants decides on each call that reaches something. Without it all of these are
	// refused.
	Grants Gate
	// Log takes what the module writes and why its calls fail. Default nowhere.
	Log *slog.Logger
	// CacheDir persists compiled modules, since to compile is what takes long.
	CacheDir string
	// CacheLimit bounds the bytes of the compiled modules in CacheDir; default 512 MiB.
	CacheLimit int64
	// NoImage has each run put the module's data into its memory anew, instead of
	// beginning with a copy of what the first came to.
	NoImage bool
	// Limits bound a run; zero fields have defaults.
	Limits Limits
	// Around, if set, is called in place of each host call that reaches something.
	Around Around
	// Clock is the wall clock of the module. Default that of the system.
	Clock func() time.Time
}

// Around makes a host call by calling do, with its request or the one it was begun with in
// an earlier execution, or does not make it: a host that records answers gives back the one
// it has.
type Around func(ctx context.Context, c Call, do func(ctx context.Context, request []byte) ([]byte, error)) ([]byte, error)

// Host is what one run, or one call of a provided tool, works with instead of what the
// Options say. Fields that are not set are as these say.
type Host struct {
	Kit    Kit
	Grants Gate
	Log    *slog.Logger
	Around Around
	Clock  func() time.Time
	// Functions narrows the host functions that the manifest names, nil for none.
	Functions func(name string) bool
}

type hostKey struct{}

// WithHost returns a context whose runs and calls of tools work with h.
func WithHost(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// host is what an instance works with.
func (o Options) host(ctx context.Context) Host {
	h, _ := ctx.Value(hostKey{}).(Host) // none is none of its fields
	if h.Kit == nil {
		h.Kit = o.Kit
	}
	if h.Grants == nil {
		h.Grants = o.Grants
	}
	if h.Log == nil {
		h.Log = o.Log
	}
	if h.Around == nil {
		h.Around = o.Around
	}
	if h.Clock == nil {
		h.Clock = o.Clock
	}
	if h.Clock == nil {
		h.Clock = time.Now
	}
	return h
}

// Call is one host call of a run.
type Call struct {
	N       int    // from 1, in the order the module makes them; those that reach nothing do not count
	Name    string // of the host function
	Request []byte // as the module gave it
}

// Limits bound what one run may use.
type Limits struct {
	Calls  int   // host calls; default 10,000
	Output int64 // bytes the module may log and print; default 1 MiB, then no more is kept
	Answer int   // bytes of one answer; default 16 MiB
}

func (l Limits) orDefault() Limits {
	if l.Calls <= 0 {
		l.Calls = 10_000
	}
	if l.Output <= 0 {
		l.Output = 1 << 20
	}
	if l.Answer <= 0 {
		l.Answer = 16 << 20
	}
	return l
}
