package channel

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Me is who ombud is on a network.
type Me struct {
	ID    string   `json:"id"`    // the account's id: part of the address of every conversation
	Name  string   `json:"name"`  // for people, such as @mybot
	IDs   []string `json:"ids"`   // every id that may stand for it in a message, normalised as the adapter does
	Names []string `json:"names"` // names by which a command may be addressed to it, without a sign before them
}

// Is reports whether an id, normalised as the adapter does, stands for ombud.
func (m Me) Is(id string) bool {
	return id != "" && (id == m.ID || slices.Contains(m.IDs, id))
}

// Received is a message as its network tells of it. Every id is the network's own.
type Received struct {
	ID         string // of the message, unique in its chat and the same however often and by whatever way it comes
	Chat       string
	Thread     string // of a chat that has several threads of talk; else ""
	Title      string // of the chat, for people
	Group      bool   // others than the sender read the chat
	Sender     string
	SenderName string
	Text       string // with a line for each attachment, such as [image: holiday.jpg]
	At         time.Time

	Own        bool // ombud wrote it itself, by whatever program: it is not taken in
	Bot        bool // another program wrote it: it is an event, and never addressed
	MentionsMe bool // by an id of ombud's in the structure of the message, not by its text alone
	QuotesMe   bool // it answers a message of ombud's
	Command    bool // it is a command to ombud, or to nobody by name in a direct chat
	Elsewhere  bool // it is a command to another program, by its name
	Forwarded  bool // the sender passes on what somebody else wrote: it is data, whoever sends it

	// Press, if set, is a press of a button of a question; Text is then what was pressed.
	Press *Press

	// Cursor, if set, is committed with the message: where to go on from after a restart.
	Cursor string
}

// Press is the press of a button.
type Press struct {
	Approval string // as Outgoing.Approval had it
	Yes      bool
	Ref      string // of the message the button is at
}

// Place is where something is said.
type Place struct {
	Chat, Thread string
}

// Outgoing is one piece of a message that goes out.
type Outgoing struct {
	Place
	Key      string // stable for the piece however often it is tried: for networks that keep a key of ours
	Piece    markup.Piece
	ReplyTo  string // the network's id of what the first piece answers, if any
	Approval string // if set, the piece gets buttons to approve and to deny this question
}

// Capabilities are what a network can do.
type Capabilities struct {
	Buttons bool          // an Outgoing with an Approval gets buttons
	Edits   time.Duration // how far apart the edits of one chat's messages must be; 0: it cannot edit
	Limit   int           // of a piece, as the network counts; for people
}

// Adapter is a network's protocol. Its methods are safe for concurrent use. An error of
// one that sends says by its class what became of the message, as package outbox has it:
// RetryAfter and Unavailable: surely not sent, try again (a refused key is Unavailable
// too: the key will be mended); Invalid, NotFound, Denied, Permission: surely not sent,
// and it never will be; all else: nobody knows.
type Adapter interface {
	Capabilities() Capabilities
	// Check asks the network who ombud is. Denied if it refuses the key.
	Check(ctx context.Context) (Me, error)
	// Run connects and hands over what comes in until ctx ends or it cannot go on; it is
	// run again later. It reconnects by itself where its protocol says how. Denied: the
	// key is refused.
	Run(ctx context.Context, in Intake) error
	// Render makes pieces that fit the network's limits of Markdown, at least one.
	Render(markdown string) []markup.Piece
	// Send sends one piece and returns the network's id of it.
	Send(ctx context.Context, out Outgoing) (ref string, err error)
}

// Editor is an Adapter that can change what it sent.
type Editor interface {
	// Edit replaces a sent piece. Buttons stay only if out has an Approval. An answer that
	// nothing changed is no error.
	Edit(ctx context.Context, ref string, out Outgoing) error
}

// Typer is an Adapter that can show that an answer is being written.
type Typer interface {
	Typing(ctx context.Context, at Place) error
}

// Prober is an Adapter whose network can tell what became of a piece in doubt.
type Prober interface {
	// Probe looks for a piece that was sent, if at all, not before since.
	Probe(ctx context.Context, out Outgoing, since time.Time) (outbox.Answer, string, error)
}

// Hooked is an Adapter that its network calls.
type Hooked interface {
	// Hook answers the network's calls. It may be called before Run and after it.
	Hook(in Intake) http.Handler
	// HookPath is where, beside /channels/<name>, it is called for programs that know no
	// other path; "" for nowhere.
	HookPath() string
}

// Intake is where an adapter puts what it hears.
type Intake interface {
	// Take takes a message in. It returns when that is durable; nil also for one that was
	// taken before, or that is refused for good and noted. Then, and only then, the network
	// may be told that it arrived. An error is the store's: the message will have to come
	// again.
	Take(ctx context.Context, m Received) error
	// Cursor is the one that was committed last, "" if none was.
	Cursor(ctx context.Context) (string, error)
	// Advance commits a cursor without a message.
	Advance(ctx context.Context, cursor string) error
	// Arrived tells that a piece which was sent under a key surely arrived, as a network
	// says that reports it later.
	Arrived(ctx context.Context, key, ref string) error
	// Lost tells that a piece which its network took under a key, and called ref, did not
	// arrive after all, and why.
	Lost(ctx context.Context, key, ref, reason string) error
	// Up tells that the connection stands, and as whom.
	Up(me Me)
	// Down tells of trouble while the adapter tries again by itself.
	Down(err error)
}

// Kind is a kind of channel that can be added.
type Kind struct {
	Name  string // telegram
	About string // one line, for people
	Needs []Part // in the order they are asked for
	Make  func(s Setup) (Adapter, error)
}

// Part is something a channel of a kind is set up with.
type Part struct {
	Name     string // token
	About    string // one line: what it is and where it is found
	Secret   bool   // kept as a secret, never shown
	Optional bool
	Default  string
}

// Setup is what an adapter is made from.
type Setup struct {
	Name   string            // of the channel
	Values map[string]string // of the parts that are not secret, with their defaults
	// Secret reads a secret part at the moment it is needed, so that a new value is used
	// at once. NotFound if it is not set.
	Secret func(ctx context.Context, part string) (string, error)
	// Environ is the daemon's environment as os.Environ has it. An adapter that starts a
	// program hands on the few variables it names, never the whole.
	Environ []string
	Logger  *slog.Logger
}
