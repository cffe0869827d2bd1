// Package server speaks the Model Context Protocol as the side that has tools: it
// offers coding agents what ombud lets them use and hands their calls on. It holds no
// rules and no state that matters. What may be seen and called is said by a [Door],
// asked anew for every list and every call; a door leads to a job, or to a client the
// operator made.
//
// # Two revisions, two ways in
//
// Over HTTP ([HTTP]) a request that names revision 2026-07-28 or later stands alone:
// there is no session. One of an earlier revision belongs to a session that initialize
// opened. Over standard input ([Serve]) both are spoken on one connection.
//
// # Sessions
//
// A session belongs to the client whose credential opened it. To every other client it
// does not exist, which is what the answer says: 404, as for one that has ended. There
// are at most so many of a client; one more ends the one that was used longest ago. A
// session ends when it is not used for long, when it is old, when its client is removed
// and when the daemon ends. Nothing is lost with it: a client that is told 404 begins
// another.
//
// # A call
//
// A call has a key: over a session it is made of the session and the id of the request,
// so that a request that is sent again after a lost answer is the same call and is not
// made twice. A request of the revision without sessions is a call of its own.
//
// A call that needs a person is answered when it was decided, or after a time that is
// shorter than those after which clients give up, by the text that it waits and for
// what. Meanwhile whoever asked for progress is told. The same call again, with the same
// input, is then the question of what became of it.
//
// That a request ends, because it was cancelled or its connection is gone, stops no
// call: it comes to its end and is recorded.
package server
