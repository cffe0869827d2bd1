package harness

import (
	"fmt"
	"testing"
)

// TestWhatWasUsedIsToldWhileAnAgentWorks: each response once, though it is told of again and
// again, and what a closing record says takes the place of what was seen.
func TestWhatWasUsedIsToldWhileAnAgentWorks(t *testing.T) {
	t.Parallel()
	const use = `{"input_tokens":100,"cache_creation_input_tokens":10,"cache_read_input_tokens":20,"output_tokens":%d}`
	start := func(id string) string {
		return fmt.Sprintf(`{"type":"stream_event","event":{"type":"message_start","message":{"id":%q,"usage":`+use+`}},"session_id":"s"}`, id, 1)
	}
	delta := func(out int) string {
		return fmt.Sprintf(`{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":%d}},"session_id":"s"}`, out)
	}
	whole := func(id, block string) string {
		return fmt.Sprintf(`{"type":"assistant","message":{"id":%q,"usage":`+use+`,"content":[%s]},"session_id":"s"}`, id, 1, block)
	}
	lines := []string{
		`{"type":"system","subtype":"init","session_id":"s","model":"m"}`,
		start("a"), whole("a", `{"type":"text","text":"one"}`), whole("a", `{"type":"tool_use","id":"t","name":"Read","input":{}}`), delta(50),
		whole("b", ""), whole("b", ""), start("c"), delta(7),
	}
	closing := `{"type":"result","subtype":"success","result":"done","total_cost_usd":0.5,"usage":{"input_tokens":300,"output_tokens":60},"session_id":"s"}`
	for name, c := range map[string]struct {
		lines []string
		exit  Exit
		want  Usage
		told  int
	}{
		"killed": {lines, Exit{Signal: 9}, Usage{Known: true, Partial: true, Input: 300, CacheRead: 60, CacheWrite: 30, Output: 58, Context: 130}, 5},
		"closed": {append(lines[:len(lines):len(lines)], closing), Exit{}, Usage{Known: true, Input: 300, Output: 60}, 6},
		"silent": {lines[:1], Exit{Signal: 9}, Usage{}, 0},
	} {
		adapter, err := ByName(Claude)
		if err != nil {
			t.Fatal(err)
		}
		d := adapter.Decoder("")
		var told []Step
		d.Follow(func(s Step) {
			if s.Kind == StepUsage {
				told = append(told, s)
			}
		})
		for _, line := range c.lines {
			if _, err := fmt.Fprintln(d, line); err != nil {
				t.Fatal(err)
			}
		}
		rec := d.Close(c.exit)
		if rec.Usage != c.want || len(told) != c.told {
			t.Errorf("%s: used %+v, told %d times: %+v", name, rec.Usage, len(told), told)
		}
		if n := len(told); n > 0 && (told[n-1].Usage.Output != c.want.Output || told[n-1].Model != "m" || told[n-1].Cost.Known != rec.Cost.Known) {
			t.Errorf("%s: last told %+v", name, told[n-1])
		}
	}
}
