// Package dbtest gives tests real stores: an SQLite file in the test's own
// directory, and a fresh database on a PostgreSQL cluster that only this test
// process uses.
//
// The cluster is made at the first request and lives as long as the process: a
// small shell holds a pipe to it, and when the process ends in whatever way
// (return, panic, time limit, kill -9) the pipe closes, the shell stops the
// server and removes its files. It listens on a unix socket in a private
// directory and on nothing else, so it cannot meet a cluster of the machine. It
// runs as an unprivileged uid, because PostgreSQL refuses root.
//
// It is set up like a server of a real user where that matters to a test: fsync
// is on, and text sorts by the rules of a natural language (ICU en-US) and not
// by bytes. A query that relies on byte order passes on SQLite and fails here.
//
// Without PostgreSQL a test is skipped, and fails when CI=true.
package dbtest
