package memory

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// state of a version of a fact; see doc.go.
type state string

const (
	live      state = "live"
	old       state = "old"
	forgotten state = "forgotten"
	expired   state = "expired"
)

// changes is the counter that numbers every change of a row in commit order.
const changes = "memory"

// Updated is the kind of event every change of memory leaves.
var Updated = eventlog.Kind[Update]{Name: "memory.updated"}

// Action says what happened to a fact.
type Action string

// The actions.
const (
	Remembered Action = "remembered" // it is new
	Replaced   Action = "replaced"   // it took the place of an earlier version
	Refreshed  Action = "refreshed"  // it was known and was said again
	Forgotten  Action = "forgotten"
	Restored   Action = "restored" // an earlier version is live again
	Expired    Action = "expired"
)

// Update is the payload of Updated. It never holds the text.
type Update struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	Agent   string `json:"agent"`
	Action  Action `json:"action"`
}

const columns = `id, version, agent, state, change, text, label, importance, pinned, expires, created, said, run, conversation, event`

// record is a row.
type record struct {
	Fact
	state  state
	change int64
}

func rowName(id string, version int64) string { return id + "/" + strconv.FormatInt(version, 10) }

func (m *Memory) scan(r *db.Rows) (record, error) {
	var f record
	var text, lbl []byte
	var pinned int64
	err := r.Scan(&f.ID, &f.Version, &f.Agent, &f.state, &f.change, &text, &lbl, &f.Importance, &pinned, &f.Expires, &f.Created, &f.Said,
		&f.Origin.Run, &f.Origin.Conversation, &f.Origin.Event)
	if err != nil || text == nil {
		return f, err
	}
	f.Pinned = pinned != 0
	plain, err := m.vault.Open(vault.MemoryText, rowName(f.ID, f.Version), text)
	if err != nil {
		return f, err
	}
	f.Text = string(plain)
	if plain, err = m.vault.Open(vault.MemoryLabel, rowName(f.ID, f.Version), lbl); err != nil {
		return f, err
	}
	if err := json.Unmarshal(plain, &f.Label); err != nil {
		return f, fault.New(fault.Verification, "read the label of %s: %w", f.ID, err)
	}
	return f, nil
}

// rows returns versions by a condition.
func (m *Memory) rows(ctx context.Context, q db.Q, where string, args ...any) ([]record, error) {
	return db.All(ctx, q, m.scan, `SELECT `+columns+` FROM memories WHERE `+where, args...)
}

// liveBy returns the live fact of an agent by a key or slot, if there is one. One
// whose time is over is taken out on the way.
func (m *Memory) liveBy(ctx context.Context, tx *db.Tx, agent, column string, value []byte) (record, bool, error) {
	found, err := m.rows(ctx, tx, `agent = $1 AND `+column+` = $2 AND state = 'live'`, agent, value)
	if err != nil || len(found) == 0 {
		return record{}, false, err
	}
	f := found[0]
	if f.Expires != 0 && f.Expires <= tx.Now() {
		return record{}, false, m.erase(ctx, tx, f.Fact, expired)
	}
	return f, true, nil
}

// insert writes a new live version.
func (m *Memory) insert(ctx context.Context, tx *db.Tx, f Fact, key, slot []byte) error {
	change, err := tx.Next(ctx, changes)
	if err != nil {
		return err
	}
	row := rowName(f.ID, f.Version)
	_, err = tx.Exec(ctx, `INSERT INTO memories (`+columns+`, key, slot)
		VALUES ($1, $2, $3, 'live', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
		f.ID, f.Version, f.Agent, change, m.vault.Seal(vault.MemoryText, row, []byte(f.Text)),
		m.vault.Seal(vault.MemoryLabel, row, f.Label.Marshal()), f.Importance, flag(f.Pinned), f.Expires, f.Created, f.Said,
		f.Origin.Run, f.Origin.Conversation, f.Origin.Event, key, slot)
	return err
}

// retire makes a live version an old one. It must be live.
func (m *Memory) retire(ctx context.Context, tx *db.Tx, f Fact) error {
	return m.move(ctx, tx, f, `state = 'old'`)
}

// move changes the live row of a fact and numbers the change.
func (m *Memory) move(ctx context.Context, tx *db.Tx, f Fact, set string) error {
	change, err := tx.Next(ctx, changes)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE memories SET change = $3, `+set+` WHERE id = $1 AND version = $2 AND state = 'live'`, f.ID, f.Version, change)
	if err == nil && n == 0 {
		err = fault.New(fault.Conflict, "fact %s was changed meanwhile", f.ID)
	}
	return err
}

const erasing = `text = NULL, label = NULL, key = NULL, slot = NULL`

// erase ends a fact: all its versions lose their content.
func (m *Memory) erase(ctx context.Context, tx *db.Tx, f Fact, as state) error {
	if err := m.move(ctx, tx, f, `state = '`+string(as)+`', `+erasing); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE memories SET state = 'forgotten', `+erasing+` WHERE id = $1 AND state = 'old'`, f.ID)
	if err != nil {
		return err
	}
	action := Forgotten
	if as == expired {
		action = Expired
	}
	return m.tell(ctx, tx, f, action)
}

func (m *Memory) tell(ctx context.Context, tx *db.Tx, f Fact, a Action) error {
	e := Updated.New("memory:"+f.ID, Update{ID: f.ID, Version: f.Version, Agent: f.Agent, Action: a})
	e.Actor, e.Cause, e.Trace = f.Origin.Actor, f.Origin.Event, f.Origin.Run
	if e.Actor == "" {
		e.Actor = "ombud"
	}
	_, err := m.log.AppendTx(ctx, tx, e)
	return err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
