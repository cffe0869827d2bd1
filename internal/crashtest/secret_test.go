package crashtest

import (
	"context"
	"testing"

	"github.com/ombud-run/ombud/internal/channel/telegram/telegramtest"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// A secretStep changes a channel and its secret in one commit. want is the version of the
// secret, and whether the rest is changed, when it was done.
type secretStep struct {
	name string
	do   func(ctx context.Context, l *life, tg *telegramtest.Server) error
	rate int // of the channel then; 0: there is no channel
	want int64
}

var secretSteps = []secretStep{
	{"add", func(ctx context.Context, l *life, tg *telegramtest.Server) error {
		_, err := l.client.ChannelAdd(ctx, wire.ChannelAddRequest{
			Kind:    "telegram",
			Values:  []wire.ChannelValue{{Name: "api_url", Value: tg.URL}, {Name: "rate", Value: "3"}},
			Secrets: []wire.ChannelSecret{{Part: "token", Value: []byte(tg.Token)}},
		})
		return err
	}, 3, 1},
	{"set", func(ctx context.Context, l *life, tg *telegramtest.Server) error {
		_, err := l.client.ChannelSet(ctx, wire.ChannelSetRequest{
			Name: "telegram", Values: []string{"rate=7"}, Secrets: []wire.ChannelSecret{{Part: "token", Value: []byte(tg.Token)}},
		})
		return err
	}, 7, 2},
	{"remove", func(ctx context.Context, l *life, _ *telegramtest.Server) error {
		_, err := l.client.ChannelRemove(ctx, wire.ChannelRequest{Name: "telegram"})
		return err
	}, 0, 0},
}

// secretState is what there is of the channel: its rate and the version of its secret.
func (l *life) secretState(ctx context.Context) (rate int, version int64, err error) {
	list, err := l.client.ChannelList(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range list.Channels {
		rate = c.Rate
	}
	secrets, err := l.client.SecretList(ctx)
	for _, s := range secrets.Secrets {
		version = s.Version
	}
	return rate, version, err
}

// secretStory adds a channel, changes it and removes it, and looks after each death whether
// its row and its secret are of one commit.
func (l *life) secretStory(tg *telegramtest.Server) {
	l.t.Helper()
	deaths := l.deaths
	for _, s := range secretSteps {
		insist(l, s.name, func(ctx context.Context) (bool, error) {
			rate, version, err := l.secretState(ctx)
			if err != nil {
				return false, err
			}
			if l.deaths > deaths {
				deaths = l.deaths
				l.whole(rate, version)
			}
			if rate == s.rate && version == s.want {
				return true, nil // it was done, though we were not told
			}
			if err := s.do(ctx, l, tg); err != nil {
				return false, err
			}
			if rate, version, err = l.secretState(ctx); err == nil {
				l.whole(rate, version)
			}
			return true, err
		})
	}
}

// whole checks that a row and its secret are of the same step.
func (l *life) whole(rate int, version int64) {
	l.t.Helper()
	for _, s := range secretSteps {
		if s.rate == rate && s.want == version {
			return
		}
	}
	l.t.Errorf("%s: a channel with the rate %d has version %d of its secret", l.name, rate, version)
}

// TestAChannelAndItsSecretAreOneCommitWhereverItDies kills the daemon at every pass that
// adding, changing and removing a channel makes.
func TestAChannelAndItsSecretAreOneCommitWhereverItDies(t *testing.T) {
	supported(t)
	t.Parallel()
	l := newLife(t, dbtest.KindSQLite)
	l.start()
	before := len(l.lines("passes0"))
	l.secretStory(telegramtest.New(t))
	l.stop()
	seen := map[string]int{}
	var passes []pass
	for i, point := range l.lines("passes0") {
		seen[point]++
		if i >= before {
			passes = append(passes, pass{point, seen[point], i})
		}
	}
	t.Logf("%d passes", len(passes))
	for _, p := range passes {
		t.Run(p.kill(), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, dbtest.KindSQLite, p.kill())
			l.start()
			l.secretStory(telegramtest.New(t))
			l.stop()
		})
	}
}
