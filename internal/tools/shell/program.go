package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// program is one entry of the allow list.
type program struct {
	name string // as it was listed, without directory
	path string // absolute; its directory is resolved, its last part is not
	real string // the file behind path when the daemon started
}

// Programs that run what their arguments say. They run only if listed by their
// own name, not when another listed name turns out to be a link to one.
var wrappers = []string{
	"ash", "awk", "bash", "bun", "chroot", "csh", "dash", "deno", "doas", "env", "fish", "flock", "gawk", "ksh", "lua", "mawk",
	"nice", "node", "nohup", "nsenter", "parallel", "perl", "php", "pkexec", "python", "ruby", "runuser", "script", "setpriv", "setsid",
	"sh", "ssh", "stdbuf", "strace", "su", "sudo", "tcsh", "time", "timeout", "unshare", "watch", "xargs", "zsh",
}

// Programs that are many in one and look at the name they are called by.
var multiCall = []string{"busybox", "toybox", "coreutils"}

func isWrapper(name string) bool {
	return slices.Contains(wrappers, strings.TrimRight(name, "0123456789.-"))
}

// lookUp resolves one entry of the allow list. found is false if this machine has
// no such program.
func lookUp(entry string, dirs []string) (p program, found bool, err error) {
	candidates := []string{entry}
	if !strings.ContainsRune(entry, filepath.Separator) {
		candidates = nil
		for _, dir := range dirs {
			candidates = append(candidates, filepath.Join(dir, entry))
		}
	}
	for _, path := range candidates {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsAny(path, ",\x00") {
			return program{}, false, fault.New(fault.Config, "shell allow list: %q must be a name or a clean absolute path without comma", entry)
		}
		p, err := resolve(path)
		if err != nil {
			continue // not here
		}
		return p, true, p.check()
	}
	return program{}, false, nil
}

func resolve(path string) (program, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return program{}, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return program{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return program{}, err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return program{}, os.ErrPermission
	}
	base := filepath.Base(path)
	return program{name: base, path: filepath.Join(dir, base), real: real}, nil
}

func (p program) check() error {
	real := filepath.Base(p.real)
	if isWrapper(real) && !isWrapper(p.name) && !p.multiCall() {
		return fault.New(fault.Config, "shell allow list: %s is really %s, which runs any program", p.path, p.real).
			WithHint("list %s itself if that is meant", real)
	}
	return nil
}

func (p program) multiCall() bool { return slices.Contains(multiCall, filepath.Base(p.real)) }

// find returns the listed program that argv0 names: by the name it was listed by,
// or by an absolute path to it.
func (s *Shell) find(argv0 string) (program, error) {
	refused := fault.New(fault.Denied, "%s is not on the list of programs that may run", tool.Show(argv0)).
		WithHint("programs that may run: %s", s.allowed())
	if !strings.ContainsRune(argv0, filepath.Separator) {
		i := slices.IndexFunc(s.programs, func(p program) bool { return p.name == argv0 })
		if i < 0 {
			return program{}, refused
		}
		return s.programs[i], s.programs[i].unchanged()
	}
	asked, err := resolve(filepath.Clean(argv0))
	if err != nil || !filepath.IsAbs(argv0) {
		return program{}, refused
	}
	for _, p := range s.programs {
		// A many-in-one program is what it is called: only its listed name counts.
		if asked.path == p.path || asked.path == p.real && !p.multiCall() {
			return p, p.unchanged()
		}
	}
	return program{}, refused
}

// unchanged refuses a program whose name leads elsewhere than at start.
func (p program) unchanged() error {
	if real, err := filepath.EvalSymlinks(p.path); err != nil || real != p.real {
		return fault.New(fault.Denied, "%s no longer leads to %s, as it did when the daemon started", p.path, p.real).
			WithHint("restart the daemon if the change was meant")
	}
	return nil
}
