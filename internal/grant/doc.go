// Package grant keeps what the operator gave to a subject, or took from it,
// beside the role in the configuration file, and how much the subject does
// without asking.
//
// # What a grant can do
//
//	allow     the subject has the scope, as far as its role and tier do
//	ask       it has to ask for the scope
//	deny      it does not get the scope
//	limit     of the scope's base it has this much at most
//	standing  an ask for the scope is answered with yes beforehand
//
// No grant gives more than role and tier: policy asks every layer, and these
// rules are in the subject's own. A standing approval answers an ask of a layer
// or of the level; it never answers a deny, nor an ask that comes from what
// others wrote in the context. What can have no effect is kept and said to grant
// nothing, with the reason (Weigh).
//
// # States
//
//	(none) -- GrantTx  --> live
//	live   -- RevokeTx --> revoked    no way back: grant anew
//	live   -- its time --> expired    told by the clock, no row changes
//
// One live grant per (subject, conversation, effect, scope): the same grant again
// is the first, and with another end it replaces the first.
//
// # Who may
//
// The operator, through the operator's socket. GrantTx, RevokeTx, SetLevelTx and
// PresetTx refuse every other name, and only the daemon's handlers of that socket
// import this package (internal/arch): no tool, no agent and no channel can even
// name it.
//
// # What survives a crash, and what shows
//
// A change, its event (grant.added, grant.revoked, level.set) and its audit entry
// are one commit. For reads one row when nothing has changed since; a revoked
// grant is out of force at the next decision that looks, which is the next turn or
// the next time a waiting turn goes on.
//
// The row is sealed as a whole and bound to its id, so a changed one is an error
// that names the row, and then the subject has no authority at all. A row that was
// deleted, or un-revoked, by somebody who can write to the store does not show
// here; the event log and the audit chain tell what was decided.
package grant
