package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/loops"
	mcpclient "github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/model/builtin"
	"github.com/ombud-run/ombud/internal/model/scripted"
	toolprocess "github.com/ombud-run/ombud/internal/tools/process"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// adapterQuiet is how long an adapter may ask for no messages before it counts as gone.
const adapterQuiet = 10 * time.Minute

// probes are how to look at everything that this instance has set up.
func (d *Daemon) probes(ctx context.Context) ([]loops.Probe, error) {
	out := []loops.Probe{d.modelProbe("model", d.models.main)}
	if s := d.models.summary; s != nil && s.provider != d.models.main.provider {
		out = append(out, d.modelProbe("summary model", *s))
	}
	for _, info := range d.processes.List() {
		out = append(out, loops.Probe{Name: "tool process " + info.Spec.Name, Kind: "tool process", Look: func(context.Context) (loops.Health, string) {
			return processHealth(info)
		}})
	}
	for _, info := range d.servers.List() {
		out = append(out, loops.Probe{Name: "MCP server " + info.Spec.Name, Kind: "MCP server", Look: func(context.Context) (loops.Health, string) {
			return serverHealth(info)
		}})
	}
	adapters, err := d.remote.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range adapters {
		out = append(out, loops.Probe{Name: a.Channel(), Kind: "channel", Look: func(context.Context) (loops.Health, string) {
			return adapterHealth(a.Asked, a.Waiting, time.UnixMicro(d.db.Time()), d.began)
		}})
	}
	for _, i := range d.channels.List() {
		out = append(out, loops.Probe{Name: "channel " + i.Name, Kind: "channel", Look: func(context.Context) (loops.Health, string) {
			return channelHealth(i)
		}})
	}
	routes, err := d.triggers.Routes(ctx)
	for _, r := range routes {
		out = append(out, loops.Probe{Name: "webhook /hooks/" + r.Path, Kind: "webhook", Look: func(context.Context) (loops.Health, string) {
			return routeHealth(r)
		}})
	}
	return out, err
}

func processHealth(info toolprocess.Info) (loops.Health, string) {
	switch {
	case info.State == toolprocess.Ready && info.Failures == 0:
		return loops.Working, ""
	case info.State == toolprocess.Held:
		return loops.NotConnected, "the instance is held"
	case info.Loops:
		return loops.Failing, fmt.Sprintf("it ended %d times in a row: %s", info.Failures, info.Error)
	case info.Error != "":
		return loops.Degraded, "it ended and is started again: " + info.Error
	case info.State == toolprocess.Ready:
		return loops.Working, ""
	}
	return loops.Degraded, "it is " + string(info.State)
}

func serverHealth(info mcpclient.Info) (loops.Health, string) {
	switch {
	case info.State == mcpclient.Off:
		return loops.NotConnected, "it is switched off"
	case info.State == mcpclient.Held:
		return loops.NotConnected, "the instance is held"
	case info.Loops:
		return loops.Failing, fmt.Sprintf("it was gone %d times in a row: %s", info.Failures, info.Error)
	case info.Error != "":
		return loops.Degraded, "it was gone and is reached again: " + info.Error
	case info.State == mcpclient.Ready && info.Changed > 0:
		return loops.Degraded, "it offers other tools than you accepted"
	case info.State == mcpclient.Ready:
		return loops.Working, ""
	}
	return loops.Degraded, "it is " + string(info.State)
}

// adapterHealth goes by when an adapter last asked for messages: nothing else of it is
// known here.
func adapterHealth(asked int64, waiting int, now, began time.Time) (loops.Health, string) {
	switch {
	case asked == 0 && now.Sub(began) < adapterQuiet:
		return loops.NotConnected, "it has not connected since ombud was started"
	case asked == 0 && waiting == 0:
		return loops.NotConnected, "it has not connected since ombud was started"
	case asked == 0:
		return loops.Failing, fmt.Sprintf("it has not connected since ombud was started, and %d messages wait for it", waiting)
	case now.Sub(time.UnixMicro(asked)) > adapterQuiet:
		return loops.Failing, "it last asked for messages " + time.UnixMicro(asked).Format("2 January 15:04")
	}
	return loops.Working, ""
}

func routeHealth(r trigger.Route) (loops.Health, string) {
	switch {
	case len(r.Missing) > 0 && len(r.Missing) == len(r.Secrets):
		return loops.Failing, "no secret it is signed with is set: ombud secret set " + r.Missing[0]
	case len(r.Missing) > 0:
		return loops.Degraded, "not set: secret " + strings.Join(r.Missing, ", ")
	case r.RefusedAt > r.SeenAt:
		return loops.Degraded, "the last call was refused: " + r.Refusal
	}
	return loops.Working, ""
}

// modelProbe asks a provider for its list of models, which costs nothing.
func (d *Daemon) modelProbe(name string, c chosen) loops.Probe {
	return loops.Probe{Name: name, Kind: "model", Look: func(ctx context.Context) (loops.Health, string) {
		switch c.provider {
		case builtin.Name:
			return loops.NotConnected, "no model is set up; the interpreter that comes with ombud answers"
		case scripted.Name:
			return loops.Working, ""
		}
		status, err := d.askProvider(ctx, c.provider)
		return modelHealth(c.provider, status, err)
	}}
}

func modelHealth(provider string, status int, err error) (loops.Health, string) {
	switch {
	case err != nil:
		return loops.Failing, provider + ": " + err.Error()
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return loops.Failing, provider + " refuses the key"
	case status == http.StatusTooManyRequests:
		return loops.Degraded, provider + " says that its limit is reached"
	case status >= 500:
		return loops.Failing, fmt.Sprintf("%s answers with status %d", provider, status)
	}
	return loops.Working, ""
}

// askProvider asks for the list of a provider's models and returns the status.
func (d *Daemon) askProvider(ctx context.Context, name string) (int, error) {
	p, ok := d.o.Config.Config.Models.Providers[name]
	if !ok {
		return 0, fault.New(fault.Config, "no provider is called %q", name)
	}
	key, err := d.keyOf(ctx, p)
	if err != nil {
		return 0, err
	}
	path, header, value := "/models", "Authorization", "Bearer "+key
	if name == "anthropic" {
		path, header, value = "/v1/models", "X-Api-Key", key
	}
	egress, err := guard.ForOrigin(p.BaseURL)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.BaseURL, "/")+path, nil)
	if err != nil {
		return 0, fault.New(fault.Config, "%s is no address", p.BaseURL)
	}
	if key != "" {
		req.Header.Set(header, value)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress, MaxBody: 1 << 20, MaxRedirects: -1})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, fault.New(fault.Unavailable, "%s does not answer", p.BaseURL)
	}
	return resp.StatusCode, resp.Body.Close()
}

func (d *Daemon) keyOf(ctx context.Context, p config.Provider) (string, error) {
	c := chooser{d.o.Config.Config, d.o.Environment, d.secrets, d.log}
	if p.APIKey != "" {
		return c.keyOf(p)(ctx)
	}
	return c.env.Key(p).Reveal(), nil
}

func (d *Daemon) integrationsList(ctx context.Context, req wire.IntegrationsRequest) (out wire.IntegrationsResult, err error) {
	found := d.health.List
	if req.Check {
		found = d.health.Check
	}
	list, err := found(ctx)
	for _, i := range list {
		out.Integrations = append(out.Integrations, wire.Integration{
			Name: i.Name, Kind: i.Kind, State: string(i.State), Reason: i.Reason, SinceAt: i.Since, CheckedAt: i.Checked,
		})
	}
	return out, err
}
