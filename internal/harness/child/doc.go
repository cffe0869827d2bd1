// Package child starts the CLIs of coding agents as held processes and returns
// the [harness.Record] of what they did.
//
// A Task says which program, where, with what prompt and under which limits; a
// Starter turns that into a command line, an environment and configuration files
// of this run alone, starts the program behind the walls of confine, speaks its
// protocol where it has one, and ends it when it is done, when a limit runs out
// or when the context ends.
package child
