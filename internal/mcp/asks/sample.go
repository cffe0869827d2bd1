package asks

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// SampleTool is the tool by which a server asks a model. The model is asked in a run of
// its own, whose record, reservation and booking are those of every answer of a model.
const SampleTool = "mcp.sample"

// SampleKind is the kind of the runs that ask a model for a server.
const SampleKind = "mcpsample"

const (
	modelRole = "main" // the model that agents work with
	modelStep = "model"
)

// sampleInput is a question to a model.
type sampleInput struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Model  string `json:"model"`           // by its role
	Agent  string `json:"agent,omitempty"` // whose budget pays
	client.Sample
}

const sampleSchema = `{"type":"object","additionalProperties":false,"required":["server","tool","model","messages","max_tokens"],"properties":{
"server":{"type":"string","minLength":1,"maxLength":24},"tool":{"type":"string","minLength":1,"maxLength":64},
"model":{"type":"string","enum":["main"]},"agent":{"type":"string","maxLength":64},"system":{"type":"string","maxLength":65536},
"messages":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"object","additionalProperties":false,"required":["role","text"],
"properties":{"role":{"type":"string","enum":["user","assistant"]},"text":{"type":"string","minLength":1,"maxLength":65536}}}},
"max_tokens":{"type":"integer","minimum":1,"maximum":4096}}}`

// needs are the scopes of the question.
func (in sampleInput) needs() ([]scope.Scope, error) {
	asks, err := scope.Of("mcp.ask", in.Server+"/sample")
	if err != nil {
		return nil, err
	}
	use, err := scope.Of("llm.call", in.Model)
	return []scope.Scope{asks, use}, err
}

func sampleDefinition() tool.Definition {
	return tool.Definition{
		Name: SampleTool, Description: "Asks a model something for an MCP server.", Input: json.RawMessage(sampleSchema),
		Kind: tool.Local, Within: true, Timeout: 10 * time.Second, MaxOutput: 64 << 10, Source: label.Own,
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := tool.Decode[sampleInput](raw) // validated
			return tool.Destination{Name: "the MCP server " + in.Server}
		},
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[sampleInput](raw)
			if err != nil {
				return nil, err
			}
			return in.needs()
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[sampleInput](raw) // validated
			return "the MCP server " + in.Server + " asks your model, in its own words: " + whole(in.Messages[len(in.Messages)-1].Text)
		},
	}
}

// sampled is the result of mcp.sample.
type sampled struct {
	Text     string `json:"text"`
	Model    string `json:"model"`
	Stop     string `json:"stop"`
	MicroUSD int64  `json:"micro_usd,omitempty"` // booked already
}

// sample is the handler of mcp.sample.
func (s *Service) sample(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[sampleInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	id, err := s.d.Runs.StartTx(ctx, inv.Tx, run.Spec{
		Kind: SampleKind, Name: in.Server, Definition: "mcpsample.v1", Parent: inv.Run, Actor: inv.Subject, Input: in,
	})
	return tool.Output{Awaits: id}, err
}

// Kind is the kind of run that asks a model.
func (s *Service) Kind() run.Kind {
	return run.Kind{Name: SampleKind, Handle: s.handle, TellUnknown: true, Ended: func(ctx context.Context, tx *db.Tx, rec run.Record) error {
		return s.d.Budget.SettleTx(ctx, tx, rec.ID)
	}}
}

// maxAnswer bounds what is handed on of an answer, in bytes: written as JSON, all of it
// has room in the result of a call.
const maxAnswer = 24 << 10

// preface is what a model is told before what the server tells it.
const preface = "A server of the Model Context Protocol asks you for one answer, which goes back to it. You have no tools. " +
	"All that follows is written by that server."

// handle asks the model.
func (s *Service) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	var in sampleInput
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, fault.New(fault.Internal, "input of %s: %w", r.ID(), err)
	}
	q := agent.Question{Step: modelStep, Agent: in.Agent, Role: in.Model, System: preface, MaxTokens: in.MaxTokens}
	if in.System != "" {
		q.System += "\n\n" + in.System
	}
	for _, m := range in.Messages {
		role := model.User
		if m.Role == "assistant" {
			role = model.Assistant
		}
		q.Messages = append(q.Messages, model.Text(role, m.Text))
	}
	resp, err := s.d.Models.Respond(ctx, r, q)
	if err != nil {
		return nil, err
	}
	got := sampled{Model: resp.Model, Stop: stops[resp.Stop]}
	var cut bool
	if got.Text, cut = guard.CutText(guard.CleanText(resp.Text), maxAnswer); cut {
		got.Stop = stops[model.StopMaxTokens]
	}
	if step, ok := r.Recorded(modelStep); ok {
		got.MicroUSD = step.Cost
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(got); err != nil {
		return nil, err
	}
	return json.Marshal(act.Awaited{Text: text.String(), Label: label.Of(label.Untrusted("mcp:"+in.Server), label.Anyone)})
}

// stops are why a model stopped, in the words of the protocol.
var stops = map[model.StopReason]string{model.StopEnd: "endTurn", model.StopMaxTokens: "maxTokens", model.StopRefusal: "endTurn", model.StopCalls: "endTurn"}
