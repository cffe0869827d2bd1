package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// The headers of the transport.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
)

// alone is the first revision without sessions.
const alone = "2026-07-28"

// peer is one client with its sessions.
type peer struct {
	host     *HTTP
	ctx      context.Context // ends with the peer
	cancel   context.CancelFunc
	server   *mcp.Server // its sessions are those of this client alone
	sessions http.Handler
	single   http.Handler // for requests that stand alone

	mu    sync.Mutex
	known map[string]*session // by id
	ended bool
}

// session is what is known of one.
type session struct {
	opened, used time.Time
	busy         int // requests under way
}

func newPeer(h *HTTP, g Guest) *peer {
	p := &peer{host: h, known: map[string]*session{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	g.Door = untilEnd{g.Door, p.ctx}
	p.server = h.cfg.Make(g)
	standing := h.cfg.Make(g)
	// The listener has checked Host and Origin, also for names that localhost is not.
	o := mcp.StreamableHTTPOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: h.cfg.Body, SessionTimeout: h.cfg.Idle, Logger: h.log}
	p.sessions = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return p.server }, &o)
	o.Stateless = true
	p.single = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return standing }, &o)
	return p
}

// request is what is looked at of one before it is answered.
type request struct {
	method string
	id     string // as it is written; "" for none
	newer  bool   // it names a revision in itself, as only those without sessions do
	batch  bool
}

// peek looks at a body. What is no message is left to whoever answers it.
func peek(body []byte) (out request) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return out
	}
	if body[0] == '[' {
		return request{batch: true}
	}
	var msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Meta struct {
				Version json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		} `json:"params"`
	}
	err := json.Unmarshal(body, &msg) // params may be anything: what was read before counts
	if id := bytes.TrimSpace(msg.ID); len(id) > 0 && string(id) != "null" {
		out.id = string(id)
	}
	out.method, out.newer = msg.Method, err == nil && len(msg.Params.Meta.Version) > 0
	return out
}

// serve answers a request of the client.
func (p *peer) serve(w http.ResponseWriter, r *http.Request, what request) {
	if what.batch {
		refuse(w, http.StatusBadRequest, fault.Invalid, "send one message at a time")
		return
	}
	if r.Header.Get(versionHeader) >= alone || what.newer || what.method == "server/discover" {
		r.Header.Del(sessionHeader) // that revision has none
		p.single.ServeHTTP(w, r)
		return
	}
	id := r.Header.Get(sessionHeader)
	if id == "" && r.Method == http.MethodPost && !p.room() {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, fault.Unavailable, "all sessions are in use")
		return
	}
	if id != "" {
		leave, there := p.use(id)
		if !there {
			refuse(w, http.StatusNotFound, fault.NotFound, "this session is not known: begin another")
			return
		}
		defer leave()
		if what.id != "" {
			r.Header.Set(keyHeader, "http:"+id+":"+what.id)
		}
	}
	p.sessions.ServeHTTP(w, r)
	if opened := w.Header().Get(sessionHeader); id == "" && opened != "" {
		p.opened(opened)
	}
}

// live are the sessions of the client. One that was not let begin has no parameters.
func (p *peer) live() map[string]*mcp.ServerSession {
	out := map[string]*mcp.ServerSession{}
	for s := range p.server.Sessions() {
		out[s.ID()] = s
	}
	return out
}

func (p *peer) count() int { return len(p.live()) }

// use takes up a session of this client; there is false if it has none of that id, or
// one that is too old, which ends.
func (p *peer) use(id string) (leave func(), there bool) {
	live := p.live()[id]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := p.known[id]
	if live == nil {
		delete(p.known, id)
		return nil, false
	}
	if s == nil { // the answer to initialize is still being written
		s = &session{opened: now}
		p.known[id] = s
	}
	if now.Sub(s.opened) > p.host.cfg.Age {
		if s.busy == 0 {
			_ = live.Close() // nothing is under way in it
		}
		return nil, false
	}
	s.used = now
	s.busy++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.used = time.Now()
		s.busy--
	}, true
}

// opened notes a new session. One that was opened while the client was removed ends.
func (p *peer) opened(id string) {
	p.mu.Lock()
	now := time.Now()
	if p.known[id] == nil {
		p.known[id] = &session{opened: now, used: now}
	}
	ended := p.ended
	p.mu.Unlock()
	if ended {
		p.end()
	}
}

// room makes room for one session more by ending the one that was used longest ago and
// has nothing under way; false if there is none.
func (p *peer) room() bool {
	live := p.live()
	over := len(live) >= p.host.cfg.Sessions
	if !over && !p.host.full() {
		return true
	}
	p.mu.Lock()
	var oldest string
	for id, s := range p.known {
		if live[id] == nil {
			delete(p.known, id)
			continue
		}
		if s.busy == 0 && (oldest == "" || s.used.Before(p.known[oldest].used)) {
			oldest = id
		}
	}
	delete(p.known, oldest)
	p.mu.Unlock()
	if oldest == "" {
		return false
	}
	_ = live[oldest].Close() // it has nothing under way
	return true
}

// end ends every session and all that is under way in them.
func (p *peer) end() {
	p.mu.Lock()
	p.ended = true
	p.known = map[string]*session{}
	p.mu.Unlock()
	p.cancel()
	var all sync.WaitGroup
	for _, s := range slices.Collect(p.server.Sessions()) {
		all.Go(func() { _ = s.Close() }) // its stream may be broken already
	}
	all.Wait()
}

// untilEnd is a door whose calls are not waited for when the client has ended.
type untilEnd struct {
	Door
	end context.Context
}

// Call implements Door.
func (u untilEnd) Call(ctx context.Context, c Call) (wire.JobCallResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.end, cancel)()
	return u.Door.Call(ctx, c)
}
