package instance

import "path/filepath"

// Staged is the instance a restore makes, beside the store it is to replace: on the
// same disk, so that a rename puts it in place.
func (in Instance) Staged() Instance { return in.under(in.StagingDir()) }

// StagingDir holds what a restore is making. It may be removed at any time by who
// holds the lock.
func (in Instance) StagingDir() string { return filepath.Join(in.StateDir, "restore.staging") }

// ReadyDir is the staging directory from the moment that decides a restore. Who opens
// the instance next puts it in place.
func (in Instance) ReadyDir() string { return filepath.Join(in.StateDir, "restore.ready") }

// Ready is the instance in it.
func (in Instance) Ready() Instance { return in.under(in.ReadyDir()) }

// Scratch is an instance below any directory, for a rehearsal.
func (in Instance) Scratch(dir string) Instance { return in.under(dir) }

func (in Instance) under(dir string) Instance {
	in.ConfigDir, in.StateDir = filepath.Join(dir, "config"), filepath.Join(dir, "state")
	return in
}

// ReplacedDir is where a restore puts what it replaced; nothing ever removes it.
func (in Instance) ReplacedDir(name string) string {
	return filepath.Join(in.StateDir, "replaced-"+name)
}

// RestoredConfig is the configuration of a backup where there was another one.
func (in Instance) RestoredConfig() string { return filepath.Join(in.StateDir, "restored-config.yaml") }

// RestorePlan says in the staging directory what is to become of it.
func (in Instance) RestorePlan(dir string) string { return filepath.Join(dir, "plan.json") }

// RestoreMoved says in the ready directory that what was there before has been moved.
func (in Instance) RestoreMoved(dir string) string { return filepath.Join(dir, "moved") }

// DatabaseFiles are those SQLite keeps a store in.
func (in Instance) DatabaseFiles() []string {
	db := in.StateDB()
	return []string{db, db + "-wal", db + "-shm", db + "-journal"}
}

// StoreFiles are the files that make the store and its key, and the name of the home.
func (in Instance) StoreFiles() []string {
	return append(in.DatabaseFiles(), in.HomeFile(), in.KeyFile(), in.NextKeyFile(), in.VaultFile())
}
