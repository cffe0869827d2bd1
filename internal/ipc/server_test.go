//go:build unix

package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// start serves the test methods on a fresh socket until the test ends.
func start(t *testing.T, change func(*Config, *Mux)) (*Server, string) {
	t.Helper()
	cfg := Config{Hide: asItIs, Socket: filepath.Join(t.TempDir(), "run", "s"), HoldsLock: true, UID: os.Getuid()}
	mux := newTestMux()
	if change != nil {
		change(&cfg, mux)
	}
	s := New(cfg, mux, discard())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s, cfg.Socket
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestClientAndServerUnderstandEachOther(t *testing.T) {
	t.Parallel()
	_, socket := start(t, nil)
	c := wire.NewClient(socket)
	text := strings.Repeat("mögen 😀\x00\n", 1<<20/14)
	sent, err := c.MessageSend(t.Context(), wire.MessageSendRequest{Text: text, Conversation: "main"})
	if err != nil || sent.Notice != text || sent.Conversation != "main" {
		t.Errorf("a message of 1 MiB came back with %d bytes, %v", len(sent.Notice), err)
	}
	var notes []wire.TurnNote
	res, err := c.TurnWatch(t.Context(), wire.TurnWatchRequest{RunID: "run_short"}, func(n wire.TurnNote) error {
		notes = append(notes, n)
		return nil
	})
	if err != nil || res.Reply != "Hello <you>" || len(notes) != 4 || notes[2] != (wire.TurnDelta{Text: "lo <you>"}) {
		t.Errorf("%+v, %v, notes %+v", res, err, notes)
	}
	_, err = c.TurnWatch(t.Context(), wire.TurnWatchRequest{RunID: "none"}, nil)
	if !fault.Is(err, fault.NotFound) || fault.HintOf(err) != "ombud runs" {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
	if _, err := c.CostReport(t.Context(), wire.CostReportRequest{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a method without handler: %v", err)
	}
}

func TestSocketIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	_, socket := start(t, nil)
	for path, want := range map[string]os.FileMode{socket: os.ModeSocket | 0o600, filepath.Dir(socket): os.ModeDir | 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, want %v, %v", path, info.Mode(), want, err)
		}
	}
}

func TestListenRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, wide, leftover := filepath.Join(dir, "file"), filepath.Join(dir, "wide"), filepath.Join(dir, "leftover")
	if err := errors.Join(os.WriteFile(file, []byte("mine"), 0o600), os.Mkdir(wide, 0o700), os.Chmod(wide, 0o750)); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: leftover, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()

	for _, tc := range []struct {
		path string
		lock bool
		want fault.Class
	}{
		{file, true, fault.Conflict},
		{filepath.Join(wide, "s"), true, fault.Permission},
		{leftover, false, fault.Running},
		{filepath.Join(dir, strings.Repeat("x", 108)), true, fault.Config},
	} {
		if _, err := listen(tc.path, tc.lock); !fault.Is(err, tc.want) {
			t.Errorf("%s: %s %v, want %s", tc.path, fault.ClassOf(err), err, tc.want)
		}
	}
	if _, err := os.Lstat(leftover); err != nil {
		t.Error("removed without the lock")
	}
	if got, err := listen(leftover, true); err != nil {
		t.Errorf("with the lock: %v", err)
	} else {
		got.Close()
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
		t.Errorf("a file that is not a socket is gone: %q %v", data, err)
	}
}

func TestStartReportsWhatItCannotDo(t *testing.T) {
	t.Parallel()
	_, socket := start(t, nil)
	second := New(Config{Hide: asItIs, Socket: socket, UID: os.Getuid()}, newTestMux(), discard())
	if err := second.Start(t.Context()); !fault.Is(err, fault.Running) {
		t.Errorf("a second server: %v", err)
	}
	mux := newTestMux()
	Handle(mux, wire.SystemPing, func(context.Context, wire.Empty) (wire.Pong, error) { return wire.Pong{}, nil })
	twice := New(Config{Hide: asItIs, Socket: socket + "2", HoldsLock: true}, mux, discard())
	if err := twice.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "system.ping already") {
		t.Errorf("a method handled twice: %v", err)
	}
	err := newTestMux().Check(wire.Methods())
	if err == nil || !strings.Contains(err.Error(), "cost.report has no handler") || strings.Contains(err.Error(), "request.cancel") {
		t.Errorf("missing handlers: %v", err)
	}
}

func TestStrangersAreToldWhyTheyMayNot(t *testing.T) {
	t.Parallel()
	_, other := start(t, func(c *Config, _ *Mux) { c.UID++ })
	_, job := start(t, func(c *Config, _ *Mux) {
		c.Admit = func(p wire.Peer) error {
			if p.PID == os.Getpid() && p.UID == os.Getuid() {
				return fault.New(fault.Denied, "pid %d belongs to a job", p.PID)
			}
			return nil
		}
	})
	for socket, want := range map[string]fault.Class{other: fault.Permission, job: fault.Denied} {
		_, err := wire.NewClient(socket).SystemPing(t.Context())
		if !fault.Is(err, want) {
			t.Errorf("%s %v, want %s", fault.ClassOf(err), err, want)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	_, socket := start(t, func(c *Config, _ *Mux) { c.MaxConns = 1 })
	c := wire.NewClient(socket)
	watched := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: "run_hangs"}, func(wire.TurnNote) error {
			close(watched)
			return nil
		})
		if !fault.Is(err, fault.Cancelled) {
			t.Errorf("watch: %v", err)
		}
	})
	<-watched
	if _, err := c.SystemPing(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("second connection: %v", err)
	}
	leave()
	wg.Wait()
	for { // the place is free again once the server has noticed
		if _, err := c.SystemPing(t.Context()); err == nil {
			break
		}
	}
}

func TestAClientThatLeavesEndsItsWatchesButNoWork(t *testing.T) {
	t.Parallel()
	watchEnded, workSawGone, finish := make(chan error, 1), make(chan error, 1), make(chan struct{})
	_, socket := start(t, func(_ *Config, m *Mux) {
		HandleStream(m, wire.EventsTail, func(ctx context.Context, _ wire.EventsTailRequest, send func(wire.Event) error) (wire.EventsTailResult, error) {
			if err := send(wire.Event{}); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			watchEnded <- context.Cause(ctx)
			return wire.EventsTailResult{}, ctx.Err()
		})
		Handle(m, wire.ApprovalsResolve, func(ctx context.Context, _ wire.ApprovalsResolveRequest) (wire.ApprovalsResolveResult, error) {
			<-Gone(ctx)
			workSawGone <- ctx.Err()
			<-finish
			return wire.ApprovalsResolveResult{}, nil
		})
	})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	for id, req := range []string{`"method":"approvals.resolve","params":{"id":"a","decision":"approve"}`, `"method":"events.tail"`} {
		frame, err := wire.EncodeFrame(json.RawMessage(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, req)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := wire.ReadFrame(conn); err != nil { // both have begun, in this order
		t.Fatal(err)
	}
	conn.Close()
	if err := <-watchEnded; !fault.Is(err, fault.Cancelled) || !strings.Contains(err.Error(), "disconnected") {
		t.Errorf("watch ended with %v", err)
	}
	if err := <-workSawGone; err != nil {
		t.Errorf("work was ended with its client: %v", err)
	}
	close(finish)
}

func TestStopAnswersWhatIsRunning(t *testing.T) {
	t.Parallel()
	s, socket := start(t, nil)
	c := wire.NewClient(socket)
	var wg sync.WaitGroup
	begun := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			_, err := c.TurnWatch(t.Context(), wire.TurnWatchRequest{RunID: "run_hangs"}, func(wire.TurnNote) error {
				begun <- struct{}{}
				return nil
			})
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "stopping") || fault.HintOf(err) == "" {
				t.Errorf("watch: %s %v", fault.ClassOf(err), err)
			}
		})
	}
	for range 8 {
		<-begun
	}
	stop(t, s)
	wg.Wait()
	if _, err := c.SystemPing(t.Context()); !errors.Is(err, wire.ErrNoDaemon) {
		t.Errorf("after stop: %v", err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SystemPing(t.Context()); err != nil {
		t.Errorf("started again: %v", err)
	}
}

func TestStopNamesAHandlerThatDoesNotListen(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	s, socket := start(t, func(_ *Config, m *Mux) {
		Handle(m, wire.DoctorRun, func(context.Context, wire.Empty) (wire.DoctorResult, error) {
			close(begun)
			<-finish
			return wire.DoctorResult{}, nil
		})
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := wire.NewClient(socket).DoctorRun(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("its client: %v", err)
		}
	})
	<-begun
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "doctor.run") {
		t.Errorf("stop: %v", err)
	}
	wg.Wait()
	close(finish)
}

func TestStartAndStopUnderFire(t *testing.T) {
	t.Parallel()
	s, socket := start(t, nil)
	ctx, cease := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := wire.NewClient(socket)
			for ctx.Err() == nil {
				_, err := c.SystemPing(ctx)
				_, watchErr := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: "run_hangs"}, func(wire.TurnNote) error { return errGone })
				for _, err := range []error{err, watchErr} {
					if err != nil && !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Cancelled) {
						t.Errorf("%s %v", fault.ClassOf(err), err)
					}
				}
			}
		})
	}
	for range 50 {
		var both sync.WaitGroup
		both.Go(func() { stop(t, s) })
		both.Go(func() { stop(t, s) })
		both.Wait()
		for range 2 {
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	cease()
	wg.Wait()
}

func TestEveryRequestOfABusyConnectionIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	_, socket := start(t, func(c *Config, _ *Mux) { c.MaxRequests = 1000 })
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const n = 500
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := range n {
			req := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"turn.watch","params":{"run_id":"run_short"}}`, id)
			if id%2 == 1 {
				req = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"message.send","params":{"text":"%d"}}`, id, id)
			}
			frame, err := wire.EncodeFrame(json.RawMessage(req))
			if err != nil {
				t.Error(err)
			}
			if _, err := conn.Write(frame); err != nil {
				t.Error(err)
				return
			}
		}
	})
	notes, answers := map[string]int{}, map[string]int{}
	for len(answers) < n {
		body, err := wire.ReadFrame(conn)
		if err != nil {
			t.Fatal(err)
		}
		var msg struct {
			ID     json.RawMessage
			Error  *wire.Error
			Result struct{ Notice string }
			Params struct{ Request json.RawMessage }
		}
		if err := json.Unmarshal(body, &msg); err != nil || msg.Error != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if msg.Params.Request != nil {
			notes[string(msg.Params.Request)]++
			continue
		}
		id := string(msg.ID)
		answers[id]++
		if answers[id] != 1 || msg.Result.Notice != "" && msg.Result.Notice != id || msg.Result.Notice == "" && notes[id] != 4 {
			t.Fatalf("request %s: answer %d after %d notes, %q", id, answers[id], notes[id], msg.Result.Notice)
		}
	}
	wg.Wait()
}
