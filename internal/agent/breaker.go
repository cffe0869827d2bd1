package agent

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/tool"
)

// Bounds of the breakers.
const (
	sameCalls   = 3 // the same calls this often in a row
	cycleLength = 3 // a cycle of 2 to this many answers
	cycleTimes  = 3 // … this often in a row
	sameResults = 3 // the same results this often in a row
)

// signature stands for the calls, or the results, of one answer.
type signature [32]byte

// breaker ends a turn that makes no progress. It is rebuilt from the record.
type breaker struct {
	asked, got []signature
}

// calls looks at what a model wants now. It returns why the turn must end, or "".
func (b *breaker) calls(calls []model.ToolCall) string {
	h := sha256.New()
	for _, c := range calls {
		input, err := tool.Canonical(c.Input)
		if err != nil {
			input = []byte(c.BadInput + string(c.Input))
		}
		fmt.Fprintf(h, "%d:%s%d:", len(c.Name), tool.ModelName(c.Name), len(input))
		h.Write(input)
	}
	b.asked = append(b.asked, signature(h.Sum(nil)))
	if repeats(b.asked, 1, sameCalls) {
		return fmt.Sprintf("I was about to do the same thing %d times in a row", sameCalls)
	}
	for period := 2; period <= cycleLength; period++ {
		if repeats(b.asked, period, cycleTimes) {
			return fmt.Sprintf("I was going round in a circle of %d actions", period)
		}
	}
	return ""
}

// results looks at what the calls came to.
func (b *breaker) results(results []model.ToolResult) string {
	h := sha256.New()
	for _, r := range results {
		fmt.Fprintf(h, "%t%d:%s", r.IsError, len(r.Text), r.Text)
	}
	b.got = append(b.got, signature(h.Sum(nil)))
	if repeats(b.got, 1, sameResults) {
		return fmt.Sprintf("I got the same result %d times in a row", sameResults)
	}
	return ""
}

// repeats reports whether the list ends with times copies of its last period
// elements. A period over one needs at least two different ones in it.
func repeats(list []signature, period, times int) bool {
	n := period * times
	if len(list) < n {
		return false
	}
	tail := list[len(list)-n:]
	for i := period; i < n; i++ {
		if tail[i] != tail[i-period] {
			return false
		}
	}
	return period == 1 || slices.ContainsFunc(tail[:period], func(s signature) bool { return s != tail[0] })
}
