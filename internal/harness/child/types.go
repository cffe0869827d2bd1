package child

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/harness"
)

// Task is one run of a coding agent.
type Task struct {
	CLI     harness.Name
	Program string   // the program, absolute; see Find
	Args0   []string // words before ours: a script of an interpreter, or the arguments a generic ACP agent is started with
	Version string   // as Probe told it; "" if it was not asked

	Model  string // "" is the CLI's own choice; of opencode and pi "provider/model"
	Prompt string
	System string // added to the CLI's own instructions

	Session    string // the session to go on with; "" begins a new one
	NewSession string // a UUID for a new session; only where TakesSession

	Dir   string // where it works, absolute
	Write bool   // it may change Dir, by asking Permit where it can ask; false: it reads
	Brain bool   // its own tools are off: it only thinks, and calls what MCP offers
	State string // where this daemon lets this CLI keep what it keeps, absolute; never the operator's own

	Env     []string // credentials, "NAME=value"; never on a command line, never logged
	BaseURL string   // of the model's API, as the CLI takes it: with /v1 for codex and opencode; "" is the CLI's own
	// Held says that ombud has the key: a token stands in its place in Env, and is good at
	// BaseURL alone, whence nothing else of the vendor is reached. Stands says that BaseURL
	// stands for the address the CLI knows of its provider by itself.
	Held, Stands bool
	MCP          *MCP // nil: it reaches no MCP server

	// Neither counts while a permission waits.
	Wall  time.Duration // the whole run; 0: no limit
	Quiet time.Duration // without any output; 0: no limit

	Turns          int   // 0: no limit; only where the CLI can
	BudgetMicroUSD int64 // 0: no limit; only where the CLI can, and checked after it was spent

	Owner   confine.Owner
	Profile confine.Profile // the zero one: Dir, for reading alone unless Write, State, and the network by ombud's proxy
	// What the zero profile lets it reach besides.
	Read    []string // files and directories
	Change  []string // that it may change, if it may change anything
	Sockets []string // of unix, that it may connect to

	// Started is told the session once, as soon as it is known. The run waits for it.
	Started func(session string)
	// Spent is told what was used so far, each time the CLI lets more be known. The run waits
	// for it.
	Spent func(model string, u harness.Usage, c harness.Cost)
	// Permit decides what the agent asks. It may be called by several goroutines at
	// once, and its context ends with the run. nil: whatever is asked is refused.
	Permit func(ctx context.Context, a Ask) Answer
	// Tell is told how the run goes on, by one goroutine. What it is too slow for is
	// left out and counted.
	Tell func(Note)
}

// MCP is a server the agent starts and speaks to on its standard streams.
type MCP struct {
	Command string
	Args    []string
	Env     []string // "NAME=value", secret
	Tools   []string // the tools it may call without being asked for; empty: all of the server
}

// Ask is something an agent wants leave for. Everything in it comes from the agent.
type Ask struct {
	ID      string
	Tool    string
	Input   json.RawMessage // what the tool is given, at most 256 KiB; a longer one is refused unasked
	Title   string          // for a person
	Kind    string          // one of the Kind constants
	Paths   []string        // that it names
	Command string          // of KindCommand
}

// The kinds of what is asked.
const (
	KindEdit    = "edit"
	KindCommand = "command"
	KindFetch   = "fetch"
	KindMCP     = "mcp"
	KindOther   = "other"
)

// Answer is what was decided. Why is told to the agent where its protocol can.
type Answer struct {
	Allow bool
	Why   string
}

// Note is a piece of news of a run.
type Note struct {
	Kind    string              // one of the Note constants
	ID      string              // of the tool call
	Tool    string              // its name
	Outcome harness.ToolOutcome // of a tool that ended
	Text    string              // a piece of what the agent says, or what the tool is given or gave; at most 4 KiB
	Omitted int                 // notes that were left out since the last one
}

// The kinds of news.
const (
	NoteText        = "text"
	NoteToolStarted = "tool_started"
	NoteToolEnded   = "tool_ended"
)

// Reasons of a record whose outcome is harness.Killed because this package ended
// the program.
const (
	ReasonCancelled = "cancelled"   // the context ended
	ReasonWall      = "wall_clock"  // Task.Wall ran out
	ReasonQuiet     = "no_output"   // Task.Quiet ran out
	ReasonLingers   = "did_not_end" // it closed its output, or was told to end, and lived on
	ReasonDeaf      = "reads_no_input"
)

// Target is a program to look at.
type Target struct {
	CLI     harness.Name
	Program string
	Args0   []string
	State   string
	Env     []string
	BaseURL string
	Held    bool // ombud has the key: Env has something else in its place
	Owner   confine.Owner
	Profile confine.Profile
}

// Login says whether a program is logged in, or has a key.
type Login string

// What can be known of it. No program checks that a key is good.
const (
	LoginYes     Login = "yes"
	LoginNo      Login = "no"
	LoginUnknown Login = "unknown" // it has no way to ask without using tokens
)

// Probe is what a program told about itself.
type Probe struct {
	Version string            // "" if it told none
	Warning []harness.Warning // a version that was never tried
	Login   Login
	Detail  string // its own words about that, one line
}

// TellsUse says whether the run of a task tells what it has used while it works, and not
// only in the end.
func TellsUse(t Task) bool {
	switch t.CLI {
	case harness.Claude, harness.Pi:
		return true
	case harness.Codex:
		return t.twoWay()
	case harness.OpenCode:
		return !t.twoWay()
	}
	return false
}

// Asks says whether a CLI asks for leave before it changes something. One that does
// not runs its commands as it likes in a Task with Write; only its walls hold it.
func Asks(cli harness.Name) bool { return cli != harness.Pi }

// TakesSession says whether the new session of a task can be given an id of ours,
// a UUID, so that who starts the run knows it before any output.
func TakesSession(t Task) bool {
	switch t.CLI {
	case harness.Claude:
		return true
	case harness.Gemini:
		return !t.twoWay() // by its protocol it chooses one itself
	case harness.Pi:
		return newPi(t.Version)
	}
	return false
}

// twoWay says whether the run is a dialogue: the agent asks, and can be interrupted.
func (t *Task) twoWay() bool {
	if t.CLI == harness.ACP {
		return true
	}
	return t.Write && !t.Brain && Asks(t.CLI)
}

// changes says whether the agent may change its directory.
func (t *Task) changes() bool { return t.Write && !t.Brain }

// newPi says whether it is the pi that has MCP and takes session ids. Its versions
// under the old name all begin with 0.
func newPi(version string) bool { return version != "" && !strings.HasPrefix(version, "0.") }
