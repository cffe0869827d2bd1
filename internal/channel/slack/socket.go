package slack

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// maxFrame bounds a frame, in bytes: a message of 40,000 characters with its blocks.
const maxFrame = 4 << 20

const writeWithin = 10 * time.Second

// frame is what comes through a socket.
type frame struct {
	Type       string          `json:"type"`
	Reason     string          `json:"reason"` // of a disconnect
	EnvelopeID string          `json:"envelope_id"`
	Payload    json.RawMessage `json:"payload"`
	Accepts    bool            `json:"accepts_response_payload"`
	Attempt    int             `json:"retry_attempt"`
}

// socket is one connection. Slack may have several at once and sends each envelope to one.
type socket struct {
	conn  *websocket.Conn
	quiet time.Duration

	mu      sync.Mutex    // who writes
	replace chan struct{} // closed when Slack is about to close it
	once    sync.Once
	retired atomic.Bool   // another one took its place
	done    chan struct{} // closed when it is read no more, with err set
	err     error
}

// dial connects to the address that Slack gave, which holds a ticket: no error may show it.
// It may be another host than the API's. It is reached on the public internet alone, unless
// its name is that of the API, which the operator chose.
func (a *Adapter) dial(ctx context.Context, address string) (*websocket.Conn, error) {
	egress, err := a.socketGuard(address)
	if err != nil {
		return nil, err
	}
	d := websocket.Dialer{NetDialContext: egress.DialContext, HandshakeTimeout: a.pace.call, WriteBufferSize: 4096, ReadBufferSize: 4096}
	conn, resp, err := d.DialContext(ctx, address, nil)
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close() // of a handshake: gorilla has read what there was
	}
	switch {
	case err == nil:
		conn.SetReadLimit(maxFrame)
		return conn, nil
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, fault.New(fault.Unavailable, "slack: the socket was answered with status %d", resp.StatusCode)
	}
	return nil, fault.New(fault.Unavailable, "slack: connect the socket: %w", err)
}

func (a *Adapter) socketGuard(address string) (*guard.Egress, error) {
	bad := fault.New(fault.Unknown, "slack: apps.connections.open gives no address of a socket")
	u, err := url.Parse(address)
	base, baseErr := url.Parse(a.api.base)
	if err != nil || baseErr != nil || u.Hostname() == "" || u.User != nil {
		return nil, bad
	}
	port := u.Port()
	switch {
	case u.Scheme == "wss":
		port = orElse(port, "443")
	case u.Scheme == "ws" && base.Scheme == "http":
		port = orElse(port, "80")
	default:
		return nil, bad
	}
	only := []string{net.JoinHostPort(u.Hostname(), port)}
	cfg := guard.EgressConfig{OnlyHosts: only}
	if strings.EqualFold(u.Hostname(), base.Hostname()) {
		cfg.AllowHosts = only
	}
	egress, err := guard.NewEgress(cfg)
	if err != nil {
		return nil, bad
	}
	return egress, nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// open opens a socket and waits until Slack says hello.
func (a *Adapter) open(ctx context.Context) (*socket, error) {
	var opened struct {
		URL string `json:"url"`
	}
	if err := a.api.call(ctx, "apps.connections.open", partApp, nil, &opened); err != nil {
		return nil, err
	}
	conn, err := a.dial(ctx, opened.URL)
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, quiet: a.pace.quiet, replace: make(chan struct{}), done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := s.hello(a.pace.hello); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) hello(within time.Duration) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return fault.New(fault.Unavailable, "slack: %w", err)
	}
	for {
		f, err := s.next()
		switch {
		case err != nil:
			return err
		case f.Type == "hello":
			s.alive()
			return nil
		case f.Type == "disconnect":
			return goodbye(f.Reason)
		}
	}
}

// next reads a frame. One that cannot be read is an empty one.
func (s *socket) next() (f frame, err error) {
	_, data, err := s.conn.ReadMessage()
	if err != nil {
		return f, fault.New(fault.Unavailable, "slack: the socket broke off: %w", err)
	}
	if json.Unmarshal(data, &f) != nil {
		return frame{}, nil //nolint:nilerr // it is an empty one
	}
	return f, nil
}

// goodbye is the error of a socket that Slack closes.
func goodbye(reason string) error {
	if reason == "link_disabled" {
		return keyTrouble(reason, "slack: Socket Mode of the app was switched off").
			hint("switch it on at api.slack.com/apps, Socket Mode")
	}
	return fault.New(fault.Unavailable, "slack: the socket was closed: %s", orElse(word(reason), "no reason given"))
}

// alive puts off the end of a socket that says nothing.
func (s *socket) alive() {
	if !s.retired.Load() {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.quiet)) // a closed one fails at its next read
	}
}

// retire lets a socket that was replaced be heard a little longer: what Slack sent through
// it can be acknowledged through it alone.
func (s *socket) retire(grace time.Duration) {
	s.retired.Store(true)
	_ = s.conn.SetReadDeadline(time.Now().Add(grace)) // a closed one fails at its next read
}

// read hands envelopes over until the socket ends. Who is slow slows Slack down.
func (s *socket) read(ctx context.Context, hand func(delivery) bool) error {
	defer func() { _ = s.conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	s.conn.SetPongHandler(func(string) error { s.alive(); return nil })
	s.conn.SetPingHandler(func(data string) error {
		s.alive()
		return s.control(websocket.PongMessage, []byte(data))
	})
	for {
		f, err := s.next()
		if err != nil {
			return err
		}
		s.alive()
		switch {
		case f.Type == "disconnect" && (f.Reason == "warning" || f.Reason == "refresh_requested"):
			s.once.Do(func() { close(s.replace) })
		case f.Type == "disconnect":
			return goodbye(f.Reason) // link_disabled; too_many_websockets, which another one would not mend
		case f.EnvelopeID != "":
			if !hand(delivery{f, s}) {
				return ctx.Err()
			}
		}
	}
}

// control writes a ping or a pong. One that cannot be written is told of by the next read.
func (s *socket) control(kind int, data []byte) error {
	_ = s.conn.WriteControl(kind, data, time.Now().Add(writeWithin))
	return nil
}

// ack acknowledges an envelope. One that is not written comes again.
func (s *socket) ack(id string, payload *answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	return s.conn.WriteJSON(struct {
		ID      string  `json:"envelope_id"`
		Payload *answer `json:"payload,omitempty"`
	}{id, payload})
}

// answer is what may be said with an acknowledgement, to who typed a command.
type answer struct {
	Text string `json:"text"`
}

// delivery is an envelope and where it came from.
type delivery struct {
	frame
	from *socket
}
