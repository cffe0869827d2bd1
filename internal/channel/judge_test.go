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
	wait := func(err error) time.Duration {
		after, _ := outbox.Wait(err)
		return after
	}
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	if w := wait(p.Quiet(set, outbox.Item{Message: outbox.Message{Unasked: true}}, now)); w != time.Minute {
		t.Errorf("what nobody waits for waits %s at night", w)
	}
	if err := p.Quiet(set, outbox.Item{}, now); err != nil {
		t.Errorf("an answer waits at night: %v", err)
	}
	for i, want := range []time.Duration{0, 0, 40 * time.Second} {
		if w := wait(p.Say(set, "1", at(i*10))); w != want {
			t.Errorf("message %d waits %s, want %s", i, w, want)
		}
	}
	if w := wait(p.Say(set, "2", now)); w != 0 {
		t.Errorf("another chat waits %s", w)
	}
	p.Unsaid("1")
	for _, s := range []int{20, 65} {
		if w := wait(p.Say(set, "1", at(s))); w != 0 {
			t.Errorf("after one was not handed over, at %d s it waits %s", s, w)
		}
	}
	set.Rate = 1 // it is lowered: the last one counts
	if w := wait(p.Say(set, "1", at(70))); w != 55*time.Second {
		t.Errorf("at a lower rate it waits %s", w)
	}
	if w := wait(p.Say(set, "1", at(-3600))); w != 0 {
		t.Errorf("after the clock was put back it waits %s", w)
	}
}

func TestAChatIsLeftAloneAsLongAsItsNetworkAsks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	g := gate{now, now.Add(time.Minute)}
	for s, want := range map[int]time.Duration{0: time.Minute, 40: 20 * time.Second, 60: 0, 90: 0, -3600: 0} {
		if left := g.left(now.Add(time.Duration(s) * time.Second)); left != want {
			t.Errorf("after %d s it is left alone for %s, want %s", s, left, want)
		}
	}
}
