//go:build unix

package crashtest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// takeoverRounds is how many pairs of daemons are tried, each with four takeovers.
var takeoverRounds = flag.Int("takeover.rounds", 1, "pairs of daemons that TestTakeover tries")

const takeoverScript = `turns:
  - match: once
    steps: [{calls: [{tool: crash.once, input: {line: once, wait_ms: 700}}]}, {text: done}]
  - match: repeat
    steps: [{calls: [{tool: crash.repeat, input: {line: repeat}}]}, {text: done}]
  - match: probed
    steps: [{calls: [{tool: crash.probed, input: {line: probed, wait_ms: 300}}]}, {text: done}]
  - steps: [{text: done}]
`

// pair is two daemons of one store, each behind a cable of its own, and the load.
type pair struct {
	t      *testing.T
	nodes  [2]*life
	cables [2]*cable
	world  string
	start  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	took    map[string][]time.Duration // by what ended the active
}

// appended and read are the operations on the log. An append is one call, with all its
// repeats under one key, until it was answered.
type (
	appended struct{ text string }
	readAll  struct{ texts []string }
)

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, start: time.Now(), took: map[string][]time.Duration{}}
	dsn := dbtest.PostgresDSN(t)
	for i := range p.nodes {
		l := newLife(t, dbtest.KindSQLite)
		l.name = fmt.Sprintf("node %d", i)
		if i == 0 {
			p.world = l.world
		}
		l.world = p.world
		p.cables[i], l.dsn = newCable(t, dsn)
		l.write(l.path("script.yaml"), takeoverScript)
		if i == 1 {
			p.share(p.nodes[0], l)
		}
		p.nodes[i] = l
		l.start()
		t.Cleanup(func() {
			_ = l.cmd.Process.Signal(syscall.SIGCONT)
			l.stop()
		})
	}
	return p
}

// share gives a life the vault of another.
func (p *pair) share(from, to *life) {
	p.t.Helper()
	for _, pair := range [][2]string{{from.in.VaultFile(), to.in.VaultFile()}, {from.in.KeyFile(), to.in.KeyFile()}} {
		text, err := os.ReadFile(pair[0])
		if err != nil {
			p.t.Fatal(err)
		}
		to.write(pair[1], string(text))
	}
}

// is reports whether a node says that it is the active one, or that it waits.
func (p *pair) is(i int, active bool) func(context.Context) bool {
	return func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s, err := p.nodes[i].client.SystemStatus(ctx)
		return err == nil && (s.Standby == nil) == active && s.Ready == active
	}
}

// since is the time of an operation.
func (p *pair) since() int64 { return time.Since(p.start).Nanoseconds() }

func (p *pair) note(client int, call int64, in any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history = append(p.history, porcupine.Operation{ClientId: client, Input: in, Call: call, Return: p.since()})
}

// say sends a message to whichever node takes it, as often as it takes.
func (p *pair) say(ctx context.Context, client int, conversation, text string) {
	call := p.since()
	for i := client; ctx.Err() == nil; i++ {
		once, cancel := context.WithTimeout(ctx, time.Second)
		_, err := p.nodes[i%2].client.MessageSend(once, wire.MessageSendRequest{Conversation: conversation, Text: text, Key: text})
		cancel()
		if err == nil {
			p.note(client, call, appended{text})
			return
		}
		p.pause(ctx, 20*time.Millisecond)
	}
}

func (p *pair) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// read reads all messages that were said by say, in the order of the log.
func (p *pair) read(ctx context.Context, i int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	got, err := p.nodes[i].client.EventsList(ctx, wire.EventsListRequest{Kinds: []string{"comms.message"}, Limit: 1000})
	var texts []string
	for _, e := range got.Events {
		if text := p.text(e); strings.HasPrefix(text, "say ") {
			texts = append(texts, text)
		}
	}
	return texts, err
}

func (p *pair) text(e wire.Event) string {
	var d struct{ Content string }
	if err := json.Unmarshal(e.Data, &d); err != nil {
		p.t.Error(err)
	}
	return d.Content
}

// load appends and reads until quit is called, which waits for it.
func (p *pair) load() (quit func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	stopping := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 3 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stopping: // what was begun is brought to its end first
					return
				case <-time.After(200 * time.Millisecond):
				}
				what := []string{"once", "repeat", "probed", "plain"}[n%4]
				p.say(ctx, c, fmt.Sprintf("talk%d", c), fmt.Sprintf("say %s %d-%d", what, c, n))
			}
		})
	}
	clients.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stopping:
				return
			case <-time.After(70 * time.Millisecond):
			}
			call := p.since()
			if texts, err := p.read(ctx, i%2); err == nil {
				p.note(3, call, readAll{texts})
			}
		}
	})
	return func() {
		close(stopping)
		clients.Wait()
		cancel()
	}
}

// taken waits for the other node to be active and notes how long it took.
func (p *pair) taken(how string, by int, begun time.Time) {
	p.t.Helper()
	p.nodes[by].until("it takes over after "+how, p.is(by, true))
	p.say(p.t.Context(), by, "talk-takeover", fmt.Sprintf("say plain %s %d", how, time.Now().UnixNano()))
	took := time.Since(begun)
	p.took[how] = append(p.took[how], took)
	if took > 15*time.Second {
		p.t.Errorf("the takeover after %s took %s", how, took)
	}
}

// round ends each active in turn in one of four ways.
func (p *pair) round(n int) {
	p.t.Helper()
	signal := func(i int, s syscall.Signal) time.Time {
		if err := p.nodes[i].cmd.Process.Signal(s); err != nil {
			p.t.Fatal(err)
		}
		return time.Now()
	}
	waits := func(i int) { p.nodes[i].until("it waits", p.is(i, false)) }

	p.work()
	begun := signal(0, syscall.SIGKILL)
	<-p.nodes[0].exited
	p.taken("kill -9", 1, begun)
	p.nodes[0].start()
	waits(0)
	p.work()

	begun = signal(1, syscall.SIGSTOP)
	p.taken("a pause", 0, begun)
	signal(1, syscall.SIGCONT)
	waits(1)
	p.work()

	begun = time.Now()
	p.cables[0].set(true, n%2 == 1)
	p.taken("a cut", 1, begun)
	p.cables[0].set(false, false)
	waits(0)
	p.work()

	begun = signal(1, syscall.SIGTERM)
	p.taken("a clean stop", 0, begun)
	<-p.nodes[1].exited
	p.nodes[1].start()
	waits(1)
	p.work()
}

// work lets the load go on for some appends, so that the next end meets work.
func (p *pair) work() {
	p.t.Helper()
	count := func() (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, op := range p.history {
			if _, is := op.Input.(appended); is {
				n++
			}
		}
		return n
	}
	until := count() + 25
	p.nodes[0].until("the load goes on", func(context.Context) bool { return count() >= until })
}

// TestTakeover has two daemons of one store and ends the active one by kill -9, a pause
// past its lease, a cut of its network and a clean stop, under load. Then it looks
// whether anything was lost, came twice, or was written by who had no right to.
func TestTakeover(t *testing.T) {
	supported(t)
	t.Parallel()
	took := map[string][]time.Duration{}
	t.Cleanup(func() {
		for how, list := range took {
			slices.Sort(list)
			t.Logf("taken over after %-12s %2d times: median %s, longest %s", how, len(list),
				list[len(list)/2].Round(10*time.Millisecond), list[len(list)-1].Round(10*time.Millisecond))
		}
	})
	var mu sync.Mutex
	for n := range *takeoverRounds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			if _, err := p.nodes[0].client.ScheduleAdd(t.Context(), wire.ScheduleAddRequest{
				Name: "clock", When: "@every 2s", Say: "tick", Conversation: "clock", Missed: "all",
			}); err != nil {
				t.Fatal(err)
			}
			quit := p.load()
			p.round(n)
			quit()
			p.settle()
			p.judge()
			mu.Lock()
			defer mu.Unlock()
			for how, list := range p.took {
				took[how] = append(took[how], list...)
			}
		})
	}
}

// settle waits until all work is done. A run with an effect that may be under way at a
// node that is gone waits for that node's lease.
func (p *pair) settle() {
	p.t.Helper()
	ctx := p.t.Context()
	c := p.nodes[0].client
	if _, err := c.SchedulePause(ctx, wire.ScheduleRequest{Schedule: "clock"}); err != nil {
		p.t.Fatal(err)
	}
	begun := time.Now()
	p.nodes[0].until("all work is done", func(ctx context.Context) bool {
		s, err := c.SystemStatus(ctx)
		return err == nil && s.Runs.Queued+s.Runs.Running+s.Runs.Waiting == 0
	})
	p.t.Logf("settled in %s", time.Since(begun).Round(time.Millisecond))
}
