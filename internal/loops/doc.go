// Package loops is work that is written in Go: the kit it is written with, the
// registry of the loops that are compiled in, and the loops that ombud ships. Recipes
// are done by the same kit.
//
// # A loop's run
//
// A trigger starts a run of kind "loop" whose key is the loop's name, so an event that
// comes while the loop runs is handled after it and never dropped. The trigger is the
// run's input and stays what it was through every retry and restart. A failed run is
// tried three times, a minute, then two, apart; a recorded step is not done again. What
// failed last time is the exception: a further attempt tries that anew, under the
// step's name with a number behind it.
//
// # The kit
//
// Every method of a [Kit] that does something is a recorded step under the name it is
// given, so names are stable and no two steps of a run share one. What has an effect is
// a call of a tool by the one door to all effects (package act), as the loop's own
// subject: policy decides, a person may have to approve, and then the run waits as a
// row for as long as the question is open. Work that is a run of its own, such as the
// turn of an agent, is started in such a call and waited for as a row too.
//
// # Others' words
//
// What a method returns has a label, and the kit has that of all it has returned. By it
// act decides what a later call may tell whom. Text that others wrote is remembered by
// the kit and stands between marks wherever it turns up in a prompt, whether the loop's
// author thought of that or not.
//
// # What survives a crash
//
// Everything but the variables of the loop's function, which is called again from its
// beginning. Short memory, logs, the switch that disables a loop and the state of
// integrations are rows.
package loops
