package wire

// Checkpoint is what was kept of a git work tree before and after a call. Paths of
// files are as they are, or in quotes with octal escapes where they hold bytes that
// are no printable text.
type Checkpoint struct {
	ID           string           `json:"id"` // chk_…
	RunID        string           `json:"run_id"`
	Step         string           `json:"step"`                    // of the run
	Tool         string           `json:"tool"`                    // that was called
	Subject      string           `json:"subject"`                 // who called it
	Summary      string           `json:"summary"`                 // of the call, for a person
	Repository   string           `json:"repository"`              // its work tree
	State        string           `json:"state"`                   // open: the call goes on or was interrupted; kept; none: nothing was kept
	Why          string           `json:"why,omitempty"`           // why nothing was kept, or not the state after the call, or nothing can be told now
	Files        int              `json:"files"`                   // that the call changed
	Undone       bool             `json:"undone,omitempty"`        // they are as they were before it
	ChangedSince int              `json:"changed_since,omitempty"` // of them, by somebody after the call
	At           int64            `json:"at"`                      // Unix µs
	EndedAt      int64            `json:"ended_at,omitempty"`      // Unix µs
	Ref          string           `json:"ref,omitempty"`           // of the tree before the call, in the repository
	With         []string         `json:"with,omitempty"`          // checkpoints of calls at the same time; they are undone together
	Undoes       []string         `json:"undoes,omitempty"`        // of an undo: what it took back
	NotKept      []CheckpointFile `json:"not_kept,omitempty"`      // files that were there and are not in it
}

// CheckpointFile is a file that a checkpoint lacks.
type CheckpointFile struct {
	Path string `json:"path"` // from the top of the work tree
	Why  string `json:"why"`
}

// UndoListRequest selects checkpoints, newest first.
type UndoListRequest struct {
	Limit int  `json:"limit,omitempty"` // 0: 20, at most 1,000
	All   bool `json:"all,omitempty"`   // also calls of which nothing was kept
}

// UndoListResult answers undo.list.
type UndoListResult struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// UndoShowRequest asks what an undo would do.
type UndoShowRequest struct {
	ID    string   `json:"id"`              // of a checkpoint, or an unambiguous beginning
	Paths []string `json:"paths,omitempty"` // absolute; only what is at or below these
	Only  bool     `json:"only,omitempty"`  // only what this call changed, not the calls after it
}

// UndoShowResult is what an undo would do.
type UndoShowResult struct {
	Checkpoint Checkpoint   `json:"checkpoint"`
	Also       []Checkpoint `json:"also"`           // calls after it that are taken back too
	Changes    []UndoChange `json:"changes"`        // in the order of the paths
	Others     int          `json:"others"`         // files that others changed since; they stay
	Busy       []string     `json:"busy,omitempty"` // calls at work in the repository now
}

// UndoChange is one file an undo changes.
type UndoChange struct {
	Path     string `json:"path"`               // from the top of the work tree
	What     string `json:"what"`               // restore, remove, change
	Added    int    `json:"added"`              // lines
	Removed  int    `json:"removed"`            // lines
	Binary   bool   `json:"binary,omitempty"`   // lines say nothing of it
	Conflict string `json:"conflict,omitempty"` // why it is not done without force
	Never    string `json:"never,omitempty"`    // why it is not done at all
}

// UndoRestoreRequest takes a call back.
type UndoRestoreRequest struct {
	ID    string   `json:"id"`              // of a checkpoint, or an unambiguous beginning
	Paths []string `json:"paths,omitempty"` // absolute; only what is at or below these
	Only  bool     `json:"only,omitempty"`  // only what this call changed, not the calls after it
	Force bool     `json:"force,omitempty"` // also files that somebody else changed since
}

// UndoRestoreResult is what was done.
type UndoRestoreResult struct {
	RunID        string   `json:"run_id"`                  // of the undo
	CheckpointID string   `json:"checkpoint_id,omitempty"` // undoes the undo; absent if nothing changed
	Restored     int      `json:"restored"`                // files brought back
	Removed      int      `json:"removed"`                 // files taken away
	Already      int      `json:"already"`                 // files that were so already
	Left         []string `json:"left,omitempty"`          // files left as they are, each with the reason
	Undoes       []string `json:"undoes"`                  // checkpoints that were taken back
}
