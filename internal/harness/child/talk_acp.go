package child

import (
	"encoding/json"
	"regexp"
	"strconv"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// The ids of our requests to an agent.
const (
	acpHello byte = iota + 1
	acpSession
	acpPrompt
	acpCaughtUp
)

// acpTalk is a client of the Agent Client Protocol, version 1. It offers the agent
// nothing: no files, no terminal, only a session, a prompt and answers.
type acpTalk struct {
	*dialogue
	mcp     *MCP // what the agent is told of by the protocol
	session string
	loading bool // it repeats the session of before, which is not this run's
	asking  bool // the prompt was sent
	done    bool
	failed  *rpcError
}

func newACP(d *dialogue, m *MCP) *acpTalk { return &acpTalk{dialogue: d, mcp: m} }

type acpInitialize struct {
	Version      int             `json:"protocolVersion"`
	Capabilities acpCapabilities `json:"clientCapabilities"`
	Info         acpInfo         `json:"clientInfo"`
}

type acpCapabilities struct {
	FS struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	} `json:"fs"`
	Terminal bool `json:"terminal"`
}

type acpInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type acpOpen struct {
	Session string      `json:"sessionId,omitempty"`
	Dir     string      `json:"cwd"`
	Servers []acpServer `json:"mcpServers"`
}

type acpServer struct {
	Name    string        `json:"name"`
	Command string        `json:"command"`
	Args    []string      `json:"args"`
	Env     []acpVariable `json:"env"`
}

type acpVariable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type acpAsk struct {
	Session string       `json:"sessionId"`
	Prompt  []textObject `json:"prompt"`
}

type acpOf struct {
	Session string `json:"sessionId"`
}

type acpOutcome struct {
	Outcome acpChoice `json:"outcome"`
}

type acpChoice struct {
	Outcome string `json:"outcome"`
	Option  string `json:"optionId,omitempty"`
}

func (a *acpTalk) request(id byte, method string, params any) {
	a.out.send(rpc{Version: "2.0", ID: number(id), Method: method, Params: params})
}

func (a *acpTalk) begin() {
	a.request(acpHello, "initialize", acpInitialize{Version: 1, Info: acpInfo{server, "1"}})
}

func (a *acpTalk) line(raw []byte) bool {
	l, is := hear(raw)
	switch {
	case !is:
	case l.isRequest():
		a.asked(&l)
	case l.Method != "":
		return !a.loading
	case isNumber(l.ID, acpCaughtUp):
		a.prompt(nil)
		return false
	case l.Error != nil:
		a.refused(&l)
	case isNumber(l.ID, acpHello):
		a.open(l.Result)
	case isNumber(l.ID, acpSession) && a.loading:
		// gemini repeats the session behind this answer. It does not know the next
		// request, and says so when it is through.
		a.request(acpCaughtUp, "_"+server+"/caught_up", struct{}{})
	case isNumber(l.ID, acpSession):
		a.prompt(l.Result)
	case isNumber(l.ID, acpPrompt):
		a.end()
	}
	return true
}

func (a *acpTalk) open(result json.RawMessage) {
	open := acpOpen{Session: a.task.Session, Dir: a.task.Dir, Servers: []acpServer{}}
	if a.mcp != nil {
		s := acpServer{Name: server, Command: a.mcp.Command, Args: noNil(a.mcp.Args), Env: []acpVariable{}}
		for _, entry := range a.mcp.Env {
			n, value := cutVariable(entry)
			s.Env = append(s.Env, acpVariable{n, value})
		}
		open.Servers = append(open.Servers, s)
	}
	if open.Session == "" {
		a.request(acpSession, "session/new", open)
		return
	}
	var r struct {
		Can struct {
			Load bool `json:"loadSession"`
		} `json:"agentCapabilities"`
	}
	into(result, &r)
	if !r.Can.Load {
		a.failed = &rpcError{Code: noMethod, Message: "this agent cannot go on with a session"}
		a.end()
		return
	}
	a.loading = true
	a.request(acpSession, "session/load", open)
}

func (a *acpTalk) prompt(result json.RawMessage) {
	a.loading = false
	if a.session = a.task.Session; a.session == "" {
		var r acpOf
		into(result, &r)
		a.session = r.Session
	}
	text := a.task.Prompt
	if a.task.CLI != harness.OpenCode { // which has its instructions by its configuration
		text = together(a.task)
	}
	a.asking = true
	a.request(acpPrompt, "session/prompt", acpAsk{a.session, []textObject{{"text", text}}})
}

func (a *acpTalk) refused(l *heard) {
	a.failed = l.Error
	a.end()
}

func (a *acpTalk) end() {
	if !a.done {
		a.done = true
		a.over()
	}
}

type acpPermission struct {
	Options []acpOption `json:"options"`
	Call    struct {
		ID        string          `json:"toolCallId"`
		Title     string          `json:"title"`
		Kind      string          `json:"kind"`
		Input     json.RawMessage `json:"rawInput"`
		Content   json.RawMessage `json:"content"`
		Locations []struct {
			Path string `json:"path"`
		} `json:"locations"`
	} `json:"toolCall"`
}

type acpOption struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// asked answers a request of the agent: a permission by asking, all else by refusing.
// opencode asks for files to be written by us even when it was told that we do not.
func (a *acpTalk) asked(l *heard) {
	id := append(json.RawMessage(nil), l.ID...)
	if l.Method != "session/request_permission" {
		a.out.send(rpc{Version: "2.0", ID: id, Error: &rpcError{Code: noMethod, Message: "not supported here: " + harnessWord(l.Method)}})
		return
	}
	var p acpPermission
	into(l.Params, &p)
	a.asks.ask(p.ask(), func(answer Answer) {
		a.out.send(rpc{Version: "2.0", ID: id, Result: acpOutcome{choose(p.Options, answer.Allow)}})
	})
}

func (p *acpPermission) ask() Ask {
	c := &p.Call
	q := Ask{ID: c.ID, Tool: c.Title, Input: c.Input, Title: c.Title, Kind: KindOther}
	if len(q.Input) == 0 {
		q.Input = c.Content // gemini shows what it would change there
	}
	for _, at := range c.Locations {
		q.Paths = append(q.Paths, at.Path)
	}
	switch c.Kind {
	case "edit", "delete", "move":
		q.Kind = KindEdit
	case "execute":
		q.Kind, q.Command = KindCommand, acpCommand(c.Input, c.Title)
	case "fetch":
		q.Kind = KindFetch
	}
	return q
}

func acpCommand(input json.RawMessage, title string) string {
	var in struct {
		Command string `json:"command"`
	}
	if into(input, &in); in.Command != "" {
		return in.Command
	}
	return title
}

// choose picks an option by its kind, for ids differ. Leave is given for once and
// never for ever: the agent would not ask again.
func choose(options []acpOption, allow bool) acpChoice {
	want := []string{"reject_once", "reject_always"}
	if allow {
		want = []string{"allow_once"}
	}
	for _, kind := range want {
		for _, o := range options {
			if o.Kind == kind {
				return acpChoice{"selected", o.ID}
			}
		}
	}
	if allow {
		return choose(options, false)
	}
	return acpChoice{Outcome: "cancelled"}
}

func (a *acpTalk) interrupt() bool {
	if !a.asking || a.done {
		return false
	}
	a.out.send(rpc{Version: "2.0", Method: "session/cancel", Params: acpOf{a.session}})
	return true
}

func (a *acpTalk) amend(r *harness.Record) {
	if a.failed != nil {
		failed(r, a.failed, !a.asking)
	}
}

// failed puts a refused request into the record: no closing record follows one.
func failed(r *harness.Record, e *rpcError, before bool) {
	switch r.Outcome {
	case harness.Cut, harness.NotStarted, harness.Protocol, harness.Killed:
	default:
		return
	}
	r.Error = harnessError(e.Message)
	var data struct {
		Details string `json:"details"`
	}
	if into(e.Data, &data); data.Details != "" {
		r.Error = harnessError(e.Message + ": " + data.Details) // the message alone is "Internal error"
	}
	r.Outcome, r.Status = outcomeOf(e)
	if before && r.Outcome == harness.Failed {
		r.Outcome = harness.NotStarted
	}
}

var httpStatus = regexp.MustCompile(`\b[45][0-9]{2}\b`)

// authRequired is the protocol's code for an agent that is not logged in.
const authRequired = -32000

// outcomeOf reads what an agent says of a request that failed: the status of the API
// is in its words, if anywhere.
func outcomeOf(e *rpcError) (harness.Outcome, int) {
	found := httpStatus.FindString(fault.Cut(e.Message, 4<<10))
	if found == "" {
		found = httpStatus.FindString(fault.Cut(string(e.Data), 4<<10))
	}
	status, _ := strconv.Atoi(found)
	if e.Code >= 400 && e.Code < 600 {
		status = e.Code // gemini gives the API's own
	}
	switch {
	case status == 401, status == 403, status == 0 && e.Code == authRequired:
		return harness.Auth, status
	case status == 408, status == 429, status >= 500:
		return harness.Unavailable, status
	case status >= 400:
		return harness.Rejected, status
	}
	return harness.Failed, 0
}
