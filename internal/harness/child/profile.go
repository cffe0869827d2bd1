package child

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/confine"
)

// profileOf is what holds the program of a task. The caller's own profile counts as
// it is, but for the program's files, which it need not know.
func profileOf(t *Task) confine.Profile {
	return wallsOf(t.Profile, t.Program, t.Args0, t.Dir, t.State, t.changes(), t.MCP)
}

func wallsOf(p confine.Profile, program string, args []string, dir, state string, changes bool, m *MCP) confine.Profile {
	if reflect.ValueOf(p).IsZero() {
		p = confine.HarnessProfile(dir, state)
		if !changes {
			p.Write = slices.DeleteFunc(p.Write, func(path string) bool { return path == dir })
			p.Read = append(p.Read, dir)
		}
	}
	p.Read = append(slices.Clone(p.Read), installation(program))
	for _, arg := range args {
		if filepath.IsAbs(arg) { // the script of an interpreter
			p.Read = append(p.Read, installation(arg))
		}
	}
	if m != nil {
		p.Read = append(p.Read, m.Command)
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
