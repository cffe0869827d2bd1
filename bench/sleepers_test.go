package bench

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/wire"
)

// sleepers is how many timers sleep and conversations are idle.
const sleepers = 10000

// BenchmarkSleepers measures what work that waits costs a start, a process that does
// nothing and one more turn: the real program on a store with 10,000 conversations of one
// turn each, which has set a reminder, beside the same program on a store with one.
func BenchmarkSleepers(b *testing.B) {
	path := program(b)
	empty, full := b.TempDir(), b.TempDir()
	putToSleep(b, path, empty, 1)
	putToSleep(b, path, full, sleepers)
	var rss, calm []float64
	start := func(home string, rss0 *[]float64) float64 {
		s := startServer(b, path, home)
		defer s.stop()
		<-time.After(3 * time.Second) // its loops have all looked once
		mem, err := held(s.cmd.Process.Pid)
		if err != nil {
			b.Log("memory of the program is not known here:", err)
		}
		*rss0 = append(*rss0, mem["Rss"])
		return float64(s.ready) / float64(time.Millisecond)
	}
	measure(b, figure{name: "start → ready, 10,000 timers and conversations", unit: "ms", peer: "an empty store, ms", target: "≤1 s more"},
		func() float64 { return start(empty, &calm) }, func() (float64, int) { return start(full, &rss), 0 })
	measure(b, figure{name: "a turn that sets one more reminder, p50", unit: "ms", peer: "an empty store, ms"},
		func() float64 { return another(b, path, empty) }, func() (float64, int) { return another(b, path, full), 0 })
	if m := median(calm); m > 0 {
		add(b, figure{name: "idle with 10,000 timers and conversations, RSS", unit: "MB", value: median(rss), peer: "an empty store, MB", beside: m,
			ratio: median(rss) / m, target: "≤15 MB more"})
	}
}

// another is the median of some turns that each set a reminder, in milliseconds.
func another(b *testing.B, path, home string) float64 {
	b.Helper()
	s := startServer(b, path, home)
	defer s.stop()
	var took []float64
	for range 20 {
		start := time.Now()
		s.ask("remind me to stretch in 1000 hours", true)
		took = append(took, float64(time.Since(start))/float64(time.Millisecond))
	}
	return median(took)
}

// putToSleep has n conversations set a reminder each, through the socket.
func putToSleep(b *testing.B, path, home string, n int) {
	b.Helper()
	s := startServer(b, path, home)
	defer s.stop()
	var senders sync.WaitGroup
	for w := range 32 {
		senders.Go(func() {
			for c := w; c < n; c += 32 {
				got, err := s.client.MessageSend(b.Context(), wire.MessageSendRequest{
					Conversation: fmt.Sprint("c", c), Text: "remind me to stretch in 1000 hours", Wait: true,
				})
				if err != nil || got.Result.Outcome != "completed" || !strings.HasPrefix(got.Result.Reply, "I will remind you") {
					b.Errorf("%+v, %v", got.Result, err)
					return
				}
			}
		})
	}
	senders.Wait()
}
