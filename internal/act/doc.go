// Package act holds the one function through which ombud acts: [Act.Call]. Every
// tool call of every agent, loop, recipe and workflow passes it, in this order:
//
//  1. resolve the tool; an unknown name is answered with near ones
//  2. validate the input by the tool's schema; all problems are told at once
//  3. derive from the input the scopes the call needs
//  4. let policy decide, once: allow, ask or deny
//  5. ask: an approval bound to exactly this call, and the run waits for it; a call with
//     a form asks though policy allows it, and is made with what a person filled in
//  6. reserve budget; keep the files the call may change, where they can be kept
//  7. commit the intent with its audit entry
//  8. execute under a hard timeout and an output bound
//  9. commit the outcome, its cost and its audit entry
//  10. label the result
//
// A call is a step of a run, so what was done is never done again (see package
// run). A local tool works on rows of the store inside the commit of its outcome,
// so 7 to 9 are one commit and there is nothing to be in doubt about. A read-only,
// repeatable call has no intent of its own: its outcome rides with the run's next
// commit.
//
// No result holds a value that is registered as secret: it is taken out before the
// result is kept anywhere, the stream of a long one too. An input that holds one is
// refused before anything is made of it. A call that names a secret which is not
// there is refused before anybody is asked.
//
// Every exit is audited in the commit that records it. Refusals are audited singly
// up to twenty per subject, tool and hour, then counted.
//
// A call that is still running after its timeout is given two seconds to heed the
// cancelled context and is then abandoned: its outcome is unknown. At most sixteen
// calls may be abandoned at a time; beyond that no new effect is begun.
package act
