// Package asks answers what the servers of the Model Context Protocol ask while a call is
// under way: a person, or a model.
//
// A question is a call of its own, by a job of the run that made the server's call, so
// policy, approvals, budget and audit hold it like every other; and its record stands
// beside that run. mcp.elicit puts it to the operator, always, with the form the server
// wants filled in; what they fill in is its result. Whoever may make the call may have the
// operator asked, for nothing happens without an answer, unless a rule denies
// mcp.ask:SERVER/elicit. mcp.sample asks a model, in a run of its own, and needs
// mcp.ask:SERVER/sample and llm.call like no call does by itself. A job holds exactly what
// its one question needs, at most as the call held it.
//
// All a server says with a question is its own words, of untrusted:mcp:SERVER. What is
// answered goes to that server. Nothing of ombud's is told to the model that is asked: it
// sees the server's words alone, and has no tools.
//
// # What survives a crash
//
// Nothing that is open: the server's connection is gone, so nobody waits for the answer.
// The job died with its execution; when it is swept its call is stopped and the question
// withdrawn. What a model was asked is recorded and booked as far as it came.
package asks
