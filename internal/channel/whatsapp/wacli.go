package whatsapp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

// The parts of a channel that speaks through wacli.
const (
	partPath       = "wacli_path"
	partSecret     = "webhook_secret"
	partSecretNext = "webhook_secret_next"
)

const (
	limit       = 4096 // bytes of a piece
	healthEvery = time.Minute
	silence     = 10 * time.Minute // of the hook, after which wacli's list is looked at
)

// Kind is the kind of channel that speaks through wacli.
func Kind() channel.Kind {
	return channel.Kind{
		Name:  "whatsapp",
		About: "your own WhatsApp account, through the program wacli on this machine",
		Needs: []channel.Part{
			{Name: partSecret, About: "what wacli signs its calls with: the --secret of `wacli webhooks add`", Secret: true},
			{Name: partSecretNext, About: "a second secret that is good too, while you change the first", Secret: true, Optional: true},
			{Name: partPath, About: "the program: a name in PATH, or an absolute path", Optional: true, Default: "wacli"},
		},
		Make: func(s channel.Setup) (channel.Adapter, error) { return newWacli(s) },
	}
}

// wacli is the adapter of an account that the program wacli is logged in to.
type wacli struct {
	secret func(ctx context.Context, part string) (string, error)
	log    *slog.Logger
	exec   func(ctx context.Context, max int, args ...string) (ended, error)

	me atomic.Pointer[channel.Me] // who we are, once wacli said so

	mu     sync.Mutex
	loaded bool
	cursor time.Time // of the newest message taken
	owed   time.Time // of the oldest message that was told and not taken, if any
	owing  int       // how often one came to be owed
	heard  time.Time // when wacli last called us, or its list was last read
	lid    string    // of the account, once known
	lidAsk bool      // it was asked for

	fates memory[try]      // of the pieces last sent, by their keys
	refs  memory[struct{}] // network ids of pieces that are settled
}

var (
	_ channel.Adapter = (*wacli)(nil)
	_ channel.Prober  = (*wacli)(nil)
	_ channel.Hooked  = (*wacli)(nil)
)

func newWacli(s channel.Setup) (*wacli, error) {
	path := cmp.Or(s.Values[partPath], "wacli")
	if strings.ContainsAny(path, `/\`) && !filepath.IsAbs(path) {
		return nil, fault.New(fault.Config, "wacli_path is a name in PATH or an absolute path, not %q", path)
	}
	p := program{path: path, env: environment(s.Environ)}
	return &wacli{secret: s.Secret, log: s.Logger, exec: p.run}, nil
}

// Capabilities implements channel.Adapter.
func (a *wacli) Capabilities() channel.Capabilities { return channel.Capabilities{Limit: limit} }

// Render implements channel.Adapter.
func (a *wacli) Render(markdown string) []markup.Piece { return render(markdown) }

// HookPath implements channel.Hooked: where wacli was told to call the daemon before us.
func (a *wacli) HookPath() string { return "/comms/whatsapp" }

// Check implements channel.Adapter. Unavailable if wacli cannot be used just now, Denied
// if it is logged out.
func (a *wacli) Check(ctx context.Context) (channel.Me, error) { return a.health(ctx) }

// Run implements channel.Adapter: wacli calls us, so what is left to do is to look
// whether it is well, and for what it said while we did not hear it.
func (a *wacli) Run(ctx context.Context, in channel.Intake) error {
	me, err := a.health(ctx)
	if err != nil {
		return err
	}
	in.Up(me)
	a.catchUp(ctx, in)
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for well := true; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		me, err := a.health(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case fault.Is(err, fault.Denied):
			return err
		case err != nil:
			well = false
			in.Down(err)
			continue
		case !well:
			well = true
			in.Up(me)
			a.catchUp(ctx, in)
		case a.toCatchUp():
			a.catchUp(ctx, in)
		}
	}
}

// Hook implements channel.Hooked.
func (a *wacli) Hook(in channel.Intake) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, in) })
}

const maxHook = 1 << 20 // bytes of a call

func (a *wacli) serve(w http.ResponseWriter, r *http.Request, in channel.Intake) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	body, err := readSigned(w, r, "X-WACLI-Signature", maxHook, func() ([]string, error) { return a.secrets(r.Context()) })
	if err != nil {
		a.log.WarnContext(r.Context(), "a call to the WhatsApp hook is refused", "error", err)
		refuse(w, err)
		return
	}
	e, err := decodeEnvelope(body)
	if err != nil {
		a.log.WarnContext(r.Context(), "a call to the WhatsApp hook is not understood", "error", err)
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	if err := a.take(r.Context(), in, e); err != nil {
		a.log.WarnContext(r.Context(), "a WhatsApp message is not taken in", "error", err)
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// secrets are those that sign calls now. None is no error: then no call is good.
func (a *wacli) secrets(ctx context.Context) ([]string, error) {
	var all []string
	for _, part := range []string{partSecret, partSecretNext} {
		s, err := a.secret(ctx, part)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil && s != "" {
			all = append(all, s)
		}
	}
	return all, nil
}

// take takes in what a call says, if it says something. The error is the store's.
func (a *wacli) take(ctx context.Context, in channel.Intake, e envelope) error {
	if _, _, err := a.load(ctx, in); err != nil {
		return err
	}
	now := time.Now()
	m, ok := e.received(a.self(), now.UTC())
	a.mu.Lock()
	a.heard = now
	a.mu.Unlock()
	if !ok {
		return nil
	}
	m.Cursor = a.mark(m.At)
	if err := in.Take(ctx, m); err != nil {
		a.owe(m.At)
		return err
	}
	return nil
}

// self is who we are, as far as it is known.
func (a *wacli) self() channel.Me {
	if me := a.me.Load(); me != nil {
		return *me
	}
	return channel.Me{}
}
