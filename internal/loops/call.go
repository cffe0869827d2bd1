package loops

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// maxOutput is how much of a long result a kit hands out, in bytes.
const maxOutput = 8 << 20

// Tool calls a tool as the loop's subject. The output is its text, whole up to 8 MiB.
// Errors: Denied with the grant that is missing, Unknown if nobody can tell what became
// of it, or what the tool failed with.
func (k *Kit) Tool(ctx context.Context, step, name string, input json.RawMessage) (output string, err error) {
	err = k.each(step, func(step string) error {
		got, err := k.call(ctx, act.Call{Step: step, Tool: name, Input: input})
		output = got.text
		return err
	})
	return output, err
}

// said is a text with whose words it is.
type said struct {
	text  string
	label label.Label
}

// within calls a tool with a typed input.
func (k *Kit) within(ctx context.Context, step, name string, input any) (said, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return said{}, fault.New(fault.Internal, "input of %s: %w", name, err)
	}
	return k.call(ctx, act.Call{Step: step, Tool: name, Input: raw, Within: true})
}

// call makes one call with all the run has seen as its context. A person may have to
// approve it: then the run waits as long as the question is open.
func (k *Kit) call(ctx context.Context, c act.Call) (said, error) {
	if c.Input == nil {
		c.Input = json.RawMessage("{}")
	}
	if c.Authority == nil {
		c.Authority = k.auth
	}
	c.Label, c.Patient = k.Label(), !c.Review
	res, err := k.d.Act.Call(ctx, k.r, c)
	if err != nil {
		return said{}, err
	}
	text, err := k.whole(ctx, res)
	k.saw(res.Label, text)
	if err != nil {
		return said{}, err
	}
	return said{text, res.Label}, k.failure(res)
}

// whole is a result's text, with what was too long for the record.
func (k *Kit) whole(ctx context.Context, res act.Result) (string, error) {
	if res.Blob == "" {
		return res.Text, nil
	}
	from, err := k.d.Blobs.Open(ctx, res.Blob)
	if err != nil {
		return "", err
	}
	all, err := io.ReadAll(io.LimitReader(from, maxOutput))
	if bad := from.Close(); err == nil {
		err = bad
	}
	return strings.ToValidUTF8(string(all), "\uFFFD"), err
}

// failure is what a result that is not OK comes back as. One that policy refused names
// what would have allowed it.
func (k *Kit) failure(res act.Result) error {
	if res.Status == act.OK {
		return nil
	}
	err := fault.New(res.Class, "%s: %s", res.Tool, res.Text)
	if res.Status != act.Refused || res.Class != fault.Denied || len(res.Scopes) == 0 {
		return err
	}
	hint := "ombud caps grant " + k.who.Subject + " " + strings.Join(res.Scopes, " ")
	if strings.HasPrefix(k.who.Subject, "recipe:") {
		hint = "add to its grants: " + strings.Join(res.Scopes, ", ")
	}
	return refusedError{err.WithHint("%s", hint)}
}

// refusedError is a call that policy or a person did not let be made.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// Refused reports whether a method of a kit failed because policy or a person did not let
// it be done; one that a tool failed with is not that.
func Refused(err error) bool {
	_, is := errors.AsType[refusedError](err)
	return is
}

// The steps of a piece of work that is a run of its own, behind its name: the wait, and
// its bad end.
const (
	runStep = "/run"
	endStep = run.BadEnd
)

// child does a piece of work that is a run of its own: a call starts it and says which
// it is, the run waits for it, and took takes what it came to. If that is no good end it
// is recorded as a step that failed, so that it counts as one.
func (k *Kit) child(ctx context.Context, step, tool string, input any, took func(run.Record) error) error {
	rec, err := k.started(ctx, step, tool, input)
	if err != nil {
		return err
	}
	bad := took(rec)
	if bad == nil {
		return nil
	}
	_, err = k.r.DoTx(ctx, run.StepSpec{Name: step + endStep, Kind: "run"}, func(context.Context, *db.Tx) run.Outcome { return run.Fail(bad) })
	if err != nil {
		return err
	}
	return bad
}

func (k *Kit) started(ctx context.Context, step, tool string, input any) (run.Record, error) {
	started, err := k.within(ctx, step, tool, input)
	if err != nil {
		return run.Record{}, err
	}
	return k.r.WaitRun(ctx, step+runStep, func(context.Context, *db.Tx) (string, error) { return started.text, nil })
}

// ended is the error of a run that did not come to a good end.
func ended(what string, rec run.Record) error {
	switch rec.State {
	case run.Completed:
		return nil
	case run.Cancelled:
		return fault.New(fault.Cancelled, "%s was cancelled (%s)", what, rec.ID)
	}
	class := rec.ErrorClass
	if class == "" {
		class = fault.Internal
	}
	return fault.New(class, "%s: %s (%s)", what, rec.Error, rec.ID)
}

// own is the label of what ombud itself says.
func own() label.Label { return label.Of(label.Own, label.OperatorOnly) }
