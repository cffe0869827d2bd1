// Package cli is the command line. A command talks to the daemon of its instance
// through package wire and does little itself; ask, chat and approve start a
// daemon when none runs.
//
// What a script may rely on:
//
//   - Results go to standard output, everything else to standard error. An error
//     is one line "error: …" and, if there is a way out, one line "hint: …".
//   - With --json a command writes one JSON object, a stream one object a line.
//     Each has "schema": "ombud.<what>/<version>"; within a version fields are
//     added, never renamed or removed. A command that fails before it has a result
//     writes nothing there.
//   - Exit codes are those of package fault. Beyond its table: a turn that ended
//     otherwise than completed has the code of its outcome (turnError), and
//     status, doctor and runs verify exit 1 when the answer is "no".
//   - Colour and streaming only on a terminal; NO_COLOR is respected.
//
// Starting a daemon: the program re-executes itself as "up --detached-child" in a
// session of its own, holding none of the caller's descriptors, and waits for the
// socket. Whoever loses the race for the instance's lock exits 73, which its
// caller takes for "somebody else's daemon is about to answer".
package cli
