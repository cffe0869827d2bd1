package confine

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// Network is what a job may reach of the network.
type Network int

// What a job's network can be.
const (
	NetNone  Network = iota // no socket but unix sockets by leave
	NetAll                  // the machine's network as it is
	NetProxy                // a network of its own in which only ombud's proxy answers
)

func (n Network) String() string {
	switch n {
	case NetNone:
		return "none"
	case NetAll:
		return "all"
	case NetProxy:
		return "proxy"
	}
	return fmt.Sprintf("network %d", int(n))
}

// Owner says for whom a job works; what it is refused is booked on it.
type Owner struct{ Subject, Tool, Run, Step string }

// Spec is a program to start and what holds it.
type Spec struct {
	Path      string    // program, absolute
	Args      []string  // with argv[0]; empty: Path alone
	Env       []string  // the whole environment
	Dir       string    // working directory, absolute
	Stdin     io.Reader // nil: /dev/null
	StdinPipe bool      // Job.Stdin writes to it; Stdin must be nil
	// Stdout and Stderr: nil is /dev/null, an *os.File is handed on as it is, anything
	// else is copied to. The same value for both makes one stream.
	Stdout, Stderr io.Writer
	Profile        Profile
	Owner          Owner
	Grace          time.Duration // from SIGTERM to SIGKILL; default 3 s
}

// Enforce says what happens where the system cannot hold a job.
type Enforce int

// The ways to enforce.
const (
	EnforceStrict Enforce = iota // nothing runs
	EnforceBest                  // runs with what there is; Report says what is missing
	EnforceOff                   // runs without walls
)

func (e Enforce) String() string {
	switch e {
	case EnforceStrict:
		return "strict"
	case EnforceBest:
		return "best"
	case EnforceOff:
		return "off"
	}
	return fmt.Sprintf("enforce %d", int(e))
}

// Options are what a Launcher needs.
type Options struct {
	Exe     string   // what to execute as launcher; default /proc/self/exe
	Home    string   // what "~/" in a profile's paths stands for; empty: such paths are left out
	Hide    []string // hidden from every job: the store, the keys, the runtime directory
	Enforce Enforce
	Groups  Groups                                       // nil: no cgroups
	Proxy   func(ln net.Listener, o Owner) (stop func()) // serves a NetProxy job's listener; nil: NetProxy is refused
	// OnDenied is told each distinct refusal of a job when it is first seen, from a
	// goroutine of the job. It must not wait for the job. nil: nobody is told.
	OnDenied func(Denial)
	Logger   *slog.Logger // nil: nothing is logged
	System   System       // nil: the system we run on
}

// Denial is something a job was refused. Count is filled in Exit.
type Denial struct {
	Owner   Owner
	Job     string
	Profile string
	What    string // "open", "write", "connect", "ptrace", "mount", "unshare" …
	Target  string // path, address or system call
	Count   int
}

// Exit is how a program ended.
type Exit struct {
	Code    int    // exit status; -1 if a signal ended it
	Signal  string // "SIGKILL"; empty if it exited
	Denials []Denial
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Groups makes a cgroup for each job, where the system lets it.
type Groups interface {
	New(job string) (Group, error)
	Bounds() bool // the number of a job's processes can be bounded
}

// Group is the cgroup of one job.
type Group interface {
	Dir() *os.File             // for CLONE_INTO_CGROUP; nil: the launcher is moved in by Add
	Add(pid int) error         // call it also after CLONE_INTO_CGROUP: what bounds the number can be in another tree
	Limit(processes int) error // processes and threads at once; Unavailable where nothing bounds them
	Kill() error
	Close() error // ends what is still in it
}

// System is what the kernel can do. Tests fake a lesser one.
type System interface {
	Landlock() int     // ABI version, 0: none
	Seccomp() bool     // filters with user notification
	Namespaces() error // nil: user, pid, mount, ipc and network namespaces can be made
}

// Report is what is in force, for doctor.
type Report struct {
	System     string // "linux", …
	Enforce    Enforce
	Confined   bool // jobs have walls
	Landlock   int  // ABI in force, 0: none
	Seccomp    bool
	Observed   bool // refusals are seen
	Namespaces bool
	Groups     bool
	Holding    string   // how a job's processes are found and ended
	Missing    []string // what there is not, in words
}
