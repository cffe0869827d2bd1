package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/logfile"
)

// Flags of `up` that only a command starting a daemon gives.
const (
	flagChild = "detached-child"
	flagAuto  = "auto-started"
	flagPipe  = "secret-pipe" // what opens the vault comes through a descriptor
	startAuto = "--" + flagAuto
)

// child is a daemon process started here.
type child struct {
	ended chan struct{} // closed when it has ended; then code is set
	code  int
	log   string // path
	from  int64  // where in the log its own lines begin
}

// spawn starts this program again as a detached daemon, which holds nothing of
// ours: not the session, the directory, the terminal, nor any descriptor.
func (a *app) spawn(args []string) (*child, error) {
	self, err := executable()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "find this program: %w", err)
	}
	log, err := logfile.Open(a.where.LogFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{ended: make(chan struct{}), log: a.where.LogFile()}
	if info, err := log.Stat(); err == nil {
		c.from = info.Size()
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"ombud", "up", "--" + flagChild, "--instance", a.where.Name}, args...)
	cmd.Dir = a.where.StateDir
	cmd.Stdout, cmd.Stderr = log, log // a nil Stdin is the null device
	if canHandOver {
		cmd.Env = config.OSEnvForDaemon()
	}
	detach(cmd)
	keepDescriptors()
	if a.hand != nil {
		done, err := handOver(cmd, a.hand)
		if err != nil {
			return nil, fault.New(fault.Unavailable, "hand the passphrase to the daemon: %w", err).WithHint("start it with ombud up, in a terminal")
		}
		defer done()
	}
	if err := cmd.Start(); err != nil {
		return nil, fault.New(fault.Unavailable, "start a daemon: %w", err)
	}
	// Ends with the child, which is meant to outlive us; then the process end does it.
	go func() {
		defer close(c.ended)
		c.code = exitCode(cmd.Wait())
	}()
	return c, nil
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode() // -1 for a signal
	}
	return -1
}

// killed reports whether a signal ended it. Then it had no last words, and what is
// in the log may be those of another daemon that was started at the same time.
func (c *child) killed() bool { return c.code < 0 }

const shownTail = 12 // lines

// failure is the error of a daemon that ended before it answered: its own words
// if it had some, else the end of what it wrote.
func (c *child) failure() error {
	if c.killed() {
		return fault.New(fault.Unavailable, "the daemon was killed while it started").
			WithHint("was there too little memory? The log is %s", c.log)
	}
	class := classOfExit(c.code)
	own := c.ownLines()
	msg, hint := lastError(own)
	if msg != "" {
		out := fault.New(class, "%s", msg)
		if hint != "" {
			return out.WithHint("%s", hint)
		}
		return out
	}
	text := strings.Join(own[max(0, len(own)-shownTail):], "\n  ")
	if text == "" {
		text = "(it wrote nothing)"
	}
	return fault.New(class, "the daemon ended with code %d before it answered; its log ends:\n  %s", c.code, text).
		WithHint("the whole log is %s", c.log)
}

func (c *child) ownLines() []string {
	f, err := os.Open(c.log)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, c.from, 1<<20))
	if err != nil {
		return nil
	}
	var out []string
	for line := range bytes.Lines(data) {
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// lastError finds what report printed: "error: …", maybe over several lines, and
// "hint: …".
func lastError(lines []string) (msg, hint string) {
	for i, line := range slices.Backward(lines) {
		if h, ok := strings.CutPrefix(line, "hint: "); ok {
			hint = h
		}
		if m, ok := strings.CutPrefix(line, "error: "); ok {
			for _, more := range lines[i+1:] {
				if strings.HasPrefix(more, "hint: ") || strings.HasPrefix(more, "{") {
					break
				}
				m += "\n" + more
			}
			return m, hint
		}
	}
	return "", ""
}

// classOfExit is the class whose exit code a daemon ended with; only some are an
// answer of a daemon that starts.
func classOfExit(code int) fault.Class {
	for _, class := range []fault.Class{fault.Config, fault.Permission, fault.Verification, fault.Unavailable, fault.Running, fault.Usage} {
		if fault.CodeOf(class).Exit == code {
			return class
		}
	}
	return fault.Internal
}
