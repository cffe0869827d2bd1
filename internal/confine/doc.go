// Package confine starts the processes that work for ombud and knows which
// processes are theirs.
//
// A job is a process ombud started, with everything that descends from it. A job
// must not be able to speak as the operator, though it has the operator's uid: the
// operator socket asks [IsJob] about whoever connects. For that to hold against a
// child that forks twice and lets its parent die, the daemon adopts orphans
// ([Adopt]): on Linux it becomes their reaper, so whatever a job starts stays a
// descendant of the daemon for as long as it lives.
//
// What survives: nothing. A daemon that is killed loses its descendants to init,
// and a new one cannot tell them from other processes of the same user.
package confine
