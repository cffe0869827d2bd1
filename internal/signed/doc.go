// Package signed is the loops that others made and signed: which are installed, what each
// may do, and their runs.
//
// # What is installed
//
// Rows are the truth. An artifact is kept as sealed pieces under the sha256 of its file; a
// loop is a row that names one of them and says as what it was approved. Install, upgrade,
// remove and what changes trust are one transaction each: rows, what starts the loop, the
// entry of the audit log and the notice. What may be long is before it: the pieces of an
// artifact are written first, and nothing refers to them until that transaction has
// committed.
//
//	pieces of the artifact ─▶ one commit: loop, targets, audit, event, notice
//
// So a process that is killed leaves the old loop or the new one. Pieces that nothing
// refers to are removed after a day.
//
// # A run
//
// A run has the kind Kind and holds its artifact in its definition. It goes on with that
// one, whatever was installed since; what the loop may do is what the approved row says
// now, within what the old manifest named. An artifact stays as long as a run that has not
// ended is pinned to it.
//
// # Trust
//
// Trusted registries and publishers, revoked keys and whether loops of the community are
// let in are rows too. A key that is revoked stops what it signed in the same transaction.
// trust.json and loops.lock are imported and exported, never read by themselves.
package signed
