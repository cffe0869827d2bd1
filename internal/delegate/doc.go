// Package delegate hands work to coding agents: claude, codex, gemini, opencode, pi and
// any agent of the Agent Client Protocol. A delegation is a run.
//
// # A route
//
// A route is a harness and a model. Only what the operator admitted is run, a vendor's
// model only in that vendor's own harness, and what a route refuses is never given to
// another: the one that was taken, and why, is a row.
//
// # A delegation
//
// It is started by a call of delegate.call, which policy decides like any other, in the
// commit of that call. The run makes one call, harness.run, which starts the program,
// waits for its end and says what it came to. Whoever made the first call waits for the
// run, or goes on and is told: the end of the run, its event delegation.completed and
// the message that wakes the conversation are one commit.
//
// A session is what a harness remembers. Its id here is ours, and is the key of the run:
// two runs never share a session at once. Who may go on with one is who began it, in the
// conversation it was begun in, and the operator.
//
// # What the program may do
//
// It reads one directory. With write it works in a git worktree of its own, made from
// HEAD, and nothing it does there changes the repository: what it changed comes back as
// a patch. It asks for leave where its program can ask, and each of its questions is a
// call of harness.permit by a job of the run, so policy, approvals and audit hold it like
// every other. By the same job it reaches the tools of ombud that the delegation names,
// at most with what its parent may do.
//
// # Cost
//
// What a session has cost is kept; what a run cost is the difference. A run holds its
// limit against the budget while it works.
//
// # What survives a crash
//
// The program does not: it dies with the daemon. The run does, and so does the session:
// begun again, the call goes on by the session's id, in the same worktree. Questions that
// were open are withdrawn, and asked again by the program.
package delegate
