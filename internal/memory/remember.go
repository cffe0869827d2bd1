package memory

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

// Remembering is what became of a fact to remember.
type Remembering struct {
	Fact   Fact
	Action Action // Remembered, Replaced or Refreshed
	Before *Fact  // what it took the place of; only with Replaced
}

// RememberTx remembers a fact as part of tx. A text that is known is refreshed
// and not kept twice; one that says another value of the same slot takes the
// place of the former, which stays as an earlier version. Errors: Invalid.
func (m *Memory) RememberTx(ctx context.Context, tx *db.Tx, n New) (Remembering, error) {
	if err := n.check(); err != nil {
		return Remembering{}, err
	}
	key := m.vault.Blind(vault.MemoryKey, normal(n.Text))
	known, ok, err := m.liveBy(ctx, tx, n.Agent, "key", key)
	if err != nil {
		return Remembering{}, err
	}
	if ok {
		if !known.Label.Tainted() || n.Label.Tainted() {
			return m.refresh(ctx, tx, known.Fact, n)
		}
		// Somebody else said it, now it is said by one the operator vouches for:
		// it becomes a fact of its own, with that label.
		if err := m.erase(ctx, tx, known.Fact, forgotten); err != nil {
			return Remembering{}, err
		}
	}
	f := Fact{
		ID: id.New("mem"), Version: 1, Agent: n.Agent, Text: n.Text, Label: n.Label, Importance: usualImportance,
		Expires: n.Expires, Created: tx.Now(), Said: tx.Now(), Origin: n.Origin,
	}
	return m.add(ctx, tx, f, n, key)
}

// add writes a text that is not known, in a slot that may be taken.
func (m *Memory) add(ctx context.Context, tx *db.Tx, f Fact, n New, key []byte) (Remembering, error) {
	out := Remembering{Action: Remembered}
	var slot []byte
	if name := slotOf(n.Text); name != "" {
		slot = m.vault.Blind(vault.MemorySlot, name)
		before, taken, err := m.liveBy(ctx, tx, n.Agent, "slot", slot)
		switch {
		case err != nil:
			return out, err
		case taken && n.Label.Tainted() && !before.Label.Tainted():
			slot = nil // a stranger's word does not take the place of the operator's
		case taken:
			if err := m.retire(ctx, tx, before.Fact); err != nil {
				return out, err
			}
			out.Action, out.Before = Replaced, &before.Fact
			f.ID, f.Importance, f.Pinned = before.ID, before.Importance, before.Pinned
			// Not just the next: versions that were taken back keep their number.
			err := tx.QueryRow(ctx, `SELECT max(version) + 1 FROM memories WHERE id = $1`, f.ID).Scan(&f.Version)
			if err != nil {
				return out, err
			}
		}
	}
	f.apply(n)
	out.Fact = f
	if err := m.insert(ctx, tx, f, key, slot); err != nil {
		return out, err
	}
	return out, m.tell(ctx, tx, f, out.Action)
}

// apply takes what was said of a fact's weight.
func (f *Fact) apply(n New) {
	if n.Importance != nil {
		f.Importance = *n.Importance
	}
	if n.Pin != nil {
		f.Pinned = *n.Pin
	}
}

// refresh notes that a known fact was said again. Its time is never shortened. Of
// two labels that both hold strangers' words it gets both; a fact the operator
// vouched for keeps its own, whoever repeats it.
func (m *Memory) refresh(ctx context.Context, tx *db.Tx, f Fact, n New) (Remembering, error) {
	if f.Expires != 0 && (n.Expires == 0 || n.Expires > f.Expires) {
		f.Expires = n.Expires
	}
	if f.Label.Tainted() || !n.Label.Tainted() {
		f.Label = label.Join(f.Label, n.Label)
	}
	f.apply(n)
	f.Said, f.Origin = tx.Now(), n.Origin
	change, err := tx.Next(ctx, changes)
	if err != nil {
		return Remembering{}, err
	}
	_, err = tx.Exec(ctx, `UPDATE memories SET change = $3, label = $4, importance = $5, pinned = $6, expires = $7, said = $8,
		run = $9, conversation = $10, event = $11 WHERE id = $1 AND version = $2 AND state = 'live'`,
		f.ID, f.Version, change, m.vault.Seal(vault.MemoryLabel, rowName(f.ID, f.Version), f.Label.Marshal()), f.Importance,
		flag(f.Pinned), f.Expires, f.Said, f.Origin.Run, f.Origin.Conversation, f.Origin.Event)
	if err != nil {
		return Remembering{}, err
	}
	return Remembering{Fact: f, Action: Refreshed}, m.tell(ctx, tx, f, Refreshed)
}
