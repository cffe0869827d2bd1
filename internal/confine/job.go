package confine

import (
	"io"
	"sync"
)

// Job is a program that was started, with everything it started.
type Job struct {
	id    string
	pid   int
	stdin io.WriteCloser
	done  chan struct{}
	exit  Exit // these two are set before done is closed
	err   error

	asked struct {
		sync.Mutex
		stop, kill chan struct{} // closed when that was asked for
	}
}

func newJob(id string) *Job {
	j := &Job{id: id, done: make(chan struct{})}
	j.asked.stop, j.asked.kill = make(chan struct{}), make(chan struct{})
	return j
}

// ID is the job's id, which also names its cgroup.
func (j *Job) ID() string { return j.id }

// PID is the program's process id as this process sees it; 0 if it cannot be told.
func (j *Job) PID() int { return j.pid }

// Stdin writes to the program if Spec.StdinPipe was set, else it is nil.
func (j *Job) Stdin() io.WriteCloser { return j.stdin }

// Wait returns when the program has ended, its output has been handed on and
// everything it left is gone. It may be called often. An error says that how the
// program ended is not known; it has ended all the same.
func (j *Job) Wait() (Exit, error) {
	<-j.done
	return j.exit, j.err
}

// Done is closed when Wait would return.
func (j *Job) Done() <-chan struct{} { return j.done }

// Stop asks everything of the job to end, and ends it after the grace. It does
// not wait.
func (j *Job) Stop() { j.ask(j.asked.stop) }

// Kill ends everything of the job at once. It does not wait.
func (j *Job) Kill() { j.ask(j.asked.kill) }

func (j *Job) ask(c chan struct{}) {
	j.asked.Lock()
	defer j.asked.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

// stdin is the write end of a program's standard input. Closing it twice is no
// error: the end of the job closes it too.
type stdin struct {
	io.Writer
	once  sync.Once
	close func() error
	err   error
}

func (s *stdin) Close() error {
	s.once.Do(func() { s.err = s.close() })
	return s.err
}
