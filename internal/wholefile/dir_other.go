//go:build !unix

package wholefile

// SyncDir has no meaning here: a directory cannot be opened for syncing.
func SyncDir(string) error { return nil }
