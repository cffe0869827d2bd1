// Package job lets a process that works for a run call back: a harness, a program,
// the server of a protocol. Such a process has the operator's uid, so nothing it
// says of itself counts; what counts is the token it was given.
//
// # A job
//
// Issue makes a job and its token for one run in its present execution. The token
// is 256 random bits, of which only a keyed digest is kept. It is good while that
// execution lasts: it dies when the run ends, parks, is stopped or is taken back
// after a crash, when End is called, and at its expiry. A token that is unknown,
// wrong, ended or expired gets one and the same answer.
//
// # What a job may do
//
// At most what its parent may. A job that asks for more is refused when it is
// issued. What it was given is bound by every layer that bound its parent then,
// and by what the parent holds at the moment of each call, so that a revoked grant
// binds a job that is running. A standing approval of the parent is not the job's:
// a person said "always" to the parent. The label of a job grows with every result
// it is shown and marks all its later calls.
//
// # A call
//
// Call makes one call a run of kind jobcall, a child of the job's run that works in
// its place, through act like every other. The same key again is the same call:
// its answer, or that it still waits. A call that needs a person answers at once
// that it waits, with the id of the question; asked again with its key it answers
// what became of it. A question that outlives the time a run waits for it stays
// open; approved later, the call is made if the job still lives, and refused if not.
// When a job ends, its calls are stopped and the questions they wait for withdrawn.
//
// # What survives a crash
//
// The calls that were begun come to their end and are recorded. The job does not:
// its process is gone or nobody's, and the run, begun again, issues another.
package job
