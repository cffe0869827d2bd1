package clock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestTimeIsToldInTheZoneAskedFor(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 1, 1, 30, 5, 0, time.UTC)
	home, err := time.LoadLocation("America/St_Johns")
	if err != nil {
		t.Fatal(err)
	}
	c := New(func() time.Time { return at }, home)
	for in, want := range map[string]string{
		`{}`:                          "Thursday 31 December 2026, 22:00:05 (America/St_Johns, NST, UTC-03:30), week 2026-W53",
		`{"zone":"UTC"}`:              "Friday 1 January 2027, 01:30:05 (UTC, UTC, UTC+00:00), week 2026-W53",
		`{"zone":"Asia/Kathmandu"}`:   "Friday 1 January 2027, 07:15:05 (Asia/Kathmandu, +0545, UTC+05:45), week 2026-W53",
		`{"zone":"Europe/Stockholm"}`: "Friday 1 January 2027, 02:30:05 (Europe/Stockholm, CET, UTC+01:00), week 2026-W53",
	} {
		out, err := c.tell(t.Context(), tool.Invocation{Input: json.RawMessage(in)})
		if err != nil || out.Text != want {
			t.Errorf("%s: %q, %v, want %q", in, out.Text, err, want)
		}
	}
	for _, zone := range []string{"Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "a\u0000b", "CEST+1 "} {
		raw, err := json.Marshal(input{Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.tell(t.Context(), tool.Invocation{Input: raw}); !fault.Is(err, fault.Invalid) {
			t.Errorf("zone %q: %q, %v, want invalid", zone, out.Text, err)
		}
	}
}

func TestTheDefinitionIsAccepted(t *testing.T) {
	t.Parallel()
	r, _ := tool.NewRegistry(slog.New(slog.DiscardHandler))
	if err := New(time.Now, time.UTC).Register(r); err != nil {
		t.Fatal(err)
	}
	def, err := r.Get("time_now")
	if err != nil {
		t.Fatal(err)
	}
	need, err := def.Scopes(json.RawMessage(`{}`))
	if err != nil || fmt.Sprint(need) != "[time.read]" || def.Kind != tool.Local || !def.ReadOnly {
		t.Errorf("needs %v, %v; %s, read-only %t", need, err, def.Kind, def.ReadOnly)
	}
	if got := def.Summary(json.RawMessage(`{"zone":"UTC"}`)); got != "tell the time in UTC" {
		t.Errorf("summary %q", got)
	}
	if err := r.Validate("time.now", json.RawMessage(`{"tz":"UTC"}`)); err == nil || !strings.Contains(err.Error(), "'tz' not allowed") {
		t.Errorf("a wrong key: %v", err)
	}
}
