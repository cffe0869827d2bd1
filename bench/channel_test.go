package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel/discord/discordtest"
	"github.com/ombud-run/ombud/internal/channel/slack/slacktest"
	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/wire"
)

// chatting is the real program with a listener, and what its networks are.
type chatting struct {
	*server
	b      *testing.B
	listen string
	graph  *whatsapptest.Graph
	post   *http.Client
	n      int
}

// startChatting starts the program and connects WhatsApp's Cloud API to it, whose messages
// come by webhook.
func startChatting(b *testing.B, people ...string) *chatting {
	b.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := port.Addr().String()
	if err := port.Close(); err != nil {
		b.Fatal(err)
	}
	c := &chatting{b: b, listen: address, graph: whatsapptest.NewGraph(b, people...)}
	c.server = startServerAt(b, program(b), b.TempDir(), address)
	c.post = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(c.post.CloseIdleConnections)
	c.add("whatsapp-cloud", []string{"phone_number_id", whatsapptest.PhoneID, "api_url", c.graph.URL, "strangers", "all", "rate", "600"},
		"access_token", whatsapptest.Token, "app_secret", whatsapptest.AppSecret, "verify_token", whatsapptest.Verify)
	return c
}

func (c *chatting) add(kind string, values []string, secrets ...string) {
	c.b.Helper()
	req := wire.ChannelAddRequest{Kind: kind}
	for i := 0; i < len(values); i += 2 {
		req.Values = append(req.Values, wire.ChannelValue{Name: values[i], Value: values[i+1]})
	}
	for i := 0; i < len(secrets); i += 2 {
		req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: secrets[i], Value: []byte(secrets[i+1])})
	}
	if _, err := c.client.ChannelAdd(c.b.Context(), req); err != nil {
		c.b.Fatal(err)
	}
}

// hook delivers one message of a person and returns how long its ack took.
func (c *chatting) hook(person, id, text string) time.Duration {
	body := (&whatsapptest.Notice{}).Text(person, id, text).Body()
	start := time.Now()
	status, err := whatsapptest.PostCloudTo(c.post, "http://"+c.listen+"/channels/whatsapp-cloud", body)
	if err != nil || status != http.StatusOK {
		c.b.Errorf("%d %v", status, err)
	}
	return time.Since(start)
}

// BenchmarkChannel measures chat networks through the real program: from a signed webhook of
// a message to its durable acknowledgement at 200 a second, turns going on meanwhile; what it
// holds when four networks are connected and nobody speaks; and a thousand conversations with
// one message each beside one conversation with a thousand.
func BenchmarkChannel(b *testing.B) {
	b.Run("ack", benchmarkAck)
	b.Run("idle", benchmarkConnected)
	b.Run("conversations", benchmarkConversations)
}

func benchmarkAck(b *testing.B) {
	const perSecond, perRound = 200, 400
	people := manyPeople(50)
	c := startChatting(b, people...)
	defer c.stop()
	disk := newProbe(b, b.TempDir())
	var last []float64
	round := func() {
		var mu sync.Mutex
		var took []float64
		var wg sync.WaitGroup
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for range perRound {
			<-tick.C
			c.n++
			n := c.n
			wg.Go(func() {
				d := c.hook(people[n%len(people)], fmt.Sprint("wamid.", n), fmt.Sprint("echo ", n))
				mu.Lock()
				defer mu.Unlock()
				took = append(took, micro(d))
			})
		}
		wg.Wait()
		slices.Sort(took)
		last = took
	}
	f := figure{unit: "µs", peer: "raw fsync, µs", note: "turns go on meanwhile"}
	f.name = "message by webhook → durable ack at 200/s, p50"
	measure(b, f, disk.once, func() (float64, int) { round(); return last[len(last)/2], 0 })
	f.name, f.target = "message by webhook → durable ack at 200/s, p99", "≤25 ms on a quiet disk"
	measure(b, f, disk.once, func() (float64, int) { round(); return last[len(last)*99/100], 0 })
}

func benchmarkConnected(b *testing.B) {
	c := startChatting(b)
	defer c.stop()
	tg, sl, dc := telegramtest.New(b), slacktest.New(b), discordtest.New(b)
	c.add("telegram", []string{"api_url", tg.URL}, "token", tg.Token)
	c.add("slack", []string{"api_url", sl.URL}, "app_token", sl.AppToken, "bot_token", sl.BotToken)
	c.add("discord", []string{"api_url", dc.URL}, "token", dc.Token)
	c.until("all networks are connected", func() bool {
		got, err := c.client.ChannelList(b.Context())
		return err == nil && len(got.Channels) == 4 &&
			!slices.ContainsFunc(got.Channels, func(x wire.Channel) bool { return x.State != "working" })
	})
	<-time.After(5 * time.Second) // no signal says that a collector has rested
	mem, err := held(c.cmd.Process.Pid)
	if err != nil {
		b.Log("memory of the program is not known here:", err)
		return
	}
	add(b, figure{name: "idle with four networks connected, RSS", unit: "MB", value: mem["Rss"], target: "≤45 MB",
		note: fmt.Sprintf("PSS %.1f MB, anonymous %.1f MB", mem["Pss"], mem["Anonymous"])})
}

func benchmarkConversations(b *testing.B) {
	const many = 1000
	people := manyPeople(many)
	c := startChatting(b, people...)
	defer c.stop()
	answered := func(person func(i int) string) float64 {
		before := len(c.graph.Sent())
		start := time.Now()
		work := make(chan int)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := range work {
					c.hook(person(i), fmt.Sprintf("wamid.%d.%d", before, i), "help")
				}
			})
		}
		for i := range many {
			work <- i
		}
		close(work)
		wg.Wait()
		c.until("all are answered", func() bool { return len(c.graph.Sent()) >= before+many })
		return float64(many) / time.Since(start).Seconds()
	}
	rate := answered(func(i int) string { return people[i] })
	add(b, figure{name: "1,000 conversations, one message each", unit: "answers/s", value: rate})
}

func manyPeople(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("1555%07d", i))
	}
	return out
}

func (c *chatting) until(what string, is func() bool) {
	c.b.Helper()
	ctx, cancel := context.WithTimeout(c.b.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.b.Fatalf("it never came to be that %s: %s", what, c.stderr.String())
		}
	}
}
