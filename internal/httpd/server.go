package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
)

// Deps are what a Server works with; all but Hide may be nil.
type Deps struct {
	Hide *redact.Redactor // hides secrets in all that is answered
	// Ready lists why the daemon does not take work now; none: it does.
	Ready func(ctx context.Context) []string
	// Admin reports whether a token is the admin's. Default: no token is.
	Admin func(ctx context.Context, token string) bool
	// Metrics are what is measured. Default nothing.
	Metrics func(ctx context.Context) ([]Metric, error)
	Logger  *slog.Logger
}

// Server is the listener. Mount before Start.
type Server struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	mounts []mount
	counts counts

	mu      sync.Mutex
	started bool
	quit    chan struct{}
	http    *http.Server // nil: not listening
	addr    string
	problem error
	loops   sync.WaitGroup // what listens, and every request
}

type mount struct {
	prefix  string // with a final slash
	self    bool   // and the path before that slash
	handler http.Handler
}

// New returns a server that listens to nobody before Start.
func New(c Config, d Deps) *Server {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Ready == nil {
		d.Ready = func(context.Context) []string { return nil }
	}
	if d.Admin == nil {
		d.Admin = func(context.Context, string) bool { return false }
	}
	if d.Metrics == nil {
		d.Metrics = func(context.Context) ([]Metric, error) { return nil, nil }
	}
	return &Server{cfg: c.filled(), deps: d, log: d.Logger}
}

// Mount gives what is below a prefix, such as /hooks/, to a handler; without a final slash
// also the path itself, such as /mcp. The longest prefix wins.
func (s *Server) Mount(prefix string, h http.Handler) {
	below := strings.TrimSuffix(prefix, "/")
	s.mounts = append(s.mounts, mount{below + "/", below == prefix, h})
}

// State is how a listener stands.
type State struct {
	Address string // where it listens, or is to
	Open    bool
	Problem error // why it does not
}

// State tells how the listener stands.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Address: s.addr, Open: s.http != nil, Problem: s.problem}
}

// URL is how the listener is reached from this machine.
func (st State) URL() string { return "http://" + st.Address }

// Start listens. If it cannot, as when the port is taken, that is an error if the address
// was chosen; else it is tried until Stop. It is safe to call twice.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return nil
	}
	s.addr = s.cfg.Address.String()
	err := s.listen(ctx)
	s.problem = err
	if err != nil && s.cfg.Chosen {
		return err
	}
	s.started, s.quit = true, make(chan struct{})
	if err != nil {
		s.log.Warn("not listening", "address", s.cfg.Address, "error", err)
		quit := s.quit
		s.loops.Go(func() { s.tryAgain(quit) })
	}
	return nil
}

// errTaken says that somebody else listens on the address.
var errTaken = errors.New("it is taken")

// listen opens the port and serves it. The caller holds s.mu.
func (s *Server) listen(ctx context.Context) error {
	var secure *tls.Config
	if s.cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cfg.Cert, s.cfg.Key)
		if err != nil {
			return fault.New(fault.Config, "the certificate of listen.tls_cert: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Address.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return s.taken()
	}
	if err != nil {
		class := fault.Config
		if errors.Is(err, syscall.EACCES) {
			class = fault.Permission
		}
		return fault.New(class, "listen on %s: %w", s.cfg.Address, err)
	}
	s.addr = ln.Addr().String()
	ln = netutil.LimitListener(ln, s.cfg.MaxConns)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: s.cfg.Head, ReadTimeout: s.cfg.Read, WriteTimeout: s.cfg.Write, IdleTimeout: s.cfg.Idle,
		MaxHeaderBytes: maxHead, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	server := s.http
	s.loops.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the listener has ended", "error", err)
		}
	})
	s.log.Info("listening", "address", s.addr, "tls", secure != nil)
	return nil
}

// taken is the error for a port that somebody else has: 73 if that is another ombud, which
// has its own address, 78 if not.
func (s *Server) taken() error {
	who, ours := "another program", false
	if h, known := holder(int(s.cfg.Address.Port())); known {
		who, ours = fmt.Sprintf("process %d (%s)", h.pid, h.name), h.name == "ombud"
	}
	class := fault.Config
	if ours {
		class = fault.Running
	}
	return fault.New(class, "%s is used by %s: %w", s.cfg.Address, who, errTaken).
		WithHint("listen.address takes another port, or off")
}

// tryAgain listens as soon as the port is free.
func (s *Server) tryAgain(quit <-chan struct{}) {
	tick := time.NewTicker(s.cfg.Again)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-quit:
			return
		}
		s.mu.Lock()
		select {
		case <-quit:
			s.mu.Unlock()
			return
		default:
		}
		s.problem = s.listen(context.Background())
		done := s.problem == nil
		s.mu.Unlock()
		if done {
			return
		}
	}
}

// enter counts a request in, which is to leave; false if none is taken any more.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		s.loops.Add(1)
	}
	return s.started
}

// Stop takes no more requests, lets those under way come to their end until ctx ends, cuts
// off the rest and waits for them. It is safe to call twice.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.started {
		s.mu.Unlock()
		return nil
	}
	s.started = false
	close(s.quit)
	server := s.http
	s.http = nil
	s.mu.Unlock()
	var err error
	if server != nil {
		if err = server.Shutdown(ctx); err != nil {
			err = errors.Join(server.Close(), ctx.Err())
		}
	}
	s.loops.Wait()
	return err
}
