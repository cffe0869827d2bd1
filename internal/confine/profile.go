package confine

import "time"

// Profile is what a job may reach. Paths are absolute, or begin with "~/" for the
// operator's home; one that does not exist is left out.
type Profile struct {
	Name        string   // for messages, doctor and audit
	Read        []string // may be read and executed, with all below; the system's directories always are
	Write       []string // may be changed too, with all below
	Hide        []string // never visible, even below one of the above
	Network     Network
	UnixSockets []string // sockets it may connect to; empty: none
	Limits      Limits   // a zero field takes the default
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
var toolchains = []string{"~/.cargo", "~/.rustup", "~/.local/bin", "~/.local/lib", "~/.local/share/mise", "~/.nvm", "~/go", "~/sdk"}

var gitConfig = []string{"~/.gitconfig", "~/.config/git"}

// ShellProfile holds a command of the shell tool: dir may be changed, no network.
func ShellProfile(dir string) Profile {
	return Profile{Name: "shell", Read: append(append([]string(nil), toolchains...), gitConfig...), Write: []string{dir}}
}

// GitProfile holds git in a repository, linked worktrees included.
func GitProfile(repo string) Profile {
	return Profile{Name: "git", Read: gitConfig, Write: []string{repo}}
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
