package child

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// rooms are the directories of runs within the state directories of CLIs. Several
// runs share a state directory, for their sessions; what differs between them, and
// what is secret, lies in a room of one run and goes with it.
type rooms struct {
	mu    sync.Mutex
	swept map[string]bool // state directories whose rooms of before were cleared
}

// room is the directory of one run.
type room struct {
	state string // shared
	home  string // HOME of the program, shared
	dir   string // of this run alone
	tmp   string // its TMPDIR

	needed []string // directories that must be there: codex does not make its own
}

// open makes a room. The first one of a state directory clears the rooms that a
// daemon left behind when it was killed: its children died with it.
func (r *rooms) open(state string) (*room, error) {
	out := &room{state: state, home: filepath.Join(state, "home")}
	all := filepath.Join(state, "run")
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.swept[state] {
		if err := os.RemoveAll(all); err != nil {
			return nil, roomError(state, err)
		}
		if r.swept == nil {
			r.swept = map[string]bool{}
		}
		r.swept[state] = true
	}
	out.dir = filepath.Join(all, id.New("run"))
	out.tmp = filepath.Join(out.dir, "tmp")
	for _, dir := range []string{out.home, out.tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, roomError(state, err)
		}
	}
	return out, nil
}

func (r *rooms) close(room *room) error { return os.RemoveAll(room.dir) }

// path is where a file of the room lies.
func (r *room) path(name string) string { return filepath.Join(r.dir, name) }

// shared names a directory of the state that all runs have in common; write makes it.
func (r *room) shared(name string) string {
	path := filepath.Join(r.state, name)
	r.needed = append(r.needed, path)
	return path
}

// file is one the program reads its configuration from.
type file struct{ name, content string }

func (r *room) write(files []file) error {
	for _, dir := range r.needed {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return roomError(r.state, err)
		}
	}
	for _, f := range files {
		path := r.path(f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return roomError(r.state, err)
		}
		if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
			return roomError(r.state, err)
		}
	}
	return nil
}

func roomError(state string, err error) error {
	return fault.New(fault.Unavailable, "make room for a coding agent in %s: %w", state, err).
		WithHint("the directory has to be writable by the daemon, with room left on its disk")
}
