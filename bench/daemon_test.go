package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// program builds ombud as it is shipped, but for -trimpath: that would compile
// every package anew.
func program(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "ombud")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "../cmd/ombud")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// server is the real program, running in a directory of its own.
type server struct {
	b      *testing.B
	cmd    *exec.Cmd
	client *wire.Client
	stderr bytes.Buffer
	ready  time.Duration // from its start to the first answer of its socket
}

func startServer(b *testing.B, path, home string) *server {
	b.Helper()
	return startServerAt(b, path, home, "off")
}

// startServerAt is startServer with a listener at an address.
func startServerAt(b *testing.B, path, home, listen string) *server {
	b.Helper()
	env := map[string]string{"OMBUD_HOME": home}
	place, err := instance.New("", func(k string) string { return env[k] }, home)
	if err != nil {
		b.Fatal(err)
	}
	s := &server{b: b, client: wire.NewClient(place.Socket())}
	s.cmd = exec.Command(path, "up")
	s.cmd.Env = []string{"OMBUD_HOME=" + home, "OMBUD_LISTEN_ADDRESS=" + listen, "HOME=" + home, "PATH=" + "/usr/bin:/bin"}
	s.cmd.Stderr = &s.stderr
	start := time.Now()
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := s.client.SystemPing(b.Context()); err == nil {
			break
		}
		if time.Since(start) > 20*time.Second {
			_ = s.cmd.Process.Kill() // it is of no use
			b.Fatalf("it does not answer: %s", s.stderr.String())
		}
	}
	s.ready = time.Since(start)
	return s
}

func (s *server) stop() {
	s.b.Helper()
	if _, err := s.client.SystemStop(context.Background()); err != nil {
		s.b.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.b.Errorf("%v\n%s", err, s.stderr.String())
	}
}

func (s *server) ask(text string, wait bool) {
	s.b.Helper()
	got, err := s.client.MessageSend(s.b.Context(), wire.MessageSendRequest{Text: text, Wait: wait})
	if err != nil {
		s.b.Fatal(err)
	}
	if wait && got.Result.Outcome != "completed" {
		s.b.Fatalf("%+v", got.Result)
	}
}

// BenchmarkDaemon measures the real program: from its start until its socket
// answers (the first time and again), what it holds when it idles after a first
// turn, and a message through its socket.
func BenchmarkDaemon(b *testing.B) {
	path := program(b)
	b.Run("ready", func(b *testing.B) {
		noop := func() float64 {
			start := time.Now()
			if err := exec.Command(path, "help").Run(); err != nil {
				b.Fatal(err)
			}
			return float64(time.Since(start)) / float64(time.Millisecond)
		}
		f := figure{unit: "ms", peer: "ombud help, ms", target: "≤150 ms"}
		f.name = "start → ready, fresh"
		start := func(home string) (float64, int) {
			s := startServer(b, path, home)
			s.stop()
			return float64(s.ready) / float64(time.Millisecond), 0
		}
		measure(b, f, noop, func() (float64, int) { return start(b.TempDir()) })
		home := b.TempDir()
		start(home)
		f.name = "start → ready, again"
		measure(b, f, noop, func() (float64, int) { return start(home) })
	})
	b.Run("socket", func(b *testing.B) {
		home := b.TempDir()
		s := startServer(b, path, home)
		defer s.stop()
		disk := newProbe(b, home)
		s.ask("help", true)
		idle(b, s.cmd.Process.Pid)
		n := 0
		through := func(wait bool) func() (float64, int) {
			return func() (float64, int) {
				var took []float64
				for range 20 {
					n++
					start := time.Now()
					s.ask(fmt.Sprintf("echo number %d", n), wait)
					took = append(took, micro(time.Since(start)))
				}
				return median(took), 0
			}
		}
		measure(b, figure{name: "message through the socket → reply, p50", unit: "µs", peer: "raw fsync, µs"}, disk.once, through(true))
		measure(b, figure{name: "message through the socket → ack, p50", unit: "µs", peer: "raw fsync, µs", note: "turns run meanwhile"}, disk.once, through(false))
	})
}

// idle adds what the program holds, after it had a second to settle.
func idle(b *testing.B, pid int) {
	b.Helper()
	<-time.After(time.Second) // no signal says that a collector has rested
	mem, err := held(pid)
	if err != nil {
		b.Log("memory of the program is not known here:", err)
		return
	}
	add(b, figure{name: "idle after a first turn, RSS", unit: "MB", value: mem["Rss"], target: "≤40 MB",
		note: fmt.Sprintf("PSS %.1f MB, anonymous %.1f MB", mem["Pss"], mem["Anonymous"])})
}

// held reads a process's smaps_rollup, in megabytes. Only Linux has it.
func held(pid int) (map[string]float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[2] == "kB" {
			kb, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nil, err
			}
			out[strings.TrimSuffix(fields[0], ":")] = kb / 1024
		}
	}
	return out, lines.Err()
}
