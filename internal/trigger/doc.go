// Package trigger keeps what can be started (targets: a recipe, a loop, a hook of the
// configuration) and what starts each: a schedule, an event, a webhook, a timer, a person.
//
// # A start
//
// What started a run is the run's input, a Trigger, written in the commit that starts it:
// so it is there for every retry and after every crash, and no trigger is taken for done
// before its run is a row. While a run of the same target is at work the next one stands
// in line; none is dropped.
//
//	schedule  the commit that moves the schedule on          (package schedule)
//	event     the commit that moves the one subscription on  (package eventlog)
//	timer     the same: its event is timer.fired
//	webhook   the commit of the hook's row and event, before the 2xx
//	manual    the commit of its event
//
// # A target
//
//	active ──Pause, or its definition says so──▶ paused ──Resume──▶ active
//
// A paused target starts nothing, whatever the trigger; what came meanwhile is counted
// and told. A target that is removed or defined anew leaves the runs it started alone:
// they have their definition pinned. Of the owner's targets Replace keeps what does not
// change, so a listener hears every event since it was first there.
//
// # What cannot be started
//
// An event starts a target once. If one of several cannot be started the others are, and
// the event is a dead letter that names it; a replay starts what is not started yet.
//
// # Storms
//
// A run may cause the event that starts another. The chain is counted: a start that is
// more than MaxDepth runs away from its first cause, or that would be more than MaxFamily
// runs of one, is refused: the event is a dead letter, once for each first cause.
//
// # What survives a crash
//
// Everything but rates and counts of what was refused, which are written now and then.
// Of the triggers only what is wanted is kept in memory, in step with the rows: the kinds
// of event somebody listens to.
package trigger
