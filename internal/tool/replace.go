package tool

import (
	"errors"
	"maps"
)

// Offer is one tool of an owner whose tools come and go while ombud runs.
type Offer struct {
	Definition Definition
	Handler    Handler
}

// Replace makes offers all the tools of owner, and refused what it says it has but
// may not be used, at one instant: nobody sees some of the old and some of the new.
// No offers take the owner's tools away. What cannot be used as declared, or has a
// name that is taken, is quarantined and returned; the others stay. The tools of
// other owners are never touched. Calls under way go on; one that was decided by a
// definition that is gone is not begun (see Invoker.Call).
func (r *Registry) Replace(owner string, offers []Offer, refused ...Quarantine) ([]Quarantine, error) {
	if owner == "" {
		return nil, errors.New("tool: Replace needs the name of an owner")
	}
	type made struct {
		name  string
		entry *entry
		err   error
	}
	entries := make([]made, 0, len(offers))
	for _, o := range offers { // schemas are compiled before the table is locked
		e, err := newEntry(o.Definition, o.Handler)
		entries = append(entries, made{o.Definition.Name, e, err})
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	byOwner := func(_ string, e *entry) bool { return e.owner == owner }
	maps.DeleteFunc(r.table.byName, byOwner)
	maps.DeleteFunc(r.table.byModelName, byOwner)
	delete(r.table.quarantined, owner)
	for _, q := range refused {
		r.quarantine(owner, q)
	}
	for _, m := range entries {
		err := m.err
		if err == nil {
			err = r.table.free(m.name)
		}
		if err != nil {
			r.quarantine(owner, Quarantine{m.name, err.Error()})
			continue
		}
		m.entry.owner = owner
		r.table.put(m.entry)
	}
	out := append([]Quarantine(nil), r.table.quarantined[owner]...)
	return out, nil
}
