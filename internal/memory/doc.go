// Package memory keeps facts for agents: one sentence each, with who said it,
// where, and who may read it.
//
// # A fact's life
//
//	            said anew                 same slot, other value
//	nothing ───────────────▶ live ◀──────────────────────────────┐
//	              ▲           │ │                                 │
//	   same text  └───────────┘ │ ─▶ old (an earlier version) ────┘ its place is
//	   again: refreshed         │      ▲    │                       taken; it comes
//	                            │      └────┘                       back if the newer
//	                            │                                   one is unsaid
//	                            └─▶ forgotten, expired: text, label and keys erased
//
// At most one version of a fact is live, one live fact of an agent has a given
// text (apart from case, spaces and a final full stop), and one says the value of
// a given slot; unique indexes hold all three. What a slot is says slotOf: "the
// boiler code is 4712" takes the place of "the boiler code is 4711", while "Anna
// is afraid of dogs" stands beside "Anna is my sister".
//
// A fact that came from somebody the operator did not vouch for never takes the
// place of one that did not; it is kept beside it, with its label.
//
// # Forgetting
//
// Forgetting a fact erases the text of all its versions. Unsaying the last one in
// a conversation erases what was said there and brings back what it had replaced.
// The events memory.updated name facts and never hold their text. What remains
// elsewhere, in the conversation's history and the steps of its runs, is not this
// package's; old pages of the store's file hold sealed text until they are used
// again.
//
// # Recall
//
// Recall ranks by BM25 over an index that lives in memory only and is a
// projection of the rows: any process builds its own. It is built newest first by
// the first recalls, a bounded number of pages each (Recalled.Warming says that
// there is more), and each recall first reads what has changed since the last,
// whoever changed it. Changes are numbered in commit order, so none is missed. The
// texts that are returned are read from the rows again: what is forgotten when
// Recall begins is never returned.
package memory
