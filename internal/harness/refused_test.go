package harness

import "testing"

// A model that declines ends a run in other words with each program; these are of the
// versions that are pinned.
func TestAModelThatDeclines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cli         Name
		lines       []string
		exit        int
		text, error string
	}{
		{Claude, []string{
			`{"type":"system","subtype":"init","session_id":"s"}`,
			`{"type":"assistant","message":{"content":[{"text":"I cannot.","type":"text"}],"stop_reason":null}}`,
			`{"type":"system","subtype":"informational","content":"safeguards stopped the response above","level":"notice"}`,
			`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"Your response above was stopped"}]},"isSynthetic":true,"refusal_retry":true}`,
			`{"type":"system","subtype":"model_refusal_no_fallback","content":""}`,
			`{"type":"assistant","message":{"model":"<synthetic>","stop_reason":"refusal","content":[{"type":"text","text":"API Error: flagged"}]},"error":"invalid_request","is_api_error_message":true}`,
			`{"type":"result","subtype":"success","is_error":true,"stop_reason":"refusal","terminal_reason":"api_error","api_error_status":null,"result":"API Error: flagged"}`,
		}, 1, "I cannot.", "API Error: flagged"},
		{OpenCode, []string{
			`{"type":"step_start","sessionID":"s","part":{"type":"step-start"}}`,
			`{"type":"text","sessionID":"s","part":{"type":"text","text":"I cannot."}}`,
			`{"type":"step_finish","sessionID":"s","part":{"reason":"content-filter","tokens":{"input":100,"output":7}}}`,
			`{"type":"error","sessionID":"s","error":{"name":"ContentFilterError","data":{"message":"blocked"}}}`,
		}, 1, "I cannot.", "blocked"},
		{Pi, []string{
			`{"type":"session","id":"s"}`, `{"type":"agent_start"}`,
			`{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"I cannot."}],"stopReason":"error","rawStopReason":"refusal","errorMessage":"The model refused"}}`,
			`{"type":"agent_end"}`, `{"type":"agent_settled","aborted":false}`,
		}, 0, "I cannot.", "The model refused"},
	} {
		a, err := ByName(c.cli)
		if err != nil {
			t.Fatal(err)
		}
		d := a.Decoder("")
		for _, line := range c.lines {
			_, _ = d.Write([]byte(line + "\n")) // never fails
		}
		r := d.Close(Exit{Code: c.exit})
		if r.Outcome != Refused || r.Text != c.text || r.Error != c.error || len(r.Warnings) > 0 {
			t.Errorf("%s: %+v", c.cli, r)
		}
	}
}

// With --input-format stream-json claude closes a run that never began.
func TestASessionClaudeDoesNotKnow(t *testing.T) {
	t.Parallel()
	a, err := ByName(Claude)
	if err != nil {
		t.Fatal(err)
	}
	d := a.Decoder("")
	_, _ = d.Write([]byte(`{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"session_id":"s","errors":["No conversation found with session ID: s"]}` + "\n")) // never fails
	if r := d.Close(Exit{Code: 1}); r.Outcome != NotStarted || r.Error != "No conversation found with session ID: s" {
		t.Errorf("%+v", r)
	}
}
