package confine

import "io"

// Job is a program that was started, with everything it started.
type Job struct {
	pid   int
	stdin io.WriteCloser
	done  chan struct{}
	exit  Exit
	err   error
}

// PID is the program's process id as this process sees it; 0 if it cannot be told.
func (j *Job) PID() int { return j.pid }

// Stdin writes to the program if Spec.StdinPipe was set, else it is nil.
func (j *Job) Stdin() io.WriteCloser { return j.stdin }

// Wait returns when the program has ended, its output has been handed on and
// everything it left is gone. It may be called often.
func (j *Job) Wait() (Exit, error) {
	<-j.done
	return j.exit, j.err
}

// Stop asks everything of the job to end, and ends it after the grace. It does
// not wait.
func (j *Job) Stop() {}

// Kill ends everything of the job at once. It does not wait.
func (j *Job) Kill() {}

// Done is closed when Wait would return.
func (j *Job) Done() <-chan struct{} { return j.done }
