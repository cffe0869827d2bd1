// Package backup writes the whole of an instance into one file and reads it back.
//
// # The file
//
// A backup is a tar archive (ustar; sizes of 8 GiB and more as GNU tar writes
// them), written once from its front to its end, so that it can be sent through a
// pipe. Its members, in this order:
//
//	README         what this is, for who finds it
//	store.db       SQLite: the database, one that can be opened as it is
//	tables.json    PostgreSQL: the tables and their columns
//	rows/NNNN-T    PostgreSQL: rows of table T, at most 4 MiB
//	config.yaml    if there was one
//	key/NAME       what opens the key (a sealed envelope), and the raw key if that was asked for
//	manifest.json  what the file is and holds, with size and SHA-256 of each member before it
//	manifest.sig   Ed25519 by the instance's key over "ombud.backup.v1\n" and manifest.json, in hex
//
// then two blocks of zeros and nothing more. All headers have one form: mode 0600,
// no owner, the time of the backup. So every byte is determined by the manifest or
// has its hash in it, and a change of any byte shows.
//
// A row is its values in the order of tables.json: a byte 0 for none, 1 with a
// signed varint, 2 with text and 3 with bytes, both behind their length as varint.
// Store and rows are what the store holds: sealed columns stay sealed.
//
// # What survives a crash
//
// Writing goes to a name of its own that ends in ".partial"; the file gets its name
// when it was flushed and read back. Restoring makes everything in a directory of
// its own beside the store (Stage) and verifies it there. One rename then decides:
// before it nothing has happened, after it whoever opens the instance next carries
// it to its end (Settle). See restore.go.
package backup
