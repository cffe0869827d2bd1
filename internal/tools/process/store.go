package process

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/vault"
)

// Kinds of event and of audit entry, on the stream tool_process:<name>.
const (
	KindAdded      = "tool_process.added"
	KindRemoved    = "tool_process.removed"
	KindRegistered = "tool_process.registered" // its first tools
	KindChanged    = "tool_process.changed"    // other tools than before
	KindCrashLoop  = "tool_process.crash_loop" // it ends again and again
	KindRefused    = "tool_process.refused"    // something it did of its own accord
)

// eventData is the payload of all of them.
type eventData struct {
	Name   string   `json:"name"`
	Tools  *changes `json:"tools,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Spec   *Spec    `json:"spec,omitempty"` // of one that is added: its row goes when it is removed
}

// tell records a change of a process and its audit, as part of tx.
func (p *Processes) tell(ctx context.Context, tx *db.Tx, kind, by, outcome string, d eventData) error {
	_, err := p.Log.AppendTx(ctx, tx, eventlog.New{Stream: "tool_process:" + d.Name, Kind: kind, Actor: by, Expect: eventlog.Any, Data: d})
	if err != nil {
		return err
	}
	reason := d.Reason
	if d.Tools != nil {
		reason = d.Tools.String()
	}
	entry := audit.Entry{Kind: kind, Actor: by, Subject: "tool:" + d.Name, Outcome: outcome, Reason: guard.OneLine(reason, 300)}
	if d.Spec != nil {
		for _, b := range d.Spec.Scopes {
			entry.Scopes = append(entry.Scopes, b.Scope.String())
		}
	}
	_, err = p.Audit.AppendTx(ctx, tx, entry)
	return err
}

// row is a stored process.
type row struct {
	spec    Spec
	known   *registration // nil: it has never registered
	added   int64
	changed int64
}

func (p *Processes) load(ctx context.Context) (rows []row, err error) {
	err = p.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err = db.All(ctx, q, p.scan, "SELECT name, body, registered, added, changed FROM tool_processes ORDER BY name LIMIT 1000")
		return err
	})
	return rows, err
}

func (p *Processes) scan(r *db.Rows) (out row, err error) {
	var name string
	var body, known []byte
	if err := r.Scan(&name, &body, &known, &out.added, &out.changed); err != nil {
		return out, err
	}
	plain, err := p.Vault.Open(vault.ToolProcessBody, name, body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(plain, &out.spec); err != nil {
		return out, fault.New(fault.Verification, "what is kept of tool process %s: %w", name, err)
	}
	if plain, err = p.Vault.Open(vault.ToolProcessKnown, name, known); err != nil {
		return out, err
	}
	if err := json.Unmarshal(plain, &out.known); err != nil {
		return out, fault.New(fault.Verification, "the tools kept of tool process %s: %w", name, err)
	}
	return out, nil
}

func (p *Processes) insert(ctx context.Context, tx *db.Tx, s Spec) (row, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return row{}, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO tool_processes (name, body, registered, added, changed) VALUES ($1, $2, $3, $4, 0)
		ON CONFLICT (name) DO NOTHING`, s.Name, p.Vault.Seal(vault.ToolProcessBody, s.Name, body),
		p.Vault.Seal(vault.ToolProcessKnown, s.Name, []byte("null")), tx.Now())
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "there is a tool process %s", s.Name).WithHint("remove it first: ombud tools rm %s", s.Name)
	}
	return row{spec: s, added: tx.Now()}, err
}

// keepTx writes what a process registered, and says so: its first tools, or others
// than it had.
func (p *Processes) keepTx(ctx context.Context, tx *db.Tx, name string, before *registration, reg registration) (changed int64, err error) {
	kind, empty := KindChanged, registration{}
	if before == nil {
		kind, before = KindRegistered, &empty
	} else {
		changed = tx.Now()
	}
	n, err := tx.Exec(ctx, "UPDATE tool_processes SET registered = $1, changed = $2 WHERE name = $3",
		p.Vault.Seal(vault.ToolProcessKnown, name, reg.encode()), changed, name)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "the tool process %s was removed", name)
	}
	if err != nil {
		return 0, err
	}
	diff := difference(*before, reg)
	return changed, p.tell(ctx, tx, kind, "tool:"+name, "ok", eventData{Name: name, Tools: &diff})
}
