//go:build unix

package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	// drain is how long to wait for output that is already in the pipe when the
	// program has ended. Only a process that got away can keep the pipe open.
	drain = 100 * time.Millisecond
	// maxDrain is how much of it is taken: more than a pipe holds.
	maxDrain = 1 << 20
)

// process is a running program as the stream of its output. It ends with a line
// that says how the program ended.
type process struct {
	cmd     *exec.Cmd
	out     *os.File // read end of the pipe
	timeout time.Duration

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	ended     chan struct{} // closed when the program is reaped and its group is gone
	stopped   string        // why it was stopped, "" if it ended by itself; read after ended
	exit      *os.ProcessState

	// Of the reader alone.
	drained int
	newline bool // the last byte read was one, or there was none
	tail    *strings.Reader
}

var _ io.ReadCloser = (*process)(nil)

// start starts a command. An error says that nothing ran.
func start(ctx context.Context, c command) (io.ReadCloser, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "run %s: %w", c.program.name, err)
	}
	defer w.Close() // the child has its own
	cmd := &exec.Cmd{
		Path: c.program.real, Args: append([]string{c.program.path}, c.args...),
		Env: c.env, Dir: c.dir, Stdout: w, Stderr: w,
		SysProcAttr: attributes(),
		WaitDelay:   time.Second, // for the copy of stdin
	}
	if c.stdin != "" {
		cmd.Stdin = strings.NewReader(c.stdin)
	}
	if err := confine.Start(cmd); err != nil {
		r.Close()
		return nil, fault.New(startClass(err), "run %s: %w", tool.Show(c.program.name), err)
	}
	p := &process{cmd: cmd, out: r, timeout: c.timeout, closing: make(chan struct{}), ended: make(chan struct{}), newline: true}
	go p.supervise(ctx)
	return p, nil
}

func startClass(err error) fault.Class {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		return fault.Permission
	case errors.Is(err, syscall.E2BIG):
		return fault.Invalid
	}
	return fault.Unavailable
}

// supervise stops the program when it has to and reaps it. It ends by itself:
// after the program, or at most grace after the first reason to stop.
func (p *process) supervise(ctx context.Context) {
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		reap(p.cmd)
	}()
	limit := time.NewTimer(p.timeout)
	defer limit.Stop()
	select {
	case <-reaped:
	case <-limit.C:
		p.stop(fmt.Sprintf("timed out after %v", p.timeout), reaped)
	case <-ctx.Done():
		p.stop("cancelled", reaped)
	case <-p.closing:
		p.stop("not read to its end", reaped)
	}
	p.exit = p.cmd.ProcessState
	close(p.ended)
	_ = p.out.SetReadDeadline(time.Now().Add(drain)) // wakes the reader; a pipe takes deadlines
}

// stop ends the group: politely, then not.
func (p *process) stop(why string, reaped <-chan struct{}) {
	select {
	case <-reaped:
		return // it had ended by itself
	default:
	}
	p.stopped = why
	signalGroup(p.cmd, syscall.SIGTERM)
	kill := time.NewTimer(grace)
	defer kill.Stop()
	select {
	case <-reaped:
		return
	case <-kill.C:
	}
	signalGroup(p.cmd, syscall.SIGKILL)
	<-reaped
}

// signalGroup errs only when nobody is left in the group, which is what it is for.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }

// Read returns the output as it comes, then the closing line.
func (p *process) Read(b []byte) (int, error) {
	for p.tail == nil {
		n, err := p.readPipe(b)
		if n > 0 {
			p.newline = b[n-1] == '\n'
			return n, nil
		}
		if err != nil {
			<-p.ended
			p.tail = strings.NewReader(p.closingLine())
		}
	}
	return p.tail.Read(b)
}

// readPipe errs when there is no more output to come.
func (p *process) readPipe(b []byte) (int, error) {
	select {
	case <-p.ended:
	default:
		n, err := p.out.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		<-p.ended
	}
	if p.drained > maxDrain {
		return 0, io.EOF
	}
	if err := p.out.SetReadDeadline(time.Now().Add(drain)); err != nil {
		return 0, err
	}
	n, err := p.out.Read(b)
	p.drained += n
	return n, err
}

func (p *process) closingLine() string {
	line := "[" + ending(p.exit)
	if p.stopped != "" {
		line = "[" + p.stopped + " and stopped; what it had done stays done"
	}
	if !p.newline {
		line = "\n" + line
	}
	return line + "]"
}

func ending(s *os.ProcessState) string {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "killed by signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit code %d", s.ExitCode())
}

// Close stops the program if it still runs and waits until it is gone. It is safe
// to call twice, and while a Read waits.
func (p *process) Close() error {
	p.closeOnce.Do(func() { close(p.closing) })
	<-p.ended
	err := p.out.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
