package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
)

// Bounds of what a process may write.
const (
	maxEvents   = 10_000 // of one call
	maxOffences = 100    // messages about nothing, of one life
)

// life is one child of a process from its start to its end. Three goroutines serve
// it: one reads, one writes, one waits for its end. All are gone when wait returns.
type life struct {
	name   string
	log    *slog.Logger
	cfg    Config
	child  supervise.Child
	out    *os.File // its standard output
	send   chan *outgoing
	lines  *supervise.Output
	notify func(fromTool) error // an error is an offence
	reg    chan registration    // receives once

	loops sync.WaitGroup
	once  sync.Once
	over  chan struct{} // closed when it ends, before everything of it is gone
	cause error         // why; read after over

	mu       sync.Mutex
	greeted  bool              // it has registered
	tools    map[string]string // its tools by their own names → revision; set when they are in force
	calls    map[string]*call
	offences int
}

// outgoing is a frame on its way to the process.
type outgoing struct {
	frame []byte
	state atomic.Int32
	last  bool // its standard input is closed behind it
}

// The states of a frame: a frame that is dropped is never written.
const (
	queued int32 = iota
	written
	dropped
)

// call is one call under way.
type call struct {
	events, bytes int
	chunks        []byte
	status        string // what it said last
	done          chan fromTool
}

// newLife serves a child whose standard output ends in out.
func newLife(name string, child supervise.Child, out *os.File, l *supervise.Output, notify func(fromTool) error, cfg Config, log *slog.Logger) *life {
	const ahead = 64 // calls are bounded, and each has at most two frames
	v := &life{
		name: name, log: log, cfg: cfg, child: child, out: out, send: make(chan *outgoing, ahead), lines: l, notify: notify,
		reg: make(chan registration, 1), over: make(chan struct{}), calls: map[string]*call{},
	}
	v.loops.Go(v.write)
	v.loops.Go(v.read)
	v.loops.Go(func() {
		<-child.Done()
		_ = out.SetReadDeadline(time.Now().Add(supervise.Drain)) // nobody it left can keep the reader; a pipe takes deadlines
	})
	return v
}

// end ends the life. The first cause counts.
func (v *life) end(cause error) {
	v.once.Do(func() {
		v.cause = cause
		close(v.over)
		v.child.Kill()
		_ = v.child.Stdin().Close() // wakes the writer; what is not written is not needed
	})
}

// wait returns, when nothing of the child and of this life is left, why it ended.
func (v *life) wait() error {
	<-v.over
	<-v.child.Done()
	v.loops.Wait()
	_ = v.out.Close() // read to its end
	return v.cause
}

// stop asks the process to end and sees that it does.
func (v *life) stop() {
	defer func() { v.end(errStopped); _ = v.wait() }()
	bye, err := toTool{Type: typeShutdown}.encode()
	if err != nil {
		return
	}
	grace := time.NewTimer(v.cfg.StopGrace)
	defer grace.Stop()
	select {
	case v.send <- &outgoing{frame: bye, last: true}:
	case <-v.over:
		return
	case <-grace.C:
	}
	select {
	case <-v.child.Done():
		return
	case <-v.over:
		return
	case <-grace.C:
	}
	v.child.Stop()
	<-v.child.Done()
}

var errStopped = fault.New(fault.Cancelled, "it was stopped")

func (v *life) write() {
	in := v.child.Stdin()
	for {
		select {
		case o := <-v.send:
			if !o.state.CompareAndSwap(queued, written) {
				continue
			}
			if _, err := in.Write(o.frame); err != nil {
				v.end(v.gone(fmt.Errorf("it does not take its input: %w", err)))
				return
			}
			if o.last {
				_ = in.Close() // it was told to end
				return
			}
		case <-v.over:
			return
		}
	}
}

func (v *life) read() {
	r := bufio.NewReader(v.out)
	for {
		body, err := readFrame(r)
		if err == nil {
			err = v.take(body)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = errors.New("it closed its standard output and lived on")
		}
		v.end(v.gone(err))
		return
	}
}

// gone prefers how the process ended to what was noticed of it first.
func (v *life) gone(noticed error) error {
	return supervise.Gone(noticed, v.child, v.over, v.lines.LastWord, "")
}

// take deals with one message. An error ends the life.
func (v *life) take(body []byte) error {
	m, known, err := decode(body)
	if err != nil {
		return err
	}
	v.mu.Lock()
	greeted := v.greeted
	v.greeted = greeted || m.Type == typeRegister
	v.mu.Unlock()
	switch {
	case m.Type == typeRegister && greeted:
		return errProtocol("it registers a second time")
	case m.Type == typeRegister:
		reg, err := registered(m)
		if err == nil {
			v.reg <- reg
		}
		return err
	case known && !greeted:
		return errProtocol("a %s before it has registered", m.Type)
	case !known:
		return v.offence("a message of a type that is not known: " + guard.OneLine(m.Type, 40))
	case m.Type == typeNotify:
		if err := v.notify(m); err != nil {
			return v.offence(err.Error())
		}
		return nil
	}
	return v.answer(m, len(body))
}

// offence is something that does no harm once.
func (v *life) offence(what string) error {
	v.mu.Lock()
	v.offences++
	n := v.offences
	v.mu.Unlock()
	if n == 1 || n == maxOffences {
		v.log.Warn("a tool process sends what is not used", "process", v.name, "what", what, "times", n)
	}
	if n >= maxOffences {
		return errProtocol("%d messages that are of no use, the last: %s", n, what)
	}
	return nil
}

// answer gives a call what was said of it.
func (v *life) answer(m fromTool, size int) error {
	v.mu.Lock()
	c := v.calls[m.CallID]
	if c != nil && m.Type != typeEvent {
		delete(v.calls, m.CallID) // a second answer is of no call
	}
	v.mu.Unlock()
	switch {
	case c == nil:
		return v.offence("a " + m.Type + " of a call that is not under way")
	case m.Type != typeEvent:
		c.done <- m
		return nil
	}
	return v.progress(c, m.Event, size)
}

func (v *life) progress(c *call, e progress, size int) error {
	v.mu.Lock()
	c.events, c.bytes = c.events+1, c.bytes+size
	flood := c.events > maxEvents || c.bytes > maxOutput
	switch {
	case flood:
	case e.Kind == "Status":
		c.status = guard.OneLine(e.Status, 200)
	case e.Kind == "OutputChunk":
		c.chunks = append(c.chunks, e.Chunk...)
	}
	v.mu.Unlock()
	if flood {
		return errProtocol("a flood: %d events of %d bytes about one call", c.events, c.bytes)
	}
	if e.Kind == "Log" {
		v.lines.Say(e.Level, e.Message)
	}
	return nil
}

// begin lists a call and sends it on its way.
func (v *life) begin(ctx context.Context, local, revision string, in tool.Invocation) (callID string, c *call, o *outgoing, err error) {
	callID = id.New("call")
	frame, err := toTool{Type: typeInvoke, CallID: callID, ToolName: local, Input: in.Input, TurnID: in.Run, Key: in.Key}.encode()
	if err != nil {
		return "", nil, nil, err
	}
	c, o = &call{done: make(chan fromTool, 1)}, &outgoing{frame: frame}
	v.mu.Lock()
	if v.tools[local] != revision {
		v.mu.Unlock()
		return "", nil, nil, fault.New(fault.Conflict, "%s registers other tools than when this call was decided; it was not made", v.name).
			WithHint("look at the tool again and make the call anew")
	}
	v.calls[callID] = c
	v.mu.Unlock()
	select {
	case v.send <- o:
		return callID, c, o, nil
	case <-v.over:
		err = v.endedBefore()
	case <-ctx.Done():
		err = v.notTold(ctx)
	}
	v.forget(callID)
	return "", nil, nil, err
}

func (v *life) forget(callID string) {
	v.mu.Lock()
	delete(v.calls, callID)
	v.mu.Unlock()
}

// tooSoon is an end before a call was sent: the next child can be told of it.
type tooSoon struct{ error }

func (e tooSoon) Unwrap() error { return e.error }

func (v *life) endedBefore() error {
	return tooSoon{fault.New(fault.Unavailable, "%s ended before it was told of this call: %w", v.name, v.cause)}
}

// isOver reports whether the life has ended, or is about to.
func (v *life) isOver() bool {
	select {
	case <-v.over:
		return true
	case <-v.child.Done():
		return true
	default:
		return false
	}
}

func (v *life) notTold(ctx context.Context) error {
	class := fault.Timeout
	if errors.Is(ctx.Err(), context.Canceled) {
		class = fault.Cancelled
	}
	return fault.New(class, "%s takes no more at the moment; it was not told of this call", v.name)
}

// call makes a call and waits for its answer. repeatable says that a second call does
// no harm, so that a lost one is only a failure.
func (v *life) call(ctx context.Context, local, revision string, in tool.Invocation, repeatable bool) (tool.Output, error) {
	callID, c, o, err := v.begin(ctx, local, revision, in)
	if err != nil {
		return tool.Output{}, err
	}
	defer v.forget(callID)
	select {
	case m := <-c.done:
		return v.result(c, m)
	case <-v.over:
		return v.lost(c, o, repeatable)
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(queued, dropped) {
		return tool.Output{}, v.notTold(ctx)
	}
	return v.cancel(ctx, callID, c, o, repeatable)
}

// cancel tells the process that nobody waits for the call any more. If it does not
// say in time how the call ended, the process is ended, and every other call with it.
func (v *life) cancel(ctx context.Context, callID string, c *call, o *outgoing, repeatable bool) (tool.Output, error) {
	frame, err := toTool{Type: typeCancel, CallID: callID}.encode()
	if err != nil {
		return tool.Output{}, err
	}
	grace := time.NewTimer(v.cfg.CancelGrace)
	defer grace.Stop()
	send := v.send
	for {
		select {
		case send <- &outgoing{frame: frame}:
			send = nil
		case m := <-c.done:
			return v.result(c, m)
		case <-v.over:
			return v.lost(c, o, repeatable)
		case <-grace.C:
			v.end(fault.New(fault.Unavailable, "it did not end a call that was cancelled (%w)", context.Cause(ctx)))
			return v.lost(c, o, repeatable)
		}
	}
}

// lost is what a call comes to whose process is gone.
func (v *life) lost(c *call, o *outgoing, repeatable bool) (tool.Output, error) {
	<-v.over
	select { // it may have answered just before
	case m := <-c.done:
		return v.result(c, m)
	default:
	}
	last := ""
	if c := v.lastStatus(c); c != "" {
		last = "; the last it said was: " + c
	}
	switch {
	case o.state.CompareAndSwap(queued, dropped):
		return tool.Output{}, v.endedBefore()
	case repeatable:
		return tool.Output{}, fault.New(fault.Unavailable, "%s was ended during the call, which can be made again: %w%s", v.name, v.cause, last)
	}
	return tool.Output{}, fault.New(fault.Unknown, "%s was ended during the call, so its outcome is unknown: %w%s", v.name, v.cause, last)
}

func (v *life) lastStatus(c *call) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return c.status
}

// result is what a process answered, as a handler returns it. It is data of others;
// whoever keeps it labels and cleans it.
func (v *life) result(c *call, m fromTool) (tool.Output, error) {
	switch m.Type {
	case typeEscalate:
		return tool.Output{}, fault.New(fault.Denied, "%s asks for more than it was given and did not do it: %s", v.name, guard.OneLine(m.Reason, maxSaid)).
			WithHint("only the operator can give more")
	case typeError:
		class := fault.Unavailable
		switch m.Code {
		case "cancelled":
			class = fault.Cancelled
		case "invalid_input", "invalid":
			class = fault.Invalid
		case "not_found":
			class = fault.NotFound
		case "timeout":
			class = fault.Timeout
		}
		return tool.Output{}, fault.New(class, "%s says: %s (%s)", v.name, guard.OneLine(m.Message, maxSaid), guard.OneLine(m.Code, 40))
	}
	raw := m.Output
	if len(raw) == 0 || string(raw) == "null" {
		return v.checked(m, tool.Output{Text: guard.CleanText(string(c.chunks))}), nil
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return v.checked(m, tool.Output{Text: guard.CleanText(text)}), nil
	}
	return v.checked(m, tool.Output{JSON: raw}), nil
}

// checked says so where the process says that it did not look whether what it did
// had its effect.
func (v *life) checked(m fromTool, out tool.Output) tool.Output {
	if m.Verified == verifiedYes || m.Verified == verifiedNA {
		return out
	}
	out.Text = "[" + v.name + " did not check whether this had its effect]\n" + out.Text + string(out.JSON)
	out.JSON = nil
	return out
}
