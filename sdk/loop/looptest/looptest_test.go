package looptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
)

// The tests are not parallel: there is one loop in a test binary.

func hostOf(t testing.TB, host string, more string) *Host {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loop.yaml")
	text := "name: probe\nversion: 1.0.0\nhost: [" + host + "]\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(t, path)
}

// heard is a test that keeps what it is told is wrong.
type heard struct {
	testing.TB
	errors []string
}

func (t *heard) Helper()                   {}
func (t *heard) Errorf(f string, a ...any) { t.errors = append(t.errors, fmt.Sprintf(f, a...)) }
func (t *heard) Error(a ...any)            { t.errors = append(t.errors, fmt.Sprint(a...)) }

func TestWhatTheManifestDoesNotNameIsRefused(t *testing.T) {
	h := hostOf(t, "notify, http, tool, remember, ask", "tools: [calendar.add]\ncapabilities: [\"http:*.example.com\", \"http:Example.org:8443\", \"tool:app.*\"]\n")
	h.Attended = true
	h.HTTP = func(loop.Request) (loop.Response, error) { return loop.Response{Status: 200}, nil }
	h.Tools["calendar.add"] = func(json.RawMessage) (string, error) { return "added", nil }
	var got []string
	say := func(what string, err error) {
		kind := "done"
		switch {
		case errors.Is(err, loop.ErrUndeclared):
			kind = "undeclared"
		case errors.Is(err, loop.ErrRefused):
			kind = "refused"
		case err != nil:
			kind = "failed"
		}
		got = append(got, what+" "+kind)
	}
	loop.Main(func(k *loop.Kit) error {
		say("notify", k.Notify("a", "b"))
		say("remember", k.Remember("a")) // without the capability
		_, err := k.Recall("a", 1)
		say("recall", err)
		_, err = k.Tool("calendar.add", nil)
		say("calendar.add", err)
		_, err = k.Tool("shell.exec", nil)
		say("shell.exec", err)
		for _, url := range []string{"https://api.example.com/x", "https://example.com", "https://example.com.evil.org", "x", "https://example.org:8443/x", "https://example.org"} {
			_, err = k.HTTP(loop.Request{URL: url})
			say(url, err)
		}
		_, err = k.Ask("a")
		say("ask", err)
		say("large", k.Notify("a", strings.Repeat("b", 64<<10)))
		return nil
	})
	if err := h.Run(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"notify done", "remember refused", "recall undeclared", "calendar.add done", "shell.exec undeclared",
		"https://api.example.com/x done", "https://example.com failed", "https://example.com.evil.org failed", "x failed",
		"https://example.org:8443/x done", "https://example.org failed", "ask refused", "large failed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	h.Refuse("notify", "quiet hours")
	h.Refuse("tool:calendar.add", "no")
	h.Refuse("http:api.example.com", "no")
	got = nil
	if err := h.Run(); err != nil || got[0] != "notify refused" || got[3] != "calendar.add refused" || got[5] != "https://api.example.com/x failed" {
		t.Errorf("%q %v", got, err)
	}
}

func TestAPersonHearsOfALogThatIsLost(t *testing.T) {
	ear := &heard{TB: t}
	h := hostOf(ear, "trigger", "")
	loop.Main(func(k *loop.Kit) error {
		k.Log(loop.Info, "lost")
		return nil
	})
	if err := h.Run(); err != nil || len(ear.errors) != 1 || !strings.Contains(ear.errors[0], `does not name "write_log"`) {
		t.Errorf("%v %q", err, ear.errors)
	}
}

func TestARunWithoutItsTriggerFails(t *testing.T) {
	h := hostOf(t, "notify", "")
	loop.Main(func(k *loop.Kit) error {
		k.Trigger()
		return nil
	})
	if err := h.Run(); !errors.Is(err, loop.ErrUndeclared) {
		t.Error(err)
	}
}

// A run that sleeps is done again from its beginning, and does nothing twice.
func TestARunIsPutAwayAndGoesOn(t *testing.T) {
	h := hostOf(t, "trigger, notify, sleep, step_begin, step_end, after", "capabilities: [tool:app.push]\n")
	began := h.Time
	attempts, drawn := 0, 0
	loop.Main(func(k *loop.Kit) error {
		attempts++
		n, err := loop.Step(k, "draw", func() (int, error) { drawn++; return 40 + drawn, nil })
		if err != nil {
			return err
		}
		if err := k.Notify("first", fmt.Sprint(n, k.Now().Sub(began))); err != nil {
			return err
		}
		if err := k.Sleep(48 * time.Hour); err != nil {
			return err
		}
		if err := k.Notify("second", fmt.Sprint(n, k.Now().Sub(began))); err != nil {
			return err
		}
		return k.After("again", time.Hour, map[string]int{"n": n})
	})
	if err := h.Run(); err != nil {
		t.Fatal(err)
	}
	if attempts != 2 || drawn != 1 || len(h.Notices) != 2 || h.Notices[0].Body != "41 0s" || h.Notices[1].Body != "41 48h0m0s" {
		t.Errorf("%d attempts, %d drawn, %+v", attempts, drawn, h.Notices)
	}
	if timer := h.Timers["again"]; timer.At.Sub(began) != 49*time.Hour || string(timer.Payload) != `{"n":41}` {
		t.Errorf("%+v", h.Timers)
	}
	var seen string
	loop.Main(func(k *loop.Kit) error {
		var in struct{ N int }
		err := k.Payload(&in)
		seen = fmt.Sprintln(k.Trigger().Loop, k.Trigger().Kind, in.N)
		return err
	})
	if err := h.Fire("again"); err != nil || seen != "probe timer 41\n" || h.Time.Sub(began) != 49*time.Hour || len(h.Timers) != 0 {
		t.Error(err, seen, h.Time)
	}
}

func TestARepeatThatDiffersFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		body func(attempt int, k *loop.Kit) error
		want string
	}{
		"the same":       {func(_ int, k *loop.Kit) error { return k.Notify("a", "b") }, ""},
		"another text":   {func(n int, k *loop.Kit) error { return k.Notify("a", fmt.Sprint(n)) }, "another call 1"},
		"another time":   {func(_ int, k *loop.Kit) error { return k.Notify("a", k.Now().String()) }, ""},
		"another's time": {func(n int, k *loop.Kit) error { return k.Notify("a", time.Unix(int64(n), 0).String()) }, "another call 1"},
		"not at all": {func(n int, k *loop.Kit) error {
			if n > 1 {
				return nil
			}
			return k.Notify("a", "b")
		}, "was not made"},
	} {
		t.Run(name, func(t *testing.T) {
			ear := &heard{TB: t}
			h := hostOf(ear, "notify", "capabilities: [tool:app.push]")
			n := 0
			loop.Main(func(k *loop.Kit) error { n++; return c.body(n, k) })
			h.CrashAfter(1)
			if err := h.Run(); !errors.Is(err, ErrCrashed) || len(h.Notices) != 1 {
				t.Fatal(err)
			}
			if err := h.Again(); err != nil {
				t.Fatal(err)
			}
			if said := strings.Join(ear.errors, "; "); (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
				t.Errorf("%q, want %q", said, c.want)
			}
		})
	}
}

// What failed is done again by the next try, and not by the same one behind a sleep.
func TestWhatFailedIsDoneAgain(t *testing.T) {
	h := hostOf(t, "http, notify, sleep", "capabilities: [tool:app.push, \"http:a.example\"]")
	fetched := 0
	h.HTTP = func(loop.Request) (loop.Response, error) {
		fetched++
		if fetched == 1 {
			return loop.Response{}, errors.New("no route")
		}
		return loop.Response{Status: 200}, nil
	}
	loop.Main(func(k *loop.Kit) error {
		_, err := k.HTTP(loop.Request{URL: "https://a.example"})
		if err != nil {
			if err := k.Notify("away", ""); err != nil {
				return err
			}
			if err := k.Sleep(time.Minute); err != nil {
				return err
			}
			return err
		}
		return k.Notify("there", "")
	})
	if err := h.Run(); err == nil || fetched != 1 || len(h.Notices) != 1 {
		t.Fatal(err, fetched, h.Notices)
	}
	if err := h.Again(); err != nil || fetched != 2 || h.Notices[1].Title != "there" {
		t.Error(err, fetched, h.Notices)
	}
}

func TestAStepIsDoneAgainBehindACrashAndOnceIsNot(t *testing.T) {
	h := hostOf(t, "step_begin, step_end", "")
	done, once := 0, false
	var unknown error
	loop.Main(func(k *loop.Kit) error {
		do := loop.Step[int]
		if once {
			do = loop.Once[int]
		}
		_, err := do(k, "pay", func() (int, error) { done++; return done, nil })
		unknown = err
		return nil
	})
	for _, c := range []struct {
		once bool
		done int
	}{{false, 2}, {true, 1}} {
		done, once = 0, c.once
		h.CrashIn("pay")
		if err := h.Run(); !errors.Is(err, ErrCrashed) {
			t.Fatal(err)
		}
		if err := h.Again(); err != nil || done != c.done || errors.Is(unknown, loop.ErrUnknown) != c.once {
			t.Errorf("once %t: done %d times, %v, %v", c.once, done, err, unknown)
		}
	}
}

func TestARunHasBounds(t *testing.T) {
	h := hostOf(t, "write_log, short_set, short_get, short_forget, short_all, remember, recall, wait_signal", "capabilities: [memory:main, memory:main:write]")
	loop.Main(func(k *loop.Kit) error {
		for {
			if err := k.Remember("on and on"); err != nil {
				return err
			}
		}
	})
	if err := h.Run(); !errors.Is(err, ErrLimit) || len(h.Facts) != maxSteps {
		t.Error(err, len(h.Facts))
	}
	loop.Main(func(k *loop.Kit) error {
		for range 20 {
			k.Log(loop.Info, strings.Repeat("a", 60<<10))
		}
		hits, err := k.Recall("and", 0)
		if err != nil || len(hits) != 5 {
			return fmt.Errorf("%d hits, %w", len(hits), err)
		}
		for n := range 4 {
			if err := k.Keep("g", fmt.Sprint(n), strings.Repeat("v", 60<<10), time.Hour); err != nil {
				return err
			}
		}
		if err := k.Keep("g", "5", strings.Repeat("v", 60<<10), 0); err == nil {
			return errors.New("more fits than should")
		}
		if err := k.Forget("g", "0"); err != nil {
			return err
		}
		all, err := k.AllKept("g")
		if err != nil || len(all) != 3 {
			return fmt.Errorf("%d notes, %w", len(all), err)
		}
		if _, err := k.WaitSignal("never", 2*time.Hour); err == nil {
			return errors.New("a signal that nobody sent")
		}
		all, err = k.AllKept("g")
		if err != nil || len(all) != 0 {
			return fmt.Errorf("%d notes after their time, %w", len(all), err)
		}
		return k.Keep("g", "last", "v", 0)
	})
	if err := h.Run(); err != nil || len(h.Logs) >= 20 {
		t.Error(err, len(h.Logs))
	}
	if v, found := h.Note("g", "last"); !found || v != "v" {
		t.Error(v, found)
	}
}

func TestARunRecordsSoMuch(t *testing.T) {
	h := hostOf(t, "http, write_log", "capabilities: [\"http:a.example\"]")
	h.Attended = true
	page := strings.Repeat("a", 10<<20)
	h.HTTP = func(loop.Request) (loop.Response, error) { return loop.Response{Status: 200, Body: page}, nil }
	loop.Main(func(k *loop.Kit) error {
		for range 2000 {
			k.Log(loop.Info, "a")
		}
		for {
			if _, err := k.HTTP(loop.Request{URL: "https://a.example"}); err != nil {
				return err
			}
		}
	})
	if err := h.Run(); !errors.Is(err, ErrLimit) || len(h.Calls) != 7 || len(h.Logs) != maxLines-1 {
		t.Errorf("%v, %d calls, %d lines", err, len(h.Calls), len(h.Logs))
	}
}

func TestAProvidedToolIsServed(t *testing.T) {
	h := hostOf(t, "ask, notify", "capabilities: [tool:agent.ask, tool:app.push]\nprovides:\n  - name: double\n    description: twice\n")
	loop.Provide("double", func(k *loop.Kit, input json.RawMessage) (any, error) {
		var in struct{ N int }
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, err
		}
		if in.N < 0 {
			return nil, errors.New("too small")
		}
		return fmt.Sprint(2 * in.N), k.Notify("doubled", "")
	})
	h.Ask = func(string) (string, error) { return h.Serve("double", map[string]int{"n": 21}), nil }
	loop.Main(func(k *loop.Kit) error {
		got, err := k.Ask("what is twice 21?")
		if err == nil && got != "42" {
			err = errors.New(got)
		}
		return err
	})
	if err := h.Run(); err != nil || len(h.Calls) != 2 || h.Calls[0].Name != "notify" {
		t.Error(err, h.Calls)
	}
	if got := h.Serve("double", map[string]int{"n": -1}); got != `{"error":"too small"}` {
		t.Error(got)
	}
}

func TestEveryCrashFindsWhatIsDoneTwice(t *testing.T) {
	loop.Main(func(k *loop.Kit) error {
		if _, found, err := k.Kept("g", "told"); err != nil || found {
			return err
		}
		if err := k.Notify("a", "b"); err != nil {
			return err
		}
		return k.Keep("g", "told", "yes", 0)
	})
	EveryCrash(t, func(t *testing.T) *Host {
		return hostOf(t, "notify, short_get, short_set", "capabilities: [tool:app.push, memory:main, memory:main:write]")
	})
}

// What ombud refuses is refused here.
func TestWhatOmbudRefusesFails(t *testing.T) {
	h := hostOf(t, "after, remind", "capabilities: [\"tool:reminder.add\"]")
	for name, c := range map[string]struct {
		do func(*loop.Kit) error
		ok bool
	}{
		"a payload":               {func(k *loop.Kit) error { return k.After("a", time.Hour, map[string]int{"n": 1}) }, true},
		"no payload":              {func(k *loop.Kit) error { return k.After("a", time.Hour, nil) }, true},
		"a payload of a list":     {func(k *loop.Kit) error { return k.After("a", time.Hour, []int{1}) }, false},
		"a reminder":              {func(k *loop.Kit) error { return k.Remind("a", "2026-08-11T09:00:00+02:00", "") }, true},
		"a reminder at no time":   {func(k *loop.Kit) error { return k.Remind("a", "tomorrow", "") }, false},
		"a reminder of yesterday": {func(k *loop.Kit) error { return k.Remind("a", "2026-08-09T09:00:00+02:00", "") }, false},
	} {
		loop.Main(c.do)
		if err := h.Run(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(h.Timers) != 1 || len(h.Reminders) != 1 {
		t.Errorf("%+v %+v", h.Timers, h.Reminders)
	}
}

// The calls within a step are not made again when the step is answered from the record.
func TestACallWithinAStepIsNotMissed(t *testing.T) {
	loop.Main(func(k *loop.Kit) error {
		_, err := loop.Step(k, "tell", func() (int, error) { return 1, k.Notify("within", "") })
		if err != nil {
			return err
		}
		return k.Notify("behind", "")
	})
	EveryCrash(t, func(t *testing.T) *Host {
		return hostOf(t, "notify, step_begin, step_end", "capabilities: [tool:app.push]")
	})
	loop.Main(func(k *loop.Kit) error {
		_, err := loop.Step(k, "look", func() (int, error) {
			r, err := k.HTTP(loop.Request{URL: "https://a.example"})
			return r.Status, err
		})
		if err == nil {
			_, err = k.HTTP(loop.Request{URL: "https://a.example/2"})
		}
		return err
	})
	ear := &heard{TB: t}
	h := hostOf(ear, "http, step_begin, step_end", "capabilities: [\"http:a.example\"]")
	asked := 0
	h.HTTP = func(loop.Request) (loop.Response, error) {
		if asked++; asked == 2 {
			return loop.Response{}, errors.New("no route")
		}
		return loop.Response{Status: 200}, nil
	}
	if err := h.Run(); err == nil {
		t.Error("the second request does not fail")
	}
	if err := h.Again(); err != nil || asked != 3 || len(ear.errors) != 2 {
		t.Errorf("%v, asked %d times, %q", err, asked, ear.errors)
	}
}

// A request behind something that others wrote waits for a person in ombud.
func TestARequestThatWouldWaitFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		runs     int
		attended bool
		want     int
	}{"the first": {1, false, 0}, "behind a note of the last run": {2, false, 1}, "attended": {2, true, 0}} {
		t.Run(name, func(t *testing.T) {
			ear := &heard{TB: t}
			h := hostOf(ear, "http, short_get, short_set", "capabilities: [\"memory:main\", \"memory:main:write\", \"http:a.example\"]")
			h.Attended = c.attended
			h.HTTP = func(loop.Request) (loop.Response, error) { return loop.Response{Status: 200}, nil }
			loop.Main(func(k *loop.Kit) error {
				if _, _, err := k.Kept("g", "seen"); err != nil {
					return err
				}
				if _, err := k.HTTP(loop.Request{URL: "https://a.example"}); err != nil {
					return err
				}
				return k.Keep("g", "seen", "1", 0)
			})
			for range c.runs {
				if err := h.Run(); err != nil {
					t.Fatal(err)
				}
			}
			if len(ear.errors) != c.want {
				t.Errorf("%q", ear.errors)
			}
		})
	}
}
