// Package harness reads what a coding agent's CLI prints during one run and
// keeps the normal Record of it, whichever of the five CLIs it was: claude,
// codex, gemini, opencode or pi. It starts no process and holds no rule about
// who may run one; it only reads.
//
// A Decoder is fed the child's stdout as it comes (Write, in any pieces) and is
// closed once with how the process ended. What decides the outcome, as it was
// seen on the real programs:
//
//   - The CLI's own closing record and the status in it. An exit code alone
//     proves nothing: pi exits 0 on an API error, claude 0 after an interrupt,
//     gemini 0 after SIGTERM. Only opencode has no closing record of a run; its
//     last step_finish says "stop" and the exit code has to be 0.
//   - A closing record may be taken back: claude, codex and pi go on with another
//     turn or another try in the same process, and then that one decides.
//   - Without a closing record: a process that was ended by a signal or by its
//     owner was killed; one that gave an exit code other than 0 before its run
//     began did not start; all else was cut, whatever the exit code.
//   - gemini tells a missing key by exit code 41, and an API error also by the
//     HTTP status modulo 256.
//   - stderr never decides. It is noise in codex, gemini and opencode even on
//     success. Its end becomes the text of an error nothing else explains.
//
// The two-way protocols of the same programs (claude's stream-json input, codex
// app-server, gemini's and opencode's ACP, pi's rpc) go through the same
// Decoder: a line says itself which of its CLI's protocols it is in. A decoder
// does not see what we write to a process, so an ACP permission that was asked
// for stays Asked until the tool runs.
//
// Tokens and money differ most. claude's cost and codex's tokens are cumulative
// over the session, over resumed runs too: Cumulative says so, and what one run
// used is the difference to the last value of the session, which the caller has.
// Input tokens are told without what came from a cache, which codex and gemini
// count in and the others do not.
//
// What comes in is not trusted. A line has no length limit for its sender, but
// one longer than MaxLine is dropped and counted while the stream goes on;
// texts, lists and warnings are bounded, and what was left out is counted.
// Records and keys nobody knows are counted and passed over, for these programs
// change fast: each Adapter says with which versions it was tried.
package harness
