// Package approval asks a person about one call and keeps the answer.
//
// # What an approval is
//
// A row bound to the hash of exactly one call: tool and its definition, input,
// recipients, the scopes it needs, run and step. A changed argument, definition or
// scope is another call and needs another approval; the older question about the same
// step is withdrawn.
//
// # States
//
//	(none)   -- AskTx      --> pending
//	pending  -- Resolve    --> approved | denied   a person, never the subject itself
//	pending  -- ExpireOnce --> expired             nobody decided in time
//	pending  -- WithdrawTx --> expired             what asked is gone
//	approved -- UseTx      --> used                once, by the call it is bound to
//	approved -- ExpireOnce --> expired             given, and not used within Options.Good
//
// Every move is one guarded UPDATE: of two people who decide at once one is told
// Conflict. denied, expired and used have no way out. Who decided is recorded with
// every move out of pending, also when it is ombud itself.
//
// # Questions with a form
//
// Some calls need more than a yes: a question can have a form (see package form), and
// then a yes comes with an answer that fits it. One that does not fit is Invalid, names
// the field, and leaves the question open. The answer is a part of the move to
// approved, never changes, and is handed to the call and to nothing else. A no needs
// none.
//
// # Detached approvals
//
// A turn holds its conversation until HoldUntil. After that it ends as parked and
// marks its question Detached; the answer, when it comes, starts a run of its own
// (Options.OnResolved, in the transaction of the answer).
//
// # What survives a crash
//
// All of it. The question, its event approval.asked and what Options.OnAsked
// writes to tell a person are one commit, with the wait of the run that asked; the
// answer, its event approval.resolved and what it wakes are another. Asking again
// after a crash finds the first question.
package approval
