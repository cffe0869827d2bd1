package child

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/confine"
)

// profileOf is what holds the program of a task. The caller's own profile counts as
// it is, but for the program's files, which it need not know. Ours gives a program no
// more of its state than it needs: the room of another run is closed to it.
func profileOf(t *Task, r *room) confine.Profile {
	p := t.Profile
	if reflect.ValueOf(p).IsZero() {
		p = confine.HarnessProfile(t.Dir, "")
		if !t.changes() {
			p.Write = nil
			p.Read = append(p.Read, t.Dir)
		}
		if t.changes() {
			p.Write = append(p.Write, t.Change...)
		} else {
			p.Read = append(p.Read, t.Change...)
		}
		p.Write = append(p.Write, r.may()...)
		p.Read, p.UnixSockets = append(p.Read, t.Read...), t.Sockets
	}
	p.Read = append(slices.Clone(p.Read), installation(t.Program))
	for _, arg := range t.Args0 {
		if filepath.IsAbs(arg) { // the script of an interpreter
			p.Read = append(p.Read, installation(arg))
		}
	}
	if t.MCP != nil {
		p.Read = append(p.Read, t.MCP.Command)
	}
	return p
}

// installation is where the files of a program lie: the packages it was installed
// with, or it alone.
func installation(program string) string {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return program // the start will say so
	}
	const packages = string(filepath.Separator) + "node_modules"
	if at := strings.Index(real, packages+string(filepath.Separator)); at > 0 {
		return real[:at+len(packages)]
	}
	return real
}
