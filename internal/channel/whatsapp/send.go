package whatsapp

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// fate is how the command ended that last sent a piece.
type fate int

const (
	unknown  fate = iota // no command of this process
	byItself             // with an exit code, before wacli's own patience with its daemon ended
	cutOff               // ended by us, or too late: the daemon may have sent it without noting it down
)

// try is what is known of the tries of a piece.
type try struct {
	how    fate // the last one ended
	failed int  // how many of this process ended by themselves, each having sent nothing
}

// pause is how long a piece waits after a try that failed by itself: the outbox sends at
// once again what was surely not sent.
func (t try) pause() time.Duration { return min(time.Second<<max(t.failed-1, 0), maxPause) }

const (
	maxPause = 90 * time.Second
	maxTries = 12 // of a piece whose command fails by itself; about eight minutes
)

const (
	// wacli waits 20 s for its daemon and then hangs up, whatever the daemon is at.
	patience = 15 * time.Second
	// The daemon gives a message a minute. A piece that was sent before a restart of ours
	// may still be with it for that long.
	stillSending = 90 * time.Second
	// Times in wacli's list are whole seconds, and the network's.
	listGrain = 2 * time.Second
	// The outbox asks eight times at most.
	askAgain = 20 * time.Second

	maxRows = 500
)

// Send implements channel.Adapter.
func (a *wacli) Send(ctx context.Context, out channel.Outgoing) (string, error) {
	to, err := target(out.Chat)
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(out.Piece.Text, "\x00", "")
	if strings.TrimSpace(text) == "" || len(text) > maxText {
		return "", fault.New(fault.Invalid, "a WhatsApp message has between 1 and %d bytes, not %d", maxText, len(text))
	}
	// What wacli says of itself makes sure of the common troubles. It says nothing sure
	// when a command to send has failed.
	if _, err := a.health(ctx); err != nil {
		return "", fault.New(fault.Unavailable, "not sent: %w", err).WithHint("%s", fault.HintOf(err))
	}
	if err := a.open(ctx, to); err != nil {
		return "", err
	}
	last := a.fates.get(out.Key)
	if last.failed >= maxTries {
		a.fates.forget(out.Key) // who wants it sent again is not refused for what was
		return "", fault.New(fault.Invalid, "wacli refused to send it %d times", last.failed).WithHint("see what wacli says: wacli send --to %s --text test", to)
	}
	// One word each, so that a text which begins with a dash is no flag.
	e, err := a.exec(ctx, maxSaid, "send", "--to="+to, "--text="+text)
	if err != nil {
		return "", err
	}
	said := parseSent(e.out)
	switch {
	case e.killed == nil && e.code == 0:
		a.fates.forget(out.Key)
		a.refs.put(said.ref(), struct{}{})
		return said.ref(), nil
	case e.killed == nil && said.Sent != nil && !*said.Sent:
		return "", fault.New(fault.Unavailable, "wacli says that it did not send it (code %d)", e.code)
	case e.killed != nil:
		a.fates.put(out.Key, try{how: cutOff})
		return "", fault.New(fault.Unknown, "it may or may not have arrived: %w", e.killed)
	}
	next := try{how: byItself, failed: last.failed + 1}
	if e.code < 0 || e.took >= patience {
		next = try{how: cutOff}
	}
	a.fates.put(out.Key, next)
	return "", fault.New(fault.Unknown, "it may or may not have arrived: wacli send ended with code %d", e.code)
}

// open refuses a chat that wacli's owner locked: wacli would refuse it, and say so to
// people only. What cannot be asked is left to wacli.
func (a *wacli) open(ctx context.Context, chat string) error {
	e, err := a.exec(ctx, maxList, "api", "GET", "/chats?filter=locked&limit=50&query="+url.QueryEscape(user(chat)))
	if err != nil {
		return err
	}
	var l struct {
		Chats channel.Rows[chatRow] `json:"chats"`
	}
	if e.killed != nil || e.code != 0 || json.Unmarshal(e.out, &l) != nil {
		return nil //nolint:nilerr // wacli decides
	}
	for _, c := range l.Chats {
		if c.Locked && normal(c.JID) == chat {
			return fault.New(fault.Denied, "the chat is locked in wacli: nothing is sent there").WithHint("wacli access unlock %s", chat)
		}
	}
	return nil
}

// sent is what `wacli send` prints. That it was not "ok" proves nothing: the daemon says
// so too when WhatsApp did not answer in time.
type sent struct {
	Sent    *bool  `json:"sent"`
	ID      string `json:"id"`
	Message struct {
		ID string `json:"id"`
	} `json:"message"`
}

func parseSent(out []byte) (s sent) {
	if json.Unmarshal(out, &s) != nil {
		return sent{}
	}
	return s
}

func (s sent) ref() string { return fault.Cut(line(cmp.Or(s.Message.ID, s.ID)), maxID) }

// Probe implements channel.Prober: a piece that is in wacli's list was sent.
func (a *wacli) Probe(ctx context.Context, out channel.Outgoing, since time.Time) (outbox.Answer, string, error) {
	to, err := target(out.Chat)
	if err != nil {
		return outbox.DidNotHappen, "", nil //nolint:nilerr // Send gave no such thing to wacli
	}
	rows, err := a.list(ctx, since.Add(-listGrain))
	if err != nil {
		return outbox.CannotTell, "", err
	}
	text := strings.TrimSpace(strings.ReplaceAll(out.Piece.Text, "\x00", ""))
	for _, r := range rows {
		if r.IsFromMe && normal(r.ChatJID) == to && strings.TrimSpace(r.Content) == text && !a.refs.has(r.ID) {
			a.fates.forget(out.Key)
			a.refs.put(r.ID, struct{}{})
			return outbox.Happened, fault.Cut(line(r.ID), maxID), nil
		}
	}
	last := a.fates.get(out.Key)
	switch {
	case last.how == cutOff, len(rows) >= maxRows:
		return outbox.CannotTell, "", nil
	case last.how == unknown && time.Since(since) < stillSending:
		return outbox.CannotTell, "", notYet(since.Add(stillSending), "wacli may still be sending it")
	case last.how == byItself && time.Since(since) < last.pause():
		return outbox.CannotTell, "", notYet(since.Add(last.pause()), "wacli did not send it, and is not asked to again so soon")
	}
	return outbox.DidNotHappen, "", nil
}

// notYet is the error of a question that can be answered for sure at a time. It is asked
// again before, for what was sent meanwhile need not wait, but not so often that the outbox
// gives up asking.
func notYet(at time.Time, why string) error {
	after := min(max(time.Until(at), time.Second), askAgain)
	return &outbox.RetryAfter{After: after, Err: fault.New(fault.Unavailable, "%s", why)}
}

// list is what wacli has from a time on, of all chats, the oldest first, and of more than
// maxRows the newest. Unavailable if it cannot be had whole.
func (a *wacli) list(ctx context.Context, after time.Time) ([]messageRow, error) {
	e, err := a.exec(ctx, maxList, "messages", "-after", after.UTC().Format(time.RFC3339), "-limit", "500")
	if err != nil {
		return nil, err
	}
	var l struct {
		Messages *[]json.RawMessage `json:"messages"`
	}
	switch {
	case e.killed != nil:
		return nil, fault.New(fault.Unavailable, "ask wacli for its messages: %w", e.killed)
	case e.code != 0:
		return nil, fault.New(fault.Unavailable, "wacli messages ended with code %d", e.code)
	case e.over:
		return nil, fault.New(fault.Unavailable, "wacli's list has more than %d bytes", maxList)
	}
	if err := json.Unmarshal(e.out, &l); err != nil {
		return nil, fault.New(fault.Unavailable, "wacli's list cannot be read: %w", err)
	}
	if l.Messages == nil { // null is an empty list; nothing at all is none
		if !strings.Contains(string(e.out), `"messages"`) {
			return nil, fault.New(fault.Unavailable, "wacli's answer has no list")
		}
		return nil, nil
	}
	rows := make([]messageRow, len(*l.Messages)) // one of an unknown shape counts, and says nothing
	for i, raw := range *l.Messages {
		if json.Unmarshal(raw, &rows[i]) != nil {
			rows[i] = messageRow{}
		}
	}
	return rows, nil
}

// memory keeps what was last said of some keys, the newest maxKept of them.
type memory[T any] struct {
	mu    sync.Mutex
	what  map[string]T
	order []string
}

const maxKept = 1024

func (m *memory[T]) put(key string, v T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key == "" {
		return
	}
	if m.what == nil {
		m.what = map[string]T{}
	}
	if _, ok := m.what[key]; !ok {
		m.order = append(m.order, key)
	}
	m.what[key] = v
	for len(m.order) > maxKept {
		delete(m.what, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *memory[T]) get(key string) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.what[key]
}

func (m *memory[T]) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.what[key]
	return ok
}

func (m *memory[T]) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.what[key]; !ok {
		return
	}
	delete(m.what, key)
	for i, k := range m.order {
		if k == key {
			m.order = append(m.order[:i], m.order[i+1:]...)
			return
		}
	}
}
