//go:build unix

package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/confine"
)

// TestMain lets the test binary be the launcher of jobs, and the coding agents.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 2 && os.Args[1] == "fake-cli" {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

// What a claude prints that began, and one that is done.
const (
	said42  = `{"type":"result","subtype":"success","is_error":false,"result":"42","session_id":"` + fakeID + `","num_turns":1,"usage":{"input_tokens":100,"output_tokens":7}}`
	began   = `{"type":"system","subtype":"init","session_id":"` + fakeID + `","model":"m","claude_code_version":"2.1.332"}`
	askBash = `{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"make"},"tool_use_id":"t1"}}`
	fakeID  = "0a5c6ca6-f5f4-4cb1-9531-5398c8d2ab45"
)

// play is a coding agent that does what its mode says, well or badly.
func play(mode string, args []string) int {
	say := func(lines ...string) {
		for _, line := range lines {
			fmt.Println(line)
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	hear := func() string {
		line, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		return line
	}
	switch mode {
	case "well":
		said, _ := io.ReadAll(in)
		say(began, strings.Replace(said42, `"42"`, fmt.Sprintf("%q", said), 1))
	case "bare": // as little as a program can do
		say(began, said42)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		say(began)
		live()
	case "silent":
		live()
	case "chatter": // it prints for ever, and never ends
		say(began)
		for {
			say(`{"type":"system","subtype":"status"}`)
			<-time.After(10 * time.Millisecond)
		}
	case "half":
		say(began)
		fmt.Print(`{"type":"result","subtype":"succ`)
	case "error-zero":
		say(began, `{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"Invalid API key"}`)
	case "flood":
		line := strings.Repeat("x", 1<<20)
		say(began)
		for range 60 {
			fmt.Print(line) // one line of 60 MB, longer than any is read
		}
		say("")
		for range 40 {
			say(`{"type":"assistant","message":{"content":[{"type":"text","text":"` + line + `"}]}}`)
		}
		say(said42)
	case "closes":
		say(began)
		_ = os.Stdout.Close()
		live()
	case "closes-done":
		say(began, said42)
		_ = os.Stdout.Close()
		live()
	case "leaves": // a process in a session of its own that holds our output, and a lock
		leave(args[0])
		say(began, said42)
	case "holds":
		leave(args[0])
		say(began)
		live()
	case "lock":
		f, err := os.OpenFile(args[0], os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil || syscall.Flock(int(f.Fd()), syscall.LOCK_EX) != nil {
			return 3
		}
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		fmt.Fprintln(os.Stderr, "locked")
		live()
	case "asks": // and takes any answer
		hear()
		say(began, askBash)
		answer := hear()
		for answer != "" && !strings.Contains(answer, "control_response") {
			answer = hear()
		}
		if answer == "" || strings.HasPrefix(args[0], "and") && strings.Contains(answer, "deny") {
			live() // nobody answered, or it does not like the answer
		}
		say(strings.Replace(said42, `"42"`, fmt.Sprintf("%q", strings.TrimSpace(answer)), 1))
		hear()
	case "asks-many":
		hear()
		say(began)
		for i := range 40 {
			say(strings.Replace(askBash, `"q1"`, fmt.Sprintf(`"q%d"`, i), 1))
		}
		for range 40 {
			hear()
		}
		say(said42)
		hear()
	case "deaf": // asks and never reads
		say(began)
		for i := range 100_000 {
			say(strings.Replace(askBash, `"q1"`, fmt.Sprintf(`"%0100d"`, i), 1))
		}
		live()
	case "odd": // asks what nobody knows
		hear()
		say(began, `{"type":"control_request","request_id":"x1","request":{"subtype":"hook_callback","callback_id":"c"}}`)
		answer := hear()
		say(strings.Replace(said42, `"42"`, fmt.Sprintf("%q", strings.TrimSpace(answer)), 1))
		hear()
	case "env":
		all, err := json.Marshal(os.Environ())
		if err != nil {
			return 3
		}
		say(began, strings.Replace(said42, `"42"`, fmt.Sprintf("%q", all), 1))
	case "writes": // what it may change
		var out []string
		for _, path := range args[:2] {
			if err := os.WriteFile(filepath.Join(path, "made"), []byte("x"), 0o600); err != nil {
				out = append(out, "no")
			} else {
				out = append(out, "yes")
			}
		}
		say(began, strings.Replace(said42, `"42"`, fmt.Sprintf("%q", strings.Join(out, " ")), 1))
	case "refuses":
		fmt.Fprintln(os.Stderr, "No conversation found with session ID: x")
		return 1
	case "replay":
		return replay(args[0], args[1], in)
	case "acp-odd":
		return oddAgent(hear, say)
	}
	return 0
}

// oddAgent is an agent that asks its client for what it was told not to, and refuses
// the prompt. It does not end at the end of its input.
func oddAgent(hear func() string, say func(...string)) int {
	hear()
	say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"odd","version":"9.9"},"agentCapabilities":{}}}`)
	hear()
	say(`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s-odd"}}`)
	hear()
	answers := ""
	for i, method := range []string{"fs/write_text_file", "fs/read_text_file", "terminal/create", "never/heard"} {
		say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","method":%q,"params":{"sessionId":"s-odd","path":"/etc/passwd","content":"x"}}`, i, method))
		answers += hear()
	}
	quoted, err := json.Marshal(answers)
	if err != nil {
		return 3
	}
	say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-odd","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":`+string(quoted)+`}}}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"Internal error","data":{"details":"request failed with status 429 Too Many Requests"}}}`)
	live()
	return 0
}

// leave starts a child in a session of its own and returns once it has the lock.
func leave(lock string) {
	cmd := exec.Command("/proc/self/exe", "fake-cli", "lock", lock)
	cmd.Stdout = os.Stdout
	told, err := cmd.StderrPipe()
	if err != nil {
		panic(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(told).ReadString('\n'); err != nil {
		panic(err)
	}
}

// live goes on for longer than any test. Without cgo an empty select ends the program
// as deadlocked.
func live() { <-time.After(time.Hour) }
