// Package agent takes messages in and answers them.
//
// # A message
//
// Intake is one transaction: the dedupe key, the event comms.message and the turn,
// a run of kind "turn" whose key is the conversation. The runs of that key are the
// mailbox; there is no second queue. A message is acknowledged when that commit is
// durable. The same key again is the same message; the same key with another text
// is a conflict, which is recorded and refused.
//
// Control messages (/stop, /new, /status, a yes or no to an open question) are
// settled in the intake itself, so that a "yes" never queues behind the turn that
// waits for it.
//
// # A turn
//
// Its steps are context, then model/N and tool/N.i for N from 0, then reply. Each
// is recorded before anything depends on it, so a crash repeats no effect and asks
// a model again only for an answer that was not recorded. The context is a pure
// function of rows and is recorded with its hash.
//
// A turn is bounded in steps, calls and time; time stops while a person decides.
// Breakers end one that repeats itself. However it ends, the conversation is told,
// in the commit that ends it, and the next message is taken.
//
// # What survives a crash
//
// Everything but the text streamed so far, which is a hint for the eye: the reply
// in the store is what counts.
package agent
