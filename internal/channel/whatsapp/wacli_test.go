package whatsapp

import (
	"cmp"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

func TestItSendsByAProgramWithoutAShell(t *testing.T) {
	t.Parallel()
	a, w, _ := setup(t)
	text := "--to=x $(reboot) `id`; \"q\" 'q' \\ * é😀\nsecond\tline"
	ref, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, text))
	sent := w.Sent()
	if err != nil || len(sent) != 1 || sent[0].Content != text || sent[0].ID != ref || sent[0].ChatJID != whatsapptest.Ann.JID {
		t.Fatalf("%q %v %+v", ref, err, sent)
	}
	calls := w.Calls()
	last := calls[len(calls)-1]
	if want := []string{"send", "--to=" + whatsapptest.Ann.JID, "--text=" + text}; !slices.Equal(last.Args, want) {
		t.Errorf("arguments %q, want %q", last.Args, want)
	}
	if want := []string{"HOME=/home/ann", "LC_ALL=C", "PATH=/usr/bin", "TZ=UTC", "XDG_DATA_HOME=/x"}; !slices.Equal(last.Env, want) {
		t.Errorf("environment %q, want %q", last.Env, want)
	}
}

func TestWhatASendSaysOfItself(t *testing.T) {
	t.Parallel()
	sure := []fault.Class{fault.Unavailable}
	doubt := []fault.Class{fault.Unknown}
	for name, c := range map[string]struct {
		change func(*whatsapptest.State)
		fault  whatsapptest.Fault
		to     string
		want   []fault.Class // none: no error
		noRef  bool
		hint   string
	}{
		"well":                       {},
		"a number nobody wrote from": {to: "15559998888@s.whatsapp.net"},
		"its words are no JSON":      {fault: whatsapptest.Garbage, noRef: true},
		"it says very much":          {fault: whatsapptest.Big, noRef: true},
		"a child stays behind":       {fault: whatsapptest.Leave, noRef: false},
		"no daemon":                  {change: func(s *whatsapptest.State) { s.Away = true }, want: sure, hint: "wacli daemon"},
		"not connected":              {change: func(s *whatsapptest.State) { s.Connected = false }, want: sure},
		"logged out":                 {change: func(s *whatsapptest.State) { s.Connected, s.User = false, "" }, want: sure, hint: "wacli login"},
		"its switch is off":          {change: func(s *whatsapptest.State) { s.DND = false }, want: sure, hint: "wacli dnd on"},
		"its JSON says not sent":     {fault: whatsapptest.NotSent, want: sure},
		"it failed":                  {fault: whatsapptest.Fail, want: doubt},
		"it failed afterwards":       {fault: whatsapptest.FailAfter, want: doubt},
		"it was killed before":       {fault: whatsapptest.DieBefore, want: doubt},
		"it was killed after":        {fault: whatsapptest.DieAfter, want: doubt},
		"a locked chat":              {to: whatsapptest.Shut.JID, want: []fault.Class{fault.Denied}, hint: "wacli access unlock"},
		"a name":                     {to: "Ann", want: []fault.Class{fault.Invalid}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, w, _ := setup(t)
			if c.change != nil {
				w.Change(c.change)
			}
			if c.fault != "" {
				w.Next("send", c.fault)
			}
			ref, err := a.Send(t.Context(), out(cmp.Or(c.to, whatsapptest.Ann.JID), "hi"))
			if len(c.want) == 0 && (err != nil || (ref == "") != c.noRef || len(w.Sent()) != 1) {
				t.Errorf("%q %v, sent %+v", ref, err, w.Sent())
			}
			if len(c.want) > 0 && (!slices.Contains(c.want, fault.ClassOf(err)) || ref != "" || !strings.Contains(fault.HintOf(err), c.hint)) {
				t.Errorf("%v (%s, hint %q), want %v", err, fault.ClassOf(err), fault.HintOf(err), c.want)
			}
			if fault.Is(err, fault.Unavailable) && len(w.Sent()) > 0 {
				t.Errorf("surely not sent, but sent: %+v", w.Sent())
			}
		})
	}
}

func TestOnlyWhatIsAMessageIsSent(t *testing.T) {
	t.Parallel()
	a, w, _ := setup(t)
	for name, text := range map[string]string{"nothing": "", "blanks": " \n", "zero bytes": "\x00", "too much": strings.Repeat("x", maxText+1)} {
		if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, text)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(w.Calls()) != 0 {
		t.Errorf("wacli was called: %+v", w.Calls())
	}
}

func TestAProgramThatIsNotThereSurelySentNothing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"no-such-program-of-that-name", filepath.Join(t.TempDir(), "wacli")} {
		log, _ := newLog()
		a, err := newWacli(channel.Setup{Values: map[string]string{partPath: path}, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, "hi")); !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", path, err, fault.HintOf(err))
		}
		if _, err := a.Check(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := newWacli(channel.Setup{Values: map[string]string{partPath: "bin/wacli"}}); !fault.Is(err, fault.Config) {
		t.Errorf("a path from wherever we are: %v", err)
	}
}

// TestAHangingProgramIsEndedWithItsChildren: both hold a connection for as long as they live.
func TestAHangingProgramIsEndedWithItsChildren(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault func(string) whatsapptest.Fault
		want  outbox.Answer
	}{
		"before it sent": {whatsapptest.Hang, outbox.CannotTell}, // it was cut off, so that nothing is in the list proves nothing
		"after it sent":  {whatsapptest.HangAfter, outbox.Happened},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, w, _ := setup(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			w.Next("send", c.fault(l.Addr().String()))
			since := time.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := a.Send(ctx, out(whatsapptest.Ann.JID, "hi"))
				errs <- err
			}()
			var conns []net.Conn
			for range 2 {
				conn, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conns = append(conns, conn)
			}
			cancel(fault.New(fault.Timeout, "the test waits no longer"))
			if err := <-errs; !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "the test waits no longer") {
				t.Errorf("%v (%s)", err, fault.ClassOf(err))
			}
			for _, conn := range conns {
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // else it is an error, which fails below
				if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
					t.Error("something of the program lives on")
				}
			}
			if got, _, err := a.Probe(t.Context(), out(whatsapptest.Ann.JID, "hi"), since); got != c.want || err != nil {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestWhatBecameOfAPieceInDoubt(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-5 * time.Minute)
	mine := func(chat whatsapptest.Chat, text string, at time.Time) whatsapptest.Message {
		m := whatsapptest.From(chat, "3EB0AA"+text, text, at)
		m.IsFromMe, m.SenderJID = true, whatsapptest.Device
		return m
	}
	for name, c := range map[string]struct {
		prepare func(a *wacli, w *whatsapptest.Wacli)
		since   time.Time
		want    outbox.Answer
		class   fault.Class
	}{
		"it is in the list":   {func(_ *wacli, w *whatsapptest.Wacli) { w.Store(mine(whatsapptest.Ann, "hi", long.Add(time.Second))) }, long, outbox.Happened, ""},
		"in the same second":  {func(_ *wacli, w *whatsapptest.Wacli) { w.Store(mine(whatsapptest.Ann, "hi", long)) }, long, outbox.Happened, ""},
		"it was there before": {func(_ *wacli, w *whatsapptest.Wacli) { w.Store(mine(whatsapptest.Ann, "hi", long.Add(-time.Minute))) }, long, outbox.DidNotHappen, ""},
		"in another chat":     {func(_ *wacli, w *whatsapptest.Wacli) { w.Store(mine(whatsapptest.Team, "hi", time.Now())) }, long, outbox.DidNotHappen, ""},
		"another text":        {func(_ *wacli, w *whatsapptest.Wacli) { w.Store(mine(whatsapptest.Ann, "ho", time.Now())) }, long, outbox.DidNotHappen, ""},
		"somebody else's text": {func(_ *wacli, w *whatsapptest.Wacli) {
			w.Store(whatsapptest.From(whatsapptest.Ann, "A", "hi", time.Now()))
		}, long, outbox.DidNotHappen, ""},
		"another piece's": {func(a *wacli, w *whatsapptest.Wacli) {
			w.Store(mine(whatsapptest.Ann, "hi", time.Now()))
			a.refs.put("3EB0AAhi", struct{}{})
		}, long, outbox.DidNotHappen, ""},
		"it failed by itself":          {func(a *wacli, _ *whatsapptest.Wacli) { a.fates.put("item-1/0", try{byItself, 3}) }, time.Now().Add(-5 * time.Second), outbox.DidNotHappen, ""},
		"it failed by itself just now": {func(a *wacli, _ *whatsapptest.Wacli) { a.fates.put("item-1/0", try{byItself, 9}) }, time.Now().Add(-5 * time.Second), outbox.CannotTell, fault.Unavailable},
		"it was cut off":               {func(a *wacli, _ *whatsapptest.Wacli) { a.fates.put("item-1/0", try{how: cutOff}) }, long, outbox.CannotTell, ""},
		"just now, by another process": {nil, time.Now(), outbox.CannotTell, fault.Unavailable},
		"long ago, by another process": {nil, long, outbox.DidNotHappen, ""},
		"the list is full": {func(_ *wacli, w *whatsapptest.Wacli) {
			for range maxRows {
				w.Store(whatsapptest.From(whatsapptest.Ann, "A", "x", time.Now()))
			}
		}, long, outbox.CannotTell, ""},
		"no daemon":           {func(_ *wacli, w *whatsapptest.Wacli) { w.Change(func(s *whatsapptest.State) { s.Away = true }) }, long, outbox.CannotTell, fault.Unavailable},
		"the list is garbage": {func(_ *wacli, w *whatsapptest.Wacli) { w.Next("messages", whatsapptest.Garbage) }, long, outbox.CannotTell, fault.Unavailable},
		"the list is junk":    {func(_ *wacli, w *whatsapptest.Wacli) { w.Next("messages", whatsapptest.Big) }, long, outbox.CannotTell, fault.Unavailable},
		"it died":             {func(_ *wacli, w *whatsapptest.Wacli) { w.Next("messages", whatsapptest.DieBefore) }, long, outbox.CannotTell, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, w, _ := setup(t)
			if c.prepare != nil {
				c.prepare(a, w)
			}
			got, ref, err := a.Probe(t.Context(), out(whatsapptest.Ann.JID, " hi\n"), c.since)
			if got != c.want || fault.ClassOf(err) != c.class || (ref == "3EB0AAhi") != (c.want == outbox.Happened) {
				t.Errorf("%q, %q, %v; want %q, %q", got, ref, err, c.want, c.class)
			}
		})
	}
}

func TestASendThatFailedAfterwardsIsFound(t *testing.T) {
	t.Parallel()
	for fault, want := range map[whatsapptest.Fault]outbox.Answer{
		whatsapptest.FailAfter: outbox.Happened, whatsapptest.DieAfter: outbox.Happened,
		whatsapptest.Fail: outbox.DidNotHappen, whatsapptest.DieBefore: outbox.CannotTell,
	} {
		a, w, _ := setup(t)
		w.Next("send", fault)
		since := time.Now().Add(-time.Second)
		if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, "hi")); err == nil {
			t.Errorf("%s: no error", fault)
		}
		if got, _, err := a.Probe(t.Context(), out(whatsapptest.Ann.JID, "hi"), since); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", fault, got, err, want)
		}
	}
}

// TestACommandThatAlwaysFailsIsGivenUp: the outbox sends at once again what was surely not
// sent, and counts only tries whose errors say so.
func TestACommandThatAlwaysFailsIsGivenUp(t *testing.T) {
	t.Parallel()
	held(t, func(t *testing.T, a *wacli, w *whatsapptest.Wacli, _ *channeltest.Intake, _ func() func() error) {
		begun := time.Now()
		for range maxTries {
			w.Next("send", whatsapptest.Fail)
		}
		for n := range maxTries {
			since := time.Now()
			if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, "hi")); !fault.Is(err, fault.Unknown) {
				t.Fatalf("try %d: %v", n+1, err)
			}
			for {
				got, _, err := a.Probe(t.Context(), out(whatsapptest.Ann.JID, "hi"), since)
				if got == outbox.DidNotHappen {
					break
				}
				if !fault.Is(err, fault.Unavailable) {
					t.Fatalf("try %d: %q %v", n+1, got, err)
				}
				pass(time.Second)
			}
		}
		if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, "hi")); !fault.Is(err, fault.Invalid) || len(w.Sent()) != 0 {
			t.Errorf("%v, sent %+v", err, w.Sent())
		}
		if took := time.Since(begun); took < 5*time.Minute || took > 20*time.Minute {
			t.Errorf("it took %s", took)
		}
		if _, err := a.Send(t.Context(), out(whatsapptest.Ann.JID, "hi")); err != nil || len(w.Sent()) != 1 {
			t.Errorf("a person wants it sent again: %v, sent %+v", err, w.Sent())
		}
	})
}

func TestStateAsWacliPrintsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  string
		want status
		kind fault.Class
	}{
		"well":         {"connected: true\nuser: 1555:16@s.whatsapp.net\ndnd: true\ninitial access configured: true\nchats: 3\nmessages: 9\nlast history sync: 2026-04-12T13:14:15Z\n", status{told: true, user: "1555:16@s.whatsapp.net"}, ""},
		"JSON":         {`{"connected":true,"user_jid":"1555:16@s.whatsapp.net","user_lid":"9@lid","dnd_mode":true}`, status{told: true, user: "1555:16@s.whatsapp.net", lid: "9@lid"}, ""},
		"JSON, little": {`{"user_jid":"1555@s.whatsapp.net"}`, status{told: true, user: "1555@s.whatsapp.net"}, ""},
		"no daemon":    {"daemon: not reachable\ndnd: true\nchats: 3\n", status{told: true, away: true}, fault.Unavailable},
		"cut off":      {"connected: false\nuser: 1555@s.whatsapp.net\ndnd: true\n", status{told: true, disconnected: true, user: "1555@s.whatsapp.net"}, fault.Unavailable},
		"logged out":   {"connected: false\nuser: \ndnd: true\n", status{told: true, disconnected: true}, fault.Denied},
		"switched off": {"connected: true\nuser: 1555@s.whatsapp.net\ndnd: false\n", status{told: true, disarmed: true, user: "1555@s.whatsapp.net"}, fault.Unavailable},
		"nobody":       {"connected: true\nuser: \n", status{told: true}, fault.Unavailable},
		"a name":       {"connected: true\nuser: Ann\n", status{told: true, user: "Ann"}, fault.Unavailable},
		"garbage":      {"<html>", status{}, fault.Unavailable},
		"no JSON":      {"{", status{}, fault.Unavailable},
		"nothing":      {"", status{}, fault.Unavailable},
	} {
		got := parseStatus([]byte(c.out))
		if got != c.want || fault.ClassOf(got.trouble()) != c.kind {
			t.Errorf("%s: %+v, %v; want %+v, %q", name, got, got.trouble(), c.want, c.kind)
		}
	}
}

func TestCheckTellsWhoWeAre(t *testing.T) {
	t.Parallel()
	a, w, _ := setup(t)
	got, err := a.Check(t.Context())
	if err != nil || got.ID != whatsapptest.Phone || got.Name != "+15550001111" || !slices.Equal(got.IDs, []string{whatsapptest.Phone, whatsapptest.LID}) {
		t.Errorf("%+v %v", got, err)
	}
	w.Change(func(s *whatsapptest.State) { s.Connected, s.User = false, "" })
	if _, err := a.Check(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("logged out: %v", err)
	}
	for _, f := range []whatsapptest.Fault{whatsapptest.Fail, whatsapptest.Garbage, whatsapptest.DieBefore, whatsapptest.Big} {
		w.Next("status", f)
		if _, err := a.Check(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestPiecesAreShortAndWhole(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	for name, text := range map[string]string{
		"short": "hi", "empty": "", "two-byte": strings.Repeat("é", 5000), "four-byte": strings.Repeat("😀", 3000), "a line": strings.Repeat("a", 4097),
		"code": "```go\n" + strings.Repeat("x := 1\n", 1000) + "```\n",
	} {
		pieces := a.Render(text)
		if len(pieces) == 0 {
			t.Errorf("%s: no piece", name)
		}
		for _, p := range pieces {
			if len(p.Text) > limit || !utf8.ValidString(p.Text) {
				t.Errorf("%s: a piece of %d bytes, valid: %v", name, len(p.Text), utf8.ValidString(p.Text))
			}
		}
	}
}
