package wire

// BackupCreateRequest asks for a backup. Either path or dir is set; both are
// absolute, on the daemon's machine.
type BackupCreateRequest struct {
	Path       string `json:"path,omitempty"`        // the file to make
	Dir        string `json:"dir,omitempty"`         // or the directory to make one in, named by instance and time
	Keep       int    `json:"keep,omitempty"`        // with dir: remove all but so many of the newest; 0 removes none
	Force      bool   `json:"force,omitempty"`       // replace the file if it is there
	IncludeKey bool   `json:"include_key,omitempty"` // put the raw key in: who has the file can then read everything
}

// BackupProgress is a note of how far a backup, its check or a restore has come.
type BackupProgress struct {
	Phase string `json:"phase"` // what is done
	Done  int64  `json:"done"`  // bytes
	Total int64  `json:"total"` // bytes, about
}

// NoteName implements Note.
func (BackupProgress) NoteName() string { return "backup.progress" }

// Backup is what a backup says of itself.
type Backup struct {
	ID          string `json:"id"`           // bak_…
	Ombud       string `json:"ombud"`        // version that wrote it
	Instance    string `json:"instance"`     // name of the instance
	Store       string `json:"store"`        // "sqlite" or "postgres": what it was made of
	Schema      int64  `json:"schema"`       // of the store
	CreatedAt   int64  `json:"created_at"`   // Unix µs: it is the store as of then
	Head        int64  `json:"head"`         // position of the event log
	PublicKey   string `json:"public_key"`   // it is signed with
	KeyIncluded bool   `json:"key_included"` // the raw key is in it
	Parts       int    `json:"parts"`        // number of members, each with its checksum
}

// BackupResult is a backup that was written, flushed and read back.
type BackupResult struct {
	Backup     Backup   `json:"backup"`             // what it says of itself
	Path       string   `json:"path"`               // where it is
	Bytes      int64    `json:"bytes"`              // its size
	DurationUS int64    `json:"duration_us"`        // how long it took, µs
	WALPeak    int64    `json:"wal_peak,omitempty"` // largest size of SQLite's log meanwhile, in bytes
	Removed    []string `json:"removed,omitempty"`  // older backups that were removed
}

// BackupVerifyResult is what a check of a backup found.
type BackupVerifyResult struct {
	Backup     Backup  `json:"backup"`      // what it says of itself
	Path       string  `json:"path"`        // where it is
	Bytes      int64   `json:"bytes"`       // its size
	Checks     []Check `json:"checks"`      // what was looked at
	DurationUS int64   `json:"duration_us"` // how long it took, µs
}

// RestoreResult is an instance that was restored and is held.
type RestoreResult struct {
	ID       string `json:"id"`                 // res_…
	Backup   Backup `json:"backup"`             // what it was restored from
	Store    string `json:"store"`              // where it is now: "sqlite" or "postgres"
	Replaced string `json:"replaced,omitempty"` // directory with what was there before
	Config   string `json:"config,omitempty"`   // where the configuration of the backup is
}

// Held says that the instance was restored and does nothing yet.
type Held struct {
	Restore    string `json:"restore"`     // id of the restore
	Backup     string `json:"backup"`      // id of the backup
	RestoredAt int64  `json:"restored_at"` // Unix µs
	BackupAt   int64  `json:"backup_at"`   // Unix µs: the moment the store believes it is
}

// PendingWork is what would happen if a restored instance were let go.
type PendingWork struct {
	Held    *Held          `json:"held,omitempty"` // absent: it is not held, and nothing else is told
	Replies []PendingReply `json:"replies"`        // what would be sent, in order; at most 1000
	Timers  []PendingTimer `json:"timers"`         // overdue ones, which would fire at once; at most 1000
	Later   int            `json:"later"`          // timers that are not due yet
	Runs    []PendingRun   `json:"runs"`           // work that would go on; at most 1000
	Asked   int            `json:"asked"`          // open questions to the operator
}

// PendingReply is a message in the outbox.
type PendingReply struct {
	ID           string `json:"id"`
	Conversation string `json:"conversation"`   // its title
	Channel      string `json:"channel"`        // where it would go
	QueuedAt     int64  `json:"queued_at"`      // Unix µs
	InDoubt      bool   `json:"in_doubt"`       // it was being sent at the moment of the backup
	Text         string `json:"text,omitempty"` // the beginning of it
}

// PendingTimer is an armed timer.
type PendingTimer struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	At   int64  `json:"at"`             // Unix µs: when it should have fired
	Text string `json:"text,omitempty"` // what it says
}

// PendingRun is a run that has not ended.
type PendingRun struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	State   string `json:"state"`
	Created int64  `json:"created_at"` // Unix µs
	InDoubt int    `json:"in_doubt"`   // steps that may have had their effect
}

// RestoreReleaseRequest lets a restored instance go.
type RestoreReleaseRequest struct {
	Restore     string `json:"restore"`                // id, as it was told: another restore is not let go by it
	DropReplies bool   `json:"drop_replies,omitempty"` // do not send what was in the outbox
	SkipOverdue bool   `json:"skip_overdue,omitempty"` // do not fire timers that are overdue
	CancelRuns  bool   `json:"cancel_runs,omitempty"`  // do not go on with work that was under way
}

// RestoreReleaseResult says what was left out.
type RestoreReleaseResult struct {
	Dropped   int `json:"dropped"`   // replies that will not be sent
	Skipped   int `json:"skipped"`   // timers that will not fire
	Cancelled int `json:"cancelled"` // runs that were ended
}
