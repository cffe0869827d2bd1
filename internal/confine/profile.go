package confine

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Profile is what a job may reach. Paths are absolute, or begin with "~/" for the
// operator's home; one that does not exist is left out.
type Profile struct {
	Name        string   // stands in each Denial
	Read        []string // may be read and executed, with all below; the system's directories always are
	Write       []string // may be changed too, with all below
	Hide        []string // never visible, even below one of the above
	Network     Network
	UnixSockets []string // sockets it may connect to; empty: only its own
	// Unwatched leaves out the look at every file that is opened or changed, which
	// costs a program that opens many: it is refused the same and nobody is told.
	Unwatched bool
	Limits    Limits // a zero field takes the default
}

// Limits bound what a job can use up.
type Limits struct {
	Processes int           // processes and threads at a time
	OpenFiles int           // descriptors of one process
	FileSize  int64         // bytes of one file
	Memory    int64         // bytes of address space of one process; 0: as the system has it
	CPU       time.Duration // of one process; 0: no limit
	Tmp       int64         // bytes of its private /tmp
}

// defaults fills what a profile leaves open.
func (l Limits) defaults() Limits {
	if l.Processes == 0 {
		l.Processes = 512
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = 1024
	}
	if l.FileSize == 0 {
		l.FileSize = 4 << 30
	}
	if l.Tmp == 0 {
		l.Tmp = 512 << 20
	}
	return l
}

// toolchains are read by nearly everything that builds or runs a program.
var toolchains = []string{"~/.cargo", "~/.rustup", "~/.local/bin", "~/.local/lib", "~/.local/share/mise", "~/.nvm", "~/.pyenv", "~/.asdf", "~/go", "~/sdk"}

var gitConfig = []string{"~/.gitconfig", "~/.config/git"}

// ShellProfile holds a command of the shell tool: dir may be changed, no network.
func ShellProfile(dir string) Profile {
	return Profile{Name: "shell", Read: append(append([]string(nil), toolchains...), gitConfig...), Write: []string{dir}}
}

// GitProfile holds git in a repository. Of a linked worktree the repository it
// belongs to may be changed too.
func GitProfile(repo string) Profile {
	p := Profile{Name: "git", Read: gitConfig, Write: []string{repo}}
	if common, ok := commonDir(repo); ok {
		p.Write = append(p.Write, common)
	}
	return p
}

// maxGitFile bounds the one-line files git links worktrees with.
const maxGitFile = 8 << 10

// commonDir returns the repository of a linked worktree. The worktree says where it
// is, and whoever can write there could name any directory: the repository has to
// name the worktree too, and look like one.
func commonDir(worktree string) (string, bool) {
	text, ok := gitFile(filepath.Join(worktree, ".git"))
	own, named := strings.CutPrefix(text, "gitdir: ")
	if !ok || !named {
		return "", false
	}
	if !filepath.IsAbs(own) {
		own = filepath.Join(worktree, own)
	}
	own = filepath.Clean(own)
	common, ok := gitFile(filepath.Join(own, "commondir"))
	if !ok {
		return "", false
	}
	if !filepath.IsAbs(common) {
		common = filepath.Join(own, common)
	}
	common = filepath.Clean(common)
	back, ok := gitFile(filepath.Join(own, "gitdir"))
	if !ok || filepath.Dir(own) != filepath.Join(common, "worktrees") || !sameFile(back, filepath.Join(worktree, ".git")) {
		return "", false
	}
	for _, part := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(common, part)); err != nil {
			return "", false
		}
	}
	return common, true
}

// gitFile reads a file of one line.
func gitFile(path string) (string, bool) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxGitFile {
		return "", false
	}
	text, err := os.ReadFile(path)
	return strings.TrimRight(string(text), "\n"), err == nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// HarnessProfile holds a coding CLI that works in dir and keeps its own state in state.
func HarnessProfile(dir, state string) Profile {
	p := Profile{Name: "harness", Read: append(append([]string(nil), toolchains...), gitConfig...), Write: []string{dir}, Network: NetProxy}
	if state != "" {
		p.Write = append(p.Write, state)
	}
	return p
}

// MCPProfile holds an MCP server that may change dir.
func MCPProfile(dir string) Profile {
	return Profile{Name: "mcp", Read: toolchains, Write: []string{dir}, Network: NetProxy}
}

// ToolProfile holds a third-party tool process that may change dir.
func ToolProfile(dir string) Profile {
	return Profile{Name: "tool", Read: toolchains, Write: []string{dir}}
}
