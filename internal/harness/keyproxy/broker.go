package keyproxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/redact"
)

// Place is where an API takes its key.
type Place int

// The places.
const (
	Bearer      Place = iota // Authorization: Bearer KEY
	XAPIKey                  // x-api-key: KEY
	XGoogAPIKey              // x-goog-api-key: KEY
)

// Upstream is an API: the address a program would be given as its base URL, and where it
// takes the key.
type Upstream struct {
	Base  string
	Place Place
}

// Placeholder stands for a key where a program is only asked whether it has one. It opens
// nothing.
const Placeholder = "held-by-ombud"

// Config of a Broker.
type Config struct {
	Hide   *redact.Redactor // is told each token, so that none is shown; nil: nobody is told
	Logger *slog.Logger     // nil: nothing is logged
}

const (
	maxHead  = 64 << 10
	maxBody  = 64 << 20         // of a request; the APIs take 20 to 50 MiB
	maxConns = 1024             // at once, further ones wait
	headTime = 10 * time.Second // for a head, and for each piece of a body
	idle     = 2 * time.Minute
)

// Broker lends tokens in the place of keys. It listens on a port of 127.0.0.1 from the
// first loan to its end, and is safe for concurrent use.
type Broker struct {
	cfg     Config
	connect func(guard.HTTPConfig) *http.Client // of guard; tests trust more certificates

	patience time.Duration // for more of a request

	mu      sync.Mutex
	loans   map[*Loan]struct{}
	clients map[string]*http.Client // by origin
	address string                  // "" before the first loan
	server  *http.Server
	closed  bool
	active  sync.WaitGroup // requests under way, and the loop of the server
}

// New returns a Broker that does not listen yet.
func New(cfg Config) *Broker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Broker{cfg: cfg, connect: guard.HTTPClient, patience: headTime, loans: map[*Loan]struct{}{}, clients: map[string]*http.Client{}}
}

// Loan is a token in the place of a key.
type Loan struct {
	Token   string
	BaseURL string // the program's, in the place of the API's own

	broker *Broker
	owner  string
	sum    [sha256.Size]byte // of the token
	base   *url.URL
	place  Place
	key    string
	hide   *redact.Redactor // knows the key
	proxy  http.Handler
	ctx    context.Context // ends with the loan
	cancel context.CancelFunc
}

// Lend lends a token for a key, for as long as an owner, a run, works. Errors: Invalid for
// an address or key that cannot be, Unavailable if no port can be listened on.
func (b *Broker) Lend(owner string, up Upstream, key string) (*Loan, error) {
	base, err := parseBase(up.Base)
	if err != nil {
		return nil, err
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fault.New(fault.Invalid, "the key for %s is none: it is empty, or has characters in it that no key has", base.Host).
			WithHint("set it again: ombud secret set NAME")
	}
	client, err := b.listening(base)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	l := &Loan{Token: "ombud-" + hex.EncodeToString(raw), broker: b, owner: owner, base: base, place: up.Place, key: key, hide: redact.New()}
	l.sum = sha256.Sum256([]byte(l.Token))
	l.hide.Register("api-key", []byte(key))
	b.cfg.Hide.Transient("harness-token", []byte(l.Token))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.proxy = l.reverse(client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		l.cancel()
		return nil, errClosed()
	}
	l.BaseURL = "http://" + b.address + base.Path
	b.loans[l] = struct{}{}
	return l, nil
}

// End ends a loan, and what is under way with it. It may be called twice.
func (l *Loan) End() {
	l.broker.mu.Lock()
	delete(l.broker.loans, l)
	l.broker.mu.Unlock()
	l.cancel()
}

// parseBase reads the address of an API.
func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.Invalid, "the address of an API is an http address without a user, a query or a fragment")
	}
	escaped := strings.TrimRight(u.EscapedPath(), "/")
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path != escaped || u.Path != "" && !clean(u.Path) {
		return nil, fault.New(fault.Invalid, "the path of the API at %s is not plain: %q", u.Host, fault.Cut(u.Path, 200))
	}
	return u, nil
}

func errClosed() error { return fault.New(fault.Unavailable, "the daemon is stopping") }

// Address is where it listens, host:port; "" before the first loan.
func (b *Broker) Address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// Way is where an owner with a loan finds its API.
type Way struct {
	Address string // of the broker, host:port
	Host    string // of the API itself, which is not to be reached but through the broker
}

// Way tells how an owner reaches its API. lent is false for one that has no loan.
func (b *Broker) Way(owner string) (w Way, lent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.loans {
		if l.owner == owner {
			return Way{b.address, hostOf(l.base)}, true
		}
	}
	return Way{}, false
}

// hostOf is the host of an API with every port of its name, or with the one port of its
// address: others may be there too, and the broker is.
func hostOf(u *url.URL) string {
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		return u.Hostname()
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// listening sees that the broker listens, and returns the client for an API, which
// reaches nothing else.
func (b *Broker) listening(base *url.URL) (*http.Client, error) {
	origin := base.Scheme + "://" + base.Host
	egress, err := guard.ForOrigin(origin)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed()
	}
	if b.server == nil {
		if err := b.listen(); err != nil {
			return nil, err
		}
	}
	if b.clients[origin] == nil {
		b.clients[origin] = b.connect(guard.HTTPConfig{Egress: egress, Timeout: -1, MaxBody: -1, MaxRedirects: -1})
	}
	return b.clients[origin], nil
}

func (b *Broker) listen() error {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fault.New(fault.Unavailable, "listen on 127.0.0.1 for coding agents, whose keys are kept from them: %w", err)
	}
	b.address = ln.Addr().String()
	b.server = &http.Server{
		Handler: b, ReadHeaderTimeout: headTime, IdleTimeout: idle, MaxHeaderBytes: maxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // what clients do wrong is their affair
	}
	server := b.server
	b.active.Go(func() {
		if err := server.Serve(netutil.LimitListener(ln, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			b.cfg.Logger.Error("coding agents do not reach their APIs any more", "error", err)
		}
	})
	return nil
}

// Close ends every loan and stops listening. It returns when nothing is under way; it may
// be called twice.
func (b *Broker) Close(context.Context) error {
	b.mu.Lock()
	b.closed = true
	for l := range b.loans {
		l.cancel()
	}
	clear(b.loans)
	server := b.server
	b.mu.Unlock()
	var err error
	if server != nil {
		err = server.Close()
	}
	b.active.Wait()
	for _, c := range b.clients {
		c.CloseIdleConnections()
	}
	return err
}

// enter counts a request in, unless the end has begun.
func (b *Broker) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.active.Add(1)
	}
	return !b.closed
}

// loan is what a token stands for. Every token is compared, and each in the same time.
func (b *Broker) loan(token string) *Loan {
	sum := sha256.Sum256([]byte(token))
	b.mu.Lock()
	defer b.mu.Unlock()
	var found *Loan
	for l := range b.loans {
		if subtle.ConstantTimeCompare(sum[:], l.sum[:]) == 1 {
			found = l
		}
	}
	return found
}
