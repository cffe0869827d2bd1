package child

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/id"
)

// rooms are the directories of runs within the state directories of CLIs. Several
// runs share a state directory, for their sessions; what differs between them, and
// what is secret, lies in a room of one run and goes with it. An agent may change its
// room and the shared directories of its CLI, so what is done there follows no link
// out of the state directory.
type rooms struct {
	mu    sync.Mutex
	swept map[string]bool // state directories whose rooms of before were cleared
}

// room is the directory of one run.
type room struct {
	state  string   // its parts below are shared
	dir    string   // of this run alone
	home   string   // HOME of the program: of the run alone, for a shell reads what lies there before it does anything
	tmp    string   // its TMPDIR
	needed []string // shared directories, by their paths below state
}

// open makes a room. The first one of a state directory clears the rooms that a
// daemon left behind when it was killed: its children died with it.
func (r *rooms) open(state string, cli harness.Name) (*room, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, roomError(state, err)
	}
	root, err := os.OpenRoot(state)
	if err != nil {
		return nil, roomError(state, err)
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.swept[state] {
		if err := removeAll(root, "run"); err != nil {
			return nil, roomError(state, err)
		}
		if r.swept == nil {
			r.swept = map[string]bool{}
		}
		r.swept[state] = true
	}
	own := filepath.Join("run", id.New("run"))
	out := &room{state: state, dir: filepath.Join(state, own), home: filepath.Join(state, own, "home"), tmp: filepath.Join(state, own, "tmp")}
	for _, dir := range []string{"home", "tmp"} {
		if err := root.MkdirAll(filepath.Join(own, dir), 0o700); err != nil {
			return nil, roomError(state, err)
		}
	}
	if cli == harness.ACP {
		out.home = out.shared("home") // its sessions can be nowhere else
	}
	return out, nil
}

func (r *rooms) close(room *room) error {
	root, err := os.OpenRoot(room.state)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	return removeAll(root, filepath.Join("run", filepath.Base(room.dir)))
}

// removeAll removes what a program left, also from directories it may not be removed from:
// the modules of Go that a build fetched lie in such.
func removeAll(root *os.Root, path string) error {
	err := root.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = fs.WalkDir(root.FS(), filepath.ToSlash(path), func(name string, d fs.DirEntry, _ error) error { // what is not opened is told below
		if d != nil && d.IsDir() {
			_ = root.Chmod(filepath.FromSlash(name), 0o700)
		}
		return nil
	})
	return root.RemoveAll(path)
}

// path is where a file of the room lies.
func (r *room) path(name string) string { return filepath.Join(r.dir, name) }

// shared names a directory of the state that all runs have in common; write makes it.
func (r *room) shared(name string) string {
	r.needed = append(r.needed, name)
	return filepath.Join(r.state, name)
}

// may is what an agent may change of its state.
func (r *room) may() []string {
	out := []string{r.dir}
	for _, name := range r.needed {
		out = append(out, filepath.Join(r.state, name))
	}
	return out
}

// planted are files of shared directories that decide what the next run does, and
// that nobody but a run could have put there.
var planted = [...]string{
	"codex/config.toml", "codex/hooks.json", "codex/rules", "codex/prompts", "codex/AGENTS.md", "codex/AGENTS.override.md",
	"claude/settings.json", "claude/settings.local.json", "claude/CLAUDE.md", "claude/agents", "claude/commands", "claude/rules",
	"gemini/.gemini/settings.json", "gemini/.gemini/.env", "gemini/.gemini/GEMINI.md", "gemini/.gemini/extensions", "gemini/.gemini/commands",
	"gemini/.gemini/policies", "gemini/.gemini/agents", "gemini/.gemini/skills",
}

// file is one the program reads its configuration from.
type file struct{ name, content string }

// write makes what a plan needs, and removes what was planted.
func (r *room) write(files []file) error {
	root, err := os.OpenRoot(r.state)
	if err != nil {
		return roomError(r.state, err)
	}
	defer func() { _ = root.Close() }() // the files are closed
	for _, dir := range r.needed {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return roomError(r.state, err)
		}
	}
	for _, path := range planted {
		if !slices.ContainsFunc(r.needed, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			continue
		}
		if err := root.RemoveAll(filepath.FromSlash(path)); err != nil {
			return roomError(r.state, err)
		}
	}
	for _, f := range files {
		path := filepath.Join("run", filepath.Base(r.dir), f.name)
		if err := root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return roomError(r.state, err)
		}
		if err := root.WriteFile(path, []byte(f.content), 0o600); err != nil {
			return roomError(r.state, err)
		}
	}
	return nil
}

func roomError(state string, err error) error {
	return fault.New(fault.Unavailable, "make room for a coding agent in %s: %w", state, err).
		WithHint("the directory has to be writable by the daemon, with room left on its disk")
}
