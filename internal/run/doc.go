// Package run is the one durable engine: a turn, a recipe, a loop, a workflow, a
// delegation and an approved call are all runs.
//
// # What a run is
//
// A stream of events, run:<id>, and two projections of it written in the same
// transaction, the rows of runs and steps. The events are the truth; Verify folds
// them anew and compares. A handler does the work; after a crash, a park or a
// retry it is called again from its beginning, and what it did in steps is
// returned to it from the record.
//
// # States
//
// This is the whole table (edges.go); fold, write guards and tests come from it.
//
//	(none)     -- run.created    --> queued      starter
//	queued     -- run.started    --> running     dispatcher
//	waiting    -- run.started    --> running     dispatcher
//	running    -- run.waiting    --> waiting     owner
//	running    -- run.completed  --> completed   owner
//	running    -- run.failed     --> failed      owner
//	running    -- run.uncertain  --> uncertain   owner
//	running    -- run.requeued   --> queued      recovery
//	running    -- run.failed     --> failed      recovery
//	queued     -- run.cancelling --> cancelling  person
//	running    -- run.cancelling --> cancelling  person
//	waiting    -- run.cancelling --> cancelling  person
//	uncertain  -- run.cancelling --> cancelling  person
//	cancelling -- run.cancelled  --> cancelled   owner
//	cancelling -- run.failed     --> failed      owner
//	cancelling -- run.uncertain  --> uncertain   owner
//	uncertain  -- run.resolved   --> queued      person
//	uncertain  -- run.failed     --> failed      person
//	failed     -- run.replayed   --> queued      person
//
// # Steps
//
// A step is recorded under a name that is stable within its run. A recorded step is
// never done again. One whose intent was committed and whose outcome was not, met
// after a crash, goes by its policy: Repeatable and Noted are begun again (and the
// repeat is counted), Probed asks, AtMostOnce becomes unknown. An unknown step is
// told to the handler as an error, or makes the run uncertain until a person
// decides, as its Kind says.
//
// # Failure
//
// A kind's handler may fail so often as its Attempts say; between attempts the run
// waits and keeps its trigger and its steps. After the last it is failed, and in the
// same transaction a dead letter, unless somebody hears of it anyway: a parent that
// still works, or whoever waits for every run of a kind that is Heard. A replay of the
// letter lets the run go on: what it did stays recorded, the steps that failed are
// begun again, and it has all its attempts once more.
//
// # Waits and branches
//
// A run waits as a row: for a time, a signal, an approval, a retry or the end of
// another run. A signal is kept until a wait takes it, in the commit that records the
// step. Parallel lets branches work side by side under one of four joins. A branch
// that waits does not keep the others; when all that are left wait, the run is parked
// for the first of what they wait for. A join that has been decided is committed
// before any branch is stopped because of it, so a crash cannot decide it again.
//
// # Keys
//
// Runs that share a key go in order of arrival, width at once. The holder of a
// place keeps it while it runs or waits and gives it to the next in line in the
// transaction that ends it or leaves it uncertain. A child whose ancestor holds the
// key works in the ancestor's place.
//
// # What survives a crash
//
// Everything but the handler's own variables. On SQLite the next boot takes back
// every run of the last one: the lock file proves it dead. On PostgreSQL a node has
// a lease that outlives every effect it starts, so when it ends nothing of that
// node can still be under way; only the next boot in the same home (Options.Home)
// need not wait for it. A run that took its node down five times is failed.
package run
