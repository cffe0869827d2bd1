package child

import (
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/harness"
)

// The ids of our requests to codex.
const (
	codexHello byte = iota + 1
	codexThread
	codexTurn
	codexInterrupt
)

// maxItems is how many items are remembered for the question that may follow.
const maxItems = 64

// codexTalk speaks codex app-server: JSON-RPC without its "jsonrpc".
type codexTalk struct {
	*dialogue
	sandbox      string
	thread, turn string
	done         bool
	failed       *rpcError
	items        map[string]json.RawMessage // what a question about an item is about
	order        []string
}

type codexClient struct {
	Info struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	} `json:"clientInfo"`
}

type codexStart struct {
	Thread  string `json:"threadId,omitempty"`
	Dir     string `json:"cwd,omitempty"`
	Policy  string `json:"approvalPolicy,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

type codexPrompt struct {
	Thread string       `json:"threadId"`
	Input  []textObject `json:"input"`
}

type codexStop struct {
	Thread string `json:"threadId"`
	Turn   string `json:"turnId"`
}

type textObject struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type codexDecision struct {
	Decision string `json:"decision"`
}

func (c *codexTalk) begin() {
	var hello codexClient
	hello.Info.Name, hello.Info.Title, hello.Info.Version = server, server, "1"
	c.out.send(rpc{ID: number(codexHello), Method: "initialize", Params: hello})
}

func (c *codexTalk) line(raw []byte) bool {
	l, is := hear(raw)
	switch {
	case !is:
	case l.isRequest():
		c.asked(&l)
	case l.Method == "turn/started":
		c.turnIs(l.Params)
	case l.Method == "turn/completed":
		c.end()
	case l.Method == "item/started":
		c.remember(l.Params)
	case l.Method != "":
	case l.Error != nil:
		c.refused(&l)
	case isNumber(l.ID, codexHello):
		c.open()
	case isNumber(l.ID, codexThread):
		c.prompt(l.Result)
	case isNumber(l.ID, codexTurn):
		c.turnIs(l.Result)
	}
	return true
}

// open begins a thread, or goes on with one. Whatever is not known to do no harm is
// asked for.
func (c *codexTalk) open() {
	c.out.send(rpc{Method: "initialized"})
	start := codexStart{Thread: c.task.Session, Dir: c.task.Dir, Policy: "untrusted", Sandbox: c.sandbox}
	method := "thread/start"
	if start.Thread != "" {
		method = "thread/resume"
	}
	c.out.send(rpc{ID: number(codexThread), Method: method, Params: start})
}

func (c *codexTalk) prompt(result json.RawMessage) {
	var r struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
	}
	into(result, &r)
	c.thread = r.Thread.ID
	c.out.send(rpc{ID: number(codexTurn), Method: "turn/start", Params: codexPrompt{c.thread, []textObject{{"text", c.task.Prompt}}}})
}

func (c *codexTalk) turnIs(raw json.RawMessage) {
	var r struct {
		Turn struct {
			ID string `json:"id"`
		} `json:"turn"`
	}
	into(raw, &r)
	if r.Turn.ID != "" && len(r.Turn.ID) <= maxID {
		c.turn = r.Turn.ID
	}
}

// refused ends a run whose request was: without it nothing follows.
func (c *codexTalk) refused(l *heard) {
	if isNumber(l.ID, codexInterrupt) {
		return
	}
	c.failed = l.Error
	c.end()
}

func (c *codexTalk) end() {
	if !c.done {
		c.done = true
		c.over()
	}
}

// remember keeps an item until somebody asks about it.
func (c *codexTalk) remember(params json.RawMessage) {
	var p struct {
		Item json.RawMessage `json:"item"`
	}
	var i struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	into(params, &p)
	into(p.Item, &i)
	if i.Type != "fileChange" || i.ID == "" || len(p.Item) > maxAsked {
		return
	}
	if c.items == nil {
		c.items = map[string]json.RawMessage{}
	}
	if _, had := c.items[i.ID]; !had {
		c.order = append(c.order, i.ID)
	}
	c.items[i.ID] = append(json.RawMessage(nil), p.Item...)
	if len(c.order) > maxItems {
		delete(c.items, c.order[0])
		c.order = c.order[1:]
	}
}

func (c *codexTalk) asked(l *heard) {
	id := append(json.RawMessage(nil), l.ID...)
	what, is := strings.CutSuffix(strings.TrimPrefix(l.Method, "item/"), "/requestApproval")
	if !is || what == "permissions" { // that one wants to be told which, and gets none
		c.out.send(rpc{ID: id, Error: &rpcError{Code: noMethod, Message: "not supported here: " + harnessWord(l.Method)}})
		return
	}
	c.asks.ask(c.askOf(what, l.Params), func(a Answer) {
		decision := codexDecision{"decline"}
		if a.Allow {
			decision.Decision = "accept"
		}
		c.out.send(rpc{ID: id, Result: decision})
	})
}

// askOf is what codex wants leave for. A question about files does not say which:
// the item it is about did.
func (c *codexTalk) askOf(what string, params json.RawMessage) Ask {
	var p struct {
		Item    string          `json:"itemId"`
		Reason  string          `json:"reason"`
		Command json.RawMessage `json:"command"`
		Dir     string          `json:"cwd"`
		Root    string          `json:"grantRoot"`
	}
	into(params, &p)
	q := Ask{ID: p.Item, Tool: what, Input: append(json.RawMessage(nil), params...), Title: p.Reason, Kind: KindOther}
	switch what {
	case "commandExecution":
		q.Kind = KindCommand
		into(p.Command, &q.Command)
		if q.Command == "" {
			q.Command = string(p.Command) // a list of words
		}
	case "fileChange":
		q.Kind = KindEdit
		if item, is := c.items[p.Item]; is {
			q.Input = item
			q.Paths = codexPaths(item)
		}
		if p.Root != "" {
			q.Paths = append(q.Paths, p.Root)
		}
	}
	return q
}

func codexPaths(item json.RawMessage) []string {
	var i struct {
		Changes []struct {
			Path string `json:"path"`
		} `json:"changes"`
	}
	into(item, &i)
	var out []string
	for _, change := range i.Changes {
		out = append(out, change.Path)
	}
	return out
}

func (c *codexTalk) interrupt() bool {
	if c.done || c.turn == "" {
		return false
	}
	c.out.send(rpc{ID: number(codexInterrupt), Method: "turn/interrupt", Params: codexStop{c.thread, c.turn}})
	return true
}

func (c *codexTalk) amend(r *harness.Record) {
	if c.failed != nil {
		failed(r, c.failed, c.thread == "")
	}
}
