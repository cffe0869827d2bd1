//go:build unix

package process

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestMain lets the test binary be the launcher of jobs, and the tool processes.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 2 && os.Args[1] == "tool-process" {
		play(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// actor is a tool process that does what its mode says, well or badly.
type actor struct {
	in  *bufio.Reader
	out io.Writer
}

func (a *actor) send(v any) {
	frame, err := wire.EncodeFrame(v)
	if err != nil {
		panic(err)
	}
	a.raw(frame)
}

func (a *actor) raw(b []byte) {
	if _, err := a.out.Write(b); err != nil {
		os.Exit(9)
	}
}

func (a *actor) next() toTool {
	body, err := wire.ReadFrame(a.in)
	if err != nil {
		os.Exit(0)
	}
	var m toTool
	if err := json.Unmarshal(body, &m); err != nil {
		panic(err)
	}
	return m
}

type obj map[string]any

func tools(list ...any) obj {
	return obj{"type": "ToolRegister", "tool_process_name": "actor", "tools": list}
}

// named is a tool whose input may be any object and which needs tool:act.NAME.
func named(name string) obj {
	return obj{"name": name, "description": "does " + name, "input_schema": obj{"type": "object"}, "required_scope": "tool:act." + name}
}

var actions = []string{
	"echo", "slow", "stubborn", "die", "events", "flood-events", "flood-chunks", "escalate", "twice", "unknown", "text", "chunks", "env", "notify", "fail",
	"pid", "unchecked", "big", "stray", "exit-after",
}

func play(mode string, args []string) {
	a := &actor{in: bufio.NewReader(os.Stdin), out: os.Stdout}
	if mode == "die-at-start" {
		fmt.Fprintln(os.Stderr, "I die at once")
		os.Exit(3)
	}
	if a.next().Type != "ToolHello" {
		os.Exit(4)
	}
	switch mode {
	case "die-after-hello":
		os.Exit(3)
	case "garbage":
		a.raw([]byte{0, 0, 0, 9, 0xff, 0xfe, 1, 2, 3, 4, 5, 6, 7})
	case "text":
		a.raw([]byte("hello, I am a tool and I print this\n"))
	case "half":
		a.raw([]byte{0, 0, 1, 0, '{', '"'})
		os.Exit(0)
	case "half-and-live":
		a.raw([]byte{0, 0, 1, 0, '{', '"'})
	case "huge":
		a.raw(binary.BigEndian.AppendUint32(nil, wire.MaxFrame+1))
	case "version":
		m := tools(named("echo"))
		m["protocol_version"] = "9.1"
		a.send(m)
	case "silent":
	case "no-type":
		a.send(obj{"tools": []any{}})
	case "wrong-types":
		a.send(obj{"type": "ToolRegister", "tools": "many"})
	case "early":
		a.send(obj{"type": "ToolResult", "call_id": "x", "output": 1})
	case "twice":
		a.send(tools(named("echo")))
		a.send(tools(named("echo")))
	case "many":
		var list []any
		for i := range 200 {
			list = append(list, named(fmt.Sprint("t", i)))
		}
		a.send(tools(list...))
	case "schemas":
		a.send(badSchemas())
		a.serve()
	case "closed":
		a.send(tools(named("echo")))
		os.Stdout.Close()
	case "stderr":
		a.send(tools(named("echo")))
		for range 20_000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 30))
		}
		a.serve()
	case "session":
		a.spawn(args)
		a.send(tools(named("echo"), named("die")))
		a.serve()
	case "file": // registers what the file says
		a.file(args[0])
		a.serve()
	case "unknown-types":
		a.send(tools(named("echo")))
		for range 2 * maxOffences {
			a.send(obj{"type": "SomethingNew", "tools": 7})
		}
	case "notices":
		a.send(tools(named("echo")))
		a.send(obj{"type": "DispatchNotification", "target": "operator", "message": "the \x1b[31mboiler is cold", "subject": "boiler"})
		a.serve()
	case "good":
		var list []any
		for _, name := range actions {
			list = append(list, named(name))
		}
		a.send(tools(list...))
		a.serve()
	}
	live() // whoever is still here is ended
}

// spawn starts a child in a session of its own that holds our output, and writes its
// process id to a file.
func (a *actor) spawn(args []string) {
	cmd := exec.Command("/proc/self/exe", append([]string{"tool-process", "sleeper"}, args...)...)
	in, err := cmd.StdinPipe() // never closed: it must not end by itself
	if err != nil {
		panic(err)
	}
	_ = in
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if len(args) > 0 {
		if err := os.WriteFile(args[0], []byte(fmt.Sprint(cmd.Process.Pid)), 0o600); err != nil {
			panic(err)
		}
	}
}

func (a *actor) file(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(raw)))
	a.raw(append(frame, raw...))
}

// badSchemas is a server with one good tool among those that brick others.
func badSchemas() obj {
	with := func(name string, schema any) obj {
		t := named(name)
		t["input_schema"] = schema
		return t
	}
	wide := named("wide")
	wide["required_scope"] = "net.fetch"
	malformed := named("malformed")
	malformed["required_scope"] = "fs.read:relative"
	unknown := named("unknown")
	unknown["required_scope"] = "fs.raed"
	none := named("none")
	delete(none, "required_scope")
	number := named("number")
	number["name"] = 7
	return tools(
		with("string", obj{"type": "string"}), with("dollar", obj{"type": "object", "properties": obj{"$.xgafv": obj{"type": "string"}}}),
		with("allof", obj{"allOf": []any{obj{"type": "string"}}}), with("items", obj{"type": "object", "properties": obj{"a": obj{"type": "array"}}}),
		with("anyof", obj{"anyOf": []any{obj{"type": "string"}, obj{"type": "object"}}}),
		with("noschema", nil), named("good"), named("good"), named("bad name"), wide, malformed, unknown, none, number, "not an object",
	)
}

// serve answers calls until it is told to stop.
func (a *actor) serve() {
	for {
		m := a.next()
		switch m.Type {
		case "ToolShutdown":
			os.Exit(0)
		case "InvokeTool":
			a.act(m)
		case "CancelInvocation":
			if m.CallID == a.waiting() {
				a.send(obj{"type": "ToolError", "call_id": m.CallID, "code": "cancelled", "message": "as you wish"})
			}
		}
	}
}

// waiting is the call a slow tool holds. An actor is one process with one main loop.
func (a *actor) waiting() string { return slowCall }

var slowCall string

func (a *actor) result(id string, output any) {
	a.send(obj{"type": "ToolResult", "call_id": id, "verified": "NotApplicable", "output": output})
}

func (a *actor) event(id string, event obj) {
	a.send(obj{"type": "ToolEvent", "call_id": id, "event": event})
}

func (a *actor) act(m toTool) {
	switch strings.TrimPrefix(m.ToolName, "act.") {
	case "echo", "good", "big":
		if m.ToolName == "big" {
			a.result(m.CallID, strings.Repeat("0123456789", 600_000))
			return
		}
		a.result(m.CallID, obj{"input": m.Input, "key": m.Key})
	case "slow":
		slowCall = m.CallID
		a.event(m.CallID, obj{"kind": "Status", "status": "half way"})
	case "stubborn":
	case "die":
		a.event(m.CallID, obj{"kind": "Status", "status": "about to die"})
		os.Exit(7)
	case "exit-after":
		a.result(m.CallID, "my last word")
		os.Exit(0)
	case "events":
		for i := range 50 {
			a.event(m.CallID, obj{"kind": "Log", "level": "info", "message": fmt.Sprint("step ", i)})
			a.event(m.CallID, obj{"kind": "Confetti"})
		}
		a.result(m.CallID, "done")
	case "flood-events":
		for {
			a.event(m.CallID, obj{"kind": "Status", "status": "x"})
		}
	case "flood-chunks":
		for {
			a.event(m.CallID, obj{"kind": "OutputChunk", "chunk": strings.Repeat("x", 1<<16)})
		}
	case "escalate":
		a.send(obj{"type": "RequiresEscalation", "call_id": m.CallID, "reason": "I want\u202e more"})
	case "twice":
		a.result(m.CallID, "first")
		a.result(m.CallID, "second")
	case "unknown", "stray":
		for range map[string]int{"unknown": 3, "stray": 2 * maxOffences}[m.ToolName] {
			a.result("call_of_nobody", "x")
		}
		a.result(m.CallID, "mine")
	case "text":
		body := `{"type":"ToolResult","call_id":"` + m.CallID + `","verified":"Verified","output":"a\ud83d b\u0000 c\u202e` + "\xff" + ` d"}`
		a.raw(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	case "chunks":
		for _, c := range []string{"one ", "two ", "three"} {
			a.event(m.CallID, obj{"kind": "OutputChunk", "chunk": c})
		}
		a.result(m.CallID, nil)
	case "env":
		a.result(m.CallID, os.Environ())
	case "pid":
		a.result(m.CallID, os.Getpid())
	case "unchecked":
		a.send(obj{"type": "ToolResult", "call_id": m.CallID, "output": obj{"sent": true}})
	case "fail":
		a.send(obj{"type": "ToolError", "call_id": m.CallID, "code": "not_found", "message": "no such\u0000 thing"})
	case "notify":
		var in struct{ Target string }
		_ = json.Unmarshal(m.Input, &in)
		a.send(obj{"type": "DispatchNotification", "target": in.Target, "message": "look"})
		a.result(m.CallID, "told")
	}
}

// patience is for a slow machine: nothing waits for it that goes well.
const patience = 60 * time.Second

// live goes on for longer than any test. Without cgo an empty select ends the program
// as deadlocked.
func live() { <-time.After(time.Hour) }
