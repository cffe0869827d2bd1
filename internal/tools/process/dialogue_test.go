//go:build unix

package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestDialogues plays testdata/dialogue: what ombud and a tool process say to each
// other, frame by frame. Beside the file spec, a dialogue has these lines:
//
//	> JSON             ombud sends this next; call ids are call-1, call-2 … by appearance
//	< JSON             the process sends this
//	<! "TEXT"          the process writes these bytes
//	exit N             the process ends
//	call N TOOL JSON   somebody calls a tool
//	cancel N           and does not wait any longer
//	= N ok TEXT        what it came to
//	= N CLASS TEXT     or how it failed; TEXT is a part of the reason
//	tool NAME needs SCOPE…
//	tool NAME refused TEXT
//	ended TEXT         the process was ended, for this reason
//	notice TEXT        what the operator is told
//	audit KIND TEXT
func TestDialogues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/dialogue/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play := &dialogue{t: t, file: file, results: map[string]chan outcome{}, cancels: map[string]context.CancelFunc{}, ids: map[string]string{}}
			sp := Spec{Name: "act", Command: []string{"/bin/true"}}
			for _, f := range ar.Files {
				switch f.Name {
				case "spec":
					play.spec(&sp, string(f.Data))
				case "dialogue":
					play.run(sp, string(f.Data))
				}
			}
		})
	}
}

type outcome struct {
	text string
	err  error
}

type dialogue struct {
	t     *testing.T
	file  string
	line  int
	s     *stand
	child *puppet

	results map[string]chan outcome
	cancels map[string]context.CancelFunc
	ids     map[string]string // call-N → the real id
}

func (d *dialogue) fatal(format string, args ...any) {
	d.t.Helper()
	d.t.Fatalf("%s:%d: %s", d.file, d.line, fmt.Sprintf(format, args...))
}

func (d *dialogue) spec(sp *Spec, text string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		bound := func() Bound {
			b, err := ParseBound(value)
			if err != nil {
				d.t.Fatal(err)
			}
			return b
		}
		switch key {
		case "scope":
			sp.Scopes = append(sp.Scopes, bound())
		case "narrow":
			sp.Narrow = append(sp.Narrow, bound())
		case "repeatable":
			sp.Repeatable = append(sp.Repeatable, value)
		}
	}
}

func (d *dialogue) run(sp Spec, text string) {
	cfg := quick()
	cfg.Backoff = []time.Duration{time.Hour}
	children := make(chan *puppet, 1)
	d.s = setup(d.t, dbtest.SQLite(d.t), cfg, func(x *Deps) {
		x.Launch = func(_ context.Context, s confine.Spec) (supervise.Child, error) {
			p, err := newPuppet(s)
			if err == nil {
				children <- p
			}
			return p, err
		}
	})
	d.s.add(sp)
	d.child = <-children
	for line := range strings.Lines(text) {
		d.line++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		d.do(verb, rest)
	}
	for _, cancel := range d.cancels {
		cancel()
	}
}

func (d *dialogue) do(verb, rest string) {
	d.t.Helper()
	switch verb {
	case ">":
		d.expect(rest)
	case "<":
		for name, id := range d.ids {
			rest = strings.ReplaceAll(rest, `"`+name+`"`, `"`+id+`"`)
		}
		d.child.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(rest))), rest...))
	case "<!":
		raw, err := strconv.Unquote(rest)
		if err != nil {
			d.fatal("%v", err)
		}
		d.child.write([]byte(raw))
	case "exit":
		code, err := strconv.Atoi(rest)
		if err != nil {
			d.fatal("%v", err)
		}
		d.child.end(confine.Exit{Code: code})
	case "call":
		d.call(rest)
	case "cancel":
		d.cancels[rest]()
	case "=":
		d.compare(rest)
	case "tool":
		d.tool(rest)
	case "ended":
		d.s.failing(rest)
	case "notice":
		d.s.until("told of "+rest, func(Info) bool {
			d.s.mu.Lock()
			defer d.s.mu.Unlock()
			return len(d.s.notices) > 0 && fmt.Sprintf("%s: %s", d.s.notices[0].Subject, d.s.notices[0].Message) == rest
		})
	case "audit":
		kind, want, _ := strings.Cut(rest, " ")
		d.s.until("audited as "+rest, func(Info) bool { return strings.Contains(strings.Join(d.s.entries(kind), "\n"), want) })
	default:
		d.fatal("what is %q?", verb)
	}
}

func (d *dialogue) expect(want string) {
	d.t.Helper()
	body, err := d.child.read()
	if err != nil {
		d.fatal("ombud sends nothing: %v", err)
	}
	var m toTool
	if err := json.Unmarshal(body, &m); err != nil {
		d.fatal("%v", err)
	}
	got := string(body)
	if m.CallID != "" {
		name := ""
		for n, id := range d.ids {
			if id == m.CallID {
				name = n
			}
		}
		if name == "" {
			name = fmt.Sprint("call-", len(d.ids)+1)
			d.ids[name] = m.CallID
		}
		got = strings.ReplaceAll(got, m.CallID, name)
	}
	if got != want {
		d.fatal("ombud sends\n%s\nwant\n%s", got, want)
	}
}

func (d *dialogue) call(rest string) {
	parts := strings.SplitN(rest, " ", 3)
	d.s.ready()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	done := make(chan outcome, 1)
	d.results[parts[0]], d.cancels[parts[0]] = done, cancel
	go func() {
		text, err := d.s.call(ctx, parts[1], parts[2])
		done <- outcome{text, err}
	}()
}

func (d *dialogue) compare(rest string) {
	d.t.Helper()
	parts := strings.SplitN(rest, " ", 3)
	got := <-d.results[parts[0]]
	if parts[1] == "ok" {
		if got.err != nil || strconv.Quote(got.text) != `"`+parts[2]+`"` {
			d.fatal("call %s came to %q, %v", parts[0], got.text, got.err)
		}
		return
	}
	if !fault.Is(got.err, fault.Class(parts[1])) || !strings.Contains(got.err.Error(), parts[2]) {
		d.fatal("call %s came to %q, %v (%s)", parts[0], got.text, got.err, fault.ClassOf(got.err))
	}
}

func (d *dialogue) tool(rest string) {
	d.t.Helper()
	parts := strings.SplitN(rest, " ", 3)
	info := d.s.ready()
	for _, tl := range info.Tools {
		if tl.Name != parts[0] {
			continue
		}
		if parts[1] == "needs" && strings.Join(tl.Needs, " ") == parts[2] || parts[1] == "refused" && strings.Contains(tl.Refused, parts[2]) {
			return
		}
	}
	d.fatal("it registers %+v", info.Tools)
}

// puppet is a tool process without a process: the test pulls its strings.
type puppet struct {
	in   *bufio.Reader // what ombud writes
	far  *io.PipeWriter
	out  *os.File
	once sync.Once
	done chan struct{}
	exit confine.Exit
}

func newPuppet(s confine.Spec) (*puppet, error) {
	fd, err := syscall.Dup(int(s.Stdout.(*os.File).Fd())) // as a process would have its own
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	return &puppet{in: bufio.NewReader(r), far: w, out: os.NewFile(uintptr(fd), "stdout"), done: make(chan struct{})}, nil
}

func (p *puppet) write(b []byte) { _, _ = p.out.Write(b) } // what nobody reads any more is lost

func (p *puppet) read() ([]byte, error) { return wire.ReadFrame(p.in) }

func (p *puppet) end(e confine.Exit) {
	p.once.Do(func() {
		p.exit = e
		_ = p.out.Close()
		_ = p.far.Close()
		close(p.done)
	})
}

func (p *puppet) PID() int                    { return 1 }
func (p *puppet) Stdin() io.WriteCloser       { return p.far }
func (p *puppet) Wait() (confine.Exit, error) { <-p.done; return p.exit, nil }
func (p *puppet) Stop()                       { p.end(confine.Exit{Code: -1, Signal: "SIGTERM"}) }
func (p *puppet) Kill()                       { p.end(confine.Exit{Code: -1, Signal: "SIGKILL"}) }
func (p *puppet) Done() <-chan struct{}       { return p.done }

// The frames a fuzzer begins with are those of the dialogues.
func seeds(f *testing.F) (frames []string) {
	files, err := filepath.Glob("testdata/dialogue/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "< "); ok {
				frames = append(frames, text)
			}
		}
	}
	return frames
}
