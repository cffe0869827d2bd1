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
	entries := make([]*entry, len(offers))
	reasons := make([]error, len(offers))
	for i, o := range offers { // schemas are compiled before the table is locked
		entries[i], reasons[i] = newEntry(o.Definition, o.Handler)
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
	for i, e := range entries {
		err := reasons[i]
		if err == nil {
			err = r.table.free(e.def.Name)
		}
		if err != nil {
			r.quarantine(owner, Quarantine{offers[i].Definition.Name, err.Error()})
			continue
		}
		e.owner = owner
		r.table.put(e)
	}
	out := append([]Quarantine(nil), r.table.quarantined[owner]...)
	return out, nil
}
