package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
)

// Path is where the protocol is spoken, MetaPath where clients read how they are let in.
const (
	Path     = "/mcp"
	MetaPath = "/.well-known/oauth-protected-resource"
)

// Guest is a client that was let in.
type Guest struct {
	Name string
	Door Door
}

// Gate says whose a credential is.
type Gate interface {
	// Enter returns the client of a credential, or Denied if it is nobody's.
	Enter(ctx context.Context, token string) (Guest, error)
}

// HTTPConfig tunes the handler; zero fields have defaults.
type HTTPConfig struct {
	Config
	BehindProxy bool // what is in front of it has TLS

	Sessions int           // of one client; default 16
	Total    int           // of all clients; default 256
	Idle     time.Duration // after which a session that is not used ends; default 1 h
	Age      time.Duration // after which a session ends; default 24 h
	Body     int64         // bytes of a request; default 4 MiB
	Read     time.Duration // for the body of a request; default 30 s
	Hold     time.Duration // for the answer of a request; default 30 min

	// Make makes the server of a client. Default: New with Config. A test puts one with
	// other tools here.
	Make func(Guest) *mcp.Server
}

func (c HTTPConfig) filled() HTTPConfig {
	c.Config = c.Config.filled()
	for _, d := range []struct {
		at   *time.Duration
		dflt time.Duration
	}{{&c.Idle, time.Hour}, {&c.Age, 24 * time.Hour}, {&c.Read, 30 * time.Second}, {&c.Hold, 30 * time.Minute}} {
		if *d.at <= 0 {
			*d.at = d.dflt
		}
	}
	if c.Sessions <= 0 {
		c.Sessions = 16
	}
	if c.Total <= 0 {
		c.Total = 256
	}
	if c.Body <= 0 {
		c.Body = 4 << 20
	}
	if c.Make == nil {
		c.Make = func(g Guest) *mcp.Server { return New(g.Door, c.Config) }
	}
	return c
}

// HTTP is the handler of Path and MetaPath. It is for a listener that checks Host and
// Origin; it checks neither.
type HTTP struct {
	gate Gate
	cfg  HTTPConfig
	log  *slog.Logger

	mu     sync.Mutex
	peers  map[string]*peer // by client
	closed bool
}

// NewHTTP returns the handler. Close it before the listener stops: streams that clients
// keep open would hold that up.
func NewHTTP(g Gate, c HTTPConfig) *HTTP {
	c = c.filled()
	return &HTTP{gate: g, cfg: c, log: c.Logger, peers: map[string]*peer{}}
}

// ServeHTTP implements http.Handler.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case MetaPath, MetaPath + Path:
		h.meta(w, r)
	case Path:
		h.speak(w, r)
	default:
		refuse(w, http.StatusNotFound, fault.NotFound, "there is nothing here")
	}
}

// resource is what MetaPath tells (RFC 9728).
type resource struct {
	Resource string   `json:"resource"`
	Name     string   `json:"resource_name"`
	Methods  []string `json:"bearer_methods_supported"`
}

func (h *HTTP) meta(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, fault.Invalid, "only GET")
		return
	}
	reply(w, http.StatusOK, resource{h.base(r) + Path, "ombud", []string{"header"}})
}

// base is how whoever asks calls this host. The listener has checked Host.
func (h *HTTP) base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || h.cfg.BehindProxy {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// speak lets a client in and answers it.
func (h *HTTP) speak(w http.ResponseWriter, r *http.Request) {
	guest, err := h.enter(r)
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	body, err := h.take(w, r)
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	p, err := h.peer(guest)
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Hold)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	r = r.Clone(ctx) // whose head is our own
	r.Header.Del(keyHeader)
	if body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	p.serve(w, r, peek(body))
}

func (h *HTTP) enter(r *http.Request) (Guest, error) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || strings.TrimSpace(token) == "" || len(r.Header.Values("Authorization")) > 1 {
		return Guest{}, fault.New(fault.Denied, "this needs the token of a client").WithHint("ombud mcp client add NAME makes one")
	}
	return h.gate.Enter(r.Context(), strings.TrimSpace(token))
}

// errBody is that of a request whose body is over the limit.
var errBody = errors.New("the request is too long")

// take reads the body in the time there is for it and lets the answer take longer than
// the listener's do: it may wait for a person, or be a stream.
func (h *HTTP) take(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	now := time.Now()
	_ = control.SetReadDeadline(now.Add(h.cfg.Read)) // a recorder of a test has none
	var body []byte
	if r.Method == http.MethodPost {
		var err error
		body, err = io.ReadAll(io.LimitReader(r.Body, h.cfg.Body+1))
		if err != nil {
			return nil, fault.New(fault.Invalid, "the request cannot be read: %w", err)
		}
		if int64(len(body)) > h.cfg.Body {
			return nil, fault.New(fault.Invalid, "%w: at most %d bytes", errBody, h.cfg.Body)
		}
	}
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(now.Add(h.cfg.Hold + time.Minute))
	return body, nil
}

// turnAway answers a request that is not served.
func (h *HTTP) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch fault.ClassOf(err) {
	case fault.Denied:
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+h.base(r)+MetaPath+Path+`"`)
	case fault.Invalid:
		status = http.StatusBadRequest
		if errors.Is(err, errBody) {
			status = http.StatusRequestEntityTooLarge
		}
	case fault.Unavailable, fault.Timeout, fault.Cancelled:
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "5")
	}
	text := err.Error()
	if hint := fault.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	if status == http.StatusInternalServerError {
		h.log.Error("a request of the protocol failed", "error", err)
		text = "a defect of ombud: its log tells more"
	}
	refuse(w, status, fault.ClassOf(err), text)
}

// Close ends every session and takes no more requests. It is safe to call twice.
func (h *HTTP) Close(context.Context) error {
	h.mu.Lock()
	h.closed = true
	all := h.peers
	h.peers = map[string]*peer{}
	h.mu.Unlock()
	for _, p := range all {
		p.end()
	}
	return nil
}

// End ends every session of a client, which was removed.
func (h *HTTP) End(name string) {
	h.mu.Lock()
	p := h.peers[name]
	delete(h.peers, name)
	h.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// errClosed is the answer while the daemon ends.
var errClosed = fault.New(fault.Unavailable, "ombud is stopping")

// peer returns the one of a client.
func (h *HTTP) peer(g Guest) (*peer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed
	}
	p := h.peers[g.Name]
	if p == nil {
		p = newPeer(h, g)
		h.peers[g.Name] = p
	}
	return p, nil
}

// full reports whether there is no room for a session more, of any client.
func (h *HTTP) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, p := range h.peers {
		n += p.count()
	}
	return n >= h.cfg.Total
}

// problem is an error as ombud's listener answers it.
type problem struct {
	Error struct {
		Class   fault.Class `json:"class"`
		Message string      `json:"message"`
	} `json:"error"`
}

func refuse(w http.ResponseWriter, status int, class fault.Class, text string) {
	var p problem
	p.Error.Class, p.Error.Message = class, text
	reply(w, status, p)
}

func reply(w http.ResponseWriter, status int, what any) {
	raw, err := json.Marshal(what)
	if err != nil {
		panic("mcp/server: an answer of ours does not marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // the client is gone: nothing is to be done
}
