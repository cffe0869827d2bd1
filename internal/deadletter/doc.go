// Package deadletter tells of what was given up and lets a person have it done again.
//
// # What a dead letter is
//
// A row of the event log's store, made in the transaction that gives something up: an
// event that a subscription could not handle after its last retry, a run that failed
// after its last attempt and that nobody else hears of, a delivery that failed for good
// or may have been sent. All have one id scheme and one list.
//
// # States
//
//	(none)   -- given up --> waiting
//	waiting  -- replay   --> replayed   a person
//	waiting  -- drop     --> dropped    a person
//	replayed -- given up --> waiting    the replay came to the same end
//
// A replay and what it sets going are one commit, with its event and its entry in the
// audit log. An event is handed to its subscription again, out of order; if the handler
// fails again the letter waits on. A run goes on from its recorded steps, or is started
// anew with its trigger and input. A delivery is sent again, and marked as a possible
// repeat if the first may have arrived. Dropping does nothing but say so; of a delivery
// it also skips the item.
//
// # Bursts
//
// The first letter of a source is told in the transaction that makes it. Those that
// follow before the pause is over are counted in a row; when it is over, one notice
// tells how many there were, and the pause grows, up to a day. A pause without a letter
// ends the burst.
//
// # What survives a crash
//
// Everything: letters and bursts are rows, and a notice commits with the row that says
// it was told.
package deadletter
