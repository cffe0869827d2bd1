// Package instance is the only place where ombud builds a path. An instance is
// one daemon with its own store, key and socket; several live side by side under
// different names.
//
// Paths follow the XDG base directories. OMBUD_HOME replaces them all by one
// directory, for containers and tests. Nothing here reads the environment by
// itself and nothing touches the disk before MakeDirs or CheckRuntime.
package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/ombud-run/ombud/internal/fault"
)

// Default is the name of the instance meant when none is given.
const Default = "default"

const socketName, agentSocketName = "ombud.sock", "agent.sock"

var validName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// Instance is the set of directories of one daemon. Two instances share none.
type Instance struct {
	Name       string
	ConfigDir  string // what a person writes
	StateDir   string // the store, its key, the log; private
	DataDir    string // files made for a person: the workspace
	CacheDir   string // may be deleted at any time
	RuntimeDir string // sockets; private, may vanish at logout
}

// system is what differs between machines, so that tests can name another one.
type system struct {
	os     string // as runtime.GOOS
	tmp    string // where a socket goes whose own place has too long a path
	uid    int
	maxLen int // longest path a socket can have, in bytes
}

func here() system {
	s := system{os: runtime.GOOS, tmp: "/tmp", uid: os.Getuid(), maxLen: 107}
	switch s.os {
	case "windows":
		s.tmp = os.TempDir()
	case "darwin", "freebsd", "netbsd", "openbsd", "dragonfly":
		s.maxLen = 103
	}
	return s
}

// New returns the instance called name ("" means Default). getenv looks up the
// environment and home is the person's home directory; home may be empty when
// OMBUD_HOME or every XDG variable is set. As the XDG rules ask, a variable that
// holds a relative path is ignored; a relative OMBUD_HOME is an error, because
// it would name another instance from every working directory.
func New(name string, getenv func(string) string, home string) (Instance, error) {
	return newOn(here(), name, getenv, home)
}

func newOn(sys system, name string, getenv func(string) string, home string) (Instance, error) {
	if name == "" {
		name = Default
	}
	if !validName.MatchString(name) {
		return Instance{}, fault.New(fault.Usage, "instance name %q is not valid", name).
			WithHint("use 1 to 32 of a-z, 0-9 and -")
	}
	in, err := layout(sys, name, getenv, home)
	if err != nil {
		return Instance{}, err
	}
	if len(in.Socket()) > sys.maxLen {
		in.RuntimeDir = shortDir(sys, in)
	}
	if len(in.Socket()) > sys.maxLen {
		return Instance{}, fault.New(fault.Config, "socket path %s is longer than the %d bytes the system allows", in.Socket(), sys.maxLen)
	}
	return in, nil
}

func layout(sys system, name string, getenv func(string) string, home string) (Instance, error) {
	in := Instance{Name: name}
	if root := getenv("OMBUD_HOME"); root != "" {
		if !filepath.IsAbs(root) {
			return in, fault.New(fault.Config, "OMBUD_HOME is %q, which is not an absolute path", root)
		}
		if name != Default {
			root = filepath.Join(root, "instances", name)
		}
		in.ConfigDir = filepath.Join(root, "config")
		in.StateDir = filepath.Join(root, "state")
		in.DataDir = filepath.Join(root, "data")
		in.CacheDir = filepath.Join(root, "cache")
		in.RuntimeDir = filepath.Join(root, "run")
		return in, nil
	}
	leaf := "ombud"
	if name != Default {
		leaf += "-" + name
	}
	// The default of each variable, relative to home.
	var missing string
	dir := func(variable string, fallback ...string) string {
		if v := getenv(variable); filepath.IsAbs(v) {
			return filepath.Join(v, leaf)
		}
		if !filepath.IsAbs(home) {
			missing = variable
			return ""
		}
		return filepath.Join(append(append([]string{home}, fallback...), leaf)...)
	}
	config, state, data, cache := []string{".config"}, []string{".local", "state"}, []string{".local", "share"}, []string{".cache"}
	if sys.os == "windows" {
		config, state = []string{"AppData", "Roaming"}, []string{"AppData", "Local", "State"}
		data, cache = []string{"AppData", "Local", "Data"}, []string{"AppData", "Local", "Cache"}
	}
	in.ConfigDir = dir("XDG_CONFIG_HOME", config...)
	in.StateDir = dir("XDG_STATE_HOME", state...)
	in.DataDir = dir("XDG_DATA_HOME", data...)
	in.CacheDir = dir("XDG_CACHE_HOME", cache...)
	if missing != "" {
		return in, fault.New(fault.Config, "no home directory is known and %s is not set", missing).
			WithHint("set HOME, or OMBUD_HOME to a directory ombud may use")
	}
	in.RuntimeDir = filepath.Join(in.StateDir, "run")
	if v := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(v) {
		in.RuntimeDir = filepath.Join(v, leaf)
	}
	return in, nil
}

// shortDir is where the sockets go when their own place has too long a path. It
// depends on the uid and the state directory only, so a client in another shell
// finds it; for the same reason it does not follow TMPDIR. Anybody can make a
// directory of this name first: CheckRuntime tells.
func shortDir(sys system, in Instance) string {
	sum := sha256.Sum256([]byte(in.StateDir))
	return filepath.Join(sys.tmp, fmt.Sprintf("ombud-%d-%s", sys.uid, hex.EncodeToString(sum[:8])))
}

// ConfigFile is the configuration a person writes; it need not exist.
func (in Instance) ConfigFile() string { return filepath.Join(in.ConfigDir, "config.yaml") }

// RecipeDir is where the operator puts recipes.
func (in Instance) RecipeDir() string { return filepath.Join(in.ConfigDir, "recipes") }

// StateDB is the SQLite store.
func (in Instance) StateDB() string { return filepath.Join(in.StateDir, "ombud.db") }

// LockFile is held by the daemon of this instance for as long as it runs.
func (in Instance) LockFile() string { return filepath.Join(in.StateDir, "daemon.lock") }

// HomeFile holds the name of this state directory, made at its first start. A
// copied directory needs another one: delete the file in the copy.
func (in Instance) HomeFile() string { return filepath.Join(in.StateDir, "home") }

// ReserveFile keeps space so that a full disk can end in read-only mode.
func (in Instance) ReserveFile() string { return filepath.Join(in.StateDir, "reserve") }

// KeyFile opens the vault in its key-file form. Without a vault file beside it, it is
// the master key itself.
func (in Instance) KeyFile() string { return filepath.Join(in.StateDir, "master.key") }

// NextKeyFile is a key file that is about to take that one's place.
func (in Instance) NextKeyFile() string { return filepath.Join(in.StateDir, "master.key.next") }

// VaultFile is the master key, wrapped by what opens it. The store keeps a copy.
func (in Instance) VaultFile() string { return filepath.Join(in.StateDir, "vault") }

// PublisherFile is the key that loops are signed with here; ombud loop keygen makes it.
func (in Instance) PublisherFile() string { return filepath.Join(in.StateDir, "publisher.json") }

// LogFile is what a detached daemon logs to.
func (in Instance) LogFile() string { return filepath.Join(in.StateDir, "ombud.log") }

// BackupDir holds the copies made before a migration.
func (in Instance) BackupDir() string { return filepath.Join(in.StateDir, "backups") }

// CheckpointDir holds what is known of the work trees that are kept for undo; what is
// kept is in the repositories.
func (in Instance) CheckpointDir() string { return filepath.Join(in.CacheDir, "checkpoints") }

// LoopCacheDir holds what the modules of signed loops were compiled to.
func (in Instance) LoopCacheDir() string { return filepath.Join(in.CacheDir, "loops") }

// Workspace is the directory the file tools work in unless configured. It is
// not under StateDir, so that "the parent of the workspace" is never the key.
func (in Instance) Workspace() string { return filepath.Join(in.DataDir, "workspace") }

// ToolDir is the directory of a tool process, the only one it may change unless it
// is given others. Like the workspace it is not under StateDir, which is hidden from
// every program ombud starts.
func (in Instance) ToolDir(name string) string { return filepath.Join(in.DataDir, "tools", name) }

// MCPDir is the directory of a server of the Model Context Protocol, the only one it may
// change unless it is given others.
func (in Instance) MCPDir(name string) string { return filepath.Join(in.DataDir, "mcp", name) }

// Socket is the operator's socket.
func (in Instance) Socket() string { return filepath.Join(in.RuntimeDir, socketName) }

// AgentSocket is the socket given to the children of a job.
func (in Instance) AgentSocket() string { return filepath.Join(in.RuntimeDir, agentSocketName) }
