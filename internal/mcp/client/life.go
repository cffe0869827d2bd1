package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/supervise"
)

const (
	deaf       = 3            // calls in a row whose time was over while nothing was heard
	legacy     = "2025-11-25" // the newest version that begins with initialize
	closeWait  = 10 * time.Second
	clientName = "ombud"
)

// life is one connection to a server from its start to its end.
type life struct {
	name  string
	log   *slog.Logger
	cfg   Config
	lines *supervise.Output
	child supervise.Child // nil: over HTTP
	conn  *conn           // nil: over HTTP
	cs    *mcp.ClientSession
	idle  *http.Client // of HTTP, to let go of its connections

	ctx     context.Context //nolint:containedctx // ends when the life does
	quit    context.CancelFunc
	once    sync.Once
	over    chan struct{} // closed when it ends, before everything of it is gone
	cause   error         // why; read after over
	loops   sync.WaitGroup
	changed chan struct{} // what it offers may be other than it was
	silent  atomic.Int32  // calls in a row whose time was over while nothing was heard

	ask     func(ctx context.Context, q Asked) (Answer, error)
	elicits bool // it may ask a person, and
	samples bool // a model

	mu     sync.Mutex
	items  map[string]string // what it offers and was accepted: key → hash
	talks  map[*talk]bool    // calls under way
	fewer  chan struct{}     // closed and replaced when one ends
	singly bool              // there is at most one
}

func (x *server) newLife(sp *Spec) *life {
	ctx, quit := context.WithCancel(context.Background())
	return &life{
		name: x.name, log: x.s.Logger, cfg: x.s.cfg, lines: x.lines, ctx: ctx, quit: quit, over: make(chan struct{}), changed: make(chan struct{}, 1),
		ask: x.s.Ask, elicits: x.s.Ask != nil && !sp.NoElicitation, samples: x.s.Ask != nil && sp.Sampling,
		talks: map[*talk]bool{}, fewer: make(chan struct{}),
	}
}

var errStopped = fault.New(fault.Cancelled, "it was stopped")

// end ends the life. The first cause counts.
func (v *life) end(cause error) {
	v.once.Do(func() {
		v.cause = cause
		close(v.over)
		v.quit()
		if v.child != nil {
			v.child.Kill()
		}
		if v.conn != nil {
			_ = v.conn.Close() // it always succeeds
		}
	})
}

// wait returns, when nothing of it is left, why it ended.
func (v *life) wait() error {
	<-v.over
	if v.child != nil {
		<-v.child.Done()
	}
	if v.cs != nil {
		v.closeSession()
	}
	if v.conn != nil {
		v.conn.wait()
	}
	if v.idle != nil {
		v.idle.CloseIdleConnections()
	}
	v.loops.Wait()
	return v.cause
}

// closeSession closes the session. Over HTTP that tells the server so, which may take
// its time to answer.
func (v *life) closeSession() {
	done := make(chan struct{})
	go func() { // ends with the library's own limit at the latest
		defer close(done)
		_ = v.cs.Close() // it is over either way
	}()
	limit := time.NewTimer(closeWait)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		v.log.Warn("a session does not close", "server", v.name)
	}
}

// stop ends the life in peace: a program's standard input is closed, then it is asked,
// then it is not.
func (v *life) stop() {
	defer func() { v.end(errStopped); _ = v.wait() }()
	if v.child == nil {
		v.closeSession() // while it can still be told
		return
	}
	_ = v.child.Stdin().Close() // the protocol's way to say that it is over
	grace := time.NewTimer(v.cfg.StopGrace)
	defer grace.Stop()
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

// attach serves a program that was started.
func (v *life) attach(child supervise.Child, out *os.File) {
	v.child = child
	v.conn = newConn(child.Stdin(), out, v.cfg.Quiet, func(n int64, line string) {
		v.log.Warn("a server prints what is no message to its standard output", "server", v.name, "lines", n, "last", guard.OneLine(v.lines.Redacted(line), maxExcerpt))
	})
	v.loops.Go(func() {
		<-child.Done()
		_ = out.SetReadDeadline(time.Now().Add(supervise.Drain)) // nobody it left can keep the reader; a pipe takes deadlines
	})
}

// gone prefers how a program ended to what was noticed of it first.
func (v *life) gone(noticed error) error {
	if _, told := errors.AsType[*fault.Error](noticed); told {
		return noticed
	}
	if v.child == nil {
		return fault.New(fault.Unavailable, "%w", noticed)
	}
	return supervise.Gone(noticed, v.child, v.over, v.lines.LastWord,
		"if it needs what it was refused, add it anew with --read or --write for the path, or --network: ombud mcp rm "+v.name)
}

// handed is a transport whose connection was made already, or is seen when it is made.
type handed struct {
	conn mcp.Connection
	make func(context.Context) (mcp.Connection, error)
}

// Connect implements mcp.Transport.
func (h *handed) Connect(ctx context.Context) (c mcp.Connection, err error) {
	if h.conn == nil {
		h.conn, err = h.make(ctx)
	}
	return h.conn, err
}

// greet begins the session. old leaves out the look for the newest protocol.
func (v *life) greet(t *handed, version string, old bool) error {
	look := func() {
		select {
		case v.changed <- struct{}{}:
		default: // it is known already
		}
	}
	c := mcp.NewClient(&mcp.Implementation{Name: clientName, Version: version}, v.heard(&mcp.ClientOptions{
		Logger:       slog.New(slog.DiscardHandler), // it has contents in it
		Capabilities: v.capabilities(),
		MultiRoundTrip: &mcp.MultiRoundTripOptions{
			Disabled: true, // the rounds of a call are made here, where it is known whose they are
		},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { look() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { look() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {},
	}))
	limit := time.AfterFunc(v.cfg.Handshake, func() {
		v.end(fault.New(fault.Timeout, "it did not get ready within %v", v.cfg.Handshake).
			WithHint("a program that has to fetch itself first may need its network: --network all"))
	})
	defer limit.Stop()
	opts := &mcp.ClientSessionOptions{}
	if old {
		opts.ProtocolVersion = legacy
	}
	cs, err := c.Connect(v.ctx, t, opts)
	if err != nil {
		if t.conn != nil {
			_ = t.conn.Close() // the library leaves it open in one case
		}
		return v.why(err)
	}
	v.cs = cs
	v.loops.Go(func() {
		err := cs.Wait()
		if v.conn != nil {
			err = io.EOF
			select {
			case <-v.over:
			case <-v.conn.ended():
				err = v.conn.readErr
			}
		}
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = errors.New("it closed the connection")
		}
		v.end(v.gone(err))
	})
	return nil
}

// why is what keeps a session from beginning: the end of the program before what the
// library makes of it.
func (v *life) why(err error) error {
	select {
	case <-v.over:
		return v.cause
	default:
	}
	if v.conn != nil {
		select {
		case <-v.conn.ended():
			return v.gone(errors.New("it closed its standard output"))
		default:
		}
	}
	return v.gone(said("it does not get ready", err))
}

// said is an error of the library with what it says shown, and its class and hint if we
// gave it those.
func said(what string, err error) error {
	text := guard.OneLine(err.Error(), 300)
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return fault.New(fault.ClassOf(ours), "%s: %s", what, guard.OneLine(ours.Error(), 300)).WithHint("%s", fault.HintOf(ours))
	}
	return fmt.Errorf("%s: %s", what, text)
}

// isOver reports whether the life has ended, or is about to.
func (v *life) isOver() bool {
	select {
	case <-v.over:
		return true
	default:
	}
	if v.child == nil {
		return false
	}
	select {
	case <-v.child.Done():
		return true
	case <-v.conn.ended():
		return true
	default:
		return false
	}
}

// pid is the program's; 0 for none.
func (v *life) pid() int {
	if v.child == nil {
		return 0
	}
	return v.child.PID()
}
