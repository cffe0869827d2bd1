//go:build linux

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/confine"
)

// TestMain lets the test binary be the launcher of jobs, and the servers.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 2 && os.Args[1] == "mcp-server" {
		play(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

type obj map[string]any

// actor is a server that does what its mode says, well or badly, by hand.
type actor struct {
	in   *bufio.Reader
	mode string
	args []string

	asked   map[string]json.RawMessage // our requests that are open: the call each is asked for
	visited bool
	can     json.RawMessage // what its client can do
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Cursor    string          `json:"cursor"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		RequestID json.RawMessage `json:"requestId"`
		Can       json.RawMessage `json:"capabilities"`
	} `json:"params"`
}

func (a *actor) send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	a.raw(string(b) + "\n")
}

func (a *actor) raw(s string) {
	if _, err := io.WriteString(os.Stdout, s); err != nil {
		os.Exit(9)
	}
}

func (a *actor) next() request {
	line, err := a.in.ReadBytes('\n')
	if err != nil {
		a.bye()
	}
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		panic(err)
	}
	return r
}

// bye is what it does when its input ends.
func (a *actor) bye() {
	if a.mode == "stubborn-end" {
		live()
	}
	fmt.Fprintln(os.Stderr, "bye")
	os.Exit(0)
}

func (a *actor) answer(id json.RawMessage, result any) {
	a.send(obj{"jsonrpc": "2.0", "id": id, "result": result})
}

func (a *actor) fail(id json.RawMessage, code int, message string) {
	a.send(obj{"jsonrpc": "2.0", "id": id, "error": obj{"code": code, "message": message}})
}

func (a *actor) text(id json.RawMessage, text string) {
	a.answer(id, obj{"content": []any{obj{"type": "text", "text": text}}})
}

func named(name string) obj {
	return obj{"name": name, "description": "does " + name, "inputSchema": obj{"type": "object"}}
}

var actions = []string{"echo", "slow", "die", "big", "huge", "noise", "picture", "structured", "fail", "refuse", "pid", "env", "odd name!", "change", "flood", "wrong", "more", "linger", "ask", "ask-die", "ask-back", "ask-bad", "visit", "visit-first", "visit-bad", "sample", "sample-image", "ask-often", "can"}

func (a *actor) tools() (list []any) {
	switch a.mode {
	case "schemas":
		return badSchemas()
	case "many":
		for i := range 300 {
			list = append(list, named(fmt.Sprint("t", i)))
		}
		return list
	case "file":
		raw, err := os.ReadFile(a.args[0])
		if err != nil {
			panic(err)
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			panic(err)
		}
		return list
	}
	for _, name := range actions {
		list = append(list, named(name))
	}
	return list
}

// badSchemas is a server with one good tool among those that brick others.
func badSchemas() []any {
	with := func(name string, schema any) obj {
		t := named(name)
		t["inputSchema"] = schema
		return t
	}
	return []any{
		with("string", obj{"type": "string"}), with("dollar", obj{"type": "object", "properties": obj{"$.xgafv": obj{"type": "string"}}}),
		with("allof", obj{"allOf": []any{obj{"type": "string"}}}), with("items", obj{"type": "object", "properties": obj{"a": obj{"type": "array"}}}),
		with("anyof", obj{"anyOf": []any{obj{"type": "string"}, obj{"type": "object"}}}),
		with("noschema", nil), obj{"name": "typed", "description": 7, "inputSchema": obj{"type": "object"}}, 7, named("echo"), named("echo"), with("wide", obj{"type": "object", "title": strings.Repeat("x", 200<<10)}),
	}
}

func play(mode string, args []string) {
	a := &actor{in: bufio.NewReader(os.Stdin), mode: mode, args: args, asked: map[string]json.RawMessage{}}
	switch mode {
	case "sdk":
		sdkServer()
		return
	case "die-at-start":
		fmt.Fprintln(os.Stderr, "I die at once, with sesame")
		os.Exit(3)
	case "silent":
		live()
	case "stderr":
		for range 20_000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 30))
		}
	case "forks":
		a.spawn()
	}
	for {
		a.turn(a.next())
	}
}

func (a *actor) turn(r request) {
	switch r.Method {
	case "server/discover":
		if a.mode != "no-discover" {
			a.fail(r.ID, -32601, "what?")
		}
	case "initialize":
		if a.mode == "die-at-initialize" {
			os.Exit(4)
		}
		if a.mode == "noisy" {
			a.raw("Starting up…\n[warn] listening\n{\"level\":30,\"msg\":\"up\"}\n\n")
		}
		a.can = r.Params.Can
		caps := obj{"tools": obj{"listChanged": true}}
		if a.mode == "resources" {
			caps["resources"], caps["prompts"] = obj{}, obj{}
		}
		a.answer(r.ID, obj{"protocolVersion": "2025-11-25", "capabilities": caps, "serverInfo": obj{"name": "actor\u202e", "version": "1"}})
	case "notifications/initialized":
		if a.mode == "asks" {
			a.send(obj{"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": obj{"messages": []any{}, "maxTokens": 10}})
			a.send(obj{"jsonrpc": "2.0", "id": "s2", "method": "elicitation/create", "params": obj{"message": "your password?", "requestedSchema": obj{"type": "object", "properties": obj{}}}})
			a.send(obj{"jsonrpc": "2.0", "id": "s3", "method": "roots/list"})
		}
		if a.mode == "floods" {
			for n := range 100_000 {
				a.send(obj{"jsonrpc": "2.0", "id": fmt.Sprint("f", n), "method": "ping"})
			}
		}
	case "tools/list":
		if a.mode == "die-at-list" {
			os.Exit(5)
		}
		if a.mode == "endless" {
			a.answer(r.ID, obj{"tools": []any{named("t" + r.Params.Cursor)}, "nextCursor": r.Params.Cursor + "x"})
			return
		}
		a.answer(r.ID, obj{"tools": a.tools()})
		if a.mode == "restless" {
			fmt.Fprintln(os.Stderr, "listed")
			a.send(obj{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
		}
	case "resources/list":
		a.answer(r.ID, obj{"resources": []any{obj{"uri": "file:///a", "name": "a"}}})
	case "resources/templates/list":
		a.answer(r.ID, obj{"resourceTemplates": []any{}})
	case "resources/read":
		a.answer(r.ID, obj{"contents": []any{obj{"uri": r.Params.URI, "text": "the text"}, obj{"uri": "file:///b", "blob": "AAEC", "mimeType": "x/y"}}})
	case "prompts/list":
		a.answer(r.ID, obj{"prompts": []any{obj{"name": "p"}}})
	case "prompts/get":
		if strings.Contains(string(r.Params.Arguments), "ask") {
			a.question(r.ID, "elicitation/create", obj{"message": "which?", "requestedSchema": shape(obj{})})
			return
		}
		a.answer(r.ID, obj{"messages": []any{obj{"role": "user", "content": obj{"type": "text", "text": "hello " + string(r.Params.Arguments)}}}})
	case "tools/call":
		a.act(r)
	case "notifications/cancelled":
		fmt.Fprintln(os.Stderr, "cancelled", string(r.Params.RequestID))
	case "":
		if call, is := a.asked[string(r.ID)]; is {
			delete(a.asked, string(r.ID))
			for _, other := range a.asked {
				if string(other) == string(call) {
					return // the last answer ends the call
				}
			}
			text := obj{"type": "text", "text": "got " + string(r.Result) + string(r.Error)}
			a.answer(call, obj{"content": []any{text}, "messages": []any{obj{"role": "user", "content": text}}})
			return
		}
		fmt.Fprintf(os.Stderr, "answered %s\n", r.ID)
	default:
		if r.ID != nil {
			a.fail(r.ID, -32601, "what?")
		}
	}
}

func (a *actor) act(r request) {
	switch r.Params.Name {
	case "echo", "odd name!":
		a.text(r.ID, "echo "+string(r.Params.Arguments))
	case "slow", "linger":
	case "die":
		fmt.Fprintln(os.Stderr, "about to die")
		os.Exit(7)
	case "big":
		a.text(r.ID, strings.Repeat("0123456789", 500_000))
	case "huge": // the id behind, as the libraries of TypeScript write it
		a.raw(`{"result":{"content":[{"type":"text","text":"`)
		for range 100 {
			a.raw(strings.Repeat("x", 1<<20))
		}
		a.raw(`"}]},"jsonrpc":"2.0","id":` + string(r.ID) + "}\n")
	case "noise":
		for range 100 {
			a.raw(strings.Repeat("noise\n", 1<<20/6))
		}
		a.text(r.ID, "after the noise")
	case "picture":
		a.answer(r.ID, obj{"content": []any{
			obj{"type": "text", "text": "look:"}, obj{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}, obj{"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
			obj{"type": "resource_link", "uri": "file:///x", "name": "x"}, obj{"type": "resource", "resource": obj{"uri": "file:///y", "text": "why"}},
		}})
	case "structured":
		a.answer(r.ID, obj{"content": []any{obj{"type": "text", "text": `{ "b": 1, "a": "x" }`}}, "structuredContent": obj{"a": "x", "b": 1}})
	case "fail":
		a.answer(r.ID, obj{"isError": true, "content": []any{obj{"type": "text", "text": "no such\u0000 thing"}}})
	case "refuse":
		a.fail(r.ID, -32602, "bad\u202e arguments")
	case "wrong":
		a.answer(r.ID, obj{"content": []any{obj{"type": "hologram"}}})
	case "pid":
		a.text(r.ID, fmt.Sprint(os.Getpid()))
	case "env":
		a.text(r.ID, strings.Join(os.Environ(), "\n"))
	case "change":
		a.send(obj{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
		a.text(r.ID, "changed")
	case "flood":
		for range 20_000 {
			a.send(obj{"jsonrpc": "2.0", "method": "notifications/message", "params": obj{"level": "info", "data": "x"}})
			a.send(obj{"jsonrpc": "2.0", "method": "notifications/progress", "params": obj{"progressToken": 1, "progress": 1}})
		}
		a.text(r.ID, "after the flood")
	case "more":
		a.answer(r.ID, obj{"resultType": "input_required", "inputRequests": obj{"x": obj{"method": "elicitation/create", "params": obj{"message": "?", "requestedSchema": obj{"type": "object", "properties": obj{}}}}}, "content": []any{}})
	default:
		a.asks(r)
	}
}

// shape is a form.
func shape(fields obj, required ...string) obj {
	return obj{"type": "object", "properties": fields, "required": required}
}

// question is a request of ours, for a call.
func (a *actor) question(call json.RawMessage, method string, params obj) string {
	id := fmt.Sprintf("q%d-%s", len(a.asked), call)
	a.asked[strconv.Quote(id)] = call
	a.send(obj{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id
}

func (a *actor) asks(r request) {
	name := obj{"message": "who are you?\u202e", "requestedSchema": shape(obj{"name": obj{"type": "string"}}, "name")}
	say := func(content obj) obj {
		return obj{"systemPrompt": "be short", "maxTokens": 100_000, "messages": []any{obj{"role": "user", "content": content}}}
	}
	visit := obj{"mode": "url", "message": "log in", "url": "https://example.com/login?x=1", "elicitationId": "e1"}
	switch r.Params.Name {
	case "ask":
		a.question(r.ID, "elicitation/create", name)
	case "ask-die":
		a.question(r.ID, "elicitation/create", name)
		for { // until somebody is being asked
			if _, err := os.Stat("asked"); err == nil {
				os.Exit(7)
			}
			<-time.After(5 * time.Millisecond)
		}
	case "ask-back":
		id := a.question(r.ID, "elicitation/create", name)
		a.send(obj{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": obj{"requestId": id}})
	case "ask-bad":
		a.question(r.ID, "elicitation/create", obj{"message": "?", "requestedSchema": shape(obj{"x": obj{"type": "object", "properties": obj{}}})})
	case "ask-often":
		for range maxQuestions + 2 {
			a.question(r.ID, "elicitation/create", name)
		}
	case "can":
		a.text(r.ID, string(a.can))
	case "visit":
		a.question(r.ID, "elicitation/create", visit)
	case "visit-bad":
		a.question(r.ID, "elicitation/create", obj{"mode": "url", "message": "log in", "url": "javascript:alert(1)", "elicitationId": "e1"})
	case "visit-first":
		if a.visited {
			a.text(r.ID, "as you are known now")
			return
		}
		a.visited = true
		a.send(obj{"jsonrpc": "2.0", "id": r.ID, "error": obj{"code": -32042, "message": "log in first", "data": obj{"elicitations": []any{visit}}}})
	case "sample":
		a.question(r.ID, "sampling/createMessage", say(obj{"type": "text", "text": "what is 6 times 7?"}))
	case "sample-image":
		a.question(r.ID, "sampling/createMessage", say(obj{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}))
	default:
		a.fail(r.ID, -32602, "no such tool")
	}
}

// spawn starts a child in a session of its own that holds our output.
func (a *actor) spawn() {
	cmd := exec.Command("/proc/self/exe", "mcp-server", "silent")
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
}

// sdkServer is a server of the official library, which speaks all versions.
func sdkServer() {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "say", Description: "says it"}, func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said " + i.Text}}}, nil, nil
	})
	askingTools(s)
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// askingTools ask by their result, as the newest revision does; the library asks older
// clients in its place.
func askingTools(s *mcp.Server) {
	name := &mcp.ElicitParams{Mode: "form", Message: "who are you?", RequestedSchema: shape(obj{"name": obj{"type": "string"}}, "name")}
	size := &mcp.ElicitParams{Mode: "form", Message: "how tall?", RequestedSchema: shape(obj{"cm": obj{"type": "integer", "default": 170}})}
	say := &mcp.CreateMessageWithToolsParams{MaxTokens: 10, Messages: []*mcp.SamplingMessageV2{{Role: "user", Content: []mcp.Content{&mcp.TextContent{Text: "hm?"}}}}}
	for tool, asks := range map[string]mcp.InputRequestMap{
		"greet": {"a": name, "b": size}, "think": {"t": say}, "roots": {"r": &mcp.ListRootsParams{}}, "busy": {},
	} {
		mcp.AddTool(s, &mcp.Tool{Name: tool, Description: "asks"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if len(r.Params.InputResponses) == 0 && r.Params.RequestState == "" {
				return &mcp.CallToolResult{InputRequests: asks, RequestState: "s1"}, nil, nil
			}
			got, err := json.Marshal(r.Params.InputResponses)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "got " + r.Params.RequestState + " " + string(got)}}}, nil, err
		})
	}
}

// patience is for a slow machine: nothing waits for it that goes well.
const patience = 60 * time.Second

// live goes on for longer than any test. Without cgo an empty select ends the program
// as deadlocked.
func live() { <-time.After(time.Hour) }
