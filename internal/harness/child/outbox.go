package child

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
)

// maxUnread is how many messages may wait for a program that does not read. Each of
// its questions gets one answer, so only one that asks and does not listen gets there.
const maxUnread = 256

// outbox writes to a program. Nobody waits for it: a program that does not read its
// input must not keep its output from being read.
type outbox struct {
	in   io.WriteCloser
	ch   chan []byte // nil in it is the end of the input
	gone latch       // nothing is written any more
	full latch       // the program does not read
	loop sync.WaitGroup
}

func newOutbox(in io.WriteCloser) *outbox {
	o := &outbox{in: in, ch: make(chan []byte, maxUnread), gone: latch{c: make(chan struct{})}, full: latch{c: make(chan struct{})}}
	o.loop.Go(o.write)
	return o
}

// send sends v as a line of JSON.
func (o *outbox) send(v any) {
	var line bytes.Buffer
	as := json.NewEncoder(&line) // which ends it
	as.SetEscapeHTML(false)
	if err := as.Encode(v); err != nil {
		return // of a text that is no JSON: the program said it, and it is not repeated
	}
	o.put(line.Bytes())
}

// finish ends the input behind what was sent.
func (o *outbox) finish() { o.put(nil) }

func (o *outbox) put(line []byte) {
	select {
	case o.ch <- line:
	case <-o.gone.c:
	default:
		o.full.raise()
	}
}

func (o *outbox) write() {
	defer o.gone.raise()
	for {
		select {
		case line := <-o.ch:
			if line == nil {
				_ = o.in.Close() // its end closes it too
				return
			}
			if _, err := o.in.Write(line); err != nil {
				return // it does not take any more; how it ends will tell why
			}
		case <-o.gone.c:
			return
		}
	}
}

// stop returns when nothing is written any more. The program has ended by then.
func (o *outbox) stop() {
	o.gone.raise()
	_ = o.in.Close() // wakes the writer
	o.loop.Wait()
}
