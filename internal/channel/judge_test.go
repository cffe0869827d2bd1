package channel

import (
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/outbox"
)

// What a stranger calls themselves is pasted into a shell as one word.
func TestAnIdIsOneWord(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"10072": "10072", "49171@s.whatsapp.net": "49171@s.whatsapp.net", "-100": "'-100'", "a b": "'a b'", "x; rm -rf ~": "'x; rm -rf ~'",
		"it's": `'it'\''s'`, "$(id)": "'$(id)'", "a\nb\x1b[2J": "'a?b?[2J'", "ünï": "'ünï'",
	} {
		if got := word(id); got != want {
			t.Errorf("%q is %s, want %s", id, got, want)
		}
	}
}

func TestWhatGoesOutKeepsToThePace(t *testing.T) {
	t.Parallel()
	var p Pace
	now := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	set := Settings{Rate: 2, Quiet: "22:00-07:00 UTC"}
	kept := func(it outbox.Item, at time.Time) time.Duration {
		wait, _ := outbox.Wait(p.KeptBack(set, it, at))
		return wait
	}
	one, other := outbox.Item{Message: outbox.Message{Conversation: "1"}}, outbox.Item{Message: outbox.Message{Conversation: "2"}}
	if w := kept(outbox.Item{Message: outbox.Message{Conversation: "1", Unasked: true}}, now); w != time.Minute {
		t.Errorf("what nobody waits for waits %s at night", w)
	}
	for i, want := range []time.Duration{0, 0, 40 * time.Second} {
		if w := kept(one, now.Add(time.Duration(i)*10*time.Second)); w != want {
			t.Errorf("message %d waits %s, want %s", i, w, want)
		}
	}
	if w := kept(other, now); w != 0 {
		t.Errorf("another chat waits %s", w)
	}
	p.Unsaid(one)
	if w := kept(one, now.Add(20*time.Second)); w != 0 {
		t.Errorf("after one was not handed over it waits %s", w)
	}
	if w := kept(one, now.Add(65*time.Second)); w != 0 {
		t.Errorf("a minute later it waits %s", w)
	}
}
