package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	// drain is how long to wait for output that is already in the pipe when the job is
	// over. Only a process that got away, where jobs are not held, keeps the pipe open.
	drain = 100 * time.Millisecond
	// maxDrain is how much of it is taken: more than a pipe holds.
	maxDrain = 1 << 20
	// maxRefusals is how many refusals a result names.
	maxRefusals = 8
)

// process is a running program as the stream of its output. It ends with a line
// that says how the program ended.
type process struct {
	job     *confine.Job
	out     *os.File // read end of the pipe
	timeout time.Duration

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	ended     chan struct{} // closed when nothing of the job is left
	stopped   string        // why it was stopped, "" if it ended by itself; these are read after ended
	exit      confine.Exit
	err       error // how it ended is not known

	// Of the reader alone.
	drained int
	newline bool // the last byte read was one, or there was none
	tail    *strings.Reader
}

var _ io.ReadCloser = (*process)(nil)

// start starts a command. An error says that nothing ran.
func (s *Shell) start(ctx context.Context, c command, owner confine.Owner) (io.ReadCloser, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "run %s: %w", c.program.name, err)
	}
	defer w.Close() // the program has its own
	spec := confine.Spec{
		Path: c.program.real, Args: append([]string{c.program.path}, c.args...), Env: c.env, Dir: c.dir,
		Stdout: w, Stderr: w, Profile: s.profile(c), Owner: owner, Grace: grace,
	}
	if c.stdin != "" {
		spec.Stdin = strings.NewReader(c.stdin)
	}
	job, err := s.launcher.Start(ctx, spec)
	if err != nil {
		r.Close()
		return nil, startError(err, c)
	}
	p := &process{job: job, out: r, timeout: c.timeout, closing: make(chan struct{}), ended: make(chan struct{}), newline: true}
	go p.supervise(ctx)
	return p, nil
}

// startError adds how to change what keeps programs from being confined.
func startError(err error, c command) error {
	class := fault.ClassOf(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || class != fault.Unavailable {
		return err
	}
	return fault.New(class, "run %s: %w", tool.Show(c.program.name), err).
		WithHint("`ombud doctor` says what this machine lacks to confine a program. " +
			"confine.enforce: best runs it with what there is, off without walls; both are the operator's to choose")
}

// profile is what a program may reach: the working directory, what it needs to
// start, and what the configuration opens.
func (s *Shell) profile(c command) confine.Profile {
	p := confine.ShellProfile(s.dir)
	p.Network = s.network
	p.Read = slices.Concat(p.Read, s.read, []string{c.program.real, c.program.path})
	return p
}

// supervise stops the job when it has to. It ends by itself: after the job, or at
// most grace after the first reason to stop.
func (p *process) supervise(ctx context.Context) {
	limit := time.NewTimer(p.timeout)
	defer limit.Stop()
	select {
	case <-p.job.Done():
	case <-limit.C:
		p.stop(fmt.Sprintf("timed out after %v", p.timeout))
	case <-ctx.Done():
		p.stop("cancelled")
	case <-p.closing:
		p.stop("not read to its end")
	}
	p.exit, p.err = p.job.Wait()
	close(p.ended)
	_ = p.out.SetReadDeadline(time.Now().Add(drain)) // wakes the reader; a pipe takes deadlines
}

func (p *process) stop(why string) {
	select {
	case <-p.job.Done():
		return // it had ended by itself
	default:
	}
	p.stopped = why
	p.job.Stop()
}

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
			if p.err != nil {
				return 0, p.err
			}
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
	if refused := refusals(p.exit.Denials); refused != "" {
		line = refused + line
	}
	if !p.newline {
		line = "\n" + line
	}
	return line + "]"
}

// refusals says what confinement kept from the program: its own message, such as
// "permission denied", often does not tell.
func refusals(denials []confine.Denial) string {
	var b strings.Builder
	for i, d := range denials {
		if i == maxRefusals {
			fmt.Fprintf(&b, "[not allowed here: %d more]\n", len(denials)-i)
			break
		}
		fmt.Fprintf(&b, "[not allowed here: %s %s]\n", d.What, tool.Show(d.Target))
	}
	return b.String()
}

func ending(e confine.Exit) string {
	if e.Signal != "" {
		return "killed by signal " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
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
