package cli

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// What a recipe lacks a grant for is told from what went wrong.
func TestARunThatWasDeniedHasItsExitCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		state string
		class fault.Class
		want  int
	}{{"completed", "", 0}, {"cancelled", "", 1}, {"failed", "", 1}, {"failed", fault.Unavailable, 1}, {"failed", fault.Denied, 3}} {
		r := wire.Run{ID: "run_1", State: tc.state}
		if tc.class != "" {
			r.Error = &wire.Problem{Class: tc.class, Message: "m"}
		}
		if got := fault.Exit(runEnded(r)); got != tc.want {
			t.Errorf("%s %s: exit code %d, want %d", tc.state, tc.class, got, tc.want)
		}
	}
}

func TestOutcomesHaveTheirExitCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		outcome string
		class   fault.Class // of the error, if there is one
		want    int
	}{
		{"completed", "", 0},
		{"cancelled", "", 1},
		{"timed_out", "", 4},
		{"timed_out", fault.Internal, 4},
		{"step_limit", "", 1},
		{"looping", "", 1},
		{"escalated", "", 75},
		{"parked", "", 75},
		{"over_budget", "", 3},
		{"failed", "", 1},
		{"failed", fault.Denied, 3},
		{"failed", fault.Unavailable, 75},
		{"failed", fault.Timeout, 4},
		{"failed", fault.Verification, 5},
		{"of_tomorrow", "", 1},
	} {
		res := wire.TurnResult{RunID: "run_1", Outcome: tc.outcome}
		if tc.class != "" {
			res.Error = &wire.Problem{Class: tc.class, Message: "m"}
		}
		err := turnError(res)
		if got := fault.Exit(err); got != tc.want {
			t.Errorf("%s %s: exit code %d, want %d", tc.outcome, tc.class, got, tc.want)
		}
		if err != nil && fault.HintOf(err) == "" {
			t.Errorf("%s %s: no way out", tc.outcome, tc.class)
		}
	}
}

func TestEveryCommandSaysWhatItIsForWithAnExample(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	n := 0
	walk = func(c *cobra.Command) {
		path := c.CommandPath()
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasParent() && c.Parent().Name() == "completion" {
			return // cobra's own
		}
		n++
		if c.Short == "" || c.Example == "" || c.Long == "" && c.Short == "" {
			t.Errorf("%s: no description or example", path)
		}
		for line := range strings.Lines(c.Example) {
			if !strings.Contains(line, "ombud ") {
				t.Errorf("%s: example %q does not call ombud", path, line)
			}
		}
		if c.Flag("json") == nil && c.InheritedFlags().Lookup("json") == nil && c.PersistentFlags().Lookup("json") == nil {
			t.Errorf("%s: no --json", path)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !f.Hidden {
				t.Errorf("%s: --%s says nothing", path, f.Name)
			}
		})
	}
	a := &app{}
	walk(a.root())
	if n < 40 {
		t.Errorf("only %d commands were looked at", n)
	}
}

func TestMoneyIsNeverShownForFreeWhenUnknown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		micro int64
		known bool
		want  string
	}{
		{0, true, "$0.0000"},
		{1200, true, "$0.0012"},
		{7, true, "$0.000007"},
		{1_234_567, true, "$1.2345"},
		{0, false, "unknown"},
		{1200, false, "at least $0.0012"},
	} {
		if got := money(tc.micro, tc.known); got != tc.want {
			t.Errorf("%d, %v: %q, want %q", tc.micro, tc.known, got, tc.want)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "-", 900 * time.Microsecond: "900 µs", 1500 * time.Millisecond: "1.5 s", 12 * time.Millisecond: "12 ms",
		75 * time.Second: "1 min 15 s", 25*time.Hour + time.Minute: "1 d 1 h", 90 * time.Minute: "1 h 30 min",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	p := &page{now: time.Date(2026, 5, 2, 23, 0, 0, 0, time.FixedZone("X", 2*3600))}
	if got := p.clock(time.Date(2026, 5, 2, 8, 30, 1, 0, time.UTC).UnixMicro()); got != "10:30:01" {
		t.Errorf("today: %q", got)
	}
	if got := p.clock(time.Date(2026, 5, 2, 22, 30, 0, 0, time.UTC).UnixMicro()); got != "2026-05-03 00:30" {
		t.Errorf("tomorrow: %q", got)
	}
}

func TestTableAlignsWideTextAndKeepsOthersTextOnItsLine(t *testing.T) {
	t.Parallel()
	p := &page{}
	tab := table{head: []string{"A", "B"}}
	tab.add("日本", "x\n\x1b[2Jy")
	tab.add("é", "z")
	p.table(tab)
	if got, want := p.buf.String(), "A     B\n日本  x ␛[2Jy\né     z\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whatever pieces a turn streamed, in the end the recorded reply stands there.
func TestPrinterEndsWithTheRecordedReply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z \n]{0,12}`)
		reply := text.Draw(t, "reply")
		var b strings.Builder
		p := &printer{w: &b, stream: rapid.Bool().Draw(t, "stream")}
		for range rapid.IntRange(0, 4).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "true piece") && len(p.shown) <= len(reply) && strings.HasPrefix(reply, p.shown) {
				p.delta(reply[len(p.shown):rapid.IntRange(len(p.shown), len(reply)).Draw(t, "to")])
			} else {
				p.delta(text.Draw(t, "piece"))
			}
			if rapid.Bool().Draw(t, "pause") {
				p.pause()
			}
		}
		if err := p.finish(reply); err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix(reply, "\n") + "\n"
		if reply == "" {
			want = ""
		}
		got := b.String()
		if !strings.HasSuffix(got, want) || (!p.stream && got != want) || (got != "" && !strings.HasSuffix(got, "\n")) {
			t.Fatalf("%q does not end with %q", got, want)
		}
	})
}

func TestOwnWordsOfADaemonThatDiedAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"{\"msg\":\"x\"}\nerror: no\nhint: yes":                {"no", "yes"},
		"error: 2 problems\n  a\n  b\nhint: sample":            {"2 problems\n  a\n  b", "sample"},
		"error: old\nerror: new":                               {"new", ""},
		"panic: nil\ngoroutine 1":                              {"", ""},
		"error: x\n{\"msg\":\"last words of another goroutine": {"x", ""},
	} {
		msg, hint := lastError(strings.Split(text, "\n"))
		if msg != want[0] || hint != want[1] {
			t.Errorf("%q: %q, %q", text, msg, hint)
		}
	}
}

func TestBuildIDIsTheLastPartOfTheNote(t *testing.T) {
	t.Parallel()
	note := func(id string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, 4)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(id)))
		return append(append(binary.LittleEndian.AppendUint32(b, 4), "Go\x00\x00"...), id...)
	}
	for in, want := range map[string]string{
		string(note("a/b/c/0123456789abcdef")): "0123456789ab",
		string(note("short")):                  "short",
		string(note("x")[:10]):                 "",
		string(note("a/b"))[:17]:               "",
		"":                                     "",
	} {
		if got := shortBuildID([]byte(in), binary.LittleEndian.Uint32); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPostgresAddressHoldsNothingElse(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://me:secret@db.example:6000/x?password=secret": "tcp db.example:6000",
		"postgres:///x?host=/run/postgresql":                     "unix /run/postgresql/.s.PGSQL.5432",
		"postgres://[::1]/x":                                     "tcp [::1]:5432",
		"postgres:///x":                                          "tcp localhost:5432",
	} {
		network, addr, err := postgresAddress(dsn)
		if got := network + " " + addr; err != nil || got != want {
			t.Errorf("%s: %q, %v", dsn, got, err)
		}
	}
	if _, _, err := postgresAddress("postgres://secret\x7f@x"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestJSONKeepsItsSchemaInFront(t *testing.T) {
	t.Parallel()
	for _, v := range []any{struct{}{}, wire.Empty{}, wire.Pong{At: 1}} {
		var b strings.Builder
		a := &app{stdout: &b}
		if err := a.writeJSON("x/1", v); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Schema string `json:"schema"`
		}
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got.Schema != "ombud.x/1" {
			t.Errorf("%q: %v", b.String(), err)
		}
	}
}

func TestErrorsAreToldTheSameWay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{answered{1}, 1, ""},
		{fault.New(fault.Denied, "no\x1b[2J").WithHint("ask"), 3, "error: no␛[2J\nhint: ask\n"},
		{context.DeadlineExceeded, 4, "error: context deadline exceeded\n"},
		{fault.New(fault.Internal, "odd"), 1, "error: internal: odd\n"},
	} {
		var b strings.Builder
		a := &app{stderr: &b}
		if code := a.report(tc.err); code != tc.code || b.String() != tc.want {
			t.Errorf("%v: %d %q", tc.err, code, b.String())
		}
	}
}
