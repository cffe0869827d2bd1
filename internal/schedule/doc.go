// Package schedule keeps what starts by itself at times: each schedule is a row with
// a rule (a text of package cron and a zone), what it starts, and what is to become of
// the instants that passed while nobody looked.
//
// # States
//
//	active ──pause──▶ paused ──resume──▶ active
//	active ──no instant is left──▶ done ──edit, or the clock is set back──▶ active
//	any ──remove──▶ (none)
//
// # An instant
//
// Each nominal instant of an active schedule ends in one of these ways, with an event
// in the stream schedule:<id> whose payload has the keys of scheduler.job:
//
//	scheduler.job      fired, on time or late, or by hand: something was started
//	scheduler.missed   passed by: too late for the policy, or made up for by a later one
//	scheduler.skipped  what the last firing started was still at work
//	scheduler.failed   what was to be started could not be
//
// Only the first is what readers of KARMAX's scheduler.job wait for, so that nothing
// that was missed wakes them. Of a long row of missed instants the first few have an
// event each and the rest share one, which counts them.
//
// The event of a firing, what it starts, the outcome and the step to the next instant
// are one commit, and the id of that event names schedule, rule and instant: so there is
// one firing for each nominal instant, whatever dies, and however often the clock is set
// back. An instant that is due is settled at the next look, in whatever way: it
// never stays.
//
// # Time
//
// The wall clock is compared at least every 30 seconds of running time, so a machine that
// was suspended, or whose clock was set forward, catches up within one look: by the policy
// for missed instants. The next instant follows from the last one and never from the
// present, so small corrections of the clock change nothing. A clock that goes back by
// more than a minute is noticed, and instants that were only passed by come again.
//
// # What survives a crash
//
// Everything: nothing is kept but rows. What a schedule has come to (the last instant, its
// outcome, counts) belongs to its rule: a schedule whose text or zone is edited begins
// anew from that moment and inherits nothing.
package schedule
