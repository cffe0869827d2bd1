package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/loops"
	toolprocess "github.com/ombud-run/ombud/internal/tools/process"
	"github.com/ombud-run/ombud/internal/trigger"
)

func TestHowAnIntegrationStandsIsToldWithItsReason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	long, short := now.Add(-time.Hour), now.Add(-time.Minute)
	type seen struct {
		state  loops.Health
		reason string
	}
	see := func(state loops.Health, reason string) seen { return seen{state, reason} }
	for name, c := range map[string]struct {
		got  seen
		want loops.Health
		says string
	}{
		"a process":            {see(processHealth(toolprocess.Info{State: toolprocess.Ready})), loops.Working, ""},
		"one that came back":   {see(processHealth(toolprocess.Info{State: toolprocess.Waiting, Failures: 1, Error: "exit 1"})), loops.Degraded, "exit 1"},
		"one that does not":    {see(processHealth(toolprocess.Info{State: toolprocess.Waiting, Failures: 9, Loops: true, Error: "exit 1"})), loops.Failing, "9 times"},
		"one that starts":      {see(processHealth(toolprocess.Info{State: toolprocess.Starting})), loops.Degraded, "starting"},
		"an adapter":           {see(adapterHealth(short.UnixMicro(), 0, now, long)), loops.Working, ""},
		"one that left":        {see(adapterHealth(long.UnixMicro(), 0, now, long)), loops.Failing, "last asked"},
		"one that never came":  {see(adapterHealth(0, 0, now, long)), loops.NotConnected, "has not connected"},
		"one that is awaited":  {see(adapterHealth(0, 3, now, long)), loops.Failing, "3 messages"},
		"one with time yet":    {see(adapterHealth(0, 3, now, short)), loops.NotConnected, ""},
		"a webhook":            {see(routeHealth(trigger.Route{})), loops.Working, ""},
		"one without a secret": {see(routeHealth(trigger.Route{Webhook: trigger.Webhook{Secrets: []string{"a"}}, Missing: []string{"a"}})), loops.Failing, "ombud secret set a"},
		"one that lacks one":   {see(routeHealth(trigger.Route{Webhook: trigger.Webhook{Secrets: []string{"a", "b"}}, Missing: []string{"b"}})), loops.Degraded, "secret b"},
		"one that refuses":     {see(routeHealth(trigger.Route{SeenAt: 1, RefusedAt: 2, Refusal: "no signature"})), loops.Degraded, "no signature"},
		"a model":              {see(modelHealth("p", 200, nil)), loops.Working, ""},
		"one without a list":   {see(modelHealth("p", 404, nil)), loops.Working, ""},
		"a refused key":        {see(modelHealth("p", 401, nil)), loops.Failing, "refuses the key"},
		"a limit":              {see(modelHealth("p", 429, nil)), loops.Degraded, "limit"},
		"a broken one":         {see(modelHealth("p", 503, nil)), loops.Failing, "503"},
		"one that is away":     {see(modelHealth("p", 0, errors.New("it does not answer"))), loops.Failing, "does not answer"},
	} {
		if c.got.state != c.want || !strings.Contains(c.got.reason, c.says) {
			t.Errorf("%s is %s because %q; want %s because of %q", name, c.got.state, c.got.reason, c.want, c.says)
		}
	}
}
