package child

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/supervise"
)

const (
	drain     = 2 * time.Second // for what is in the pipe when nothing is left that writes to it
	interrupt = 2 * time.Second // for a turn to end that was interrupted
	maxStderr = 16 << 10        // kept of its end
)

// held is a program under way. One goroutine reads it, one writes to it, one keeps
// the limits, one tells the news; all are gone when run returns.
type held struct {
	task   *Task
	job    *confine.Job
	out    *os.File // its standard output
	dec    *harness.Decoder
	stderr *tail
	vigil  *vigil
	asks   *asks
	// answered ends the waiting for permissions.
	answered context.CancelFunc
	notes    *teller
	linger   time.Duration

	mu     sync.Mutex // of talker
	talker talker     // nil: the run is no dialogue
	outbox *outbox
	half   []byte // a line of a dialogue whose end has not come
	raw    bool   // that line is too long for a dialogue

	ending  latch       // it will say no more, or was told to end
	told    atomic.Bool // the talker heard the end of the run
	ended   atomic.Bool // it did, or the closing record was read
	settled bool        // it was, before this package ended the program
	session bool        // Started was told
}

// latch is closed once, by whoever is first.
type latch struct {
	once sync.Once
	c    chan struct{}
}

func (s *latch) raise() { s.once.Do(func() { close(s.c) }) }

// hold starts a program and stays with it to its end.
func (s *Starter) hold(ctx context.Context, t *Task, p *plan, r *room, dec *harness.Decoder) (harness.Record, error) {
	if err := ctx.Err(); err != nil {
		return harness.Record{}, err
	}
	out, child, err := os.Pipe()
	if err != nil {
		return harness.Record{}, fault.New(fault.Unavailable, "run %s: %w", t.CLI, err)
	}
	defer func() { _ = out.Close() }() // read to its end
	v := newVigil(t.Wall, t.Quiet)
	stderr := &tail{Tail: supervise.Tail{Most: maxStderr}, touch: v.touch}
	spec := confine.Spec{
		Path: t.Program, Args: slices.Concat([]string{t.Program}, t.Args0, p.args),
		Env: environment(s.cfg.Environ, r, p, t.Env), Dir: t.Dir,
		Stdout: child, Stderr: stderr, StdinPipe: p.talk != nil,
		Profile: profileOf(t, r), Owner: t.Owner, Grace: s.cfg.Grace,
	}
	if p.talk == nil {
		spec.Stdin = strings.NewReader(p.stdin) // and then its end: most wait for it
	}
	job, err := s.launcher.Start(ctx, spec)
	_ = child.Close() // the program has its own
	if err != nil {
		return harness.Record{}, err
	}
	h := &held{
		task: t, job: job, out: out, dec: dec, stderr: stderr, vigil: v, linger: s.cfg.Linger,
		notes: newTeller(t.Tell), ending: latch{c: make(chan struct{})},
	}
	return h.run(ctx, p), nil
}

func (h *held) run(ctx context.Context, p *plan) harness.Record {
	askCtx, answered := context.WithCancel(ctx)
	defer answered()
	h.answered = answered
	h.asks = newAsks(askCtx, h.task, h.vigil)
	h.dec.Follow(h.follow)
	if p.talk != nil {
		h.outbox = newOutbox(h.job.Stdin())
		h.talker = p.talk(&dialogue{task: h.task, out: h.outbox, asks: h.asks, over: h.over})
		h.talker.begin()
	}
	var reading sync.WaitGroup
	reading.Go(h.read)
	why := h.watch(ctx)
	h.answered()
	_ = h.out.SetReadDeadline(time.Now().Add(drain)) // only what got away could hold the pipe; a pipe takes deadlines
	reading.Wait()
	if h.outbox != nil {
		h.outbox.stop()
	}
	h.asks.wait()
	rec := h.record(why)
	h.notes.stop()
	return rec
}

// over is said by the talker: nothing is asked of the program any more.
func (h *held) over() {
	h.told.Store(true)
	h.outbox.finish()
	h.ending.raise()
}

// watch waits for the end of the job, and ends it when there is a reason to, which it
// returns.
func (h *held) watch(ctx context.Context) (why string) {
	reasons := make(chan string, 1)
	var limits sync.WaitGroup
	limits.Go(func() {
		if why := h.vigil.wait(ctx, h.job.Done()); why != "" {
			reasons <- why
		}
	})
	defer limits.Wait()
	var deaf <-chan struct{}
	if h.outbox != nil {
		deaf = h.outbox.full.c
	}
	ending, linger := h.ending.c, time.NewTimer(time.Hour)
	linger.Stop()
	defer linger.Stop()
	for {
		select {
		case <-h.job.Done():
			return why
		case reason := <-reasons:
			why = h.stop(why, reason)
		case <-deaf:
			why, deaf = h.stop(why, ReasonDeaf), nil
		case <-ending:
			ending = nil
			linger.Reset(h.linger)
		case <-linger.C:
			why = h.stop(why, ReasonLingers)
		}
	}
}

// stop ends the job for a reason, unless there was one before.
func (h *held) stop(had, why string) string {
	if had != "" {
		return had
	}
	h.settled = h.ended.Load()
	h.answered()
	if why != ReasonLingers && why != ReasonDeaf && h.interrupt() {
		patience := time.NewTimer(min(interrupt, h.linger))
		defer patience.Stop()
		select {
		case <-h.ending.c:
		case <-h.job.Done():
		case <-patience.C:
		}
	}
	h.job.Stop()
	return why
}

func (h *held) interrupt() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.talker != nil && h.talker.interrupt()
}

// read reads standard output to its end.
func (h *held) read() {
	defer h.ending.raise()
	buf := make([]byte, 64<<10)
	for {
		n, err := h.out.Read(buf)
		if n > 0 {
			h.vigil.touch()
			h.take(buf[:n])
			h.ended.Store(h.dec.Ended() || h.told.Load())
		}
		if err != nil {
			_, _ = h.dec.Write(h.half) // never fails
			return
		}
	}
}

// take reads a piece of output. Of a dialogue each line goes to the talker first.
func (h *held) take(p []byte) {
	if h.talker == nil {
		_, _ = h.dec.Write(p)
		return
	}
	for len(p) > 0 {
		at := bytes.IndexByte(p, '\n')
		piece := p
		if at >= 0 {
			piece = p[:at+1]
		}
		p = p[len(piece):]
		h.piece(piece, at >= 0)
	}
}

func (h *held) piece(piece []byte, whole bool) {
	if h.raw || len(h.half)+len(piece) > harness.MaxLine {
		_, _ = h.dec.Write(h.half)
		_, _ = h.dec.Write(piece)
		h.half, h.raw = nil, !whole
		return
	}
	line := piece
	if len(h.half) > 0 || !whole {
		h.half = append(h.half, piece...)
		line = h.half
	}
	if !whole {
		return
	}
	h.mu.Lock()
	book := h.talker.line(bytes.TrimSpace(line))
	h.mu.Unlock()
	if book {
		_, _ = h.dec.Write(line)
	}
	if h.half = h.half[:0]; cap(h.half) > 1<<20 {
		h.half = nil // one long line does not hold its room for the whole run
	}
}

// follow is told each step by the decoder, while it reads.
func (h *held) follow(s harness.Step) {
	switch s.Kind {
	case harness.StepSession:
		if !h.session && h.task.Started != nil {
			h.session = true
			h.task.Started(s.Session)
		}
	case harness.StepUsage:
		if h.task.Spent != nil {
			h.task.Spent(s.Model, s.Usage, s.Cost)
		}
	case harness.StepText:
		h.notes.say(Note{Kind: NoteText, Text: s.Text})
	case harness.StepToolBegan:
		h.notes.say(Note{Kind: NoteToolStarted, ID: s.Tool.ID, Tool: s.Tool.Name, Text: s.Tool.Input})
	case harness.StepToolEnded:
		h.notes.say(Note{Kind: NoteToolEnded, ID: s.Tool.ID, Tool: s.Tool.Name, Outcome: s.Tool.Outcome, Text: s.Tool.Output})
	}
}

// record closes the record. Nothing of the program is left.
func (h *held) record(why string) harness.Record {
	exit, err := h.job.Wait()
	e := harness.Exit{Code: exit.Code, Signal: signalOf(exit.Signal), Stderr: h.stderr.String()}
	e.Killed = why != "" && why != ReasonLingers // that one may have been about to end by itself
	if err != nil {                              // its launcher was killed, and the program with it
		e.Signal = signalOf("SIGKILL")
	}
	r := h.dec.Close(e)
	if h.talker != nil {
		h.talker.amend(&r)
	}
	h.asks.book(&r)
	switch {
	case why == "" || h.settled:
	case r.Outcome == harness.Completed, r.Outcome == harness.Refused:
		// It told its outcome while it was being ended.
	case why == ReasonLingers && r.Outcome != harness.Killed:
	default:
		r.Outcome, r.Reason = harness.Killed, why
	}
	return r
}

// signalOf is the number of a signal's name, which is the same on every system here.
func signalOf(name string) int {
	switch name {
	case "":
		return 0
	case "SIGHUP":
		return 1
	case "SIGINT":
		return 2
	case "SIGQUIT":
		return 3
	case "SIGILL":
		return 4
	case "SIGABRT":
		return 6
	case "SIGFPE":
		return 8
	case "SIGSEGV":
		return 11
	case "SIGPIPE":
		return 13
	case "SIGALRM":
		return 14
	case "SIGTERM":
		return 15
	}
	return 9
}

// tail keeps the end of standard error, each piece of which is a sign of life.
type tail struct {
	supervise.Tail
	touch func()
}

func (t *tail) Write(p []byte) (int, error) {
	t.touch()
	return t.Tail.Write(p)
}
