package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

// The roles of history entries.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSummary   = "summary" // stands for everything before it
)

// entry is one piece of a conversation's history.
type entry struct {
	Seq  int64
	Run  string
	Role string
	At   int64
	Body entryBody
}

// entryBody is the sealed part of an entry.
type entryBody struct {
	Text  string      `json:"text"`
	From  string      `json:"from,omitempty"`  // who says it, as others call themselves
	Tools []string    `json:"tools,omitempty"` // summaries of the calls the turn made
	Label label.Label `json:"label"`
}

func (e entry) size() int {
	n := len(e.Body.Text) + 32
	for _, t := range e.Body.Tools {
		n += len(t) + 2
	}
	return n
}

func historyRow(conversation string, seq int64) string {
	return conversation + "/" + strconv.FormatInt(seq, 10)
}

// addHistoryTx appends entries to a conversation's history.
func (a *Agents) addHistoryTx(ctx context.Context, tx *db.Tx, conversation, run string, entries ...entry) error {
	var seq int64
	err := tx.QueryRow(ctx, "UPDATE conversations SET seq = seq + $1, last_at = $2 WHERE id = $3 RETURNING seq",
		len(entries), tx.Now(), conversation).Scan(&seq)
	if err != nil {
		return err
	}
	for i, e := range entries {
		n := seq - int64(len(entries)-1-i)
		body, err := json.Marshal(e.Body)
		if err != nil {
			return err
		}
		if e.At == 0 {
			e.At = tx.Now()
		}
		_, err = tx.Exec(ctx, "INSERT INTO history (conversation, seq, run, role, at, body) VALUES ($1, $2, $3, $4, $5, $6)",
			conversation, n, run, e.Role, e.At, a.Vault.Seal(vault.HistoryText, historyRow(conversation, n), body))
		if err != nil {
			return err
		}
	}
	return nil
}

// reader reads entries of one conversation. Most of them have one of a few labels, which are
// the larger part of what there is to read: each is read once.
type reader struct {
	a            *Agents
	conversation string
	labels       map[string]label.Label // by how they are written
}

func (x reader) scan(r *db.Rows) (e entry, err error) {
	a, conversation := x.a, x.conversation
	var body []byte
	if err := r.Scan(&e.Seq, &e.Run, &e.Role, &e.At, &body); err != nil {
		return e, err
	}
	plain, err := a.Vault.Open(vault.HistoryText, historyRow(conversation, e.Seq), body)
	if err == nil {
		e.Body, err = x.body(plain)
	}
	if err != nil { // it must not keep the conversation from going on
		a.Logger.Error("an entry of the history cannot be read", "conversation", conversation, "seq", e.Seq, "error", err)
		e.Body = entryBody{Text: "[This part of the conversation cannot be read.]", Label: label.Of(label.Untrusted("unreadable"), label.OperatorOnly)}
	}
	return e, nil
}

func (x reader) body(plain []byte) (entryBody, error) {
	var b struct {
		entryBody
		Label json.RawMessage `json:"label"` // over that of entryBody
	}
	if err := json.Unmarshal(plain, &b); err != nil {
		return entryBody{}, err
	}
	l, known := x.labels[string(b.Label)]
	if !known {
		if len(b.Label) > 0 {
			if err := json.Unmarshal(b.Label, &l); err != nil {
				return entryBody{}, err
			}
		}
		x.labels[string(b.Label)] = l
	}
	b.entryBody.Label = l
	return b.entryBody, nil
}

// pageOfHistory is how many entries one look reads.
const pageOfHistory = 64

// recent returns the newest entries of a conversation that fit into limit bytes,
// in order, beginning with the newest summary if that is among them. At least the
// newest entry is always there. size is that of all entries since the summary.
func (a *Agents) recent(ctx context.Context, q db.Q, c Conversation, limit int) (out []entry, size int, err error) {
	used, full := 0, false
	in := reader{a, c.ID, map[string]label.Label{}}
	for before := c.seq + 1; ; {
		page, err := db.All(ctx, q, in.scan,
			`SELECT seq, run, role, at, body FROM history WHERE conversation = $1 AND seq < $2 AND seq > $3 ORDER BY seq DESC LIMIT $4`,
			c.ID, before, c.historyFrom, pageOfHistory)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range page {
			before = e.Seq
			size += e.size()
			full = full || (used+e.size() > limit && len(out) > 0)
			if !full || e.Role == roleSummary {
				out = append(out, e)
				used += e.size()
			}
			if e.Role == roleSummary {
				return inOrder(out), size - e.size(), nil
			}
		}
		if len(page) < pageOfHistory || size > 2*max(limit, a.cfg.Compact) {
			return inOrder(out), size, nil
		}
	}
}

// inOrder turns what was read newest first around.
func inOrder(read []entry) []entry {
	slices.Reverse(read)
	return read
}
