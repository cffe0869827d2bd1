// Package db is the one door to the store: SQLite in the daemon's own directory,
// or PostgreSQL when several machines share one.
//
// # Writing
//
// Every write goes through [DB.InTx]. One writer goroutine per node drains the
// callers that wait (at most Options.MaxBatch) into one transaction, a savepoint
// each, and makes one commit for all of them, so that 64 callers share an fsync.
//
//   - nil from InTx means the rows are durable. Any error means they are not
//     there, except class Unknown: the connection to PostgreSQL was lost while it
//     committed and the server can no longer say what became of it, or the disk
//     failed to confirm a flush of SQLite's log.
//   - An error or panic of one caller's function rolls back to its savepoint and
//     reaches that caller only.
//   - A statement that fails poisons its caller's transaction: the function can
//     not continue and commit half of what it meant. Write ON CONFLICT instead of
//     catching errors, or use [Tx.Savepoint].
//   - Some failures take the whole transaction with them (a full disk, a broken
//     connection). The callers of the batch are then run again, one transaction
//     each. A function may therefore run twice: it must have no effect but its
//     statements, take no lock, do no I/O, and stay under 50 ms.
//   - InTx and Read do not nest, in whatever order: class Internal.
//   - One query is open at a time, and rows are closed before the function returns,
//     on both stores, because PostgreSQL wants it so.
//   - The context of a caller is looked at before its function starts and never
//     after: a deadline that fires inside SQLite would roll back its neighbours.
//
// # Order
//
// [Tx.Next] hands out counters without gaps whose order is the order of commits,
// on all nodes. On SQLite there is one writer. On PostgreSQL a batch takes the
// row of the log's counter first and holds it to its commit, so write batches of
// different nodes run one after the other, exactly as on SQLite.
//
// # Reading
//
// [DB.Read] gives a snapshot on one of a few read-only connections. A reader that
// stays open keeps SQLite's write-ahead log from being recycled, so long scans
// page by key with a Read each.
//
// # Several daemons
//
// Of the daemons that know one PostgreSQL store one is active, by a [Seat]. Each of
// its batches reads, after it has the row that all batches hold, whether the seat is
// still its own, and is refused if not. Offline readers open with Options.ReadOnly.
//
// # What survives
//
// Commits are flushed (WAL with synchronous=FULL, or PostgreSQL's own) before
// InTx returns. A kill at any instant loses only what was not acknowledged. A
// full disk turns the store read-only until there is room again; see reserve.go.
package db
