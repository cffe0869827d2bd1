package confine

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// drainFor bounds the wait for output when everything that could write it is gone:
// only a process that got away can hold the pipe open then.
const drainFor = 5 * time.Second

// streams are the standard descriptors of a program and what copies them.
type streams struct {
	child  [3]*os.File // what the program gets
	owned  []*os.File  // ours to close once it has them
	stdin  *stdin      // of Spec.StdinPipe
	feed   func()      // copies Spec.Stdin, nil if there is nothing to copy
	fed    *os.File
	reads  []*os.File
	copies []func()
	wait   sync.WaitGroup
}

func (s *Spec) open() (st *streams, err error) {
	st = &streams{}
	defer func() {
		if err != nil {
			st.abandon()
		}
	}()
	if err := st.openStdin(s); err != nil {
		return st, err
	}
	for i, w := range []io.Writer{s.Stdout, s.Stderr} {
		if i == 1 && same(s.Stdout, s.Stderr) {
			st.child[2] = st.child[1]
			continue
		}
		if err := st.openOutput(i+1, w); err != nil {
			return st, err
		}
	}
	return st, nil
}

// same reports whether both are one writer; comparing some would panic.
func same(a, b io.Writer) (is bool) {
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	return a != nil && a == b
}

func (st *streams) null(i, mode int) error {
	f, err := os.OpenFile(os.DevNull, mode, 0)
	if err == nil {
		st.child[i] = f
		st.owned = append(st.owned, f)
	}
	return err
}

func (st *streams) openStdin(s *Spec) error {
	if f, ok := s.Stdin.(*os.File); ok && !s.StdinPipe && f != nil {
		st.child[0] = f
		return nil
	}
	if s.Stdin == nil && !s.StdinPipe {
		return st.null(0, os.O_RDONLY)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	st.child[0] = r
	st.owned = append(st.owned, r)
	if s.StdinPipe {
		st.stdin = &stdin{Writer: w, close: w.Close}
		return nil
	}
	in := s.Stdin
	st.fed = w
	st.feed = func() {
		_, _ = io.Copy(w, in) // a program need not read it all
		_ = w.Close()
	}
	return nil
}

func (st *streams) openOutput(i int, w io.Writer) error {
	if w == nil {
		return st.null(i, os.O_WRONLY)
	}
	if f, ok := w.(*os.File); ok && f != nil {
		st.child[i] = f
		return nil
	}
	r, child, err := os.Pipe()
	if err != nil {
		return err
	}
	st.child[i] = child
	st.owned = append(st.owned, child)
	st.reads = append(st.reads, r)
	st.copies = append(st.copies, func() {
		_, _ = io.Copy(w, r) // who does not take it any more closes the program's pipe
		_ = r.Close()
	})
	return nil
}

// started hands over: the program has its ends.
func (st *streams) started() {
	for _, f := range st.owned {
		_ = f.Close() // the program has its own
	}
	st.owned = nil
	if st.feed != nil {
		go st.feed() // ends with its reader, or when ended closes the pipe
	}
	for _, c := range st.copies {
		st.wait.Go(c)
	}
}

// ended waits for the last output. Nothing is left that could write any.
func (st *streams) ended() {
	for _, r := range st.reads {
		_ = r.SetReadDeadline(time.Now().Add(drainFor)) // closed already: nothing to wait for
	}
	st.wait.Wait()
	if st.stdin != nil {
		_ = st.stdin.Close()
	}
	if st.fed != nil {
		_ = st.fed.Close()
	}
}

// abandon closes everything: nothing was started.
func (st *streams) abandon() {
	files := append(append(st.owned, st.reads...), st.fed)
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
	if st.stdin != nil {
		_ = st.stdin.Close()
	}
}

var errClosed = errors.New("the launcher is closed")
