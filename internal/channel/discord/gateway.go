package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/gorilla/websocket"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// Bounds of a connection.
const (
	maxFrame   = 32 << 20 // a GUILD_CREATE of a large guild has megabytes
	maxAhead   = 256      // frames read before they are handled; over it, reading waits
	firstFrame = 20 * time.Second
	writeTime  = 10 * time.Second
)

// intents are what ombud asks to be told of.
const intents = discordgo.IntentGuilds | discordgo.IntentGuildMessages | discordgo.IntentDirectMessages | discordgo.IntentMessageContent

// The Gateway's opcodes.
const (
	opDispatch  = 0
	opHeartbeat = 1
	opIdentify  = 2
	opResume    = 6
	opReconnect = 7
	opInvalid   = 9
	opHello     = 10
	opAck       = 11
)

// keepSession is a close code of ours that is neither 1000 nor 1001: those end a session.
const keepSession = 4000

// conn is a WebSocket.
type conn interface {
	ReadMessage() (int, []byte, error)
	WriteMessage(kind int, data []byte) error
	WriteControl(kind int, data []byte, deadline time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	SetReadLimit(n int64)
	SetCloseHandler(h func(code int, text string) error)
	Close() error
}

// dialer returns what connects to the Gateway, through the guard.
func dialer(egress *guard.Egress, plain bool) func(ctx context.Context, address string) (conn, error) {
	d := &websocket.Dialer{NetDialContext: egress.DialContext, HandshakeTimeout: 20 * time.Second}
	return func(ctx context.Context, address string) (conn, error) {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "wss" && (u.Scheme != "ws" || !plain) {
			return nil, fault.New(fault.Unavailable, "Discord names %q as its Gateway, which is no wss address", fault.Cut(address, 100))
		}
		u.Path, u.RawQuery = cmp.Or(u.Path, "/"), "v=10&encoding=json"
		ws, _, err := d.DialContext(ctx, u.String(), nil) //nolint:bodyclose // it holds no connection: the socket has it, or it is closed
		if err != nil {
			return nil, fault.New(fault.Unavailable, "the Gateway was not reached: %w", err)
		}
		return ws, nil
	}
}

// link is one connection to the Gateway.
type link struct {
	ws     conn
	seq    *atomic.Int64 // of the last event that was handled; 0: none
	frames chan frame    // what the reader read; closed by it when it has ended
	err    error         // why; to be read when frames is closed

	writing sync.Mutex
	acked   atomic.Bool
}

// errZombie is the end of a connection whose other side is silent.
var errZombie = fault.New(fault.Unavailable, "the Gateway acknowledges no heartbeats")

// open connects and reads the hello.
func open(ctx context.Context, dial func(context.Context, string) (conn, error), address string, seq *atomic.Int64) (*link, time.Duration, error) {
	ws, err := dial(ctx, address)
	if err != nil {
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ws.Close() })
	defer stop()
	l := &link{ws: ws, seq: seq, frames: make(chan frame, maxAhead)}
	l.acked.Store(true)
	ws.SetReadLimit(maxFrame)
	ws.SetCloseHandler(func(int, string) error { return nil }) // to repeat 1000 could end the session
	_ = ws.SetReadDeadline(time.Now().Add(firstFrame))         // a failure shows when it is read
	f, err := l.next()
	_ = ws.SetReadDeadline(time.Time{})
	var h hello
	if err == nil && (f.Op != opHello || json.Unmarshal(f.Data, &h) != nil || h.Interval < 10 || h.Interval > 3600_000) {
		err = fault.New(fault.Unavailable, "the Gateway does not begin with a hello")
	}
	if err != nil {
		_ = ws.Close()
		return nil, 0, err
	}
	return l, time.Duration(h.Interval * float64(time.Millisecond)), nil
}

// next reads a frame. Its error may be a [websocket.CloseError].
func (l *link) next() (f frame, err error) {
	_, data, err := l.ws.ReadMessage()
	if err != nil {
		return f, fault.New(fault.Unavailable, "the Gateway's connection ended: %w", err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fault.New(fault.Unavailable, "%w", &garbled{err})
	}
	return f, nil
}

// garbled is what could not be decoded.
type garbled struct{ err error }

func (e *garbled) Error() string { return fmt.Sprintf("the Gateway sent what is no event: %v", e.err) }
func (e *garbled) Unwrap() error { return e.err }

// say sends a frame.
func (l *link) say(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fault.New(fault.Internal, "encode a frame: %w", err)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	_ = l.ws.SetWriteDeadline(time.Now().Add(writeTime)) // a failure shows when it is written
	if err := l.ws.WriteMessage(websocket.TextMessage, data); err != nil {
		return fault.New(fault.Unavailable, "the Gateway was not told: %w", err)
	}
	return nil
}

// begin identifies, or goes on with a session.
func (l *link) begin(token, session string) error {
	if session != "" {
		return l.say(said[resume]{opResume, resume{token, session, l.seq.Load()}})
	}
	return l.say(said[identify]{opIdentify, identify{token, intents, properties{runtime.GOOS, "ombud", "ombud"}}})
}

// beat sends a heartbeat with the last event that was handled.
func (l *link) beat() error {
	var seq *int64
	if n := l.seq.Load(); n > 0 {
		seq = &n
	}
	return l.say(said[*int64]{opHeartbeat, seq})
}

// hearts sends heartbeats until ctx ends. An error is that nobody acknowledges them.
func (l *link) hearts(ctx context.Context, interval time.Duration) error {
	if channel.Wait(ctx, between(0, interval)) != nil { // so that not all clients beat at once
		return nil //nolint:nilerr // ctx has ended, as it should
	}
	for {
		if !l.acked.Swap(false) {
			return errZombie
		}
		if err := l.beat(); err != nil {
			return err
		}
		if channel.Wait(ctx, interval) != nil {
			return nil //nolint:nilerr // the same
		}
	}
}

// read reads until the connection ends and passes on what is to be handled in order.
func (l *link) read(ctx context.Context) {
	defer close(l.frames)
	for {
		f, err := l.next()
		switch {
		case err != nil:
			l.err = err
			return
		case f.Op == opAck:
			l.acked.Store(true)
		case f.Op == opHeartbeat:
			if l.err = l.beat(); l.err != nil {
				return
			}
		default:
			select {
			case l.frames <- f:
			case <-ctx.Done():
				return
			}
		}
	}
}

// closeCode is the code a connection was closed with by Discord, 0 if it was not.
func closeCode(err error) int {
	if e, ok := errors.AsType[*websocket.CloseError](err); ok {
		return e.Code
	}
	return 0
}

// end closes a connection of ours.
func (l *link) end(code int) {
	_ = l.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	_ = l.ws.Close()
}
