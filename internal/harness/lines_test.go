package harness

import (
	"reflect"
	"strings"
	"testing"
)

// Lines of the facts that no recording holds, or that only together show what
// decides.
func TestWhatALineMeans(t *testing.T) {
	t.Parallel()
	const (
		init  = `{"type":"system","subtype":"init","session_id":"s"}`
		ask   = `{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Write","tool_use_id":"t","input":{"file_path":"a"}}}`
		deny  = `{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"behavior":"deny"}}}`
		allow = `{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"behavior":"allow"}}}`
		write = `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Write","input":{"file_path":"a"}}]}}`
		// A hook refused: there is no line of it but this.
		hooked = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"no"}]},` +
			`"tool_result_meta":[{"id":"t","permission_decision":{"decision":"reject","source":"hook"}}]}`
		denials = `{"type":"result","subtype":"success","is_error":false,"result":"ok","permission_denials":[{"tool_name":"Write","tool_use_id":"t","tool_input":{}}]}`
	)
	for name, c := range map[string]struct {
		cli   Name
		lines []string
		exit  Exit
		holds func(Record) bool
	}{
		"nothing at all": {Codex, nil, Exit{}, func(r Record) bool { return r.Outcome == Cut }},
		"claude: our answer is printed back": {Claude, []string{init, ask, deny}, Exit{},
			func(r Record) bool { return len(r.Permissions) == 1 && r.Permissions[0].Decision == Refusal }},
		"claude: what is decided stays so": {Claude, []string{init, ask, allow, deny}, Exit{},
			func(r Record) bool { return len(r.Permissions) == 1 && r.Permissions[0].Decision == Allowed }},
		"claude: an answer to nothing": {Claude, []string{init, deny}, Exit{},
			func(r Record) bool { return len(r.Permissions) == 0 }},
		"claude: a hook refuses, and the run is cut": {Claude, []string{init, write, hooked}, Exit{},
			func(r Record) bool { return len(r.Tools) == 1 && r.Tools[0].Outcome == ToolDenied }},
		"claude: a refusal only the closing record tells": {Claude, []string{init, denials}, Exit{},
			func(r Record) bool {
				return r.Outcome == Completed && len(r.Permissions) == 1 && len(r.Tools) == 1 && r.Tools[0].Outcome == ToolDenied && len(r.Files) == 0
			}},
		"claude: a sub-agent's words are not the answer": {Claude, []string{init,
			`{"type":"assistant","message":{"content":[{"type":"text","text":"mine"}]}}`,
			`{"type":"assistant","parent_tool_use_id":"x","message":{"content":[{"type":"text","text":"its"}]}}`}, Exit{},
			func(r Record) bool { return r.Text == "mine" }},
		"claude: the API's error names the key, and no status": {Claude, []string{init,
			`{"type":"assistant","is_api_error_message":true,"error":"authentication_failed","message":{"content":[{"type":"text","text":"no key"}]}}`,
			`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","result":"no key"}`}, Exit{Code: 1},
			func(r Record) bool { return r.Outcome == Auth && r.Text == "" && r.Error == "no key" }},
		"claude: a tool server failed": {Claude, []string{`{"type":"system","subtype":"init","mcp_servers":[{"name":"lab","status":"failed"},{"name":"b","status":"connected"}]}`}, Exit{},
			func(r Record) bool {
				return warned(r, WarnNotice) == 1 && strings.Contains(r.Warnings[0].Detail, "lab")
			}},
		"codex: a tool needs a leave nobody gives": {Codex, []string{
			`{"type":"item.completed","item":{"id":"i","type":"mcp_tool_call","server":"lab","tool":"echo","arguments":{"a":1},"result":null,` +
				`"error":{"message":"MCP tool call requires approval, but approval policy is never"},"status":"failed"}}`}, Exit{},
			func(r Record) bool {
				return r.Tools[0].Outcome == ToolDenied && reflect.DeepEqual(r.Permissions, []Permission{{"i", "lab/echo", `{"a":1}`, Refusal}})
			}},
		"codex: a message that begins is no message": {Codex, []string{
			`{"method":"item/completed","params":{"item":{"id":"a","type":"agentMessage","text":"first"}}}`,
			`{"method":"item/started","params":{"item":{"id":"b","type":"agentMessage","text":""}}}`}, Exit{},
			func(r Record) bool { return r.Text == "first" }},
		"opencode: acp is ended by a signal after its answer": {OpenCode, []string{`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`}, Exit{Code: 143},
			func(r Record) bool { return r.Outcome == Completed && warned(r, WarnExit) == 1 }},
		"opencode: a prompt after a refused one": {OpenCode, []string{
			`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed","rawOutput":{"error":"` + rejected + `"}}}}`,
			`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`, `{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}`}, Exit{},
			func(r Record) bool { return r.Outcome == Completed && r.Turns == 2 }},
		"acp: another turn has another text": {Gemini, []string{
			`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"one"}}}}`,
			`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`,
			`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"two"}}}}`}, Exit{},
			func(r Record) bool { return r.Text == "two" && r.Outcome == Cut }},
		"acp: a file we were asked to write is none that was written": {OpenCode, []string{`{"jsonrpc":"2.0","id":1,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"x"}}`}, Exit{},
			func(r Record) bool { return len(r.Files) == 0 }},
		"acp: the update that ends an edit need not name the file": {ACP, []string{
			`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"Edit","kind":"edit","status":"pending","locations":[{"path":"/w/a"}]}}}`,
			`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}}}`}, Exit{},
			func(r Record) bool { return reflect.DeepEqual(r.Files, []File{{"/w/a", "edit"}}) }},
		"pi: a try without a message does not end as the last one did": {Pi, []string{`{"type":"agent_start"}`,
			`{"type":"message_end","message":{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"ok"}]}}`,
			`{"type":"agent_end"}`, `{"type":"agent_start"}`, `{"type":"agent_end"}`}, Exit{},
			func(r Record) bool { return r.Outcome == Failed }},
		"pi: an error without words leaves what was said": {Pi, []string{`{"type":"agent_start"}`,
			`{"type":"message_end","message":{"role":"assistant","stopReason":"toolUse","content":[{"type":"text","text":"Let me look."}]}}`,
			`{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"529 overloaded","content":[]}}`, `{"type":"agent_end"}`}, Exit{},
			func(r Record) bool {
				return r.Outcome == Unavailable && r.Status == 529 && r.Text == "Let me look." && r.Usage.Partial
			}},
		"pi: what 1.6 adds is known": {Pi, []string{`{"type":"agent_start"}`, `{"type":"message_start","message":{"role":"system","content":"long"}}`,
			`{"type":"message_end","message":{"role":"system","content":"long"}}`, `{"type":"agent_end","willRetry":false}`, `{"type":"agent_settled"}`}, Exit{},
			func(r Record) bool { return len(r.Warnings) == 0 && r.Text == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := decode(t, c.cli, c.exit, strings.Join(c.lines, "\n")+"\n"); !c.holds(r) {
				t.Errorf("%+v", r)
			}
		})
	}
}
