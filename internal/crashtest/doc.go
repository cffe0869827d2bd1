// Package crashtest is the crash campaign. It builds the real program with its
// fail points (tag failpoint, in nothing we ship), lets a scripted model have a
// few conversations in which tools of every kind leave lines outside, and counts
// how often each fail point is passed. Then it does the same again once for every
// counted pass, kills the process there with SIGKILL, starts it again, lets the
// client go on as a client does (it sends again, with the same key, what it got no
// answer to) and looks at the store and at the world outside.
//
// The same is done with a conversation on every chat network, each a fake of the test's own
// that keeps its rules: what people write is heard once, and answered once, or shown as
// uncertain where the network cannot tell.
//
// And with tasks for a coding agent, which is a role of the test's binary, held by the
// daemon's own walls: each ends once and is told of once, its patch holds what the agent
// wrote once, no session has two programs, none outlives its daemon by more than a moment,
// and the repository is as it was.
//
// Another test kills a daemon in the middle of a program of an agent, whose children
// went into sessions of their own, and looks for what is left of it.
//
// `go test` tries every seventh pass on SQLite; `make campaign` tries all, on both
// stores. It fails if a counted pass was not tried.
package crashtest
