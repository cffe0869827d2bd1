package client

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

// Kinds of event and of audit entry, on the stream mcp_server:<name>.
const (
	KindAdded     = "mcp_server.added"
	KindRemoved   = "mcp_server.removed"
	KindEnabled   = "mcp_server.enabled"
	KindDisabled  = "mcp_server.disabled"
	KindChanged   = "mcp_server.changed"    // it offers other things than were accepted
	KindAccepted  = "mcp_server.accepted"   // the operator took what it offers
	KindLogin     = "mcp_server.login"      // the operator logged in to it
	KindCrashLoop = "mcp_server.crash_loop" // it ends again and again
)

// subject is a server where it is the one who did something. It makes no calls: what is
// called mcp:NAME is a coding agent that makes some.
func subject(name string) string { return "mcp_server:" + name }

// eventData is the payload of all of them.
type eventData struct {
	Name   string  `json:"name"`
	Offers *change `json:"offers,omitempty"`
	Reason string  `json:"reason,omitempty"`
	Spec   *Spec   `json:"spec,omitempty"` // of one that is added: its row goes when it is removed
}

// tell records a change of a server and its audit, as part of tx.
func (s *Servers) tell(ctx context.Context, tx *db.Tx, kind, by, outcome string, d eventData) error {
	_, err := s.Log.AppendTx(ctx, tx, eventlog.New{Stream: "mcp_server:" + d.Name, Kind: kind, Actor: by, Expect: eventlog.Any, Data: d})
	if err != nil {
		return err
	}
	reason := d.Reason
	if d.Offers != nil {
		reason = d.Offers.String()
	}
	_, err = s.Audit.AppendTx(ctx, tx, audit.Entry{Kind: kind, Actor: by, Subject: subject(d.Name), Outcome: outcome, Reason: guard.OneLine(reason, 300)})
	return err
}

// record is tell in a transaction of its own.
func (s *Servers) record(ctx context.Context, kind, by, outcome string, d eventData) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return s.tell(ctx, tx, kind, by, outcome, d) })
}

// row is a stored server.
type row struct {
	spec    Spec
	pinned  []Item
	offered Offering
	login   *login // nil: none
	added   int64
	changed int64
}

func (s *Servers) load(ctx context.Context) (rows []row, err error) {
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err = db.All(ctx, q, s.scan, "SELECT name, body, pinned, offered, login, added, changed FROM mcp_servers ORDER BY name LIMIT 1000")
		return err
	})
	return rows, err
}

func (s *Servers) scan(r *db.Rows) (out row, err error) {
	var name string
	var body, pinned, offered, tokens []byte
	if err := r.Scan(&name, &body, &pinned, &offered, &tokens, &out.added, &out.changed); err != nil {
		return out, err
	}
	for _, c := range []struct {
		field  vault.Field
		sealed []byte
		into   any
	}{
		{vault.MCPBody, body, &out.spec}, {vault.MCPPinned, pinned, &out.pinned}, {vault.MCPOffered, offered, &out.offered}, {vault.MCPLogin, tokens, &out.login},
	} {
		if c.sealed == nil {
			continue
		}
		plain, err := s.Vault.Open(c.field, name, c.sealed)
		if err != nil {
			return out, err
		}
		if err := json.Unmarshal(plain, c.into); err != nil {
			return out, fault.New(fault.Verification, "what is kept of server %s (%s): %w", name, c.field.Column(), err)
		}
	}
	return out, nil
}

func (s *Servers) insert(ctx context.Context, tx *db.Tx, sp Spec) (row, error) {
	body, err := json.Marshal(sp)
	if err != nil {
		return row{}, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO mcp_servers (name, body, pinned, offered, added, changed) VALUES ($1, $2, $3, $4, $5, 0)
		ON CONFLICT (name) DO NOTHING`, sp.Name, s.Vault.Seal(vault.MCPBody, sp.Name, body),
		s.Vault.Seal(vault.MCPPinned, sp.Name, []byte("[]")), s.Vault.Seal(vault.MCPOffered, sp.Name, Offering{Items: []Item{}}.encode()), tx.Now())
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "there is a server %s", sp.Name).WithHint("remove it first: ombud mcp rm %s", sp.Name)
	}
	return row{spec: sp, offered: Offering{Items: []Item{}}, added: tx.Now()}, err
}

// setTx writes one sealed column of a server.
func (s *Servers) setTx(ctx context.Context, tx *db.Tx, name string, field vault.Field, plain []byte) error {
	column := map[vault.Field]string{
		vault.MCPBody: "body", vault.MCPPinned: "pinned", vault.MCPOffered: "offered", vault.MCPLogin: "login",
	}[field]
	n, err := tx.Exec(ctx, "UPDATE mcp_servers SET "+column+" = $1 WHERE name = $2", s.Vault.Seal(field, name, plain), name)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "the server %s was removed", name)
	}
	return err
}

// offersTx keeps what a server offers now, and says so once where it is not what was
// accepted. It returns the offering as it is kept.
func (s *Servers) offersTx(ctx context.Context, tx *db.Tx, x *server, was row, now Offering) (out row, err error) {
	out = was
	diff := compare(was.pinned, now.Items)
	now.Told = was.offered.Told
	news := ""
	if !diff.empty() {
		news = digest(now.Items)
	}
	tell := news != now.Told && news != ""
	now.Told = news
	out.offered = now
	if string(now.encode()) == string(was.offered.encode()) {
		return out, nil
	}
	if err := s.setTx(ctx, tx, x.name, vault.MCPOffered, now.encode()); err != nil {
		return out, err
	}
	if !tell {
		return out, nil
	}
	if len(was.pinned) > 0 {
		out.changed = tx.Now()
		if _, err := tx.Exec(ctx, "UPDATE mcp_servers SET changed = $1 WHERE name = $2", out.changed, x.name); err != nil {
			return out, err
		}
	}
	if err := s.tell(ctx, tx, KindChanged, subject(x.name), "ok", eventData{Name: x.name, Offers: &diff}); err != nil {
		return out, err
	}
	if s.Tell == nil || len(was.pinned) == 0 { // whoever adds it is shown it then
		return out, nil
	}
	text := "The MCP server " + x.name + " offers other tools than you accepted (" + guard.OneLine(diff.String(), 600) +
		"). What is new or changed is not used. `ombud mcp diff " + x.name + "` shows it, `ombud mcp accept " + x.name + "` takes it."
	return out, s.Tell(ctx, tx, "mcp:"+x.name+":"+news, text)
}
