//go:build unix

package crashtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// coderRole is what makes the binary of this test a coding agent.
const coderRole = "coding-agent"

// coder is a coding agent that speaks the Agent Client Protocol. Its sessions are in its
// home, as those of real ones are, and so is its log, which tells what it did to the world
// outside. Of a task it does what it is told: one it is given is done, and of one it was
// interrupted in it looks first at what is done already.
type coder struct {
	home, dir, tree string
	out             *bufio.Writer
	session         string
}

// coderLine is a message of the protocol.
type coderLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Session string                  `json:"sessionId"`
		Prompt  []struct{ Text string } `json:"prompt"`
	} `json:"params"`
	Result struct {
		Outcome struct {
			Option string `json:"optionId"`
		} `json:"outcome"`
	} `json:"result"`
}

// codingAgent plays the agent if the process was started as one.
func codingAgent(args []string) (code int, is bool) {
	if len(args) < 2 || args[1] != coderRole {
		return 0, false
	}
	dir, err := os.Getwd()
	if err != nil {
		return 3, true
	}
	c := &coder{home: os.Getenv("HOME"), dir: dir, tree: filepath.Base(dir), out: bufio.NewWriter(os.Stdout)}
	if err := c.work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4, true
	}
	return 0, true
}

func (c *coder) work() error {
	if filepath.Base(filepath.Dir(c.dir)) == "worktrees" { // it is not only asked who it is
		if err := c.note("started"); err != nil {
			return err
		}
		if err := c.alone(); err != nil {
			return err
		}
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var prompt json.RawMessage
	for in.Scan() {
		var l coderLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return err
		}
		var err error
		switch {
		case l.Method == "initialize":
			err = c.answer(l.ID, `{"protocolVersion":1,"agentInfo":{"name":"coder","version":"1.0"},"agentCapabilities":{"loadSession":true}}`)
		case l.Method == "session/new":
			err = c.begin(l.ID)
		case l.Method == "session/load":
			err = c.load(l.ID, l.Params.Session)
		case l.Method == "session/prompt":
			prompt = append(json.RawMessage(nil), l.ID...)
			err = c.prompted(prompt, l.Params.Prompt[0].Text)
		case l.Method != "" && l.ID != nil:
			err = c.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, l.ID)
		case l.Method == "" && string(l.ID) == `"leave"`:
			err = c.leave(prompt, l.Result.Outcome.Option == "once")
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}

// alone notes when another program works in the same tree. The lock ends with the process.
func (c *coder) alone() error {
	f, err := os.OpenFile(filepath.Join(c.home, "lock-"+c.tree), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return c.note("twice")
	}
	return err // f stays open
}

// note appends a line to the log outside.
func (c *coder) note(what string) error {
	return appendLine(filepath.Join(c.home, "log"), what+" "+c.tree)
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func (c *coder) say(format string, args ...any) error {
	fmt.Fprintf(c.out, format+"\n", args...)
	return c.out.Flush()
}

func (c *coder) answer(id json.RawMessage, result string) error {
	return c.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (c *coder) sessions() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.home, "sessions"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

func (c *coder) begin(id json.RawMessage) error {
	had, err := c.sessions()
	if err != nil {
		return err
	}
	c.session = fmt.Sprintf("session-%s-%d", c.tree, strings.Count(had, c.tree))
	if err := appendLine(filepath.Join(c.home, "sessions"), c.session); err != nil {
		return err
	}
	return c.answer(id, fmt.Sprintf(`{"sessionId":%q}`, c.session))
}

func (c *coder) load(id json.RawMessage, session string) error {
	had, err := c.sessions()
	if err != nil {
		return err
	}
	if !strings.Contains(had, session+"\n") {
		return c.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no such session"}}`, id)
	}
	c.session = session
	return c.answer(id, "{}")
}

// prompted asks for leave to write, unless the line is there from before.
func (c *coder) prompted(id json.RawMessage, text string) error {
	path := filepath.Join(c.dir, codedFile)
	if strings.Contains(text, "You were interrupted") {
		if there, err := os.ReadFile(path); err == nil && strings.Contains(string(there), codedLine) {
			return c.end(id, "it was done already")
		}
	}
	if strings.Contains(text, "unasked") { // a mode of real agents, in which they ask for little
		return c.leave(id, true)
	}
	if err := c.note("asked"); err != nil {
		return err
	}
	return c.say(`{"jsonrpc":"2.0","id":"leave","method":"session/request_permission","params":{"sessionId":%q,"toolCall":{"toolCallId":"edit-1","title":"write","kind":"edit",`+
		`"status":"pending","locations":[{"path":%q}],"rawInput":{"file_path":%q,"content":%q}},"options":[{"optionId":"once","kind":"allow_once","name":"once"},`+
		`{"optionId":"no","kind":"reject_once","name":"no"}]}}`, c.session, path, path, codedLine)
}

// leave is what it does with an answer.
func (c *coder) leave(prompt json.RawMessage, allowed bool) error {
	if !allowed {
		return c.end(prompt, "it may not write")
	}
	if err := appendLine(filepath.Join(c.dir, codedFile), codedLine); err != nil {
		return err
	}
	if err := c.note("wrote"); err != nil {
		return err
	}
	return c.end(prompt, "it is written")
}

func (c *coder) end(prompt json.RawMessage, text string) error {
	err := c.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, c.session, text)
	if err != nil {
		return err
	}
	return c.answer(prompt, `{"stopReason":"end_turn","usage":{"inputTokens":100,"outputTokens":7}}`)
}
