package db

// Time is the system clock in Unix microseconds, for decisions outside a
// transaction such as whether anything is due. What is stored is stamped with
// Tx.Now.
func (d *DB) Time() int64 { return d.now().UnixMicro() }

// Wake wakes this node's watchers of topic without a transaction.
func (d *DB) Wake(topic string) { d.signals.wake(topic) }

// FreeBytes is the room on the file system of a directory; known is false where
// the system does not tell.
func FreeBytes(dir string) (free int64, known bool) { return freeBytes(dir) }
