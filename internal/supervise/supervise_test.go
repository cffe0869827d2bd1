package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestLivesFollowOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		held, kick := true, make(chan struct{}, 1)
		var told int
		var at []time.Duration
		time.AfterFunc(2500*time.Millisecond, func() { held = false })
		Lives{
			Hold: func() bool { return held }, Held: func() { told++ }, Kick: kick,
			Once: func(context.Context) (time.Duration, error) {
				at = append(at, time.Since(began))
				if len(at) == 4 {
					cancel()
				}
				return 0, io.EOF
			},
			Ended: func(context.Context, time.Duration, error) time.Duration {
				if len(at) == 2 {
					kick <- struct{}{}
				}
				return time.Minute
			},
		}.Run(ctx)
		want := []time.Duration{3 * time.Second, 63 * time.Second, 63 * time.Second, 123 * time.Second}
		if !slices.Equal(at, want) || told != 3 {
			t.Errorf("it lived at %v, want %v; it was told %d times that it is held", at, want, told)
		}
	})
}

// ended is a program that has ended.
type ended struct {
	Child
	exit confine.Exit
	err  error
}

func (e ended) Wait() (confine.Exit, error) { return e.exit, e.err }

func (e ended) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestHowAProgramEndedGoesBeforeWhatWasNoticed(t *testing.T) {
	t.Parallel()
	said := func() string { return "; the last it said: no" }
	walls := ended{exit: confine.Exit{Code: 1, Denials: []confine.Denial{{What: "open", Target: "/etc/a\nb"}, {What: "write", Target: "/b"}}}}
	for name, c := range map[string]struct {
		noticed error
		child   Child
		want    string
		hint    string
	}{
		"its exit":      {io.EOF, ended{exit: confine.Exit{Signal: "SIGKILL"}}, "it ended: killed by SIGKILL; the last it said: no", ""},
		"its walls":     {io.EOF, walls, "it ended: exit code 1; it was refused: open /etc/a b, write /b; the last it said: no", "add it"},
		"nobody knows":  {io.EOF, ended{err: errors.New("lost")}, "it ended: lost", ""},
		"what was told": {fault.New(fault.Invalid, "a bad message"), walls, "a bad message", ""},
	} {
		err := Gone(c.noticed, c.child, nil, said, "add it")
		if err.Error() != c.want || fault.HintOf(err) != c.hint {
			t.Errorf("%s: %q, hint %q", name, err, fault.HintOf(err))
		}
	}
}

func TestOutputIsBoundedAndClean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := NewOutput(slog.New(slog.NewTextHandler(&log, nil)), Config{
			What: "a program", Redact: func(s string) string { return strings.ReplaceAll(s, "sesame", "•••") }, Now: time.Now,
			Burst: 3, Every: time.Second, Keep: 2,
		})
		fmt.Fprintf(o, "one\nopen sesame\n\x1b[31mthree\nfour\nfi")
		if got := o.LastWord(); got != "; the last it said: fi" {
			t.Errorf("the last word is %q", got)
		}
		fmt.Fprintf(o, "ve%s\n", strings.Repeat("x", 10_000))
		last := o.Last(10)
		if len(last) != 2 || last[0].Text != "four" || !strings.HasPrefix(last[1].Text, "fivexx") || len(last[1].Text) > LineLength {
			t.Errorf("kept are %v", last)
		}
		o.Flush()
		text := log.String()
		if strings.Contains(text, "sesame") || strings.Contains(text, "\x1b") || strings.Contains(text, "four") || !strings.Contains(text, "lines=2") {
			t.Errorf("the log has\n%s", text)
		}
		<-time.After(time.Second)
		o.Say("warning of it", "later")
		if !strings.Contains(log.String(), "later") {
			t.Errorf("the log has\n%s", log.String())
		}
	})
}

func TestATailIsTheEnd(t *testing.T) {
	t.Parallel()
	for _, pieces := range [][]string{{"abcdefgh"}, {"abc", "def", "gh"}, {"", "abcdefg", "h"}, {"abcd", "efgh", ""}} {
		tail := &Tail{Most: 5}
		for _, p := range pieces {
			if n, err := tail.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("%q: %d, %v", p, n, err)
			}
		}
		if tail.String() != "defgh" {
			t.Errorf("%q leave %q", pieces, tail)
		}
	}
}

// half is what a character that was cut in two is shown as.
func half(text string) bool { return strings.Contains(text, `\x`) || !utf8.ValidString(text) }

func TestNoHalfCharacterIsKeptOrSaid(t *testing.T) {
	t.Parallel()
	for lead := range utf8.UTFMax {
		// What is hidden makes a line short again, so that its end is seen.
		long := strings.Repeat("s", lead) + strings.Repeat("😀", 2*LineLength)
		o := NewOutput(slog.New(slog.DiscardHandler), Config{What: "a program", Keep: 3, Burst: 1, Every: time.Second, Now: time.Now,
			Redact: func(s string) string { return strings.ReplaceAll(s, "😀", "") }})
		fmt.Fprintf(o, "%s", long[:4*LineLength-5])
		fmt.Fprintf(o, "%s\n", long[4*LineLength-5:])
		o.Say("notice", long)
		for _, line := range o.Last(3) {
			if half(line.Text) {
				t.Errorf("kept is %q", line.Text)
			}
		}
		tail := &Tail{Most: 21 + lead}
		for _, b := range []byte(long) {
			if _, err := tail.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if half(tail.String()) {
			t.Errorf("the tail is %q", tail)
		}
	}
}
