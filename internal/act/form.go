package act

import (
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/policy"
)

// takeForm asks the tool what a person has to fill in for the call. A form that nobody
// could be asked refuses the call.
func (k *call) takeForm() error {
	if k.def.Form == nil {
		return nil
	}
	schema := k.def.Form(k.input)
	if schema == nil {
		return nil
	}
	if _, err := form.Parse(schema); err != nil {
		return fault.New(fault.Invalid, "%s: %w", k.Tool, err).WithHint("%s", fault.HintOf(err))
	}
	k.form = schema
	return nil
}

// withForm turns an allow of a call with a form into a question. A standing approval is
// such an allow too: nobody has filled in anything with it.
func (k *call) withForm(d policy.Decision) policy.Decision {
	if k.form == nil || d.Effect != policy.Allow {
		return d
	}
	return policy.Decision{Effect: policy.Ask, Reasons: []policy.Reason{Formed()}}
}

// Formed is the reason for which a call with a form is asked about.
func Formed() policy.Reason {
	return policy.Reason{Effect: policy.Ask, Code: "form", Layer: "tool", Text: "it needs an answer of yours"}
}

// approvedBy takes over the approval that a call is made with, and what was filled in.
func (k *call) approvedBy(apr approval.Approval) {
	k.apr, k.said = apr.ID, apr.Answer
}

// unanswered reports whether the call has a form that nobody has filled in.
func (k *call) unanswered() bool { return k.form != nil && k.said == nil }
