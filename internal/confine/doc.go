// Package confine starts the processes that work for ombud, holds them, and knows
// which processes are theirs.
//
// A job is a program that a [Launcher] started, with everything that descends from
// it, in whatever session or group. The launcher of a job is this binary once more,
// started under another name (package first). It builds the walls, starts the
// program behind them, stays outside, buries what dies and reports how it ended:
//
//	daemon ── socket pair ── launcher ── program ── whatever it starts
//
// # What holds a job
//
//   - Its end. A job is over when the program has ended and nothing of it is left.
//     In a process namespace the launcher is pid 1, and its end is everybody's. Else
//     it adopts orphans and ends them by a walk, stopping all before it kills any.
//     A cgroup ([Groups]) ends what is left and bounds how many there are. The
//     launcher ends its job when it is told to, when the program ends, and when the
//     socket pair ends, which the kernel sees to when the daemon dies.
//   - Files. Landlock refuses to open, run, make, move or remove anything outside of
//     a [Profile]. With a mount namespace everything that may not be changed is also
//     read-only, which holds modes, owners and attributes too; /tmp is the job's own
//     and bounded; what is hidden is covered. Without one, the launcher changes
//     modes for the job where it may, and owners and attributes stay as they are.
//   - System calls. A seccomp filter refuses what reaches other processes, the
//     kernel, mounts, namespaces and socket families that are not the job's, and
//     kills what calls by another architecture's numbers. Connections to unix
//     sockets are made by the launcher, from an address it has read once.
//   - The network: none, all, or one of its own in which only the proxy answers.
//   - Privileges: none, and no way to get one. Limits of processes, open files, file
//     size, memory and time stand before the program's first instruction.
//
// What is refused comes back as a [Denial]: each kind once when it happens, and with
// its count in [Exit]. Seeing is not the wall: where nothing can be seen, or what
// was seen was judged too late, it is refused all the same.
//
// What cannot be built fails the start, and an error of [Launcher.Start] says that
// nothing ran. [EnforceBest] goes on with what there is, and [Launcher.Report] names
// what is missing. A proxied network is never replaced by an open one. On systems
// other than Linux there are no walls.
//
// # Who a process works for
//
// A job must not be able to speak as the operator, though it has the operator's uid:
// the operator socket asks [IsJob] about whoever connects. For that to hold against a
// child that forks twice and lets its parent die, the daemon adopts orphans
// ([Adopt]): whatever a job starts stays a descendant of the daemon, or is in a
// cgroup of jobs, for as long as it lives.
//
// # What survives
//
// Nothing does. A daemon that is killed takes its jobs along; a launcher that is
// killed takes its job along, and Wait says that the program's end is not known. If
// both are killed at one instant where there are no namespaces, what was left in a
// cgroup is ended by the next start. Neither jobs nor what they were refused is kept
// here: who starts a job records that.
package confine
