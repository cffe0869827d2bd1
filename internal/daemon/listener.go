package daemon

import (
	"context"
	"crypto/subtle"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/httpd"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// listenerOf is the network listener as the configuration has it; nil if it is off. Where
// nodes take turns a port that is taken keeps none of them from working: the node before
// may still have it.
func listenerOf(o Options, d httpd.Deps) *httpd.Server {
	c := o.Config.Config.Listen
	if !c.Address.IsValid() {
		return nil
	}
	alone := !o.Config.Config.Store.Postgres.Set()
	return httpd.New(httpd.Config{
		Address: c.Address, Chosen: alone && o.Config.Wrote("listen"), Hosts: c.Hosts, BehindProxy: c.BehindProxy, Cert: c.Cert, Key: c.Key,
	}, d)
}

// openListener constructs the network listener.
func (d *Daemon) openListener() {
	d.listener = listenerOf(d.o, httpd.Deps{Hide: d.hide, Ready: d.unready, Admin: d.isAdmin, Metrics: d.measure, Logger: d.log})
	if d.listener != nil {
		d.listener.Mount(trigger.HooksPath, d.triggers)
		d.mountChannels()
		d.mountMCP()
	}
}

func (d *Daemon) startListener(ctx context.Context) error {
	if d.listener == nil {
		return nil
	}
	if err := d.checkAdminToken(ctx); err != nil {
		return err
	}
	return d.listener.Start(ctx)
}

func (d *Daemon) stopListener(ctx context.Context) error {
	if d.listener == nil {
		return nil
	}
	return d.listener.Stop(ctx)
}

// listen answers on the network that this node waits.
func (s *standby) listen(ctx context.Context) (stop func(context.Context) error, err error) {
	l := listenerOf(s.o, httpd.Deps{
		Hide: s.hide, Logger: s.log,
		Ready: func(context.Context) []string { return []string{"standby: another node is active"} },
	})
	if l == nil {
		return func(context.Context) error { return nil }, nil
	}
	for _, path := range []string{trigger.HooksPath, channel.HookPrefix, commsPath, server.Path} {
		l.Mount(path, http.HandlerFunc(takeNoHook))
	}
	return l.Stop, l.Start(ctx)
}

// takeNoHook answers a webhook where none can be kept: whoever sends it tries again, as
// it would not after being told that there is nothing here.
func takeNoHook(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Retry-After", "10")
	rw.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(rw, `{"error":{"class":"unavailable","message":"another node is active"}}`+"\n") // the caller is gone: nothing is to be done
}

// unready lists why no work is taken now.
func (d *Daemon) unready(context.Context) (out []string) {
	if d.hold.Held() {
		out = append(out, "held: it was restored and waits to be let go")
	}
	if d.db.Full() {
		out = append(out, "read_only: the store cannot be written")
	}
	return out
}

// isAdmin reports whether a token is the one of the configuration. One that was set too
// short since the start lets nobody in.
func (d *Daemon) isAdmin(ctx context.Context, token string) bool {
	name := d.o.Config.Config.Listen.AdminToken
	if name == "" {
		return false
	}
	v, err := d.secrets.Resolve(ctx, name)
	return err == nil && len(v.Reveal()) >= minToken && subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(token)) == 1
}

// minToken is how long an admin token has to be.
const minToken = 16

// checkAdminToken refuses a token that is short or that webhooks are signed with: who has
// that could do what the admin can.
func (d *Daemon) checkAdminToken(ctx context.Context) error {
	name := d.o.Config.Config.Listen.AdminToken
	if name == "" {
		return nil
	}
	token, err := d.secrets.Resolve(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return nil // nobody is admin until it is set; doctor says so
	}
	if err != nil {
		return err
	}
	if len(token.Reveal()) < minToken {
		return fault.New(fault.Config, "the admin token, secret %s, has fewer than %d characters", name, minToken).
			WithHint("openssl rand -hex 32 | ombud secret set %s", name)
	}
	routes, err := d.triggers.Routes(ctx)
	if err != nil {
		return err
	}
	for _, r := range routes {
		for _, of := range r.Secrets {
			if v, err := d.secrets.Resolve(ctx, of); err == nil && v.Reveal() == token.Reveal() {
				return fault.New(fault.Config, "the admin token is also the secret %s of the webhook %s%s", of, trigger.HooksPath, r.Path).
					WithHint("openssl rand -hex 32 | ombud secret set %s", name)
			}
		}
	}
	return nil
}

// listeners are the addresses the daemon is reached at.
func (d *Daemon) listeners() []string {
	out := []string{d.o.Instance.Socket(), d.o.Instance.AgentSocket()}
	if d.listener != nil && d.listener.State().Open {
		out = append(out, d.listener.State().Address)
	}
	if at := d.keys.Address(); at != "" {
		out = append(out, at+" (coding agents, to their APIs)")
	}
	return out
}

// checkListener tells how the network listener stands.
func (d *Daemon) checkListener(ctx context.Context) (out []wire.Check) {
	if d.listener == nil {
		return []wire.Check{{ID: "listener.open", Status: "skip", Detail: "listen.address is off"}}
	}
	st := d.listener.State()
	if st.Problem == nil {
		out = append(out, wire.Check{ID: "listener.open", Status: "ok", Detail: "it listens on " + st.Address})
	} else {
		out = append(out, wire.Check{ID: "listener.open", Status: "warn", Detail: "it does not listen: " + st.Problem.Error(), Hint: fault.HintOf(st.Problem)})
	}
	if name := d.o.Config.Config.Listen.AdminToken; name != "" && d.secrets.Check(ctx, name) != nil {
		out = append(out, wire.Check{ID: "listener.admin", Status: "warn", Detail: "the admin token is not set, so nobody is admin", Hint: "ombud secret set " + name})
	} else if err := d.checkAdminToken(ctx); err != nil {
		out = append(out, wire.Check{ID: "listener.admin", Status: "fail", Detail: err.Error(), Hint: fault.HintOf(err)})
	}
	routes, err := d.triggers.Routes(ctx)
	if err != nil {
		return append(out, wire.Check{ID: "listener.webhooks", Status: "fail", Detail: err.Error()})
	}
	for _, r := range routes {
		if len(r.Missing) > 0 {
			out = append(out, wire.Check{ID: "listener.webhooks", Status: "warn", Detail: "the webhook " + r.Path + " lacks its secret " + r.Missing[0], Hint: "ombud secret set " + r.Missing[0]})
		}
	}
	return out
}

// measure is what /metrics tells.
func (d *Daemon) measure(ctx context.Context) ([]httpd.Metric, error) {
	runs, err := d.runs.Counts(ctx)
	if err != nil {
		return nil, err
	}
	head, err := d.events.Head(ctx)
	if err != nil {
		return nil, err
	}
	subs, err := d.events.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	routes, err := d.triggers.Routes(ctx)
	if err != nil {
		return nil, err
	}
	flag := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	live := httpd.Metric{Name: "ombud_runs", Help: "Unfinished runs by state."}
	for state, n := range runs {
		live.Samples = append(live.Samples, httpd.Sample{Labels: []httpd.Label{{Name: "state", Value: string(state)}}, Value: float64(n)})
	}
	lag := httpd.Metric{Name: "ombud_subscription_position", Help: "Where each reader of the log is."}
	dead := httpd.Metric{Name: "ombud_subscription_dead_letters", Help: "Events each reader gave up on."}
	for _, s := range subs {
		of := []httpd.Label{{Name: "subscription", Value: s.Name}}
		lag.Samples = append(lag.Samples, httpd.Sample{Labels: of, Value: float64(s.Position)})
		dead.Samples = append(dead.Samples, httpd.Sample{Labels: of, Value: float64(s.DeadLetters)})
	}
	hooks := httpd.Metric{Name: "ombud_webhooks_total", Help: "Calls of webhooks by what became of them.", Counter: true}
	for _, r := range routes {
		for outcome, n := range map[string]int64{"accepted": r.Accepted, "repeated": r.Repeated, "refused": r.Refused} {
			hooks.Samples = append(hooks.Samples, httpd.Sample{
				Labels: []httpd.Label{{Name: "route", Value: r.Path}, {Name: "outcome", Value: outcome}}, Value: float64(n),
			})
		}
	}
	return []httpd.Metric{
		{Name: "ombud_info", Help: "The daemon.", Samples: []httpd.Sample{{Labels: []httpd.Label{{Name: "version", Value: d.o.Version}, {Name: "store", Value: d.db.Kind()}}, Value: 1}}},
		httpd.Gauge("ombud_uptime_seconds", "How long it has run.", time.Since(d.began).Seconds()),
		httpd.Gauge("ombud_ready", "Whether it takes work.", flag(len(d.unready(ctx)) == 0)),
		httpd.Gauge("ombud_log_head", "Position of the newest event.", float64(head)),
		httpd.Gauge("ombud_goroutines", "Goroutines.", float64(runtime.NumGoroutine())),
		httpd.Gauge("ombud_heap_bytes", "Bytes of live objects.", float64(mem.HeapAlloc)),
		httpd.Gauge("ombud_wal_bytes", "Size of the store's write-ahead log.", float64(d.db.Stats().WALBytes)),
		live, lag, dead, hooks,
	}, nil
}
