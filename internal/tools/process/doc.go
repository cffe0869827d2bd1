// Package process is tools that live in programs of others. Such a program, a tool
// process, is started once, registers its tools over its standard output and answers
// calls for as long as it lives. docs/tool-process.md is the protocol.
//
// # What a tool process may do
//
// Adding one gives nobody anything. A tool becomes a tool of ombud only if the scope
// it says it needs is within the scopes the operator named when adding the process,
// and a call of it needs two scopes of whoever makes it: tool:NAME.tool, which nobody
// holds before the operator grants it, and the scope itself. What the program can
// really reach is not what it says but what its walls let it (package confine): its
// own directory, the files it was given, and no network unless it was given one. Its
// environment is made from nothing but a few fixed values and the secrets the operator
// named. What it answers is data of untrusted:tool:NAME, whatever it says.
//
// A tool that cannot be used as it is registered (a schema no provider would take, a
// scope too wide or malformed, a name that is taken or not on the operator's list) is
// quarantined with a reason, and takes no other with it.
//
// # States
//
// A process is starting, ready, waiting to be started again, or stopped. There is at
// most one child of a process at any time: the next is started only when everything
// of the one before is gone. A child that ends, breaks the protocol, floods or does
// not end a call that was cancelled is ended, with all it started, and started again
// after 1, 5, 25, 125 and then every 300 s; a minute in peace resets the count. After
// five times in a row it is said once, and shown for as long as it lasts.
//
// Calls overlap up to a bound. A call whose process dies has an unknown outcome if the
// process may have been told of it, unless the operator declared the tool repeatable.
// After a cancelled call the process has a moment to say how it ended; then it is
// ended. Everything it writes is bounded: frames, events, results, standard error.
//
// # What survives a crash
//
// A row per process: what the operator said of it, and what it registered last. After
// a start of ombud the tools are known from there at once and a call waits for the
// process; once that has registered, its tools are what they are then. If that is not
// what they were, it is audited, shown, and approvals given for the old tools are void.
// The processes themselves do not survive: their launcher ends them when ombud dies.
package process
