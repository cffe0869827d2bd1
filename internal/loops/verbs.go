package loops

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// Ask says prompt to an agent and returns what it answers: a turn of its own, in the
// conversation of the loop, that nobody else waits for. A turn that failed, was stopped,
// went over its budget or in circles is an error that says so.
func (k *Kit) Ask(ctx context.Context, step, prompt string) (string, error) {
	return k.ask(ctx, step, askInput{Prompt: k.prompt(prompt)})
}

// Observe is Ask with an agent that can read and remember and nothing else.
func (k *Kit) Observe(ctx context.Context, step, prompt string) (string, error) {
	return k.ask(ctx, step, askInput{Prompt: k.prompt(prompt), Observe: true})
}

func (k *Kit) ask(ctx context.Context, step string, in askInput) (reply string, err error) {
	in.Agent, in.Bounds, in.First = k.who.Agent, k.askBounds(), k.firstAsk()
	if !in.Observe {
		in.Lends = k.who.Lends
	}
	err = k.each(step, func(step string) error {
		return k.child(ctx, step, toolAsk, in, func(rec run.Record) error {
			answer, ok := agent.OutcomeOf(rec)
			if !ok {
				return ended("the turn of "+k.who.Agent, rec)
			}
			if answer.Withheld != "" {
				answer.Reply = answer.Withheld
			}
			k.saw(label.Join(answer.Label, own()), answer.Reply)
			reply = answer.Reply
			return outcome(k.who.Agent, answer, rec.ErrorClass)
		})
	})
	return reply, err
}

// firstAsk reports whether the run has asked nobody yet: its conversation begins anew then.
func (k *Kit) firstAsk() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.asked
	k.asked = true
	return first
}

// outcome is the error of a turn that did not come to an answer.
func outcome(who string, a agent.Answer, class fault.Class) error {
	switch a.Outcome {
	case agent.Completed, agent.Escalated:
		return nil
	case agent.OverBudget:
		class = fault.Denied
	case agent.ParkedTurn:
		class = fault.Waiting
	case agent.TimedOut:
		class = fault.Timeout
	case agent.Cancelled:
		class = fault.Cancelled
	case agent.Looping, agent.StepLimit:
		class = fault.Invalid
	}
	if class == "" {
		class = fault.Internal
	}
	return fault.New(class, "%s did not answer, its turn ended as %s: %s", who, a.Outcome, a.Reply)
}

// Harness gives a task to a coding agent and returns what it reports.
func (k *Kit) Harness(ctx context.Context, step, prompt string) (report string, err error) {
	task := taskInput{Prompt: k.prompt(prompt)}
	err = k.each(step, func(step string) error {
		return k.child(ctx, step, toolHarness, task, func(rec run.Record) error {
			if err := ended("the coding agent", rec); err != nil {
				return err
			}
			var out Report
			if len(rec.Result) > 0 { // none where a person has said that it is done
				if err := json.Unmarshal(rec.Result, &out); err != nil {
					return fault.New(fault.Verification, "what the coding agent reports: %w", err)
				}
			}
			// Whoever it read, it may have obeyed.
			k.saw(label.Join(out.Label, label.Of(label.Untrusted("harness"), label.OperatorOnly)), out.Text)
			report = out.Text
			return nil
		})
	})
	return report, err
}

// Send sends text to somebody: the operator, a conversation, a person on a channel. It
// returns when the text is on its way, and fails if it cannot be delivered.
func (k *Kit) Send(ctx context.Context, step, to, text string) error {
	return k.each(step, func(step string) error {
		return k.child(ctx, step, toolSend, SendInput{To: to, Text: text}, func(rec run.Record) error {
			return ended("sending to "+to, rec)
		})
	})
}

// RunLoop runs another loop or recipe by its name and waits for its end.
func (k *Kit) RunLoop(ctx context.Context, step, name string) error {
	return k.each(step, func(step string) error {
		return k.child(ctx, step, toolRun, runInput{Name: targetOf(name)}, func(rec run.Record) error {
			return ended(targetOf(name), rec)
		})
	})
}

// HTTPRequest is a request to the web. The value of a header may name a secret that is
// bound to the host: {{secret:NAME}}.
type HTTPRequest struct {
	Method  string            `json:"method,omitempty"` // GET if empty
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// HTTPResponse is the answer, whatever its status.
type HTTPResponse struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// HTTP makes a request by the rules of the tool that fetches: what may be reached, which
// redirects are followed, where a secret goes.
func (k *Kit) HTTP(ctx context.Context, step string, req HTTPRequest) (resp HTTPResponse, err error) {
	name := "web.request"
	switch req.Method {
	case "", http.MethodGet, http.MethodHead:
		name = "web.get" // may be done twice
	}
	err = k.each(step, func(step string) error {
		raw, err := json.Marshal(req)
		if err != nil {
			return fault.New(fault.Internal, "input of %s: %w", name, err)
		}
		got, err := k.call(ctx, act.Call{Step: step, Tool: name, Input: raw, Within: true})
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(got.text), &resp); err != nil {
			return fault.New(fault.Verification, "the answer of %s: %w", name, err)
		}
		k.saw(got.label, resp.Body)
		return nil
	})
	return resp, err
}

// Recall returns up to limit remembered facts that fit query, the best first.
func (k *Kit) Recall(ctx context.Context, step, query string, limit int) (facts []string, err error) {
	if limit <= 0 {
		limit = 5
	}
	err = k.each(step, func(step string) error {
		got, err := k.within(ctx, step, "memory.recall", recallInput{query, min(limit, 50)})
		if err != nil {
			return err
		}
		var found struct {
			Facts []struct {
				Text string `json:"text"`
			} `json:"facts"`
		}
		if err := json.Unmarshal([]byte(got.text), &found); err != nil {
			return fault.New(fault.Verification, "what was recalled: %w", err)
		}
		facts = nil
		for _, f := range found.Facts {
			facts = append(facts, f.Text)
		}
		k.saw(got.label, facts...)
		return nil
	})
	return facts, err
}

type recallInput struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

// Remember keeps one fact, with the label of all the run has read.
func (k *Kit) Remember(ctx context.Context, step, fact string) error {
	return k.plain(ctx, step, "memory.remember", map[string]string{"text": fact})
}

// Notify tells the operator something at this machine.
func (k *Kit) Notify(ctx context.Context, step, title, body string) error {
	in := map[string]string{"message": title}
	if title != "" && body != "" {
		in = map[string]string{"subject": title, "message": body}
	} else if title == "" {
		in["message"] = body
	}
	return k.plain(ctx, step, "notify.send", in)
}

// Remind sets a reminder for the operator, in the conversation main. due is a time such
// as 2026-03-04T17:00:00+01:00.
func (k *Kit) Remind(ctx context.Context, step, title, due, notes string) error {
	text := title
	if notes != "" {
		text += "\n" + notes
	}
	raw, err := json.Marshal(map[string]string{"text": text, "at": due})
	if err != nil {
		return fault.New(fault.Internal, "a reminder: %w", err)
	}
	at, err := k.inMain(ctx)
	if err != nil {
		return err
	}
	return k.each(step, func(step string) error {
		_, err := k.call(ctx, act.Call{Step: step, Tool: "remind.set", Input: raw, Authority: at})
		return err
	})
}

// Propose puts an action into the inbox and goes on. If the operator accepts it, the
// action is said to the agent as an instruction; the approval is bound to its words.
func (k *Kit) Propose(ctx context.Context, step, title, summary, action string) error {
	raw, err := json.Marshal(proposal{Title: title, Summary: summary, Action: action, Agent: k.who.Agent})
	if err != nil {
		return fault.New(fault.Internal, "a proposal: %w", err)
	}
	return k.each(step, func(step string) error {
		_, err := k.call(ctx, act.Call{Step: step, Tool: toolPropose, Input: raw, Within: true, Review: true})
		if fault.Is(err, fault.Waiting) {
			return nil // that is what it is for
		}
		return err
	})
}

func (k *Kit) plain(ctx context.Context, step, tool string, input any) error {
	return k.each(step, func(step string) error {
		_, err := k.within(ctx, step, tool, input)
		return err
	})
}
