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

// Programs that run what their arguments, their input or a file beside them say.
// They run only if listed by their own name, not when another listed name turns out
// to be a link to one, and a call of one needs the leave to run anything: a rule
// about the program it would start cannot be held otherwise. The list is of what is
// known; for what is not, the operator who lists a program answers.
var wrappers = []string{
	"ansible", "apt", "apt-get", "ash", "at", "awk", "bash", "batch", "bsdtar", "bun", "busctl", "bwrap", "bzip", "capsh", "cargo", "choom", "chroot",
	"chrt", "cmake", "cmd", "cpio", "crontab", "csh", "dash", "dbus-run-session", "dc", "deno", "dlv", "doas", "docker", "ed", "emacs", "entr", "env",
	"ex", "expect", "faketime", "fakeroot", "fd", "fdfind", "find", "firejail", "fish", "flock", "ftp", "gawk", "gcc", "gdb", "git", "gmake", "go",
	"gpg", "ionice", "java", "journalctl", "julia", "ksh", "kubectl", "less", "linux", "lldb", "logrotate", "ltrace", "lua", "luajit", "m", "make",
	"man", "mawk", "more", "mysql", "nano", "nc", "ncat", "newgrp", "nice", "ninja", "nix", "node", "nohup", "npm", "npx", "nsenter", "numactl",
	"nvim", "open", "openssl", "osascript", "parallel", "perl", "perf", "php", "pip", "pipx", "pkexec", "pnpm", "podman", "powershell", "prlimit",
	"proot", "proxychains", "psql", "pwsh", "python", "rg", "rlwrap", "rsync", "ruby", "runuser", "run-parts", "scp", "screen", "script", "sed",
	"setarch", "setpriv", "setsid", "sftp", "sg", "sh", "socat", "sort", "split", "sqlite", "ssh", "ssh-agent", "start-stop-daemon", "stdbuf",
	"strace", "su", "sudo", "systemctl", "systemd-run", "tar", "taskset", "tclsh", "tcsh", "telnet", "time", "timeout", "tmux", "torify", "unbuffer",
	"unshare", "uv", "uvx", "valgrind", "vi", "view", "vim", "watch", "wget", "xargs", "xdg-open", "xvfb-run", "yarn", "zip", "zsh",
}

// Programs that are many in one and look at the name they are called by.
var multiCall = []string{"busybox", "toybox", "coreutils"}

func isWrapper(name string) bool {
	return slices.Contains(wrappers, strings.TrimRight(strings.ToLower(name), "0123456789.-")) || strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "ld.so")
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

// runsOthers reports whether what a call of p starts is not known from its name.
func (p program) runsOthers() bool {
	return isWrapper(p.name) || slices.Contains(multiCall, p.name) || !p.multiCall() && isWrapper(filepath.Base(p.real))
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
