// Package budget keeps what is spent within limits: reserve before a call, commit
// after it, stop hard in between.
//
// # The tree
//
// Every call counts at three nodes: instance, agent:<name> and run:<id> (of the
// run at the root, so that children share their parent's allowance). The instance
// and the agents have a day and a month, a run has its whole life. Days and months
// are those of Options.Zone, the operator's own, because "today" in a limit is
// meant as a person says it; a call belongs to the day it was reserved in, also
// if it ends after midnight.
//
// # What is held against a limit
//
//	spent     what calls cost
//	reserved  what calls under way may cost
//	possible  what calls may have cost of which nobody knows: the daemon died, or
//	          the outcome stayed unknown
//
// A call is refused when their sum and its own amount pass a limit, so that the
// calls under way together never can. Only the truth may pass it: a call that cost
// more than it reserved is booked as what it cost, and the next one is refused.
// Calls whose price is unknown are counted, never priced at zero; they reserve
// nothing and are refused once any limit above them is used up.
//
// # States of a reservation
//
//	(none) -- ReserveTx  --> open
//	open   -- RepeatTx   --> open       a crash interrupted the call and it is made again
//	open   -- RaiseTx    --> open       a call under way may cost more
//	open   -- CommitTx   --> committed  actual cost
//	open   -- AtLeastTx  --> committed  a part of its cost, and what may be beside it
//	open   -- PossibleTx --> committed  it may or may not have cost its amount
//	open   -- ReleaseTx  --> released   it was not made
//
// # What survives a crash
//
// All of it: every function joins the caller's transaction, the intent or the
// outcome of the call. The totals are kept in the same transaction as the
// reservations they sum up. A reservation that is open holds its amount until its
// call is made again or SettleTx books it as possible when its run ends.
package budget
