// Package outbox delivers what ombud says, in order and once.
//
// # What an item is
//
// A row that joins the commit of the turn that said it. (run, ordinal) is unique,
// and so is the same text to the same conversation within a run unless it is
// declared separate: one logical result is one row, by whatever path it came.
//
// # States
//
//	(none)    -- AppendTx --> queued     or delivered at once, by a TxSender
//	queued    -- claim    --> sending    the head of its conversation, when due
//	sending   -- answer   --> delivered
//	sending   -- refusal  --> queued     it surely was not sent: tried again later
//	sending   -- refusal  --> failed     for good, or after the last try
//	sending   -- doubt    --> uncertain  it may have been sent and nobody can tell
//	uncertain -- person   --> queued | delivered | skipped
//	uncertain -- channel  --> queued | delivered   it learned what became of it
//	delivered -- channel  --> failed               it learned that it did not arrive after all
//	failed    -- person   --> queued | skipped
//	queued    -- person   --> skipped
//	skipped   -- person   --> queued
//
// # Order
//
// A conversation has one item in flight, and only its oldest queued item may be
// claimed: one that waits for its next try holds those behind it, unless it is kept
// back by itself (RetryAfter.Aside): then it comes after all that is not, and in order
// with its like. Uncertain and failed items have left the line. Conversations do not wait for each other, nor
// channels: each has its own places.
//
// # Failure
//
// A Sender promises by the class of its error what it knows. Unavailable, or a
// RetryAfter: nothing was sent, try again. Invalid, NotFound, Denied, Permission,
// Conflict, Config, Verification, Usage: nothing was sent and never will be.
// Anything else, a timeout or a panic: nobody knows. Then a Prober is asked; if it
// cannot tell, the item is uncertain, steps aside and waits for a person. It is
// never sent again by itself; a person's resend is marked as a possible repeat.
// Failed and uncertain items leave an event, are dead letters and call
// Options.OnTrouble in the same commit, so that the turn and the person hear of it.
// Whatever moves such an item on settles its letter.
//
// # What survives a crash
//
// All of it. An item found in flight whose owner is gone is in doubt and is
// treated as above. On SQLite every other owner is gone (the lock file proves it);
// on PostgreSQL one whose lease has ended, which outlives the longest send. A
// TxSender delivers in the transaction itself, so its items are never in doubt.
package outbox
