package asks

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Models asks a model as a step of a run.
type Models interface {
	Respond(ctx context.Context, r *run.Run, q agent.Question) (model.Response, error)
}

// Deps are the parts questions pass through.
type Deps struct {
	Runs   *run.Engine
	Jobs   *job.Jobs
	Budget *budget.Budget
	Models Models
	Hide   *redact.Redactor // says which values may not leave; nil: none
	Logger *slog.Logger
}

// Service answers the questions of servers. It is safe for concurrent use.
type Service struct{ d *Deps }

// New returns the service. d is filled in before the first question.
func New(d *Deps) *Service { return &Service{d} }

const (
	jobLife = time.Hour // longer than any question waits
	maxWhy  = 300       // bytes
)

// Ask answers a question. It returns soon after ctx ends, and nobody is asked any longer
// then. An error says that nobody could be asked.
func (s *Service) Ask(ctx context.Context, q client.Asked) (client.Answer, error) {
	if q.Kind != client.AskSample && q.Call.Unattended {
		return client.Answer{Action: client.Cancel, Why: "nobody waits for this work, so nobody is asked within it"}, nil
	}
	parent, err := s.d.Jobs.AuthorityOf(ctx, q.Call.Run, q.Call.Subject, q.Call.Conversation, q.Call.Tier)
	if err != nil {
		return client.Answer{}, err
	}
	auth := *parent
	auth.Unattended = auth.Unattended || q.Call.Unattended
	name, input, rules, why, err := s.plan(q, &auth)
	if err != nil || why != "" {
		return client.Answer{Action: client.Decline, Why: why}, err
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return client.Answer{}, fault.New(fault.Internal, "a question of %s: %w", q.Server, err)
	}
	j, token, err := s.d.Jobs.Issue(ctx, q.Call.Run, job.Spec{
		Subject: "mcp_server:" + q.Server, Parent: &auth, Rules: rules, Tools: []string{name}, Life: jobLife, Calls: 1,
		// Whoever reads it, these are the server's words and no other's.
		Label: label.Of(label.Untrusted("mcp:"+q.Server), label.Anyone),
	})
	if err != nil {
		return client.Answer{}, err
	}
	defer func() { // also when ctx is over: the question goes with it
		if err := s.d.Jobs.End(context.WithoutCancel(ctx), j.ID, "the question is over"); err != nil {
			s.d.Logger.Error("end the job of a question", "server", q.Server, "run", q.Call.Run, "error", err)
		}
	}()
	ans, err := s.d.Jobs.Call(ctx, job.Request{Token: token, Tool: name, Input: raw, Wait: jobLife, Within: true, Patient: true})
	if err != nil {
		return client.Answer{}, err
	}
	return answer(q, ans.Result)
}

// plan is the call a question becomes and what its job is given, or why it is refused.
func (s *Service) plan(q client.Asked, auth *act.Authority) (name string, input any, rules []policy.Rule, why string, err error) {
	if q.Kind != client.AskSample {
		use, err := scope.Of("mcp.call", q.Server+"/"+q.Tool)
		if err != nil {
			return "", nil, nil, "", err
		}
		never, err := scope.Of("mcp.ask", q.Server+"/elicit")
		if err != nil {
			return "", nil, nil, "", err
		}
		// A person answers, or nobody does, so leave for the call is leave to ask. It can be taken.
		for _, r := range q.Call.Judge(never).Reasons {
			if r.Effect == policy.Deny && r.Code == policy.CodeRule {
				return "", nil, nil, r.Text, nil
			}
		}
		rule, why := held(q, use)
		in := elicitInput{Server: q.Server, Tool: q.Tool, Message: q.Message, Schema: q.Schema, URL: q.URL, Before: q.Before}
		return ElicitTool, in, []policy.Rule{rule}, why, nil
	}
	in := sampleInput{Server: q.Server, Tool: q.Tool, Model: modelRole, Agent: auth.Agent, Sample: q.Sample}
	needs, err := in.needs()
	if err != nil {
		return "", nil, nil, "", err
	}
	for _, need := range needs {
		rule, why := held(q, need)
		if why != "" {
			return "", nil, nil, why, nil
		}
		rules = append(rules, rule)
	}
	return SampleTool, in, rules, "", nil
}

// held is a scope as the call holds it, or why it does not. What only the level asks about
// is held: the level asks about the question as well.
func held(q client.Asked, need scope.Scope) (r policy.Rule, why string) {
	d := q.Call.Judge(need)
	if d.Effect == policy.Deny {
		return r, guard.OneLine(d.String(), maxWhy)
	}
	r = policy.Rule{Scope: need, Effect: policy.Allow}
	for _, reason := range d.Reasons {
		if reason.Effect == policy.Ask && reason.Code != policy.CodeLevel {
			r.Effect = policy.Ask
		}
	}
	return r, ""
}

// answer is what the call came to, as the server is told.
func answer(q client.Asked, res act.Result) (client.Answer, error) {
	if res.Status != act.OK {
		a := client.Answer{Action: client.Cancel, Why: guard.OneLine(res.Text, maxWhy)}
		if res.Status == act.Refused && res.Class == fault.Denied {
			a.Action = client.Decline
		}
		return a, nil
	}
	switch q.Kind {
	case client.AskForm:
		return client.Answer{Action: client.Accept, Content: json.RawMessage(res.Text)}, nil
	case client.AskURL:
		return client.Answer{Action: client.Accept}, nil
	case client.AskSample:
	}
	var got sampled
	if err := json.Unmarshal([]byte(res.Text), &got); err != nil {
		return client.Answer{}, fault.New(fault.Internal, "the answer of a model: %w", err)
	}
	return client.Answer{Action: client.Accept, Text: got.Text, Model: got.Model, Stop: got.Stop, CostMicroUSD: got.MicroUSD}, nil
}

// Register makes the tools behind the questions known to r.
func (s *Service) Register(r *tool.Registry) error {
	if err := r.Add(elicitDefinition(), s.elicit); err != nil {
		return err
	}
	return r.Add(sampleDefinition(), s.sample)
}
