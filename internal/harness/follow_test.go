package harness

import (
	"strings"
	"testing"
)

// TestWhoFollowsIsToldWhatTheRecordHolds holds over every recording.
func TestWhoFollowsIsToldWhatTheRecordHolds(t *testing.T) {
	t.Parallel()
	for _, rec := range recordings(t) {
		d := rec.adapter.Decoder("")
		var sessions []string
		var said strings.Builder
		began, ended := 0, map[string]Tool{}
		d.Follow(func(s Step) {
			switch s.Kind {
			case StepSession:
				sessions = append(sessions, s.Session)
			case StepText:
				said.WriteString(s.Text)
			case StepToolBegan:
				began++
			case StepToolEnded:
				ended[s.Tool.ID] = s.Tool
			}
		})
		_, _ = d.Write(rec.stdout)
		over := d.Ended()
		r := d.Close(rec.exit)
		if r.Session != "" && (len(sessions) == 0 || sessions[len(sessions)-1] != r.Session) {
			t.Errorf("%s: sessions %q, the record has %q", rec.name, sessions, r.Session)
		}
		if r.Outcome == Completed && !strings.HasSuffix(said.String(), r.Text) {
			t.Errorf("%s: told %q, the record has %q", rec.name, said.String(), r.Text)
		}
		if r.Outcome == Completed && rec.adapter.Name != OpenCode && !over {
			t.Errorf("%s: completed, and not ended", rec.name)
		}
		if began != len(r.Tools) {
			t.Errorf("%s: %d tools began, the record has %d", rec.name, began, len(r.Tools))
		}
		for _, tool := range r.Tools {
			if e, is := ended[tool.ID]; tool.Outcome != ToolUnfinished && tool.Outcome != ToolDenied && (!is || e.Outcome != tool.Outcome) {
				t.Errorf("%s: tool %s ended as %q, the record has %q", rec.name, tool.Name, e.Outcome, tool.Outcome)
			}
		}
	}
}

func TestAnyAgentOfTheProtocolIsRead(t *testing.T) {
	t.Parallel()
	a, err := ByName(ACP)
	if err != nil {
		t.Fatal(err)
	}
	d := a.Decoder("")
	_, _ = d.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"x","version":"0.16.2"}}}
{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"42"}}}}
{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}
`))
	if r := d.Close(Exit{}); r.CLI != ACP || r.Session != "s1" || r.Text != "42" || r.Outcome != Completed || r.Version != "0.16.2" {
		t.Errorf("%+v", r)
	}
}
