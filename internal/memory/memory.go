package memory

import (
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

const (
	// MaxText is how many bytes a fact may have.
	MaxText = 4 << 10
	// MaxImportance is the most important a fact can be, 0 the least.
	MaxImportance = 10

	usualImportance = 5
	maxAgent        = 128
)

// Fact is one remembered sentence, as it stands in one version.
type Fact struct {
	ID         string // mem_…
	Version    int64  // from 1; the newest is live
	Agent      string
	Text       string
	Label      label.Label
	Importance int
	Pinned     bool
	Expires    int64 // Unix microseconds, 0 is never
	Created    int64
	Said       int64 // when it was last said
	Origin     Origin
}

// Origin says where a fact was last said.
type Origin struct {
	Actor        string // the subject that asked for it; in the event only
	Run          string
	Conversation string
	Event        string // id of the event that led to it, if known
}

// New is a fact to remember.
type New struct {
	Agent      string
	Text       string
	Label      label.Label // of the context it was said in
	Importance *int        // 0 to 10; nil leaves it as it is, 5 for a new fact
	Pin        *bool       // nil leaves it as it is
	Expires    int64       // Unix microseconds, 0 is never
	Origin     Origin
}

// Options bound the index. Zero fields have the defaults in the comments.
type Options struct {
	MaxFacts    int // 200,000 facts of one agent are searched, the newest
	MaxPostings int // 4,000,000 words of facts in one agent's index, about 100 MB
	Pages       int // 40 pages of 256 facts are added to an unfinished index by one Recall
}

// Memory is the facts of all agents. It is safe for concurrent use.
type Memory struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	opts  Options

	mu      sync.Mutex
	indexes map[string]*index // by agent
}

// NewMemory returns the memory of a store. It reads nothing until it is asked.
func NewMemory(d *db.DB, v *vault.Vault, l *eventlog.Log, o Options) *Memory {
	set := func(p *int, usual int) {
		if *p <= 0 {
			*p = usual
		}
	}
	set(&o.MaxFacts, 200_000)
	set(&o.MaxPostings, 4_000_000)
	set(&o.Pages, 40)
	return &Memory{db: d, vault: v, log: l, opts: o, indexes: map[string]*index{}}
}

// check brings a new fact to the form it is kept in.
func (n *New) check() error {
	n.Text = strings.TrimSpace(guard.CleanText(n.Text))
	switch {
	case n.Text == "" || !strings.ContainsFunc(n.Text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }):
		return fault.New(fault.Invalid, "there is nothing to remember: the text has no words")
	case len(n.Text) > MaxText:
		return fault.New(fault.Invalid, "the fact has %d bytes, at most %d can be remembered", len(n.Text), MaxText).
			WithHint("keep long text in a file and remember where it is")
	case n.Importance != nil && (*n.Importance < 0 || *n.Importance > MaxImportance):
		return fault.New(fault.Invalid, "importance is from 0 to %d, not %d", MaxImportance, *n.Importance)
	case n.Agent == "" || len(n.Agent) > maxAgent:
		return fault.New(fault.Internal, "remember for the agent %q", n.Agent)
	}
	return nil
}

// normal is what two texts have in common that say the same.
func normal(text string) string {
	text = strings.ToLower(norm.NFKC.String(text))
	return strings.TrimRight(strings.Join(strings.Fields(text), " "), ".!。 ")
}
