// Package eventlog holds everything that happened, in commit order, and feeds it
// to whoever subscribed.
//
// # Order
//
// Positions come from the store's counter, whose order is the order of commits on
// all nodes: whoever has read up to a position can never find an earlier event
// later. Every stream (the events of one thing, as run:<id>) counts its own
// versions from 1. An event's time never goes back on a node.
//
// # An event
//
// The payload is JSON in one form. What came as a Go value is what encoding/json
// makes of it without escaping <, > and &; what came as JSON text is brought to
// that form with its keys in byte order and its numbers as they were written.
// With a random salt of 16 bytes before it, it is sealed as one column.
//
// The leaf is public and binds the payload to its event:
//
//	SHA-256( salt ‖ {"id":…,"stream":…,"kind":…,"format":…,"at":…,"actor":…,"cause":…,"trace":…,"data":…} )
//
// with exactly these keys in this order, no white space, strings escaped as
// encoding/json does without HTML escapes, and data being the payload's stored
// bytes. Position and version are not in it; a receipt folds over (position,
// kind, leaf). Reading recomputes the leaf, so a changed row is an error of class
// Verification and never silently other content. Erase removes payload and salt
// and keeps the leaf: a reader sees Erased.
//
// An id given by the caller makes a repeat harmless: same stream, kind, format
// and payload return the first event, anything else is a Conflict.
//
// # Subscriptions
//
// A subscription has a name, a filter, a handler and a position in the store. Its
// loop takes up to 256 events, and one transaction moves the position and runs
// the handlers, so what a handler writes is there exactly once for each event, and
// nine subscriptions do not cost nine commits an event; what this node has just
// appended they take from memory. A new one starts at the head. Events the filter leaves out move the position along with the next
// handled event, or by themselves after 1024. When nothing is new, nothing is
// written. The position is moved by a guarded statement: it never goes back, and
// of two processes that read for one name only one commits each batch.
//
//	           handler fails                retry succeeds
//	following ────────────────▶ blocked ─────────────────────▶ following
//	 (stream)                   │  ▲ │     and caught up
//	                            └──┘ │ last retry fails
//	                     retry fails ▼
//	                            dead letter; the stream goes on
//
// When a handler fails (error, panic, or a statement's error it swallowed) the
// batch is rolled back and run again with a savepoint for each event. The failing
// event's stream becomes a row in blocked, with the position to come back to;
// later events of that stream are left for the retry, which reads them in order
// until it has caught up. Retries come after 1, 5 and 25 seconds. Then this one
// event becomes a dead letter, told by an event of kind system.critical, and its
// stream goes on behind it. Replaying it is marked out of order. A failure of the
// store itself (full disk, lost connection) counts against no event: the loop
// waits and tries again.
//
// # What survives
//
// Everything: positions, blocked streams and dead letters are rows. A process
// that dies between a handler and its commit finds the events undelivered.
// Notifications are hints; each loop also looks once a second.
//
// # Retention
//
// Prune removes by age what every subscription has passed; see there for what it
// keeps. A subscription nobody runs any more holds events back until it is
// detached.
package eventlog
