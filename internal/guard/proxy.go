package guard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// ProxyConfig says where a proxy leads and what bounds it.
type ProxyConfig struct {
	Egress *Egress // nil: the public internet only
	// OnRefused is told each refusal: the target as host:port, or as far as it could
	// be read, and why. It is called while the client waits. Default: nobody is told.
	OnRefused func(target string, why error)
	MaxHead   int           // bytes of a request's head; default 32 KiB
	MaxConns  int           // connections of one listener at once, further ones wait; default 64
	Idle      time.Duration // how long a connection may carry nothing; default 2 minutes
}

const (
	defaultMaxHead  = 32 << 10
	defaultMaxConns = 64
	defaultIdle     = 2 * time.Minute
	headWithin      = 30 * time.Second // from the first byte of a request to the end of its head
	maxTarget       = 300              // bytes of a target that are told
)

// Proxy is a forward proxy for programs that have no other way out: CONNECT and
// plain HTTP/1.1, to what the egress guard allows. The address is judged when the
// socket connects, so neither a name nor its second answer leads anywhere else.
//
// What is forwarded is a request of our own, made from one that was understood in
// full: where a message can be read in two ways, only ours is passed on. Credentials
// for the proxy, and whatever else is between it and its client, stay here.
type Proxy struct{ cfg ProxyConfig }

// NewProxy returns a proxy, which serves any number of listeners.
func NewProxy(cfg ProxyConfig) *Proxy {
	if cfg.OnRefused == nil {
		cfg.OnRefused = func(string, error) {}
	}
	if cfg.MaxHead == 0 {
		cfg.MaxHead = defaultMaxHead
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	return &Proxy{cfg: cfg}
}

// Serve serves a listener, which it then owns. stop closes it with every connection
// that came or went through it, and returns when nothing of that is left; it may be
// called twice.
func (p *Proxy) Serve(ln net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{cfg: p.cfg, ctx: ctx}
	s.base = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.cfg.Egress.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return idleConn{conn, s.cfg.Idle}, nil
		},
		DisableCompression:     true, // the client asked for what it wants
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        s.cfg.Idle,
		MaxResponseHeaderBytes: 256 << 10,
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: min(headWithin, s.cfg.Idle),
		IdleTimeout:       s.cfg.Idle,
		MaxHeaderBytes:    s.cfg.MaxHead,

		DisableGeneralOptionsHandler: true, // "OPTIONS *" names no target
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ErrorLog:                     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // what clients do wrong is their affair
	}
	var loop sync.WaitGroup
	loop.Go(func() {
		_ = server.Serve(&boundedListener{Listener: ln, slots: make(chan struct{}, s.cfg.MaxConns), done: ctx.Done()})
	})
	return func() {
		cancel()
		_ = server.Close() // of what is closed in any case
		_ = ln.Close()     // also if Serve has not begun
		loop.Wait()
		s.leave()
		s.base.CloseIdleConnections()
	}
}

// serving is the work for one listener. Nothing is shared with another's.
type serving struct {
	cfg  ProxyConfig
	ctx  context.Context
	base *http.Transport

	mu     sync.Mutex
	left   bool
	active sync.WaitGroup
}

// enter counts a request in, unless the end has begun.
func (s *serving) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.active.Add(1)
	}
	return !s.left
}

func (s *serving) leave() {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	s.active.Wait()
}

// ServeHTTP forwards one request or opens one tunnel.
func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.active.Done()
	if r.Method == http.MethodConnect {
		s.connect(w, r)
		return
	}
	s.forward(w, r)
}

// authority splits the target of a CONNECT, which has one spelling: host:port.
func authority(target string) (address string, err error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", fault.New(fault.Invalid, "CONNECT takes host:port, not %q", cut(target))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", fault.New(fault.Invalid, "%q is no port", cut(port))
	}
	if strings.HasPrefix(target, "[") != strings.Contains(host, ":") {
		return "", fault.New(fault.Invalid, "brackets hold an IPv6 address, and only that")
	}
	return net.JoinHostPort(host, port), nil
}

func (s *serving) connect(w http.ResponseWriter, r *http.Request) {
	address, err := authority(r.RequestURI)
	if err == nil && (r.ContentLength != 0 || len(r.TransferEncoding) > 0) {
		err = fault.New(fault.Invalid, "CONNECT has no body")
	}
	if err != nil {
		s.refuse(w, r.RequestURI, err)
		return
	}
	up, err := s.cfg.Egress.DialContext(r.Context(), "tcp", address)
	if err != nil {
		s.refuse(w, address, err)
		return
	}
	defer up.Close()
	client, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client has gone
	}
	defer client.Close()
	defer context.AfterFunc(s.ctx, func() { _ = client.Close(); _ = up.Close() })()
	if err := client.SetDeadline(time.Now().Add(s.cfg.Idle)); err != nil {
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	s.tunnel(client, early, up)
}

// tunnel copies both ways until both have ended or nothing has moved for too long.
func (s *serving) tunnel(client net.Conn, sent io.Reader, up net.Conn) {
	touch := func() {
		by := time.Now().Add(s.cfg.Idle)
		_ = client.SetDeadline(by) // of a closed one: the copy ends by itself
		_ = up.SetDeadline(by)
	}
	var both sync.WaitGroup
	one := func(to net.Conn, from io.Reader) {
		if err := copyTouching(to, from, touch); err == nil && closeWrite(to) == nil {
			return // the other way may go on
		}
		_ = client.Close() // ends the other copy
		_ = up.Close()
	}
	both.Go(func() { one(client, up) })
	both.Go(func() { one(up, sent) })
	both.Wait()
}

// copyTouching copies to the end of from and calls touch before each move.
func copyTouching(to io.Writer, from io.Reader, touch func()) error {
	buf := make([]byte, 32<<10)
	for {
		touch()
		n, err := from.Read(buf)
		if n > 0 {
			touch()
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// closeWrite tells the other side that no more comes.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// wanted refuses what is not a plain request for a proxy: in absolute form, for
// http, without a user.
func (s *serving) wanted(u *url.URL) error {
	switch {
	case u.Scheme == "" || u.Host == "" || u.Opaque != "":
		return fault.New(fault.Invalid, "this is a proxy: a request to it names its target in full")
	case u.Scheme != "http":
		return fault.New(fault.Denied, "scheme %q: http is forwarded, for https there is CONNECT", cut(u.Scheme))
	}
	return s.cfg.Egress.CheckURL(u)
}

func (s *serving) forward(w http.ResponseWriter, r *http.Request) {
	err := s.wanted(r.URL)
	if err != nil {
		s.refuse(w, hostPort(r.URL), err)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.Host, out.Trailer, out.Close = "", "", nil, false
	out.URL.Fragment = ""
	if r.ContentLength == 0 {
		out.Body = nil
	}
	dropHopByHop(out.Header)
	out.Header.Del("Expect") // answered here
	if _, set := out.Header["User-Agent"]; !set {
		out.Header.Set("User-Agent", "") // not ours either
	}
	resp, err := s.base.RoundTrip(out)
	if err != nil {
		s.refuse(w, hostPort(r.URL), err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		s.refuse(w, hostPort(r.URL), fault.New(fault.Unavailable, "the server changes the protocol unasked"))
		return
	}
	dropHopByHop(resp.Header)
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	touch := func() { _ = control.SetWriteDeadline(time.Now().Add(s.cfg.Idle)) } // of a closed one: the copy ends by itself
	if copyTouching(flushing{w, control}, resp.Body, touch) != nil {
		panic(http.ErrAbortHandler) // cut off, so that it does not look complete
	}
}

// flushing hands on what comes as it comes: a stream of events is not held back.
type flushing struct {
	io.Writer
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// dropHopByHop removes what is meant for the next hop only: what RFC 9110 lists,
// what Connection names, and every field by which a client speaks to a proxy.
func dropHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings"} {
		delete(h, name)
	}
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "proxy-") {
			delete(h, name)
		}
	}
}

// refuse answers a request that leads nowhere, and tells of it if that is because
// it may not.
func (s *serving) refuse(w http.ResponseWriter, target string, err error) {
	status := http.StatusBadGateway
	switch {
	case fault.Is(err, fault.Denied):
		status = http.StatusForbidden
		s.cfg.OnRefused(cut(target), err)
	case fault.Is(err, fault.Invalid):
		status = http.StatusBadRequest
		s.cfg.OnRefused(cut(target), err)
	}
	http.Error(w, "ombud: "+cut(err.Error()), status)
}

func hostPort(u *url.URL) string {
	if u.Port() == "" && u.Scheme == "http" {
		return u.Host + ":80"
	}
	return u.Host
}

// cut bounds text that a client chose.
func cut(s string) string {
	if len(s) > maxTarget {
		s = s[:maxTarget] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// idleConn is a connection that ends when it carries nothing for too long. A write
// keeps the waiting read alive: an answer comes after the request.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c idleConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c idleConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// boundedListener accepts no more than it has slots for. A client beyond waits in
// the kernel's queue.
type boundedListener struct {
	net.Listener
	slots chan struct{}
	done  <-chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotConn{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// slotConn gives its slot back when it is closed.
type slotConn struct {
	net.Conn
	free func()
}

func (c *slotConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

func (c *slotConn) CloseWrite() error { return closeWrite(c.Conn) }
