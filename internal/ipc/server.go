package ipc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// Config is what a Server needs to know. It is not changed after New.
type Config struct {
	// Socket is the path to listen on. Its directory is made with 0700 if it is
	// missing and refused if others may enter it.
	Socket string
	// HoldsLock is the caller's word that it holds the instance lock. Only then
	// is a socket file that is already there taken for a leftover and removed.
	HoldsLock bool
	// UID is the only user who may connect.
	UID int
	// Admit, if set, decides about a peer that has the right UID; its error is
	// the answer the peer gets.
	Admit func(wire.Peer) error
	// Hide takes out of a body of JSON what must not be shown. Every frame that leaves
	// the server passes it, but those of methods that answer verbatim. It is required:
	// there is no server without it.
	Hide func(body []byte) []byte
	// WriteTimeout is how long a client may take nothing. Default 30 s.
	WriteTimeout time.Duration
	// MaxConns bounds open connections. Default 256.
	MaxConns int
	// MaxRequests bounds the requests of one connection at a time. Default 64.
	MaxRequests int
}

func (c Config) withDefaults() Config {
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 256
	}
	if c.MaxRequests <= 0 {
		c.MaxRequests = 64
	}
	return c
}

// errStopping is why contexts end when the server stops.
var errStopping = fault.New(fault.Unavailable, "the daemon is stopping").WithHint("call again when it runs: what it has taken is kept")

// Server answers the methods of a Mux on a unix socket.
type Server struct {
	cfg Config
	mux *Mux
	log *slog.Logger

	mu  sync.Mutex
	cur *session // nil unless started
}

// New returns a server that is not listening yet.
func New(cfg Config, mux *Mux, log *slog.Logger) *Server {
	return &Server{cfg: cfg.withDefaults(), mux: mux, log: log}
}

// Start listens and returns once clients can connect. Values of ctx reach the
// handlers, its end does not: Stop ends the server. Started twice it does
// nothing; after Stop it may be started again.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != nil {
		return nil
	}
	if s.cfg.Hide == nil {
		return fault.New(fault.Internal, "a server that hides nothing does not start")
	}
	if err := s.mux.Check(nil); err != nil {
		return err
	}
	ln, err := listen(s.cfg.Socket, s.cfg.HoldsLock)
	if err != nil {
		return err
	}
	s.cur = s.newSession(ctx, ln)
	s.cur.wg.Go(func() { s.cur.accept() })
	return nil
}

// Stop closes the socket, ends every context, lets handlers answer and waits for
// them; when ctx ends first it cuts the connections and returns fault.Timeout
// naming the methods that are still running. Stopped twice it does nothing. A
// handler must not call it: it would wait for itself.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return nil
	}
	err := s.cur.stop(ctx)
	s.cur = nil
	return err
}

// session is the time between Start and Stop.
type session struct {
	*Server
	ln  net.Listener
	ctx context.Context // ends with errStopping
	end context.CancelCauseFunc
	wg  sync.WaitGroup // the accept loop and every connection

	mu      sync.Mutex
	conns   map[*conn]struct{}
	stopped bool // no connection is added any more
}

func (s *Server) newSession(ctx context.Context, ln net.Listener) *session {
	se := &session{Server: s, ln: ln, conns: map[*conn]struct{}{}}
	se.ctx, se.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return se
}

// accept takes connections until the listener is closed.
func (se *session) accept() {
	for delay := time.Duration(0); ; {
		nc, err := se.ln.Accept()
		if err == nil {
			delay = 0
			se.take(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) || se.ctx.Err() != nil {
			return
		}
		// Out of descriptors, most likely: say so and try again, slower each time.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		se.log.Warn("accept connection", "error", err, "retry_in", delay)
		select {
		case <-time.After(delay):
		case <-se.ctx.Done():
			return
		}
	}
}

// take starts to serve a connection, or refuses it with a reason.
func (se *session) take(nc net.Conn) {
	peer, err := wire.PeerOf(nc)
	if err == nil {
		err = se.admit(peer)
	}
	if err == nil {
		err = wire.StillPeer(nc) // its number was not another's while it was judged
	}
	c := se.newConn(nc, peer)
	if err == nil {
		err = se.add(c)
	}
	if err != nil {
		se.log.Warn("refuse connection", "uid", peer.UID, "pid", peer.PID, "error", err)
		c.refuse(err)
		return
	}
	se.run(c)
}

// run serves a connection that was added.
func (se *session) run(c *conn) {
	se.wg.Go(func() {
		defer se.remove(c)
		c.serve()
	})
}

func (se *session) admit(p wire.Peer) error {
	if p.UID != se.cfg.UID {
		return fault.New(fault.Permission, "uid %d may not use the daemon of uid %d", p.UID, se.cfg.UID).
			WithHint("run the command as the user whose daemon it is")
	}
	if se.cfg.Admit != nil {
		return se.cfg.Admit(p)
	}
	return nil
}

func (se *session) add(c *conn) error {
	se.mu.Lock()
	defer se.mu.Unlock()
	switch {
	case se.stopped:
		return errStopping
	case len(se.conns) >= se.cfg.MaxConns:
		return fault.New(fault.Unavailable, "%d connections are open already", len(se.conns)).WithHint("close some front ends")
	}
	se.conns[c] = struct{}{}
	return nil
}

func (se *session) remove(c *conn) {
	se.mu.Lock()
	defer se.mu.Unlock()
	delete(se.conns, c)
}

func (se *session) stop(ctx context.Context) error {
	closeErr := se.ln.Close()
	se.end(errStopping)
	se.mu.Lock()
	se.stopped = true
	for c := range se.conns {
		c.stopReading()
	}
	se.mu.Unlock()

	done := make(chan struct{})
	go func() { // ends with the last connection, which is at the latest when its handler returns
		defer close(done)
		se.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		se.cut()
		if !settled(done) {
			return fault.New(fault.Timeout, "stop: still running: %s", strings.Join(se.running(), ", "))
		}
	}
	if closeErr != nil {
		return fault.New(fault.Unavailable, "close socket: %w", closeErr)
	}
	return nil
}

// cutGrace is what connections that were cut get to notice.
const cutGrace = 500 * time.Millisecond

func settled(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(cutGrace):
		return false
	}
}

// cut closes every connection, so that no write holds up a handler.
func (se *session) cut() {
	se.mu.Lock()
	defer se.mu.Unlock()
	for c := range se.conns {
		c.fail(errStopping)
	}
}

// running names the methods that have not returned.
func (se *session) running() []string {
	se.mu.Lock()
	defer se.mu.Unlock()
	var out []string
	for c := range se.conns {
		out = append(out, c.running()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
